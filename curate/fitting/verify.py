"""Verification of a fit: fit again and compare."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from curate.fitting.fit import fit_with_groups
from curate.fitting.junk import junk_of
from curate.fitting.labels import labels_to_learn
from curate.manifest.store_path import AnyPath, path_on_disk, path_to_read, sha256_of
from curate.policies.findings import VerificationResult
from curate.tables.dataset import read_dataset
from curate.tables.table import open_table
from scoring.cards import find_checkpoint
from scoring.checkpoint import load_model
from scoring.errors import InputError
from scoring.relative.stored import digest_of_fit, read_fit


@dataclass(frozen=True)
class FitVerification(VerificationResult):
    """The result of fitting a model again.

    Attributes:
        rows: number of rows fitted to.
        table: whether the table still holds the same rows.
        labels: whether the labels are the same.
        fit: whether the new fit equals the model's.
        applied: whether the table written with it has the same bytes; None if there is none.
    """

    rows: int
    table: bool
    labels: bool
    fit: bool
    applied: bool | None

    @property
    def identical(self) -> bool:
        """Whether the fit is reproduced exactly."""
        return self.table and self.labels and self.fit and self.applied is not False


@dataclass(frozen=True)
class Origin:
    """The data that a model was fitted to, from its card: files, digests, and the seed."""

    table: AnyPath
    digest: str
    seed: int
    label: str | None
    labelled: Path | None
    labels_digest: str | None
    applied: str  # next to the model
    applied_sha256: str

    @classmethod
    def of(cls, about: dict[str, Any]) -> Self:
        """Return the origin recorded in the fit section of a card.

        Raises:
            AttributeError, KeyError, TypeError, ValueError: if a part is missing or of the wrong type.
        """
        table, labels, applied = about["table"], about["labels"], about.get("applied") or {}
        named = {"label": labels.get("column"), "labelled": labels.get("path"), "digest": labels.get("digest")}
        for name, value in {**named, "applied": applied.get("file"), "sha256": applied.get("sha256")}.items():
            if not isinstance(value, str | None):
                raise TypeError(f"expected text for {name}, got {value!r}")
        seed = about["seed"]
        if type(seed) is not int or not 0 <= seed < 2**31:
            raise ValueError(f"a seed of {seed!r}")
        labelled = None if named["labelled"] is None else Path(named["labelled"])
        return cls(
            *(path_to_read(table["path"]), table["digest"], seed, named["label"], labelled, named["digest"]),
            *(Path(applied.get("file") or "").name, applied.get("sha256") or ""),
        )


def verify_fit(model: str | Path, table: str | AnyPath | None = None) -> FitVerification:
    """Fit a model again to its table, or to ``table`` if it was moved, with its recorded settings, and compare.

    Raises:
        InputError: if the model was not fitted, or a table or file of labels is missing or cannot be read.
    """
    path = find_checkpoint(model)
    _, card = load_model(path)
    kept = read_fit(path, card)
    if kept is None:
        raise InputError(
            f"{path} was not fitted to a dataset: there is nothing to derive; pass one that curate fit wrote"
        )
    try:
        origin = Origin.of(card["fit"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} does not record what it was fitted to ({error}); fit it again with curate fit"
        ) from None
    opened = open_table(table if table is not None else _where_now(origin.table, path))
    names = (origin.label,) if origin.label and origin.labelled is None else ()
    dataset = read_dataset(opened, names=names)
    labelled = path_on_disk(_where_now(origin.labelled, path), "labels") if origin.labelled is not None else None
    source = labels_to_learn(dataset, opened, origin.label, labelled)
    dataset, junk, _ = junk_of(dataset, opened, path)
    fit, _, _ = fit_with_groups(dataset, opened, source, origin.seed, junk)
    applied = path.parent / origin.applied
    same = sha256_of(applied) == origin.applied_sha256 if origin.applied and applied.is_file() else None
    return FitVerification(
        len(dataset),
        dataset.rows.digest == origin.digest,
        source.source.get("digest") == origin.labels_digest,
        digest_of_fit(fit) == digest_of_fit(kept),
        same,
    )


def _where_now(place: AnyPath, model: Path) -> AnyPath:
    """Return the path of a file: as recorded, or else next to the model."""
    if place.exists():
        return place
    other = model.parent / place.name
    if other.exists():
        return other
    raise InputError(f"{place}, which {model} was fitted to, no longer exists; pass its new place as --table")
