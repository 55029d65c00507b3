"""Groups of images unlike the rest of a table, as columns and as facts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.tables.dataset import Dataset, sample_of
from curate.tables.table import Table
from scoring.junk.features import Scale, features_of
from scoring.relative.columns import CLUSTER, UNLIKE
from scoring.relative.model import DatasetFit, FittedScores, blocks, stored
from scoring.relative.space import centred
from scoring.relative.unlike import UnlikeGroup, directions_of, unlike_groups


def with_groups(
    dataset: Dataset, table: Table, fit: DatasetFit, scores: FittedScores
) -> tuple[DatasetFit, FittedScores, list[UnlikeGroup]]:
    """Return a fit and its columns with the groups of images unlike the rest.

    Args:
        dataset: the different images of the table.
        table: whose quality columns say what images look like.
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
    """Return the facts of a table's groups, as plain JSON.

    Args:
        groups: in the order of their numbers.
        column: ``unlike_group`` of every row.
    """
    return [
        {"group": number, "rows": pc.sum(pc.equal(column, number)).as_py() or 0, **group.to_json()}
        for number, group in enumerate(groups, 1)
    ]
