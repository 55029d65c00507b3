# Paths are bytes where names need not be UTF-8, and pathlib holds text.
# ruff: noqa: PTH100, PTH116, PTH120
"""One pass over all rows before writing: counts, keys, classes, folders, and rows left out."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.columns import ERROR, KEY, OK, STATUS, URI
from curate.exporting.contract import ExportRequest, Plan
from curate.exporting.item import PREDICTED, PROBABILITY, Item
from curate.exporting.names import SPLIT_WORDS, Claims, FileNames, folder_names
from curate.exporting.row_images import NO_FILE
from curate.exporting.rows import Source, is_plain
from curate.exporting.sides import N_BYTES, Shard, Sides, side_hashes
from curate.manifest.keys import check_text
from curate.tables.arrays import texts
from curate.tables.digests import key_bytes, plain, tie_breaks
from curate.tables.keys import check_unique
from curate.tables.needs import refuse_other_status
from curate.tables.table import Table
from scoring.errors import InputError

SAID_OF_OK = (STATUS, ERROR)  # constant columns of scored rows
MOST_FOLDERS = 1_000_000
STEP = 8192  # rows per batch


@dataclass
class Survey:
    """The facts collected in one pass over the rows; see ``Plan``.

    Attributes:
        hashes: of keys, one array per batch.
        claims: of keys on file names.
        on_side: key hashes by class, which decide the held-out rows, one array per batch.
        gone: rows whose local file is missing, as far as known without reading.
        first_gone: the key of the first, and why.
    """

    starts: list[int] = field(default_factory=lambda: [0])
    row: int = 0
    n_rows: int = 0
    in_shard: tuple[int, int] = (0, 0)
    labelled: int = 0
    classes: dict[str, None] = field(default_factory=dict)
    predicted: dict[str, None] = field(default_factory=dict)
    values: dict[str | None, None] = field(default_factory=dict)
    folders: set[bytes] = field(default_factory=set)
    common: bytes | None = None
    hashes: list[NDArray[np.uint64]] = field(default_factory=list)
    claims: Claims = field(default_factory=lambda: Claims(FileNames()))
    on_side: dict[str | None, list[NDArray[np.uint64]]] = field(default_factory=dict)
    gone: int = 0
    first_gone: tuple[str, str] = ("", "")


def survey(source: Source, request: ExportRequest, name: str) -> tuple[Plan, NDArray[np.uint64], Survey]:
    """Return the plan of an export named ``name``, the hashes of all exported keys, and further facts.

    Raises:
        InputError: without rows whose image was scored; for a key that is null or duplicate, a class missing in the
            class list, a probability outside [0, 1], too many folders for a file system, or images inside the folder to
            be replaced.
    """
    refuse_other_status(source.schema, source.path)
    seen = Survey(claims=Claims(request.names))
    sized = [N_BYTES] if request.shard.n_bytes else []
    known = dict.fromkeys((KEY, URI, STATUS, request.label, request.per, PREDICTED, PROBABILITY, *sized))
    columns = [name for name in known if name is not None and name in source.schema.names]
    top = os.path.realpath(os.fsencode(request.replaced)) if request.replaced is not None else None
    for batch in source.batches(columns, rows=STEP):
        ok = _ok_mask(batch)
        _record_starts(seen, request.shard, batch, ok)
        batch = batch.filter(pa.array(ok))
        if batch.num_rows:
            _keys(seen, request, batch, source.path)
            _values(seen, request, batch)
            _files(seen, request, batch, top)
        seen.row += len(ok)
    if not seen.n_rows:
        got = f"{seen.row:,} whose image could not be scored" if seen.row else "none"
        raise InputError(f"expected rows with an image in {source.path}, got {got}; export another table")
    hashes = np.concatenate(seen.hashes)
    check_unique(source, hashes)  # type: ignore[arg-type]
    return _plan(source, request, name, seen), hashes, seen


def _plan(source: Source, request: ExportRequest, name: str, seen: Survey) -> Plan:
    shown = [column for column in (KEY, URI) if column in source.schema.names] + list(request.columns)
    kind = source.schema.field(request.label).type if request.label is not None else pa.null()
    classes = request.class_list.complete(seen.classes, kind)
    known = vars(request) | {"names": replace(request.names, shared=seen.claims.shared())}
    return Plan(
        **known,
        name=name,
        schema=pa.schema([source.schema.field(column) for column in shown]),
        starts=tuple(seen.starts),
        n_rows=seen.n_rows,
        left_out=seen.row - seen.n_rows,
        labelled=seen.labelled,
        classes=classes,
        lacking=tuple(each for each in classes if each not in seen.classes) if seen.classes else (),
        predicted=tuple(sorted(seen.predicted)),
        has_split_words=seen.claims.has_split_words or any(map(SPLIT_WORDS.search, classes)),
        sides=_sides(request, seen),
        folders=folder_names(sorted(seen.values, key=lambda value: (value is not None, value or ""))),
        common=seen.common,
    )


def _sides(request: ExportRequest, seen: Survey) -> Sides:
    if request.kind.sides and request.per is not None:
        return Sides.by_column(request.per, seen.values)
    if not request.kind.splits:
        return Sides()
    return Sides.held_out({name: np.concatenate(hashes) for name, hashes in seen.on_side.items()})


def columns_of(table: Table, columns: Sequence[str], label: str | None) -> tuple[str, ...]:
    """Return the columns to export in addition to key and uri: the label and those named; `*` matches any letters.

    Patterns with ``*`` leave out ``status`` and ``error``, which are constant in a subset.

    Raises:
        InputError: for a column that the table lacks.
    """
    names = table.schema.names
    chosen = dict.fromkeys([label] if label else [])
    for text in columns:
        matching = [name for name in names if fnmatchcase(name, text)] if "*" in text and text not in names else [text]
        table.require(matching or [text])
        chosen |= dict.fromkeys(name for name in matching if name == text or name not in SAID_OF_OK)
    return tuple(name for name in names if name in chosen and name not in (KEY, URI))


def _ok_mask(batch: pa.RecordBatch) -> NDArray[np.bool_]:
    if STATUS not in batch.schema.names:
        return np.ones(batch.num_rows, bool)
    return np.asarray(pc.fill_null(pc.equal(batch[STATUS], OK), False).to_numpy(zero_copy_only=False).astype(bool))


def _record_starts(seen: Survey, shard: Shard, batch: pa.RecordBatch, ok: NDArray[np.bool_]) -> None:
    """Record where parts begin: before the row that would make one too large."""
    rows = np.flatnonzero(ok)
    sizes = np.zeros(len(rows), np.int64)
    if shard.n_bytes and N_BYTES in batch.schema.names:
        sizes = pc.fill_null(batch[N_BYTES], 0).to_numpy(zero_copy_only=False).astype(np.int64)[rows]
    n, n_bytes = seen.in_shard
    for row, size in zip((seen.row + rows).tolist(), sizes.tolist(), strict=True):
        if n and (n >= shard.n_rows or (shard.n_bytes and n_bytes + size > shard.n_bytes)):
            seen.starts.append(row)
            n = n_bytes = 0
        n, n_bytes = n + 1, n_bytes + size
    seen.in_shard = (n, n_bytes)
    seen.n_rows += len(rows)


def _keys(seen: Survey, request: ExportRequest, batch: pa.RecordBatch, where: object) -> None:
    encoded = key_bytes(batch[KEY], where, seen.row)
    check_text(plain(batch[KEY]).cast(pa.string()), seen.row, KEY, str(where))
    seen.hashes.append(tie_breaks(encoded))
    if request.kind.links:
        seen.claims.add(key.decode() for key in encoded)


def _values(seen: Survey, request: ExportRequest, batch: pa.RecordBatch) -> None:
    if request.label is not None:
        labels = request.class_list.texts(batch[request.label])
        seen.classes |= dict.fromkeys(labels.unique().drop_null().to_pylist())
        seen.labelled += len(labels) - labels.null_count
        if request.kind.splits and request.per is None:
            _hold_out(seen, batch, labels)
    if request.per is not None:
        seen.values |= dict.fromkeys(texts(batch[request.per]).unique().to_pylist())
        if len(seen.values) > MOST_FOLDERS:
            raise InputError(
                f"expected at most {MOST_FOLDERS:,} values of {request.per!r}, one folder each, got more; "
                "choose another column for --per"
            )
    if PREDICTED in batch.schema.names and is_plain(batch[PREDICTED].type):
        seen.predicted |= dict.fromkeys(texts(batch[PREDICTED]).unique().drop_null().to_pylist())
    if PROBABILITY in batch.schema.names and is_plain(batch[PROBABILITY].type):
        _check_probabilities(batch)


def _hold_out(seen: Survey, batch: pa.RecordBatch, labels: pa.Array) -> None:
    """Note the key hashes of each class."""
    hashes = side_hashes(plain(batch[KEY]).cast(pa.string()).to_pylist())
    codes = labels.dictionary_encode()
    places = codes.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    for place, name in enumerate(codes.dictionary.to_pylist()):
        seen.on_side.setdefault(name, []).append(hashes[places == place])


def _check_probabilities(batch: pa.RecordBatch) -> None:
    for key, value in zip(batch[KEY].to_pylist(), batch[PROBABILITY].to_pylist(), strict=True):
        if value is not None and value == value and (isinstance(value, str) or not 0 <= value <= 1):
            raise InputError(f"expected probabilities in [0, 1], got {value!r} for {key!r}; fix the column")


def _files(seen: Survey, request: ExportRequest, batch: pa.RecordBatch, top: bytes | None) -> None:
    """Find the common folder of local images, and missing images."""
    if URI not in batch.schema.names:
        return
    folders: set[bytes] = set()
    for key, uri, path in _paths(batch):
        if path is not None and b"\0" not in path:
            folders.add(os.path.dirname(path))
        if request.looks and (why := _absence(uri, path)):
            seen.first_gone = seen.first_gone if seen.gone else (key, why)
            seen.gone += 1
    for folder in folders - seen.folders:
        if top is not None and os.path.commonpath([top, os.path.realpath(folder)]) == top:
            raise InputError(f"{request.replaced} holds images of the batch, and was not replaced; choose another name")
        absolute = os.path.abspath(folder)
        seen.common = absolute if seen.common is None else os.path.commonpath([seen.common, absolute])
    seen.folders = folders


def _paths(batch: pa.RecordBatch) -> Iterator[tuple[str, str | None, bytes | None]]:
    keys = plain(batch[KEY]).cast(pa.string()).to_pylist()
    for key, uri in zip(keys, batch[URI].to_pylist(), strict=True):
        yield key, uri, Item(key, uri, {}).path


def _absence(uri: str | None, path: bytes | None) -> str:
    """Return why an image is missing; empty if it exists, or if only reading it can show that."""
    if uri is None:
        return NO_FILE
    if path is None:
        return ""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return "no such file"
    except (OSError, ValueError):
        return ""  # reading reports it more precisely
    return ""
