"""Fit a score to a dataset: from a table's embeddings to a model and the table with new columns."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from curate.columns import KEY
from curate.counted import counted
from curate.engines.junk import Junk, judge
from curate.engines.table import searching
from curate.fitting.applied import check_applied, write_applied
from curate.fitting.junk import junk_of
from curate.fitting.labels import LabelSource, classes_in, labels_in, labels_to_learn
from curate.fitting.options import FitOptions
from curate.fitting.result import LEAST_ROWS, FitResult, Share, shares_of
from curate.manifest.file_set import FileSet, file_set, refuse_two_places
from curate.manifest.store_path import AnyPath, path_on_disk, path_or_store
from curate.options.function import callable_of
from curate.tables.dataset import Dataset, column_array, group_facts, read_dataset, with_groups
from curate.tables.provenance import model_of
from curate.tables.rows import Codes
from curate.tables.table import Table, open_table
from curate.tables.vectors import rows_of
from curate.version import __version__
from scoring.arrays import Array
from scoring.atomic import AtomicFile
from scoring.cards import find_checkpoint, read_header, shipped_models
from scoring.checkpoint import load_model
from scoring.errors import InputError
from scoring.metrics.classifier import cross_validate, fit_linear
from scoring.metrics.duplicates import group_duplicates
from scoring.model_names import is_published
from scoring.relative.columns import AMBIGUOUS, CLASS, CLUSTER, JUNK, LOCAL, UNLIKE
from scoring.relative.fit import fit_dataset
from scoring.relative.learn import label_auroc
from scoring.relative.model import DatasetFit, FittedScores
from scoring.relative.propagated import KnownLabels
from scoring.relative.space import centred
from scoring.relative.stored import digest_of_fit, read_fit, write_fitted
from scoring.relative.unlike import UnlikeGroup

FOLDS = 5  # folds of the class entropy's classifier
MOST_CLASSES = 2_000  # maximum classes of this classifier
BLOCK = 8_192  # rows at a time
ROWS_A_CLUSTER = 10  # minimum mean rows per cluster for reporting shares


@dataclass(frozen=True)
class Fitted:
    """The images of a table, the fit to them, and its columns.

    Attributes:
        dataset: the images.
        fit: the fit.
        scores: its columns.
        label_source: the labels learned from.
        classes: of all rows, to report the effect of a cut.
        junk: facts about ``p_junk``; None if unknown.
        groups: of images unlike the rest.
        notes: for the user.
    """

    dataset: Dataset
    fit: DatasetFit
    scores: FittedScores
    label_source: LabelSource
    classes: Codes | None
    junk: Junk | None = None
    groups: list[UnlikeGroup] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def columns(self) -> dict[str, pa.Array]:
        """Return the columns of the fit."""
        columns = self.dataset.in_table(self.scores.columns)
        if self.junk is not None and len(self.junk.probability):
            columns = {JUNK: column_array(self.junk.probability, np.zeros(len(self.junk.probability), bool)), **columns}
        return {**columns, **(self.dataset.n_copies() if self.dataset.once else {})}


def run_fit(options: FitOptions) -> FitResult:
    """Fit a score to the dataset of a table; write the model, the table with its columns, or both.

    ``scoring.relative.columns`` lists the columns; ``unc_class`` needs labels to learn from. Other commands use
    ``unc_fitted``, and ``unc_local`` to keep an amount. The result does not depend on the order of rows.

    Returns:
        Facts of the fit, its accuracy, the effect of a cut, and paths.

    Raises:
        InputError: for a table, model or output that cannot be used; nothing is written then.
    """
    opened = open_table(options.table, require=[KEY], embedding=options.embedding)
    return fit_table(opened, options, recorded=opened.path)


def fit_table(opened: Table, options: FitOptions, *, recorded: AnyPath) -> FitResult:
    """Fit as ``run_fit`` to an open table; its path is recorded as ``recorded``, since a draft is renamed."""
    _refuse_models(options.embedding, {"-o": options.out, "--fitted": options.fitted, "--model": options.model})
    places = _outputs(opened, options.out, options.apply, options.fitted)
    if options.fitted is not None and (options.label is not None or options.labelled is not None):
        raise InputError(f"--fitted {options.fitted} is applied without fitting; leave out the labels")
    base = None if places[0] is None else base_of(opened, options.model)
    if options.model is not None and base is None:
        check_same(opened, options.model)
    with file_set([place for place in reversed(places) if place is not None], overwrite=options.overwrite) as files:
        with searching(options.engine, places[1] or places[0], options.report):
            if options.fitted is not None:
                done = _apply_fit(opened, options.fitted, options.report)
            else:
                done = _fit(opened, options)
        about = _fit_record(done, opened, recorded, options.seed)
        _write(done, places, opened, base, about, files, overwrite=options.overwrite)
    kind, shares = _shares(done)
    return FitResult(
        rows=len(done.dataset),
        without=dict(done.dataset.missing),
        references=len(done.fit.references),
        n_bytes=done.fit.n_bytes,
        digest=about["digest"],
        kind=kind,
        shares=shares,
        outside=done.scores.outside,
        labels=_label_accuracy(done, options.seed),
        recall=done.scores.recall.estimate,
        path=places[0],
        applied=places[1],
        fitted_before=options.fitted is not None,
        notes=done.notes,
    )


fit = callable_of(FitOptions, run_fit)


def _refuse_models(embedding: str | None, models: Mapping[str, str | Path | None]) -> None:
    """Refuse to write a model for embeddings of an unknown model, since it could not score images."""
    for flag, value in models.items():
        if embedding is not None and value is not None:
            raise InputError(
                f"{flag} {value} is a model, and which model computed the column {embedding!r} of --embedding "
                "is unknown; write a table with --apply NAME.parquet, and leave the model out"
            )


def _outputs(
    table: Table, out: str | Path | None, apply: str | AnyPath | None, fitted: str | Path | None
) -> tuple[Path | None, AnyPath | None]:
    """Return the output paths of model and table, checked before the work."""
    if out is None and apply is None:
        raise InputError("expected a model to write (-o NAME.safetensors), or a table (--apply NAME.parquet), got none")
    if out is not None and fitted is not None:
        raise InputError(f"--fitted {fitted} is applied without fitting; leave out -o {out}")
    places = None if out is None else path_on_disk(out, "-o"), None if apply is None else path_or_store(apply)
    if places[0] is not None and places[0].suffix != ".safetensors":
        raise InputError(f"a model is a safetensors file: expected -o NAME.safetensors, got {out}")
    refuse_two_places(*places, command=f"curate fit {table.path}")
    if places[1] is not None:
        check_applied(places[1], table)
    return places


def _write(
    done: Fitted,
    places: tuple[Path | None, AnyPath | None],
    table: Table,
    base: str | Path | None,
    about: dict[str, Any],
    files: FileSet,
    *,
    overwrite: bool,
) -> None:
    """Write model and table; if both are requested, they are renamed together, the model last."""
    model, applied = places
    beside: list[AtomicFile] = []
    try:
        if applied is not None:
            columns = {**done.columns(), **done.dataset.in_table(_class_entropy_column(done, about["seed"]))}
            beside = [write_applied(applied, table, columns, about, files, overwrite=overwrite)]
            about["applied"] = {"file": applied.name, "sha256": beside[0].sha256}
        if model is not None and base is not None:
            write_fitted(model, base, done.fit, about, companions=beside, commit=files.commit, overwrite=overwrite)
        elif beside:
            files.commit(beside)
    finally:
        for file in beside:
            file.discard()


def _fit(table: Table, options: FitOptions) -> Fitted:
    label, labelled = options.label, options.labelled
    dataset = _dataset(table, () if label is None or labelled is not None else (label,))
    learned = labels_to_learn(dataset, table, label, labelled)
    about = f", {counted(len(learned.labels.rows), 'label')}" if learned.labels else ""
    options.report(f"fitting to {counted(len(dataset), 'image')} of {table.path}{about}")
    dataset, junk, notes = junk_of(dataset, table, options.model, options.source)
    fit, scores, groups = fit_with_groups(dataset, table, learned, options.seed, junk)
    copies = dataset.copies.words()
    return Fitted(
        dataset,
        fit,
        scores,
        learned,
        classes_in(dataset, table),
        junk,
        groups,
        [*filter(None, (copies, learned.note)), *notes],
    )


def fit_with_groups(
    dataset: Dataset, table: Table, source: LabelSource, seed: int, junk: Junk | None
) -> tuple[DatasetFit, FittedScores, list[UnlikeGroup]]:
    """Return the fit to images, labels and junk scores, its columns, and the groups unlike the rest."""
    fit, scores = fit_dataset(dataset.embeddings, dataset.junk, labels=source.labels, seed=seed)
    fit, scores, groups = with_groups(dataset, table, fit, scores)
    return replace(fit, junk=None if junk is None else junk.classifier), scores, groups


def _apply_fit(table: Table, fitted: str | Path, report: Callable[[str], None]) -> Fitted:
    """Apply an earlier fit: every row is scored independently."""
    _, card = load_model(find_checkpoint(fitted))
    kept = read_fit(fitted, card)
    if kept is None:
        raise InputError(f"{fitted} was not fitted to a dataset; pass one that curate fit wrote, or leave out --fitted")
    check_same(table, fitted)
    lacking = [name for name in (kept.junk.names if kept.junk else ()) if name not in table.schema.names]
    if lacking:
        raise InputError(
            f"expected the columns that p_junk of {fitted} needs in {table.path}, got none named {', '.join(lacking)}; "
            "score the images with the model, or fit again"
        )
    dataset = _dataset(table, once=False)
    if dataset.embeddings.shape[1] != len(kept.mean):
        raise InputError(
            f"expected embeddings of {len(kept.mean):,} numbers in {table.path}, as {fitted} was fitted on, got "
            f"{dataset.embeddings.shape[1]:,}; score the images with the same model"
        )
    report(f"applying {fitted} to {counted(len(dataset), 'row')} of {table.path}")
    probability = np.full(table.n_rows, np.nan, np.float32) if kept.junk is None else judge(kept.junk, table)
    junk = Junk(kept.junk, probability)
    scores = kept.score(dataset.embeddings, junk.log_odds(dataset))
    return Fitted(dataset, kept, scores, LabelSource(), classes_in(dataset, table), junk)


def _dataset(table: Table, names: tuple[str, ...] = (), *, once: bool = True) -> Dataset:
    """Read the images of a table, with the class columns to learn from."""
    dataset = read_dataset(table, names=names, once=once)
    if not len(dataset):
        raise InputError(
            f"{table.path} has no row with an embedding{_missing_counts(dataset.missing)}; score the images again"
        )
    return dataset


def _missing_counts(missing: Mapping[str, int]) -> str:
    counts = ", ".join(f"{count:,} with {what}" for what, count in missing.items())
    return f" ({counts})" if counts else ""


def _fit_record(done: Fitted, table: Table, recorded: AnyPath, seed: int) -> dict[str, Any]:
    """Return the record of the fit for model and table, as JSON values."""
    return {
        "table": {"path": str(recorded.resolve()), "digest": done.dataset.rows.digest, "rows": len(done.dataset)},
        **({} if table.embedding_column is None else {"embedding": table.embedding_column}),
        "labels": done.label_source.source,
        "seed": seed,
        "references": len(done.fit.references),
        "groups": group_facts(done.groups, done.columns()[UNLIKE]),
        **({} if done.junk is None or not done.junk.about else {"junk": done.junk.about}),
        "digest": digest_of_fit(done.fit),
        "curate": __version__,
    }


def _shares(done: Fitted) -> tuple[str, list[Share]]:
    """Return the share of each class that a cut would drop, or of each cluster if few rows are in large classes."""
    score, classes = done.scores.columns[LOCAL], done.classes
    if classes is not None:
        codes = classes.codes[done.dataset.first]
        size = np.bincount(codes[codes >= 0], minlength=1)
        if len(classes.names) > 1 and 2 * size[size >= LEAST_ROWS].sum() >= len(codes):
            return "class", shares_of(score, codes, classes.names)
    if len(done.dataset) < ROWS_A_CLUSTER * len(done.fit.clusters):
        return "cluster", []
    clusters = done.scores.columns[CLUSTER]
    return "cluster", shares_of(
        score, clusters, [str(number + 1) for number in range(int(clusters.max(initial=-1)) + 1)]
    )


def _class_entropy_column(done: Fitted, seed: int) -> dict[str, NDArray[np.float32]]:
    """Return the class entropy column, if there are labels to learn from."""
    labels = done.label_source.labels
    entropy = None if labels is None else class_entropy(done.dataset, labels, seed=seed)
    return {} if entropy is None else {CLASS: entropy}


def _label_accuracy(done: Fitted, seed: int) -> dict[str, Any]:
    """Return the accuracy of the score on the labels learned from, else on the class column."""
    if done.scores.learned is not None:
        return asdict(done.scores.learned)
    if done.classes is None:
        return {}
    labels = labels_in(done.dataset, done.classes)
    auroc = label_auroc(
        lambda rows: centred(done.dataset.embeddings[rows], done.fit.mean),
        done.scores.columns[AMBIGUOUS],
        labels,
        seed=seed,
    )
    return {} if auroc is None else {"rows": len(labels.rows), "classes": len(labels.classes), "auroc": auroc}


def class_entropy(dataset: Dataset, labels: KnownLabels, *, seed: int) -> NDArray[np.float32] | None:
    """Return the entropy of a linear classifier's class probabilities for each row, nats, shape (M,).

    Labelled rows are predicted out of fold, with copies in the same fold; other rows by a classifier of all labels.
    None if there are too many classes or too few distinct rows.
    """
    vectors = _unit_vectors(rows_of(dataset.embeddings, labels.rows))
    codes = torch.from_numpy(labels.codes)
    groups = group_duplicates(vectors)
    n_different = len(vectors) if groups is None else len(groups.first)
    if len(labels.classes) > MOST_CLASSES or n_different < FOLDS:
        return None
    together = None if groups is None else groups.of_row
    entropy = np.empty(len(dataset), np.float32)
    classifier = fit_linear(vectors, codes, len(labels.classes))
    for start in range(0, len(dataset), BLOCK):
        logits = classifier.logits(_unit_vectors(dataset.embeddings[start : start + BLOCK])).double()
        entropy[start : start + BLOCK] = torch.special.entr(logits.softmax(1)).sum(1).numpy()
    entropy[labels.rows] = cross_validate(vectors, codes, folds=FOLDS, seed=seed, groups=together).entropy
    return entropy


def _unit_vectors(embeddings: Array) -> torch.Tensor:
    rows = torch.from_numpy(np.array(embeddings, np.float32))
    return rows.div_(rows.norm(dim=1, keepdim=True).clamp_min_(1e-12))


def digest_of(model: str | Path) -> str:
    """Return the digest of the model that computes a checkpoint's embeddings: for a fitted one, of its base."""
    card = load_model(model)[1] if is_published(model) else read_header(find_checkpoint(model))
    return str(card.get("base", card["digest"]))


def base_of(table: Table, model: str | Path | None) -> str | Path:
    """Return the model that computed a table's embeddings, as ``load_model`` takes it; by default a shipped one.

    Raises:
        InputError: if ``model`` is another one, or None and no shipped model computed them.
    """
    made_by = model_of(table)
    if model is not None:
        check_same(table, model)
        return model
    for path in shipped_models().values():
        if made_by and digest_of(path) == made_by:
            return path
    who = f"by the model {made_by[:12]}..., which does not ship" if made_by else "by a model that it does not record"
    raise InputError(f"{table.path} was scored {who}; pass it as --model, as when scoring")


def check_same(table: Table, model: str | Path) -> None:
    """Raise ``InputError`` if a table records that another model computed its embeddings."""
    made_by, digest = model_of(table), digest_of(model)
    if made_by and made_by != digest:
        raise InputError(
            f"expected the model that scored {table.path} ({made_by[:12]}...), got {model} ({digest[:12]}...): their "
            "embeddings cannot be compared; pass the other, or score the images with this one"
        )
