"""Checks that keys are present, text and unique."""

import base64
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.counted import counted, listed, repeated
from curate.manifest.contract import MAX_PATH_BYTES, NUMBERED
from scoring.errors import InputError
from scoring.images.sniff import sniff

_CONFIRM = 10_000  # maximum rows with colliding hashes that are compared as text
_SHOWN = 3
_LEAST_BASE64 = 64  # letters decoded to detect an image


def other_key(where: str) -> str:
    """Return the advice that ends every message about keys."""
    return f"choose another column with --key COLUMN, or number the rows with --key '{NUMBERED}' ({where})"


def check_keys(keys: pa.Array, first_row: int, column: str, where: str) -> None:
    """Raise ``InputError`` with the first row whose key is null, empty, too long or not UTF-8.

    ``keys`` is a piece of the keys, string, whose first is of row ``first_row``, from 0; other arguments name it.
    """
    check_text(keys, first_row, column, where)
    absent = pc.fill_null(pc.equal(pc.binary_length(keys), 0), True)
    if (row := first_true(absent)) is not None:
        raise InputError(
            f"expected a key in every row, got none in row {first_row + row} (from 0) of column "
            f"{column!r}; {other_key(where)}"
        )


def check_text(texts: pa.Array, first_row: int, column: str, where: str) -> None:
    """Raise ``InputError`` for text that is not UTF-8, or longer than a path can be; names the column, and the row."""
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        raise InputError(
            f"expected UTF-8 text in column {column!r} of {where}, got other bytes near row {first_row}; "
            "write the table again with valid text"
        ) from None
    long = pc.fill_null(pc.greater(pc.binary_length(texts), MAX_PATH_BYTES), False)
    if (row := first_true(long)) is not None:
        raise InputError(
            f"expected keys and paths of at most {MAX_PATH_BYTES} bytes in column {column!r} of {where}, got "
            f"{len(texts[row].as_py().encode()):,} bytes in row {first_row + row} (from 0); shorten it"
        )


def check_paths(paths: pa.Array, root: str, column: str, where: str) -> None:
    """Raise ``InputError`` if the first text cannot be a path: images as base64, and Windows paths."""
    filled = paths.filter(pc.fill_null(pc.greater(pc.binary_length(paths), 0), False))
    first = str(filled[0].as_py()) if len(filled) else ""
    if _is_base64(first):
        raise InputError(
            f"expected paths, URLs or bytes in column {column!r} of {where}, got images as base64 text; write a "
            "Parquet file with the decoded bytes in a column 'image'"
        )
    turned = first.replace("\\", "/")
    if turned != first and not Path(root, first).exists() and Path(root, turned).exists():
        raise InputError(
            f"expected paths with '/' in column {column!r} of {where}, got {first!r}; replace each backslash with '/'"
        )


def _is_base64(text: str) -> bool:
    start = text.partition(";base64,")[2] if text.startswith("data:") else text
    if len(start) < _LEAST_BASE64:
        return False
    try:
        return sniff(base64.b64decode(start[:_LEAST_BASE64], validate=True)) is not None
    except ValueError:
        return False


def first_true(mask: pa.Array) -> int | None:
    """Return the position of the first true value, or None."""
    position = pc.index(mask, True).as_py()
    return None if position < 0 else position


class UniqueCheck:
    """Finds repeated keys with 8 bytes of memory per row: by hash, then by comparing collisions."""

    def __init__(self) -> None:
        self._hashes: list[np.ndarray] = []

    def add(self, keys: pa.Array | pa.ChunkedArray) -> None:
        """Add the next piece of the keys."""
        import polars as pl

        if len(keys):
            series = pl.from_arrow(keys)
            if not isinstance(series, pl.Series):
                raise ValueError(f"keys must be one column, got {type(series).__name__}")
            self._hashes.append(series.hash().to_numpy())

    def finish(self, take: Callable[[np.ndarray], Sequence[str]], column: str, where: str) -> None:
        """Raise ``InputError`` with the first repeated keys and the number of surplus rows.

        ``take`` returns the keys of row numbers (int64, ascending); other arguments are for the message.
        """
        if not self._hashes:
            return
        hashes = np.concatenate(self._hashes)
        order = np.argsort(hashes, kind="stable")
        same = hashes[order[1:]] == hashes[order[:-1]]
        if not same.any():
            return
        rows = np.union1d(order[1:][same], order[:-1][same])[:_CONFIRM]
        if twice := repeated(take(rows)):
            raise InputError(
                f"expected unique keys, got {counted(int(same.sum()), 'row')} whose {column} repeats an earlier one "
                f"({listed(map(repr, twice), _SHOWN)}); {other_key(where)}"
            )
