"""The file of a graph of nearest neighbours: its content, checked whenever it is read."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.tables.table import Table
from curate.tables.vectors import vector_hashes
from curate.tables.writer import TableWriter
from scoring.errors import InputError
from scoring.search.links import MOST_NEIGHBOURS, Graph, Recall

KIND = "graph"
FORMAT = 2
BLOCK = 65_536
AGAIN = "delete it, and it is made again"
MEANINGS = {
    "hash": ("64-bit hash of the row's key; rows ascend by it", "", ""),
    "embedding_hash": ("64-bit hash of the row's embedding as stored", "", ""),
    "neighbours": ("the nearest other rows of this file, nearest first; -1 where there is no further one", "", ""),
    "cosine": ("to each", "1", "more alike"),
}


def check_facts(table: Table, model: str, otherwise: str) -> None:
    """Refuse a file that is no graph, one of another format or model, and one that lacks its own rows.

    Args:
        table: the file.
        model: digest of the model that made the embeddings requested.
        otherwise: what to do about the graph of other rows, for messages.

    Raises:
        InputError: in one line.
    """
    noted = table.metadata.get(KIND)
    if table.metadata.get("kind") != KIND or not isinstance(noted, dict):
        raise InputError(f"{table.path} is not a graph of neighbours; {otherwise}")
    if noted.get("format") != FORMAT:
        raise InputError(f"{table.path} was made by another version of curate; {AGAIN}")
    if noted.get("model_digest") != model:
        raise InputError(f"{table.path} is the graph of another table: it has embeddings of another model; {otherwise}")
    if noted.get("n_rows") != table.n_rows:
        raise InputError(f"{table.path} is damaged: it has {table.n_rows:,} rows, not its own all; {AGAIN}")


def check_types(table: Table) -> int:
    """Return how many neighbours a row has.

    Raises:
        InputError: if a column is missing, or of another type than ``write_graph`` gives it.
    """
    table.require(list(MEANINGS))
    list_types = {"neighbours": pa.int32(), "cosine": pa.float32()}
    kinds = {name: table.schema.field(name).type for name in MEANINGS}
    width = kinds["neighbours"].list_size if pa.types.is_fixed_size_list(kinds["neighbours"]) else 0
    for name, kind in kinds.items():
        if name in list_types:
            lists = pa.types.is_fixed_size_list(kind) and kind.value_type == list_types[name]
            fits = lists and 1 <= kind.list_size <= MOST_NEIGHBOURS and kind.list_size == width
        else:
            fits = kind == pa.uint64()
        if not fits:
            raise InputError(f"{table.path} is damaged: its column {name!r} is {kind}; {AGAIN}")
    return int(width)


def rows_in(
    table: Table, hashes: NDArray[np.uint64], vectors: NDArray, otherwise: str
) -> tuple[NDArray[np.int64], int]:
    """Return the row of the file of each row requested, shape (N,), and how many rows the file has.

    Args:
        table: the file.
        hashes: of the keys requested, shape (N,).
        vectors: their embeddings, shape (N, D).
        otherwise: as in ``check_facts``.

    Raises:
        InputError: if the file lacks some, or holds other embeddings of them; says how many.
    """
    parts = [
        [batch.column(number).fill_null(0).to_numpy(zero_copy_only=False) for number in range(2)]
        for batch in table.batches(["hash", "embedding_hash"])
    ]
    keys, noted = (np.concatenate([np.zeros(0, np.uint64), *(part[number] for part in parts)]) for number in range(2))
    if (keys[1:] <= keys[:-1]).any():
        raise InputError(f"{table.path} is damaged: its rows are not in order; {AGAIN}")
    at = np.searchsorted(keys, hashes).clip(max=max(0, len(keys) - 1))
    is_held = keys[at] == hashes if len(keys) else np.zeros(len(hashes), bool)
    lost = int((~is_held).sum())
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


def neighbours_in(table: Table, width: int, n: int) -> Iterator[tuple[NDArray[np.int32], NDArray[np.float32]]]:
    """Yield the neighbours and cosines of a file of n rows, shape (B, width) each, batch by batch.

    Raises:
        InputError: if a batch names rows that are missing, or its neighbours are not in order.
    """
    for batch in table.batches(["neighbours", "cosine"]):
        if any(column.null_count or column.values.null_count for column in batch.columns):
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


def recall_in(table: Table) -> Recall:
    """Return the share of the nearest neighbours that the graph has, as noted when it was made."""
    noted = table.metadata.get("recall")
    try:
        estimate, low, high = (float(noted[name]) for name in ("estimate", "low", "high"))  # type: ignore[index]
        return Recall(estimate, low, high, int(noted["n_pairs"]), exact=noted["exact"] is True)  # type: ignore[index]
    except (KeyError, TypeError, ValueError, OverflowError):
        raise InputError(f"{table.path} is damaged: nothing says what it finds; {AGAIN}") from None


def write_graph(
    path: Path, hashes: NDArray[np.uint64], embeddings: NDArray[np.uint64], graph: Graph, model: str
) -> None:
    """Write a graph down.

    Args:
        path: not there yet.
        hashes: of the keys, ascending, shape (N,).
        embeddings: hashes of the embeddings, shape (N,).
        graph: of these rows.
        model: digest of the model that made them.
    """
    width = graph.index.shape[1]
    schema = pa.schema(
        [
            pa.field("hash", pa.uint64(), nullable=False),
            pa.field("embedding_hash", pa.uint64(), nullable=False),
            pa.field("neighbours", pa.list_(pa.field("element", pa.int32(), nullable=False), width)),
            pa.field("cosine", pa.list_(pa.field("element", pa.float32(), nullable=False), width)),
        ]
    )
    columns = {name: dict(zip(("meaning", "unit", "higher"), text, strict=True)) for name, text in MEANINGS.items()}
    facts: dict[str, Any] = {"format": FORMAT, "model_digest": model, "n_rows": len(hashes)}
    metadata = {"kind": KIND, KIND: facts, "recall": dict(graph.recall.__dict__), "columns": columns}
    with TableWriter(path, schema, metadata) as writer:
        for start in range(0, len(hashes), BLOCK):
            block = slice(start, start + BLOCK)
            lists = [
                pa.FixedSizeListArray.from_arrays(
                    pa.array(np.ascontiguousarray(values[block]).ravel()), type=field.type
                )
                for values, field in ((graph.index, schema.field(2)), (graph.cosine, schema.field(3)))
            ]
            arrays = [pa.array(hashes[block]), pa.array(embeddings[block]), *lists]
            writer.write(pa.RecordBatch.from_arrays(arrays, schema=schema))
