"""Files of rounds that detect changes: small JSON files with a digest, and imported labels, written once."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from curate.rounds.files.votes import Vote
from curate.tables.table import open_table
from curate.tables.writer import write_table
from scoring.atomic import AtomicFile
from scoring.errors import InputError

MOST_BYTES = 64 << 20
DIGEST = "digest"


class ChangedError(InputError):
    """A file of a round folder that changed since it was written."""


def digest_of(value: dict[str, Any]) -> str:
    """Return the SHA-256 of a JSON object without its digest field, independent of the order of names."""
    rest = {name: entry for name, entry in value.items() if name != DIGEST}
    text = json.dumps(rest, sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def write_sealed(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON object, without NaN or infinity, with its digest, atomically; InputError if the path exists."""
    sealed = {**value, DIGEST: digest_of(value)}
    with AtomicFile(path) as file:
        file.write((json.dumps(sealed, indent=1, ensure_ascii=True, allow_nan=False) + "\n").encode())


def read_sealed(path: Path, kind: str) -> dict[str, Any]:
    """Return a JSON object that `write_sealed` wrote.

    Args:
        path: the file.
        kind: required value of its field ``kind``.

    Raises:
        InputError: if it is missing, too large, not JSON, of another kind, or changed since it was written.
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


KIND = "labels"
SCHEMA = pa.schema([(name, pa.string()) for name in ("key", "label", "annotator", "at")])


@dataclass(frozen=True)
class LabelFile:
    """An import.

    Attributes:
        path: of the file.
        votes: in the order of the imported file.
        source: name, sha256 and format of the imported file.
        parent: digest of the previous state or import.
        content: digest of the votes, the source and the parent.
    """

    path: Path
    votes: tuple[Vote, ...]
    source: dict[str, Any]
    parent: str
    content: str


def content_of(votes: Sequence[Vote], source: dict[str, Any], parent: str) -> str:
    """Return a digest of votes, their source, and the previous record."""
    rows = [[vote.key, vote.label, vote.annotator, vote.labelled_at] for vote in votes]
    text = json.dumps([rows, source, parent], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def write_labels(path: Path, votes: Sequence[Vote], source: dict[str, Any], parent: str) -> LabelFile:
    """Write the votes of an import atomically; InputError if the path exists or is not writable.

    Args:
        path: of the new file.
        votes: all returned labels.
        source: plain JSON: name, sha256, format and problems of the imported file.
        parent: digest of the previous record.
    """
    content = content_of(votes, source, parent)
    rows = [(vote.key, vote.label, vote.annotator, vote.labelled_at) for vote in votes]
    columns = {name: [row[place] for row in rows] for place, name in enumerate(SCHEMA.names)}
    metadata = {"kind": KIND, "source": source, "parent": parent, "content": content}
    write_table(path, pa.table(columns, schema=SCHEMA), metadata)
    return LabelFile(path, tuple(votes), source, parent, content)


def read_label_file(path: Path) -> LabelFile:
    """Read an import; InputError if the file is damaged, or changed since it was written."""
    table = open_table(path)
    if table.schema != SCHEMA or table.metadata.get("kind") != KIND:
        raise ChangedError(f"{path} is not a label file of curate round; restore it from a backup")
    votes = tuple(Vote(row["key"], row["label"], row["annotator"], row["at"]) for row in table.read().to_pylist())
    source, parent = table.metadata.get("source"), table.metadata.get("parent")
    if not isinstance(source, dict) or not isinstance(parent, str):
        raise ChangedError(f"{path} does not record where its labels came from; restore it from a backup")
    content = content_of(votes, source, parent)
    if content != table.metadata.get("content"):
        raise ChangedError(f"{path} was changed since it was written; restore it from a backup")
    return LabelFile(path, votes, source, parent, content)
