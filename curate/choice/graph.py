"""The graph of nearest neighbours in a file: computed once, and used by every choice that asks for it."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.selectors.graphs import MOST
from curate.selectors.mixed import Mixed
from curate.selectors.pool import Pool
from curate.table import Table, TableWriter, open_table
from scoring.errors import InputError
from scoring.search.graph import Graph, knn_graph
from scoring.search.links import Recall

KIND = "graph"
USERS = ("prob-cover", "facility-location", "facility-location-stochastic", "pairwise")
BLOCK = 65_536
MEANINGS = {
    "hash": ("64-bit hash of the row's key; rows ascend by it", "", ""),
    "neighbours": ("the nearest other rows of this file, nearest first; -1 where there is no further one", "", ""),
    "cosine": ("to each", "1", "more alike"),
}


@dataclass(frozen=True)
class Stored:
    """A graph, the file that holds it, the digest of that file (empty where it was not written), and notes."""

    graph: Graph
    path: str
    digest: str
    notes: tuple[str, ...]


def uses_graph(strategy: str, selector: object) -> bool:
    """Return whether a strategy looks at a graph of neighbours."""
    return strategy in USERS or (isinstance(selector, Mixed) and bool({selector.score, selector.coverage} & set(USERS)))


def stored_graph(path: str | Path, hashes: NDArray[np.uint64], pool: Pool, model: str, *, write: bool) -> Stored:
    """Read the graph of a pool, or compute it and write it down.

    Args:
        path: a name ending in ``.parquet``.
        hashes: of the keys of the pool's rows, ascending, shape (M,).
        pool: with vectors.
        model: digest of the model that made them.
        write: whether a graph that is not there yet gets a file.

    Raises:
        InputError: if the file holds the graph of other rows, embeddings or another model, or is damaged.
    """
    path = Path(path)
    if pool.vectors is None:
        raise ValueError("a graph needs vectors")
    facts = {
        "keys": hashlib.sha256(np.ascontiguousarray(hashes, "<u8").tobytes()).hexdigest(),
        "embeddings": _digest(pool.vectors),
        "model_digest": model,
        "n_rows": len(hashes),
    }
    if path.exists():
        table = open_table(path)
        _check_fits(table, facts)
        table.require(list(MEANINGS))
        graph = _read(table)
        return Stored(
            graph, str(path), _file_digest(path), (f"{path}: the graph of {len(hashes):,} rows is used again",)
        )
    if path.suffix != ".parquet":
        raise InputError(f"the graph is a Parquet file: expected a name like graph.parquet, got {path}")
    graph = knn_graph(pool.vectors, max(1, min(MOST, len(hashes) - 1)))
    if not write:
        return Stored(graph, str(path), "", ())
    _write(path, hashes, graph, facts)
    return Stored(
        graph, str(path), _file_digest(path), (f"{path}: the graph of {len(hashes):,} rows, for other choices",)
    )


def _digest(vectors: NDArray) -> str:
    found = hashlib.sha256(f"{vectors.dtype} {vectors.shape}".encode())
    for start in range(0, len(vectors), BLOCK):
        found.update(np.ascontiguousarray(vectors[start : start + BLOCK]).tobytes())
    return found.hexdigest()


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_fits(table: Table, facts: dict[str, Any]) -> None:
    noted = table.metadata.get(KIND)
    if table.metadata.get("kind") != KIND or not isinstance(noted, dict):
        raise InputError(f"{table.path} is not a graph of neighbours; name another file with --graph, or a new one")
    words = {
        "model_digest": "embeddings of another model",
        "n_rows": f"{noted.get('n_rows')} rows where this choice has {facts['n_rows']:,}",
        "keys": "other keys",
        "embeddings": "other embeddings of the same keys",
    }
    for name, said in words.items():
        if noted.get(name) != facts[name]:
            raise InputError(
                f"{table.path} is the graph of another table: it has {said}; name another file with --graph"
            )
    if table.n_rows != facts["n_rows"]:
        raise InputError(f"{table.path} is damaged: it has {table.n_rows:,} rows; delete it, and it is made again")


def _read(table: Table) -> Graph:
    kinds = {name: table.schema.field(name).type for name in ("neighbours", "cosine")}
    width = kinds["neighbours"].list_size if pa.types.is_fixed_size_list(kinds["neighbours"]) else 0
    wanted = {"neighbours": pa.int32(), "cosine": pa.float32()}
    for name, kind in kinds.items():
        lists = pa.types.is_fixed_size_list(kind) and kind.value_type == wanted[name]
        if not lists or not 1 <= kind.list_size <= MOST or kind.list_size != width:
            raise InputError(f"{table.path} is damaged: its column {name!r} is {kind}; delete it, and it is made again")
    n = table.n_rows
    index, cosine = np.empty((n, width), np.int32), np.empty((n, width), np.float32)
    start = 0
    for batch in table.batches(["neighbours", "cosine"]):
        here = slice(start, start + batch.num_rows)
        index[here], cosine[here] = (_matrix(batch.column(number), width) for number in range(2))
        start += batch.num_rows
    if n and (index.min() < -1 or index.max() >= n or np.isnan(cosine).any()):
        raise InputError(f"{table.path} is damaged: it names rows that it has not; delete it, and it is made again")
    return Graph(index, cosine, _recall(table))


def _recall(table: Table) -> Recall:
    noted = table.metadata.get("recall")
    try:
        estimate, low, high = (float(noted[name]) for name in ("estimate", "low", "high"))  # type: ignore[index]
        return Recall(estimate, low, high, int(noted["n_pairs"]), exact=noted["exact"] is True)  # type: ignore[index]
    except (KeyError, TypeError, ValueError):
        raise InputError(
            f"{table.path} is damaged: nothing says what it finds; delete it, and it is made again"
        ) from None


def _matrix(column: pa.Array, width: int) -> NDArray:
    values = column.values.slice(column.offset * width, len(column) * width)
    return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(len(column), width)


def _write(path: Path, hashes: NDArray[np.uint64], graph: Graph, facts: dict[str, Any]) -> None:
    width = graph.index.shape[1]
    schema = pa.schema(
        [
            pa.field("hash", pa.uint64(), nullable=False),
            pa.field("neighbours", pa.list_(pa.field("element", pa.int32(), nullable=False), width)),
            pa.field("cosine", pa.list_(pa.field("element", pa.float32(), nullable=False), width)),
        ]
    )
    columns = {name: dict(zip(("meaning", "unit", "higher"), told, strict=True)) for name, told in MEANINGS.items()}
    metadata = {"kind": KIND, KIND: facts, "recall": dict(graph.recall.__dict__), "columns": columns}
    with TableWriter(path, schema, metadata) as writer:
        for start in range(0, len(hashes), BLOCK):
            here = slice(start, start + BLOCK)
            lists = [
                pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(values[here]).ravel()), type=field.type)
                for values, field in ((graph.index, schema.field(1)), (graph.cosine, schema.field(2)))
            ]
            writer.write(pa.RecordBatch.from_arrays([pa.array(hashes[here]), *lists], schema=schema))
