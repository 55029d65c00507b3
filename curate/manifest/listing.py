"""From a list of paths or URLs (.txt, or a Python sequence) to rows."""

import io
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from curate.counted import counted
from curate.manifest.contract import MAX_PATH_BYTES, SourceOptions
from curate.manifest.folder import folder_columns, without_empty_sides
from curate.manifest.memory import MemoryManifest, check_unique
from curate.manifest.names import key_of, uri_of
from curate.manifest.reach import Reach
from curate.manifest.schemes import SchemeCheck, scheme_of
from scoring.errors import InputError

_BLOCK = 65536  # entries held as Python objects


@dataclass(frozen=True, slots=True)
class Line:
    """One entry of a list and its line number, from 1."""

    number: int
    path: bytes


def parse_list(data: bytes, where: str) -> Iterator[Line]:
    """Yield the entries of a list, one per line, without blank lines and lines that start with `#`.

    Spaces are part of a path. LF and CRLF both end a line; a UTF-8 byte order mark is dropped.

    Raises:
        InputError: if the text is UTF-16, or an entry is too long to be a path.
    """
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError(f"expected UTF-8 text in {where}, got UTF-16; save it as UTF-8")
    for number, raw in enumerate(io.BytesIO(data.removeprefix(b"\xef\xbb\xbf")), start=1):
        path = raw.removesuffix(b"\n").removesuffix(b"\r")
        if not path.strip() or path.startswith(b"#"):
            continue
        if len(path) > MAX_PATH_BYTES:
            raise InputError(
                f"expected a path of at most {MAX_PATH_BYTES} bytes a line in {where}, got {len(path):,} in "
                f"line {number}; put each path on its own line"
            )
        yield Line(number, path)


def open_list(
    lines: Iterable[Line],
    options: SourceOptions,
    *,
    root: str,
    where: str,
    identity: str,
    reach: Reach = Reach(),  # noqa: B008 (it is frozen)
) -> MemoryManifest:
    """Open a list of paths and URLs.

    Args:
        lines: the entries.
        options: `limit`, `label_from_folder`, `max_bytes` are used.
        root: absolute path or URL to which relative paths refer.
        where: the list's name for display.
        identity: added to the digest.
        reach: where paths and URLs may lead.

    Raises:
        InputError: if the list is empty, repeats an entry, or has only unsupported schemes.
        MissingExtraError: if the driver of a scheme is not installed.
    """
    base = os.fsencode(root.rstrip("/")) + b"/"
    entries = islice(lines, options.limit)
    schemes = SchemeCheck()
    chunks = []
    while block := list(islice(entries, _BLOCK)):
        chunks.append(_rows(block, base, options.label_from_folder, schemes))
    schemes.finish()
    if not chunks:
        raise InputError(f"expected a path or URL a line in {where}, got no entries; add some")
    table = pa.concat_tables(chunks)
    if options.label_from_folder:
        table = without_empty_sides(table)
    check_unique(table["key"], "path", where)
    return MemoryManifest(
        f"list {where}: {counted(table.num_rows, 'path')}",
        table,
        options=options,
        reach=reach,
        identity=("list", identity),
    )


def _rows(lines: list[Line], base: bytes, labelled: bool, schemes: SchemeCheck) -> pa.Table:
    """Return the rows of some entries."""
    keys: list[str] = []
    uris: list[str] = []
    for line in lines:
        key, uri = _resolve(line, base)
        keys.append(key)
        uris.append(uri)
        schemes.add(uri)
    columns = {"key": pa.array(keys, pa.string()), "uri": pa.array(uris, pa.string())}
    if labelled:
        columns |= folder_columns([None if scheme_of(key) else key.encode() for key in keys])
    return pa.table(columns)


def _resolve(line: Line, base: bytes) -> tuple[str, str]:
    """Return an entry's key and uri."""
    text = line.path.decode("utf-8", "surrogateescape")
    if scheme_of(text):
        return _text(line), _text(line)
    if line.path.startswith(b"/"):
        return key_of(line.path.removeprefix(base)), uri_of(line.path)
    return key_of(line.path), uri_of(base + line.path)


def _text(line: Line) -> str:
    try:
        return line.path.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(
            f"expected a URL of ASCII or UTF-8 text in line {line.number}, got other bytes; percent-encode them"
        ) from None
