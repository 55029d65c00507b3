"""The rows of a table that are measured: which columns, which rows, in what direction, and how many are left out."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from curate.columns import EMBEDDING, KEY, STATUS, is_less_certain
from curate.tables.digests import is_text, key_bytes, plain
from curate.tables.gather import is_ok
from curate.tables.table import Table, embedding_matrix
from scoring.errors import InputError
from scoring.metrics import rank_average

FEWEST_ROWS = 20
RANK_AVERAGE = "rank average"


@dataclass
class Rows:
    """N rows that every measure of a table is of.

    Attributes:
        table: where they come from.
        index: row numbers in the table, ascending, shape (N,).
        certainty: column -> higher is more certain, shape (N,), float64; the rank average last.
        raw: column -> values as stored, shape (N,), float64; without the rank average.
        left_out: reason -> rows.
    """

    table: Table
    index: NDArray[np.int64]
    certainty: dict[str, NDArray[np.float64]]
    raw: dict[str, NDArray[np.float64]]
    left_out: dict[str, int]

    def part(self, keep: NDArray[np.bool_]) -> "Rows":
        """Return the rows where ``keep`` (N,) is true, with ranks averaged anew."""
        raw = {name: values[keep] for name, values in self.raw.items()}
        return Rows(self.table, self.index[keep], certainties(raw), raw, dict(self.left_out))


def score_columns(table: Table, asked: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """Return the score columns to measure, and notes on what was left out.

    Args:
        table: a scored table.
        asked: the user's; by default every ``kappa_*`` and ``unc_*``, but no ``unc_X`` beside ``kappa_X``, which
            is 1/kappa and gives the same ranks.

    Raises:
        InputError: if there is none, or one asked for is absent or does not hold numbers.
    """
    notes = []
    names = list(dict.fromkeys(asked))
    if not names:
        names = [name for name in table.schema.names if name.startswith(("kappa_", "unc_"))]
        doubles = [name for name in names if name.startswith("unc_") and "kappa_" + name[4:] in names]
        names = [name for name in names if name not in doubles]
        notes = [f"{name} is 1/kappa_{name[4:]}, with the same ranks; ask for it with --column" for name in doubles]
    if not names:
        raise InputError(
            f"expected a score column (kappa_* or unc_*) in {table.path}, got {', '.join(table.schema.names)}; "
            "score the images with curate score, or name one with --column"
        )
    table.require(names)
    for name in names:
        kind = table.schema.field(name).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise InputError(f"--column: expected numbers in {name!r} of {table.path}, got {kind}; choose another")
    return names, notes


def certainties(raw: dict[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    """Return scores turned so that higher is more certain, and the mean of their ranks where there are several."""
    turned = {name: -values if is_less_certain(name) else values for name, values in raw.items()}
    if len(turned) > 1:
        turned[RANK_AVERAGE] = rank_average(np.stack(list(turned.values())))
    return turned


def select_rows(table: Table, columns: Sequence[str]) -> Rows:
    """Return every row whose image was scored and whose scores are numbers.

    Raises:
        InputError: if a score is NaN or null on every such row.
    """
    has_status = STATUS in table.schema.names and is_text(table.schema.field(STATUS).type)
    wanted = [*columns, *([STATUS] if has_status and STATUS not in columns else [])]
    parts: list[NDArray[np.float64]] = []
    fine: list[NDArray[np.bool_]] = []
    for batch in table.batches(wanted):
        numbers = [_numbers(batch.column(name)) for name in columns]
        parts.append(np.stack(numbers))
        fine.append(is_ok(plain(batch.column(STATUS))) if has_status else np.ones(batch.num_rows, bool))
    values = np.concatenate(parts, 1) if parts else np.zeros((len(columns), 0))
    ok = np.concatenate(fine) if fine else np.zeros(0, bool)
    missing = np.isnan(values)
    for name, absent in zip(columns, missing, strict=True):
        if ok.any() and absent[ok].all():
            raise InputError(f"expected numbers in {name!r} of {table.path}, got null or NaN in every row; score again")
    known = ~missing.any(0)
    keep = ok & known
    left_out = {
        "status is not ok": int((~ok).sum()),
        "a score is null or NaN": int((ok & ~known).sum()),
    }
    raw = {name: values[number][keep] for number, name in enumerate(columns)}
    reasons = {reason: n for reason, n in left_out.items() if n}
    return Rows(table, np.flatnonzero(keep), certainties(raw), raw, reasons)


def _numbers(column: pa.Array) -> NDArray[np.float64]:
    values = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return np.asarray(values, np.float64)


def sampled(rows: Rows, n: int, *, seed: int) -> NDArray[np.bool_]:
    """Return which n rows to take: those whose key (or row number) hashes lowest, whatever their order.

    Args:
        rows: N of them.
        n: at least 1; all where there are fewer.
        seed: another seed takes other rows.
    """
    if n >= len(rows.index):
        return np.ones(len(rows.index), bool)
    keys = row_keys(rows)
    salt = seed.to_bytes(8, "little", signed=True)
    digests = b"".join([hashlib.blake2b(key, digest_size=8, salt=salt).digest() for key in keys])
    hashes = np.frombuffer(digests, ">u8").astype(np.uint64)
    keep = np.zeros(len(hashes), bool)
    keep[np.argsort(hashes, kind="stable")[:n]] = True
    return keep


def row_keys(rows: Rows) -> list[bytes]:
    """Return the key of each row, or its number where the table has none."""
    if KEY not in rows.table.schema.names:
        return [str(number).encode() for number in rows.index.tolist()]
    column = rows.table.read([KEY]).column(0).take(pa.array(rows.index))
    return key_bytes(column.combine_chunks(), rows.table.path)


def embeddings(rows: Rows) -> tuple[torch.Tensor, NDArray[np.bool_]] | str:
    """Return unit embeddings as float32, shape (N, D), and which rows have one; or why there are none.

    The column is read in batches: memory is that of the result.
    """
    if EMBEDDING not in rows.table.schema.names:
        settings = rows.table.metadata.get("settings")
        left_out = isinstance(settings, dict) and settings.get("embedding dtype", "") is None
        return "the table has no embedding column" + (" (it was scored with --no-embedding)" if left_out else "")
    matrix: NDArray[np.float32] | None = None
    start = at = 0
    for batch in rows.table.batches([EMBEDDING]):
        stop = int(np.searchsorted(rows.index, start + batch.num_rows))
        part = batch.take(pa.array(rows.index[at:stop] - start)) if stop - at < batch.num_rows else batch
        values = embedding_matrix(part.column(0)).astype(np.float32)
        if matrix is None and values.shape[1]:
            matrix = np.zeros((len(rows.index), values.shape[1]), np.float32)
        if matrix is not None and len(values):
            if values.shape[1] != matrix.shape[1] and not np.isnan(values).all():
                raise InputError(
                    f"expected embeddings of one length in {rows.table.path}, got {matrix.shape[1]} and "
                    f"{values.shape[1]}; write one table a model"
                )
            norm = np.sqrt(np.einsum("nd,nd->n", values, values, dtype=np.float64))[:, None]
            with np.errstate(divide="ignore", invalid="ignore"):
                matrix[at:stop] = values / norm.astype(np.float32)
        start, at = start + batch.num_rows, stop
    if matrix is None:
        return "no row has an embedding"
    there = np.asarray(np.isfinite(matrix).all(1), np.bool_)
    return torch.from_numpy(matrix), there
