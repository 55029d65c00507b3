"""The digest of a file."""

import hashlib
from pathlib import Path


def file_sha256(path: Path) -> str:
    """Return the hex SHA-256 of a file's bytes; empty if the file does not exist."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return ""
