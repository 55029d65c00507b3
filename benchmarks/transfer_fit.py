"""The score that `curate fit` fits to a dataset, always fitted again: by the code at hand, not by what was kept."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from transfer_datasets import Dataset, Scored, Scores

import curate
from scoring.relative.learn import LEAST_LABELS

FITTED, LOCAL = "unc_fitted", "unc_local"


def fitted(dataset: Dataset) -> Scores:
    """Return the columns that a fit without labels gives the dataset that it was fitted to, shape (N,) each."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "fitted.parquet"
        curate.fit(dataset.path, apply=out, source=images_of(dataset))
        return new_columns(dataset.path, out)


def fitted_with(dataset: Dataset, labelled: np.ndarray) -> Scores:
    """Return the columns that a fit with the labels of some rows gives every row, shape (N,) each.

    Of fewer labels than `curate fit` takes, those that it gives without any: it says so itself.
    """
    if len(labelled) < LEAST_LABELS:
        return fitted(dataset)
    with tempfile.TemporaryDirectory() as folder:
        people, out = Path(folder) / "people.parquet", Path(folder) / "fitted.parquet"
        keys = pq.read_table(dataset.path, columns=["key"])["key"].take(labelled)
        pq.write_table(pa.table({"key": keys, "class": [str(dataset.label[row].item()) for row in labelled]}), people)
        curate.fit(dataset.path, apply=out, labelled=people, label="class", source=images_of(dataset))
        return new_columns(dataset.path, out)


def fitted_to(dataset: Dataset, others: Dataset, scored: Scored) -> Scores:
    """Return what a fit without labels to one dataset says of the rows of another, shape (M,) each."""
    with tempfile.TemporaryDirectory() as folder:
        model, out = Path(folder) / "fitted.safetensors", Path(folder) / "fitted.parquet"
        curate.fit(dataset.path, model, model=scored.model, source=images_of(dataset))
        curate.fit(others.path, fitted=model, apply=out)
        return new_columns(others.path, out)


def images_of(dataset: Dataset) -> str | None:
    """Return the images that were scored if they were kept; without them there is no ``p_junk``."""
    return str(dataset.source) if dataset.source.exists() else None


def new_columns(before: Path, after: Path) -> Scores:
    """Return the uncertainties that a table has more than another one."""
    added = set(pq.read_schema(after).names) - set(pq.read_schema(before).names)
    names = sorted(name for name in added if name.startswith("unc_"))
    return {name: pq.read_table(after, columns=[name])[name].to_numpy().astype(float) for name in names}
