"""The graph of nearest neighbours in a file: computed once, and used by all that ask for it."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.dedup.vectors import rows_of
from curate.table import Table, TableWriter, open_table
from curate.vector_hashes import vector_hashes
from scoring.errors import InputError
from scoring.search.graph import MOST_NEIGHBOURS, Graph, knn_graph
from scoring.search.links import Recall

KIND = "graph"
FORMAT = 2
BLOCK = 65_536
ANOTHER = "name another file with --graph"
AGAIN = "delete it, and it is made again"
MEANINGS = {
    "hash": ("64-bit hash of the row's key; rows ascend by it", "", ""),
    "embedding_hash": ("64-bit hash of the row's embedding as stored", "", ""),
    "neighbours": ("the nearest other rows of this file, nearest first; -1 where there is no further one", "", ""),
    "cosine": ("to each", "1", "more alike"),
}


@dataclass(frozen=True)
class Stored:
    """A graph of N rows, and the file that holds it or one of more rows.

    Attributes:
        graph: indices are positions among the rows asked for; neighbours that are not among these are left out.
        reach: cosine of the last neighbour that the file knows of each row, shape (N,) float32: every row that is
            more alike than this is among its neighbours. -inf where the file knows all others.
        path: of the file.
        digest: of the file's bytes; empty where it was not written.
        notes: what a person should know.
    """

    graph: Graph
    reach: NDArray[np.float32]
    path: str
    digest: str
    notes: tuple[str, ...]


def stored_graph(
    path: str | Path,
    hashes: NDArray[np.uint64],
    vectors: NDArray,
    model: str,
    *,
    write: bool,
    otherwise: str = ANOTHER,
) -> Stored:
    """Read the graph of some rows from a file that holds these rows or more, or compute it and write it down.

    Args:
        path: a name ending in ``.parquet``.
        hashes: of the keys, in any order, each once, shape (N,).
        vectors: shape (N, D), float16 or float32; none of length zero.
        model: digest of the model that made them; empty where nobody knows.
        write: whether a graph that is not there yet gets a file.
        otherwise: what to do about the graph of other rows, for messages.

    Returns:
        The graph; the same whatever the order of the rows.

    Raises:
        InputError: if the file lacks some of the rows, holds other embeddings of them or those of another model, or
            is damaged.
    """
    path = Path(path)
    if path.exists():
        return _read(open_table(path), hashes, vectors, model, otherwise)
    if path.suffix != ".parquet":
        raise InputError(f"the graph is a Parquet file: expected a name like graph.parquet, got {path}")
    if write and not path.parent.is_dir():
        raise InputError(f"cannot write {path}: its folder does not exist; create it first")
    order = np.argsort(hashes, kind="stable")
    found = knn_graph(rows_of(vectors, order), max(1, min(MOST_NEIGHBOURS, len(hashes) - 1)))
    digest, notes = "", tuple[str, ...]()
    if write:
        _write(path, hashes[order], vector_hashes(vectors)[order], found, model)
        digest, notes = file_digest(path), (f"{path}: the graph of {len(hashes):,} rows, to be used again",)
    reach = _reach(found.index, found.cosine, len(order))
    if np.array_equal(order, np.arange(len(order))):
        return Stored(found, reach, str(path), digest, notes)
    index, cosine, placed = _room(len(hashes), found.index.shape[1])
    _place(index, cosine, found.index, found.cosine, order, np.append(order, -1).astype(np.int32))
    placed[order] = reach
    return Stored(Graph(index, cosine, found.recall), placed, str(path), digest, notes)


def file_digest(path: Path) -> str:
    """Return the hex SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _room(n: int, width: int) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]:
    return (
        np.full((n, width), -1, np.int32),
        np.full((n, width), -np.inf, np.float32),
        np.full(n, -np.inf, np.float32),
    )


