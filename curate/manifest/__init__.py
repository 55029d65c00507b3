"""Sources of images: rows in a fixed order, and access to their bytes."""

from curate.manifest.contract import MAX_FILE_BYTES, NUMBERED, Manifest, Reader, ReadError, SourceOptions
from curate.manifest.memory import read_uri
from curate.manifest.sources import open_manifest

__all__ = [
    "MAX_FILE_BYTES",
    "NUMBERED",
    "Manifest",
    "ReadError",
    "Reader",
    "SourceOptions",
    "open_manifest",
    "read_uri",
]
