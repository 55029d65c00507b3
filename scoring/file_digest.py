"""The digest of a file."""

import hashlib
from pathlib import Path


def file_sha256(path: Path) -> str:
    """Return the hex SHA-256 of a file's bytes; an empty text, which is no digest, without a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return ""