def _place(
    index: NDArray[np.int32],
    cosine: NDArray[np.float32],
    theirs: NDArray[np.int32],
    alike: NDArray[np.float32],
    to: NDArray[np.int64],
    place: NDArray[np.int32],
) -> None:
    """Write neighbours down, in place, by the numbers that rows have here; those that have none are left out.

    Args:
        index: shape (N, k).
        cosine: shape (N, k).
        theirs: neighbours by the numbers of the file, -1 for none, shape (B, k).
        alike: cosines, shape (B, k).
        to: rows here, shape (B,).
        place: number of the file -> row here, or -1; its last entry is for no neighbour.
    """
    for start in range(0, len(to), BLOCK):
        here = slice(start, start + BLOCK)
        mine, near = place[theirs[here]], alike[here]
        if (mine < 0).any():
            left = np.argsort(mine < 0, axis=1, kind="stable")
            mine, near = np.take_along_axis(mine, left, axis=1), np.take_along_axis(near, left, axis=1)
        index[to[here]], cosine[to[here]] = mine, np.where(mine < 0, np.float32(-np.inf), near)


def _reach(index: NDArray[np.int32], cosine: NDArray[np.float32], n: int) -> NDArray[np.float32]:
    """Return the cosine of the last neighbour of rows of a graph of n rows; -inf where there is no further row."""
    if index.shape[1] >= n - 1:
        return np.full(len(index), -np.inf, np.float32)
    return np.where(index[:, -1] < 0, np.float32(-np.inf), cosine[:, -1])


def _read(table: Table, hashes: NDArray[np.uint64], vectors: NDArray, model: str, otherwise: str) -> Stored:
    _check_facts(table, model, otherwise)
    width = _check_types(table)
    recall = _recall(table)
    at, n = _rows_of(table, hashes, vectors, otherwise)
    place = np.full(n + 1, -1, np.int32)
    place[at] = np.arange(len(at))
    index, cosine, reach = _room(len(hashes), width)
    named = start = 0
    for theirs, alike in _neighbours(table, width, n):
        rows = place[start : start + len(theirs)]
        start += len(theirs)
        theirs, alike, to = theirs[rows >= 0], alike[rows >= 0], rows[rows >= 0].astype(np.int64)
        named += int((theirs >= 0).sum())
        reach[to] = _reach(theirs, alike, n)
        _place(index, cosine, theirs, alike, to, place)
    if start != n:
        raise InputError(f"{table.path} is damaged: it changed while it was being read; {AGAIN}")
    note = f"{table.path}: the graph of {n:,} rows is used again"
    if n > len(hashes):
        lost = 1 - int((index >= 0).sum()) / max(1, named)
        note += f", for {len(hashes):,} of them: {lost:.2%} of the neighbours that it names are other rows"
    return Stored(Graph(index, cosine, recall), reach, str(table.path), file_digest(table.path), (note,))


def _check_facts(table: Table, model: str, otherwise: str) -> None:
    noted = table.metadata.get(KIND)
    if table.metadata.get("kind") != KIND or not isinstance(noted, dict):
        raise InputError(f"{table.path} is not a graph of neighbours; {otherwise}")
    if noted.get("format") != FORMAT:
        raise InputError(f"{table.path} was made by another version of curate; {AGAIN}")
    if noted.get("model_digest") != model:
        raise InputError(f"{table.path} is the graph of another table: it has embeddings of another model; {otherwise}")
    if noted.get("n_rows") != table.n_rows:
        raise InputError(f"{table.path} is damaged: it has {table.n_rows:,} rows, not all of its own; {AGAIN}")


def _check_types(table: Table) -> int:
    """Return how many neighbours a row has."""
    table.require(list(MEANINGS))
    wanted = {"neighbours": pa.int32(), "cosine": pa.float32()}
    kinds = {name: table.schema.field(name).type for name in MEANINGS}
    width = kinds["neighbours"].list_size if pa.types.is_fixed_size_list(kinds["neighbours"]) else 0
    for name, kind in kinds.items():
        if name in wanted:
            lists = pa.types.is_fixed_size_list(kind) and kind.value_type == wanted[name]
            fits = lists and 1 <= kind.list_size <= MOST_NEIGHBOURS and kind.list_size == width
        else:
            fits = kind == pa.uint64()
        if not fits:
            raise InputError(f"{table.path} is damaged: its column {name!r} is {kind}; {AGAIN}")
    return int(width)


