"""Small JSON files with a digest that reveals changes."""

import hashlib
import json
from pathlib import Path
from typing import Any

from scoring.atomic import AtomicFile
from scoring.errors import InputError

MOST_BYTES = 64 << 20
DIGEST = "digest"


class ChangedError(InputError):
    """A file of a round folder that changed since it was written."""


def digest_of(value: dict[str, Any]) -> str:
    """Return the SHA-256 of a JSON object without its digest field, in any order of its names."""
    rest = {name: entry for name, entry in value.items() if name != DIGEST}
    text = json.dumps(rest, sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def write_sealed(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON object with its digest, atomically; existing files are not replaced.

    Args:
        path: not there yet.
        value: plain JSON without NaN or infinity.

    Raises:
        InputError: if the place refuses, or something is there.
    """
    sealed = {**value, DIGEST: digest_of(value)}
    with AtomicFile(path) as file:
        file.write((json.dumps(sealed, indent=1, ensure_ascii=True, allow_nan=False) + "\n").encode())


def read_sealed(path: Path, kind: str) -> dict[str, Any]:
    """Return a JSON object that `write_sealed` wrote.

    Args:
        path: the file.
        kind: what its name ``kind`` has to say.

    Raises:
        InputError: if it is missing, too large, no JSON, of another kind, or changed since it was written.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"expected {path}, which is missing; restore the folder from a backup") from None
    except OSError as error:
        raise InputError(
            f"expected a file at {path}, got: {error.strerror}; restore the folder from a backup"
        ) from None
    if len(data) > MOST_BYTES:
        raise InputError(f"expected at most {MOST_BYTES >> 20} MiB in {path}, got more; restore it from a backup")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise ChangedError(f"{path} is no longer JSON; restore it from a backup") from None
    if not isinstance(value, dict) or value.get("kind") != kind:
        raise InputError(f"expected a file of the kind {kind!r} at {path}, got another; pass a folder of curate round")
    if value.get(DIGEST) != digest_of(value):
        raise ChangedError(f"{path} was changed since it was written; restore it from a backup")
    return value
