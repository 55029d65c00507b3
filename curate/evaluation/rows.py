"""The measured rows of a table: columns, direction, the number of rows left out, and squares of the images."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from curate.columns import EMBEDDING, KEY, is_less_certain
from curate.tables.digests import key_bytes, tie_breaks
from curate.tables.images import Images
from curate.tables.needs import EMBEDDINGS, Needs, require_numbers
from curate.tables.provenance import WHITE
from curate.tables.rows import read_rows
from curate.tables.table import Table
from curate.tables.vectors import MISSING, rows_of
from scoring.errors import InputError
from scoring.images import DecodeError, decode_rgb
from scoring.lookup import name_list
from scoring.metrics.ranking import rank_average

if TYPE_CHECKING:
    import torch

FEWEST_ROWS = 20
RANK_AVERAGE = "rank average"


@dataclass
class MeasuredRows:
    """The N rows that all measures of a table use.

    Attributes:
        table: their table.
        index: row numbers in the table, ascending, shape (N,).
        certainty: by column, higher is more certain, shape (N,), float64; the rank average last.
        raw: values as stored by column, shape (N,), float64; without the rank average.
        left_out: number of rows by reason.
    """

    table: Table
    index: NDArray[np.int64]
    certainty: dict[str, NDArray[np.float64]]
    raw: dict[str, NDArray[np.float64]]
    left_out: dict[str, int]

    def part(self, keep: NDArray[np.bool_]) -> "MeasuredRows":
        """Return the rows where ``keep`` (N,) is true, with a new rank average."""
        raw = {name: values[keep] for name, values in self.raw.items()}
        return MeasuredRows(self.table, self.index[keep], certainties(raw), raw, dict(self.left_out))


def score_columns(table: Table, columns: Sequence[str] = (), *, needed: bool = True) -> tuple[list[str], list[str]]:
    """Return the score columns to measure, and omitted ones that rank rows as another column does.

    Args:
        table: a scored table.
        columns: requested; by default every ``kappa_*`` and ``unc_*`` except ``unc_X`` = 1 / ``kappa_X``.
        needed: whether there must be one.

    Raises:
        InputError: if there is none and one is needed, or a requested column is missing or not numeric.
    """
    doubles: list[str] = []
    names = list(dict.fromkeys(columns))
    if not names:
        names = [name for name in table.schema.names if name.startswith(("kappa_", "unc_"))]
        doubles = [name for name in names if name.startswith("unc_") and "kappa_" + name[4:] in names]
        names = [name for name in names if name not in doubles]
    if not names and needed:
        raise InputError(
            f"expected a score column (kappa_* or unc_*) in {table.path}, got "
            f"{name_list(table.schema.names, 'kappa_')}; score the images with curate score, or choose one "
            "with --column"
        )
    table.require(names)
    require_numbers(table, names, "choose another with --column")
    return names, doubles


def certainties(raw: dict[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    """Return scores with the sign for which higher is more certain, and their mean rank if there are several."""
    turned = {name: -values if is_less_certain(name) else values for name, values in raw.items()}
    if len(turned) > 1:
        turned[RANK_AVERAGE] = rank_average(np.stack(list(turned.values())))
    return turned


def select_rows(table: Table, columns: Sequence[str]) -> MeasuredRows:
    """Return every row with a scored image and finite scores.

    Raises:
        InputError: if a score is NaN or null on every row.
    """
    table_rows = read_rows(table, Needs(numbers=tuple(columns), keys=False))
    ok = table_rows.ok
    values = np.array([table_rows.numbers[name] for name in columns]).reshape(len(columns), table.n_rows)
    missing = np.isnan(values)
    for name, absent in zip(columns, missing, strict=True):
        if ok.any() and absent[ok].all():
            raise InputError(f"expected numbers in {name!r} of {table.path}, got null or NaN in every row; score again")
    known = ~missing.any(0)
    keep = ok & known
    left_out = {"status is not ok": int((~ok).sum()), "a score is null or NaN": int((ok & ~known).sum())}
    raw = {name: values[number][keep] for number, name in enumerate(columns)}
    reasons = {reason: n for reason, n in left_out.items() if n}
    return MeasuredRows(table, np.flatnonzero(keep), certainties(raw), raw, reasons)


def sampled(rows: MeasuredRows, n: int, *, seed: int) -> NDArray[np.bool_]:
    """Return a mask of the n rows with the lowest hash of key (or row number) and seed, independent of the row order.

    All rows if there are fewer than n.
    """
    if n >= len(rows.index):
        return np.ones(len(rows.index), bool)
    hashes = tie_breaks(row_keys(rows), seed=seed)
    keep = np.zeros(len(hashes), bool)
    keep[np.argsort(hashes, kind="stable")[:n]] = True
    return keep


def row_keys(rows: MeasuredRows) -> list[bytes]:
    """Return the key of each row, or its number if the table has no keys."""
    if KEY not in rows.table.schema.names:
        return [str(number).encode() for number in rows.index.tolist()]
    return key_bytes(rows.table.take(rows.index, [KEY]).column(KEY).combine_chunks(), rows.table.path)


def embeddings(rows: MeasuredRows) -> "tuple[torch.Tensor, NDArray[np.bool_]] | str":
    """Return unit embeddings, float32 of shape (N, D), and a mask of the rows that have one; or why there are none."""
    import torch

    if EMBEDDING not in rows.table.schema.names:
        left_out = rows.table.noted("settings").get("embedding dtype", "") is None
        return "the table has no embedding column" + (" (it was scored with --no-embedding)" if left_out else "")
    stored = read_rows(rows.table, Needs(representations=EMBEDDINGS, keys=False))
    if stored.embedding is None or (stored.embedding_problem == MISSING).all():
        return "no row has an embedding"
    has_embedding = stored.embedding_problem[rows.index] == 0
    matrix = rows_of(stored.embedding, rows.index).astype(np.float32)
    norm = np.sqrt(np.einsum("nd,nd->n", matrix, matrix, dtype=np.float64))[:, None]
    matrix /= np.where(has_embedding[:, None], norm, 1).astype(np.float32)
    return torch.from_numpy(matrix), has_embedding


def squares(
    table: Table, rows: Sequence[int], *, most: int, source: str | None = None
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Yield row number and central square, uint8 (S, S, 3), of each row whose image is unchanged, in source order.

    Args:
        table: with ``key``, and with ``uri`` unless a source is given.
        rows: row numbers, ascending.
        most: largest S in pixels; larger images are resized to it.
        source: location of the images; rows are found by key.

    Raises:
        InputError: if a row has neither a path nor a source, or the source lacks its key.
    """
    for image in Images.of(table, rows, source=source).read(rows):
        pixels = central_square(image.data, most, white=image.white) if image.data is not None else None
        if pixels is not None:
            yield image.row, pixels


def central_square(data: bytes, most: int, *, white: int = WHITE) -> NDArray[np.uint8] | None:
    """Return the central square of an encoded image, uint8 of shape (S, S, 3), S <= most; None if it cannot be decoded.

    ``white`` is the value of white in 16-bit images.
    """
    try:
        pixels = decode_rgb(data, white=white)
        if min(pixels.shape[:2]) > most:
            pixels = decode_rgb(data, short_side=most, white=white)
    except DecodeError:
        return None
    side = min(pixels.shape[:2])
    top, left = ((length - side) // 2 for length in pixels.shape[:2])
    return np.ascontiguousarray(pixels[top : top + side, left : left + side])