def _rows_of(
    table: Table, hashes: NDArray[np.uint64], vectors: NDArray, otherwise: str
) -> tuple[NDArray[np.int64], int]:
    """Return the row of the file of each row asked for, shape (N,), and how many rows the file has."""
    parts = [
        [batch.column(number).fill_null(0).to_numpy(zero_copy_only=False) for number in range(2)]
        for batch in table.batches(["hash", "embedding_hash"])
    ]
    keys, noted = (np.concatenate([np.zeros(0, np.uint64), *(part[number] for part in parts)]) for number in range(2))
    if (keys[1:] <= keys[:-1]).any():
        raise InputError(f"{table.path} is damaged: its rows are not in order; {AGAIN}")
    at = np.searchsorted(keys, hashes).clip(max=max(0, len(keys) - 1))
    there = keys[at] == hashes if len(keys) else np.zeros(len(hashes), bool)
    lost = int((~there).sum())
    if lost:
        raise InputError(
            f"{table.path} is the graph of another table: expected it to hold the {len(hashes):,} rows that are "
            f"compared, got {len(keys):,} rows without {lost:,} of these; {otherwise}"
        )
    changed = int((noted[at] != vector_hashes(vectors)).sum()) if len(hashes) else 0
    if changed:
        raise InputError(
            f"{table.path} is the graph of another table: it has other embeddings of {changed:,} of the same "
            f"{len(hashes):,} keys; {otherwise}"
        )
    return at, len(keys)


def _neighbours(table: Table, width: int, n: int) -> Iterator[tuple[NDArray[np.int32], NDArray[np.float32]]]:
    """Yield the neighbours and cosines of a file of n rows, checked, batch by batch."""
    for batch in table.batches(["neighbours", "cosine"]):
        if any(batch.column(number).null_count for number in range(2)):
            raise InputError(f"{table.path} is damaged: some rows have no neighbours at all; {AGAIN}")
        index, cosine = (_matrix(batch.column(number), width) for number in range(2))
        if len(index) and (index.min() < -1 or index.max() >= n):
            raise InputError(f"{table.path} is damaged: it names rows that it has not; {AGAIN}")
        falls = cosine[:, 1:] <= cosine[:, :-1] + np.float32(1e-5)
        if not falls.all() or not (cosine[:, 0] < 1.01).all() or ((index < 0) != np.isneginf(cosine)).any():
            raise InputError(f"{table.path} is damaged: its neighbours are not in order; {AGAIN}")
        yield index, cosine


def _matrix(column: pa.Array, width: int) -> NDArray:
    values = column.values.slice(column.offset * width, len(column) * width)
    return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(len(column), width)


def _recall(table: Table) -> Recall:
    noted = table.metadata.get("recall")
    try:
        estimate, low, high = (float(noted[name]) for name in ("estimate", "low", "high"))  # type: ignore[index]
        return Recall(estimate, low, high, int(noted["n_pairs"]), exact=noted["exact"] is True)  # type: ignore[index]
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{table.path} is damaged: nothing says what it finds; {AGAIN}") from None


def _write(path: Path, hashes: NDArray[np.uint64], embeddings: NDArray[np.uint64], graph: Graph, model: str) -> None:
    width = graph.index.shape[1]
    schema = pa.schema(
        [
            pa.field("hash", pa.uint64(), nullable=False),
            pa.field("embedding_hash", pa.uint64(), nullable=False),
            pa.field("neighbours", pa.list_(pa.field("element", pa.int32(), nullable=False), width)),
            pa.field("cosine", pa.list_(pa.field("element", pa.float32(), nullable=False), width)),
        ]
    )
    columns = {name: dict(zip(("meaning", "unit", "higher"), told, strict=True)) for name, told in MEANINGS.items()}
    facts: dict[str, Any] = {"format": FORMAT, "model_digest": model, "n_rows": len(hashes)}
    metadata = {"kind": KIND, KIND: facts, "recall": dict(graph.recall.__dict__), "columns": columns}
    with TableWriter(path, schema, metadata) as writer:
        for start in range(0, len(hashes), BLOCK):
            here = slice(start, start + BLOCK)
            lists = [
                pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(values[here]).ravel()), type=field.type)
                for values, field in ((graph.index, schema.field(2)), (graph.cosine, schema.field(3)))
            ]
            arrays = [pa.array(hashes[here]), pa.array(embeddings[here]), *lists]
            writer.write(pa.RecordBatch.from_arrays(arrays, schema=schema))
