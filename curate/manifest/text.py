"""Text, cells and JSON of untrusted files: bounded, decoded or refused, with one line that names the file."""

import csv
import io
import json
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from curate.counted import repeated
from scoring.errors import InputError
from scoring.system import READ

MOST_BYTES = 1 << 30
MOST_VALUES = 20_000_000  # maximum values of a JSON file; each takes up to a hundred bytes in memory
_MARKS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_RUN = r"[=+\-@\t\r＝＋－＠]"  # start of a cell that a spreadsheet may run
_FORMULA = re.compile(f"'*{_RUN}")  # after existing marks
GUARDED = f"^'+{_RUN}"  # output of `guarded`
_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def read_text(path: Path, *, what: str, most: int | None = None) -> str:
    """Return a file as text: UTF-8, or UTF-16 by a byte order mark, which is removed.

    Args:
        path: a regular file.
        what: kind of file for messages, such as "a CSV file".
        most: bound on its bytes; None for 1 GiB.

    Raises:
        InputError: if it is missing, not a regular file, too large, or in another encoding.
    """
    return decoded(read_bytes(path, what=what, most=most), what=what, where=str(path))


def decoded(data: bytes, *, what: str, where: str) -> str:
    """Return bytes as text: UTF-8, or UTF-16 by a byte order mark, which is removed; raises as `read_text`."""
    mark = next((mark for mark in _MARKS if data.startswith(mark)), b"")
    try:
        return data[len(mark) :].decode(_MARKS.get(mark, "utf-8"))
    except UnicodeDecodeError as error:
        raise InputError(
            f"expected {what} in UTF-8, got other bytes at byte {len(mark) + error.start:,} of {where}; "
            "save it as UTF-8"
        ) from None


def read_bytes(path: Path, *, what: str, most: int | None = None) -> bytes:
    """Return the bytes of a regular file; arguments and errors are as of `read_text`."""
    most = MOST_BYTES if most is None else most
    try:
        handle = os.open(path, READ)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"expected {what} at {path}, got: {reason}; check the path") from None
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)  # before Python opens it, which fails for a folder
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "something other than a file"
        raise InputError(f"expected {what} at {path}, got {kind}; pass the path of the file")
    with os.fdopen(handle, "rb") as file:
        data = file.read(most + 1) if status.st_size <= most else b""  # it may grow while being read
    if max(status.st_size, len(data)) > most:
        raise InputError(
            f"expected {what} of at most {most:,} bytes, got {status.st_size:,} in {path}; make it smaller"
        )
    return data


def read_json(path: Path, *, what: str, most: int | None = None) -> Any:
    """Return a JSON file; names that repeat inside an object, NaN and infinity are refused.

    Raises:
        InputError: as `read_text`; if it is not JSON, nested too deeply, or has too many values.
    """
    return parse_json(read_text(path, what=what, most=most), where=str(path), what=what)


def parse_json(text: str, *, where: str, what: str) -> Any:
    """Return the value of a JSON text; raises as `read_json`."""
    check_values(text, where)
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)
    except RecursionError:
        raise InputError(f"expected {what} in {where}, got values nested too deeply; export it again") from None
    except ValueError as error:
        reason = " ".join(str(error).split())[:160]
        raise InputError(f"expected {what} in {where}, got invalid JSON ({reason}); export it again") from None


def json_object(data: bytes | str) -> dict[str, Any] | None:
    """Return a JSON object; None for anything else."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def check_values(text: str, where: str) -> None:
    """Raise InputError for JSON text with too many values, before parsing."""
    n_values = text.count(",") + text.count("[") + text.count("{")
    if n_values > MOST_VALUES:
        raise InputError(f"expected at most {MOST_VALUES:,} values in {where}, got about {n_values:,}; export fewer")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        twice = repeated(name for name, _ in pairs)[0]
        raise ValueError(f"the name {twice[:60]!r} occurs twice in one object")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def to_json_list(values: Iterable[Any]) -> bytes:
    """Return a JSON list in UTF-8, one value per line: fast to write, and easy to search."""
    return b"[\n" + b",\n".join(to_json(value, indent=None)[:-1] for value in values) + b"\n]\n"


def to_json(value: Any, *, indent: int | None = 1) -> bytes:
    """Return JSON in UTF-8 with a line end; NaN and infinity raise an error."""
    return (json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent) + "\n").encode()


def guarded(text: str) -> str:
    """Return a text cell that no spreadsheet runs as a formula: with a leading `'` if it could.

    >>> guarded("=1+1"), guarded("'=1"), guarded("-"), guarded("a=b"), guarded("'a")
    ("'=1+1", "''=1", "'-", 'a=b', "'a")
    """
    return "'" + text if _FORMULA.match(text) else text


def unguarded(text: str) -> str:
    """Return the text from which `guarded` made a cell.

    >>> unguarded("'=1+1"), unguarded("''=1"), unguarded("'a")
    ('=1+1', "'=1", "'a")
    """
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def csv_lines(lines: Iterable[Iterable[Any]], *, end: str = "\r\n") -> str:
    """Return lines of CSV from rows of cells, guarded against formulas; null is empty; ``end`` is the line end."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator=end)
    writer.writerows([guarded(cell) if isinstance(cell, str) else cell for cell in cells] for cells in lines)
    return text.getvalue()


def xml_text(text: str) -> str:
    r"""Return text without the characters that no XML may hold, even escaped: each becomes U+FFFD.

    >>> xml_text("a\x00b")
    'a\ufffdb'
    """
    return _NOT_IN_XML.sub("\ufffd", text)
