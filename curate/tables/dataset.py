"""The distinct images of a table for fitting a score, the fitted columns, and groups unlike the rest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.columns import EMBEDDING
from curate.tables.arrays import numbers_of
from curate.tables.copies import Copies, columns_for_copies, find_copies
from curate.tables.needs import EMBEDDINGS, Needs
from curate.tables.rows import Rows, read_rows
from curate.tables.table import Table
from curate.tables.vectors import rows_of
from scoring.arrays import Array
from scoring.errors import InputError
from scoring.relative.columns import CLASS, CLUSTER, COLUMNS, COPIES, JUNK, UNLIKE
from scoring.relative.junk.features import JunkInputs, Scale, columns_read, features_of
from scoring.relative.model import DatasetFit, FittedScores, blocks, stored
from scoring.relative.space import centred
from scoring.relative.unlike import UnlikeGroup, directions_of, unlike_groups

SAMPLE = 4_000  # images by which the junk classifier and the groups unlike the rest are made


@dataclass(frozen=True)
class Dataset:
    """The M distinct images of a table with an embedding, sorted by the hashes of their keys.

    Attributes:
        rows: all N rows of the table.
        at: rows with an embedding, shape (A,), ascending.
        copies: the M groups of these rows with the same image.
        embeddings: of the first row of each group, shape (M, D), float16 or float32.
        junk: log odds of junk, shape (M,), NaN if unknown; None without the column.
        missing: fault of embeddings -> number of rows.
        once: whether copies count once; otherwise every row is an image.
    """

    rows: Rows
    at: NDArray[np.int64]
    copies: Copies
    embeddings: Array
    junk: NDArray[np.float64] | None
    missing: Mapping[str, int]
    once: bool = True

    def __len__(self) -> int:
        return len(self.embeddings)

    @property
    def first(self) -> NDArray[np.int64]:
        """The row that represents each image, shape (M,)."""
        return self.at[self.copies.unique]

    def places(self, images: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the indices in the table of the given images."""
        return self.rows.place[self.first[images]]

    def in_table(self, columns: Mapping[str, Array]) -> dict[str, pa.Array]:
        """Return columns of the M images as columns of the table; copies get the value of the first.

        Null for rows without embedding, for NaN, and for negative integers.
        """
        absent = self.rows.in_table(np.zeros(len(self.at), bool), self.at, True)
        full = {name: self.rows.in_table(values[self.copies.place], self.at) for name, values in columns.items()}
        return {name: column_array(values, absent) for name, values in full.items()}

    def n_copies(self) -> dict[str, pa.Array]:
        """Return the column with the number of rows with the same image."""
        return self.in_table({COPIES: self.copies.count[self.copies.unique].astype(np.int32)})


def column_array(values: Array, absent: NDArray[np.bool_]) -> pa.Array:
    """Return values as a column: null where absent, NaN or a negative integer."""
    unknown = values < 0 if np.issubdtype(values.dtype, np.integer) else np.isnan(values)
    return pa.array(values, mask=absent | unknown)


def read_dataset(
    table: Table, *, names: tuple[str, ...] = (), numbers: tuple[str, ...] = (), once: bool = True
) -> Dataset:
    """Read the data for fitting a score, independent of the row order.

    Args:
        table: scored, with embeddings.
        names: class columns to read too, into ``rows.names``.
        numbers: numeric columns to read too, into ``rows.numbers``.
        once: whether copies count once; otherwise every row is an image.

    Raises:
        InputError: for a table without embeddings, or a missing column.
    """
    column_names = table.schema.names
    if EMBEDDING not in column_names:
        raise InputError(
            f"{table.path} has no column {EMBEDDING!r}, which fitting a score needs; score the images again "
            "without --no-embedding, or choose your own column with --embedding"
        )
    junk = (JUNK,) if once and JUNK in column_names else ()
    looks = columns_for_copies(column_names) if once else frozenset()
    needs = Needs(numbers=(*numbers, *junk), names=names, representations=EMBEDDINGS | looks)
    rows = read_rows(table, needs, by_hash=True)
    at = rows.compared()
    copies = find_copies(rows, at) if once else Copies.of(np.arange(len(at)))
    first = at[copies.unique]
    odds = log_odds_of(rows.numbers[JUNK][first]) if junk else None
    return Dataset(rows, at, copies, rows_of(rows.array(EMBEDDING), first), odds, rows.not_compared(), once)


def sample_of(dataset: Dataset, table: Table) -> JunkInputs:
    """Return the features of a sample of the images: the first 4,000 by the hashes of their keys."""
    images = np.arange(min(SAMPLE, len(dataset)))
    return JunkInputs(columns_at(table, dataset.places(images)), dataset.embeddings[images])


def columns_at(table: Table, rows: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
    """Return the quality columns and columns of trained heads for rows of a table, NaN for null."""
    names = [name for name in columns_read(table.schema.names) if not is_fitted(name)]
    Needs(numbers=tuple(names), keys=False, advice="rename it, or score the images again").columns(table)  # or refuse
    taken = table.take(rows, names) if names else None
    return {} if taken is None else {name: numbers_of(taken.column(name)) for name in names}


def is_fitted(name: str) -> bool:
    """Return whether a column is relative to the dataset, in contrast to columns of trained heads."""
    return name in COLUMNS or name == CLASS


def log_odds_of(probability: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the log odds of probabilities, within [-13.8, 13.8]; NaN for NaN."""
    p = np.clip(np.asarray(probability, np.float64), 1e-6, 1 - 1e-6)
    return np.log(p / (1 - p))


def with_groups(
    dataset: Dataset, table: Table, fit: DatasetFit, scores: FittedScores
) -> tuple[DatasetFit, FittedScores, list[UnlikeGroup]]:
    """Return a fit and its columns with the groups of images unlike the rest.

    Args:
        dataset: the distinct images of the table.
        table: with quality columns.
        fit: to the dataset.
        scores: of its images.
    """
    sample = sample_of(dataset, table)
    looks = features_of(sample.columns, sample.columns)
    scaled = Scale.of(looks, looks).scaled(looks)[:, : looks.shape[1]] if looks.size else np.zeros((len(sample), 0))
    units = centred(sample.embedding, fit.mean).units
    groups = unlike_groups(units, scores.columns[CLUSTER][: len(sample)], scaled)
    fit = replace(fit, groups=directions_of(groups, len(fit.mean)))
    parts = [fit.groups_of(centred(stored(part), fit.mean))[UNLIKE] for part in blocks(dataset.embeddings)]
    return fit, replace(scores, columns={**scores.columns, UNLIKE: np.concatenate(parts)}), groups


def group_facts(groups: Sequence[UnlikeGroup], column: pa.Array) -> list[dict[str, Any]]:
    """Return the facts on a table's groups, as plain JSON; ``column`` is ``unlike_group`` of every row."""
    return [
        {"group": number, "rows": pc.sum(pc.equal(column, number)).as_py() or 0, **group.to_json()}
        for number, group in enumerate(groups, 1)
    ]
