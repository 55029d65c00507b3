"""The score that `curate fit` fits to a heap, always fitted anew: by the code at hand, not by what was kept."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from transfer_heaps import Heap, Scored, Scores

import curate
from scoring.heap.learn import LEAST_LABELS

FITTED, LOCAL = "unc_fitted", "unc_local"


def fitted(heap: Heap) -> Scores:
    """Return the columns that a fit without labels gives the heap that it was fitted to, shape (N,) each."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "fitted.parquet"
        curate.fit(heap.path, apply=out, source=images_of(heap))
        return new_columns(heap.path, out)


def fitted_with(heap: Heap, given: np.ndarray) -> Scores:
    """Return the columns that a fit with the labels of some rows gives every row, shape (N,) each.

    Of fewer labels than `curate fit` takes, those that it gives without any: it says so itself.
    """
    if len(given) < LEAST_LABELS:
        return fitted(heap)
    with tempfile.TemporaryDirectory() as folder:
        people, out = Path(folder) / "people.parquet", Path(folder) / "fitted.parquet"
        keys = pq.read_table(heap.path, columns=["key"])["key"].take(given)
        pq.write_table(pa.table({"key": keys, "class": [str(heap.label[row].item()) for row in given]}), people)
        curate.fit(heap.path, apply=out, labelled=people, label="class", source=images_of(heap))
        return new_columns(heap.path, out)


def fitted_to(heap: Heap, others: Heap, scored: Scored) -> Scores:
    """Return what a fit without labels to one heap says of the rows of another, shape (M,) each."""
    with tempfile.TemporaryDirectory() as folder:
        model, out = Path(folder) / "fitted.safetensors", Path(folder) / "fitted.parquet"
        curate.fit(heap.path, model, model=scored.model, source=images_of(heap))
        curate.fit(others.path, fitted=model, apply=out)
        return new_columns(others.path, out)


def images_of(heap: Heap) -> str | None:
    """Return the images that were scored if they were kept; without them there is no ``p_junk``."""
    return str(heap.source) if heap.source.exists() else None


def new_columns(before: Path, after: Path) -> Scores:
    """Return the uncertainties that a table has more than another one."""
    added = set(pq.read_schema(after).names) - set(pq.read_schema(before).names)
    names = sorted(name for name in added if name.startswith("unc_"))
    return {name: pq.read_table(after, columns=[name])[name].to_numpy().astype(float) for name in names}
