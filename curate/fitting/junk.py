"""The junk score of a fit: from the table, or from corrupted copies of its images."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from curate.engines.junk import Corrupter, Junk, classifier_of, find_junk
from curate.retrieval.images import scorer_of
from curate.tables.dataset import Dataset
from curate.tables.images import Images, holds_paths
from curate.tables.table import Table
from scoring.errors import InputError
from scoring.relative.columns import JUNK

NO_IMAGES = (
    "no p_junk: the table was scored without it and has no paths; pass what was scored as --source, or score again"
)


def junk_of(
    dataset: Dataset, table: Table, model: str | Path | None, source: str | None = None
) -> tuple[Dataset, Junk | None, list[str]]:
    """Return the images with their log odds of junk, facts about the score, and notes.

    Uses ``p_junk`` of the table; without it, scores corrupted copies of the images, if they can be read; else None.

    Args:
        dataset: the distinct images of the table.
        table: scored.
        model: that scored it; None searches the shipped models.
        source: location of the images, if they are not at the paths of the table.
    """
    if JUNK in table.schema.names:
        return dataset, Junk(classifier_of(table), np.zeros(0, np.float32), dict(table.noted("fit", "junk"))), []
    if table.embedding_column is not None:
        return dataset, None, []
    if not holds_paths(table) and source is None:
        return dataset, None, [NO_IMAGES]
    try:
        runner, settings = scorer_of(table, model=model)
        junk = find_junk(dataset, table, Corrupter(_reader(table, source), runner, settings))
    except InputError as error:
        return dataset, None, [f"no p_junk: {error}"]
    return replace(dataset, junk=junk.log_odds(dataset)), junk, junk.notes


def _reader(table: Table, source: str | None) -> Any:
    def read(rows: Sequence[int]) -> Iterator[tuple[int, bytes, str]]:
        images = Images.of(table, rows, source=source, partial=True)
        for image in images.read(rows):
            if image.data is not None:
                yield image.row, image.data, hashlib.sha256(image.data).hexdigest()

    return read
