"""The frozen fit of a table, which scores added rows on the scale of the rows to which it was fitted.

A fit is determined by its rows. When rows are first added, it is recomputed from them and stored next to the table, as
NAME.parquet.fit, since images may later change or be removed.
"""

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load, save

from curate.columns import CUSTOM, EMBEDDING, ERROR_COLUMNS, describe
from curate.engines.junk import classifier_of
from curate.manifest.store_path import AnyPath
from curate.tables.arrays import numbers_of
from curate.tables.dataset import column_array, is_fitted, log_odds_of, read_dataset, with_groups
from curate.tables.provenance import JUDGED, OF_SCORING
from curate.tables.table import Table, embedding_matrix
from scoring.atomic import AtomicFile
from scoring.errors import InputError
from scoring.relative.columns import CLUSTER, FITTED, JUNK, PER_IMAGE
from scoring.relative.fit import fit_alone
from scoring.relative.junk.features import JunkInputs
from scoring.relative.junk.stored import to_json
from scoring.relative.model import DatasetFit, FittedScores
from scoring.relative.space import centred
from scoring.relative.stored import digest_of_fit, fit_from, tensors_of

SUFFIX = ".fit"
MOST_BYTES = 1 << 30  # version of the file format
RECORD = "record"
ROWS = 8_192  # rows per batch


def fit_path(out: AnyPath) -> AnyPath:
    """Return the path of a table's fit."""
    return out.with_name(f"{out.name}{SUFFIX}")


def frozen_fit(table: Table) -> DatasetFit | None:
    """Return the fit of a table: the stored one, or a recomputed one, which is then stored; None if there is none.

    None also if it cannot be recomputed: from labels, or after its rows changed.

    Raises:
        InputError: if something else is at the path of the fit.
    """
    about = table.metadata.get("fit")
    if FITTED not in table.schema.names or not isinstance(about, Mapping):
        return None
    identity = identity_of(about)
    path = fit_path(table.path)
    kept = _read(path)
    if kept is not None and kept[0] == identity:
        return kept[1]
    fit = _made_again(table, about)
    if fit is not None:
        _write(path, identity, fit)
    return fit


def identity_of(about: Mapping[str, Any]) -> str:
    """Return a digest of a table's record of its fit, without rows that it scored later."""
    noted = {name: value for name, value in about.items() if name != JUDGED}
    return hashlib.sha256(json.dumps(noted, sort_keys=True).encode()).hexdigest()


def is_of_scoring(about: object) -> bool:
    """Return whether a fit was made by ``curate score``, which can recompute it."""
    return not isinstance(about, Mapping) or set(about) <= OF_SCORING | {JUDGED}


def judged(fit: DatasetFit, part: Table) -> tuple[dict[str, pa.Array], int]:
    """Return the columns of a frozen fit for each row of a table, and the number of rows outside of its dataset."""
    names = fit.junk.names if fit.junk is not None else ()
    absent = np.ones(part.n_rows, bool)
    values: dict[str, NDArray[Any]] = {}
    outside = 0
    for start, batch in part.numbered([EMBEDDING, *names], rows=ROWS):
        matrix = embedding_matrix(batch.column(EMBEDDING))
        usable = np.flatnonzero(np.isfinite(matrix).all(1) & matrix.any(1))
        if len(usable):
            columns = {name: numbers_of(batch.column(name))[usable] for name in names}
            fitted = fit.score_images(JunkInputs(columns, matrix[usable]))
            outside += round(fitted.outside * len(usable))
            absent[start + usable] = False
            for name, scores in fitted.columns.items():
                values.setdefault(name, np.zeros(part.n_rows, scores.dtype))[start + usable] = scores
    return {name: column_array(scores, absent) for name, scores in values.items() if name in PER_IMAGE}, outside


def _made_again(table: Table, about: Mapping[str, Any]) -> DatasetFit | None:
    """Return the fit of the present rows of a table, if it equals the recorded one."""
    scored = is_of_scoring(about)
    if not scored and (about.get("labels") or about.get("embedding")):
        return None
    bare = copy.copy(table)
    bare.schema = pa.schema([field for field in table.schema if not is_fitted(field.name)])
    dataset = read_dataset(bare)
    if scored and dataset.rows.digest != about.get("digest"):
        return None
    classifier = classifier_of(table)
    odds = None
    if classifier is not None or (not scored and JUNK in table.schema.names):
        odds = log_odds_of(numbers_of(table.read([JUNK]).column(JUNK))[dataset.places(np.arange(len(dataset)))])
    seed = about.get("seed", 0)
    try:
        fit = fit_alone(dataset.embeddings, odds, seed=seed if type(seed) is int else 0)
    except InputError:  # too few distinct rows: the recorded fit was not made from them
        return None
    clusters = fit.groups_of(centred(dataset.embeddings, fit.mean))[CLUSTER]
    fit, _, _ = with_groups(dataset, bare, fit, FittedScores({CLUSTER: clusters}, 0))
    fit = replace(fit, junk=classifier)
    return fit if scored or digest_of_fit(fit) == about.get("digest") else None


def _write(path: AnyPath, identity: str, fit: DatasetFit) -> None:
    record = {"of": identity, "weights": dict(fit.weights), "junk": None if fit.junk is None else to_json(fit.junk)}
    text = torch.frombuffer(bytearray(json.dumps(record, sort_keys=True).encode()), dtype=torch.uint8)
    data = save({**tensors_of(fit), RECORD: text})
    if not isinstance(path, Path):
        path.put(data)
        return
    with AtomicFile(path, overwrite=True) as file:
        file.write(data)


def _read(path: AnyPath) -> tuple[str, DatasetFit] | None:
    """Return the identity of the fit in a file, and the fit; None without a file."""
    if isinstance(path, Path):
        if not path.exists():
            return None
        if not path.is_file() or path.stat().st_size > MOST_BYTES:
            raise _not_ours(path, "no file of a fit")
        data: bytes | None = path.read_bytes()
    else:
        data = path.read(MOST_BYTES)
    if data is None:
        return None
    try:
        tensors = load(data)
        record = json.loads(tensors.pop(RECORD).numpy().tobytes())
        return str(record["of"]), fit_from(record, tensors)
    except (KeyError, TypeError, ValueError, AttributeError, SafetensorError) as error:
        raise _not_ours(path, str(error)) from None


def _not_ours(path: AnyPath, why: str) -> InputError:
    return InputError(
        f"expected the fit that curate keeps at {path}, or no file, got something else ({why}); rename or remove it"
    )


def words_on(lacking: Sequence[str], is_judged: bool, rows: str) -> list[str]:
    """Return a line on each kind of column that added rows lack."""
    calibrated = [name for name in lacking if name in ERROR_COLUMNS]
    fitted = [name for name in lacking if describe(name) is not CUSTOM and name not in calibrated]
    lines = []
    if fitted:
        how = "scored by the existing fit of the table, except" if is_judged else "null in"
        lines.append(f"{rows} added, {how} {', '.join(fitted)}: run curate fit again, or --refit")
    if calibrated:
        lines.append(f"{rows} added, null in {', '.join(calibrated)}: run curate calibrate again")
    return lines
