"""The table of a folder of rounds, the state of its rows, and the model fitted on all labels so far."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.columns import EMBEDDING, KEY
from curate.probes.accuracy import accuracy, entropy_share, fit
from curate.probes.linear import FeatureScale, Probe, spread_of
from curate.probes.probabilities import Labelled
from curate.rounds.files.folder import CONTROL, STOP, STRATEGY, Folder, Round
from curate.rounds.files.settings import Guard, RoundSettings
from curate.rounds.files.votes import LABELLED, SKIPPED, Consensus, RoundVotes
from curate.rounds.measures.lift import (
    Arms,
    ModelQuality,
    PairLift,
    anytime_accuracy,
    compared,
    coverage,
    pair_lift,
    sample_of,
)
from curate.tables.digests import plain, tie_breaks
from curate.tables.needs import EMBEDDINGS, Needs, Signals, quality_signal, signal
from curate.tables.rows import Rows, read_rows
from curate.tables.table import Table, open_table
from scoring.errors import InputError

Places = NDArray[np.int64]


@dataclass(frozen=True)
class TableRows:
    """The columns of a table that rounds need.

    Attributes:
        table: the opened table.
        rows: sorted by the hash of their keys.
        usable: mask of scored rows with a usable embedding, shape (N,).
    """

    table: Table
    rows: Rows
    usable: NDArray[np.bool_]

    @property
    def vectors(self) -> NDArray[np.floating]:
        """Unit rows, shape (N, D)."""
        return self.rows.array(EMBEDDING)

    def find(self, keys: Iterable[str]) -> Places:
        """Return the row of each key, shape (M,); InputError for a missing key."""
        key_list = list(keys)
        rows = self.rows.find(tie_breaks([key.encode("utf-8", "surrogateescape") for key in key_list]))
        if (rows < 0).any():
            lost = key_list[int(np.flatnonzero(rows < 0)[0])]
            raise InputError(
                f"expected the rows of these rounds in {self.table.path}, got no key {lost!r} "
                f"({int((rows < 0).sum()):,} are missing); pass the table that the folder was made from"
            )
        return rows

    def take(self, rows: Places, names: Iterable[str]) -> pa.Table:
        """Return columns of some rows, in the given order, without columns that the table lacks."""
        return self.table.take(self.rows.place[rows], [name for name in names if name in self.table.schema.names])

    def keys(self, rows: Places) -> list[str]:
        """Return the keys of some rows, as text."""
        column = plain(self.take(rows, [KEY])[KEY].combine_chunks())
        keys: list[str] = column.cast(pa.string()).to_pylist()
        return keys


def read_table(path: str | Path, numbers: tuple[str, ...] = ()) -> TableRows:
    """Read keys, statuses, embeddings and the strategy's numeric columns; InputError if missing or repeated."""
    table = open_table(path, require=[KEY])
    rows = read_rows(table, Needs(representations=EMBEDDINGS, numbers=numbers), by_hash=True)
    if not len(rows):
        raise InputError(f"expected a table with rows, got none in {table.path}; score some images")
    return TableRows(table, rows, rows.ok & (rows.embedding_problem == 0))


def signals_of(guard: Guard, table: Table) -> Signals:
    """Return the columns of score and quality; InputError if one is missing or has no known direction.

    Args:
        guard: the settings; a gate or discount without a quality column uses the default one.
        table: with the columns.
    """
    uses_quality = guard.quality or guard.gate or guard.discount or guard.noise_guard
    return Signals(
        score=signal(guard.score, table, certain_first=False, flag="--score") if guard.score else None,
        quality=quality_signal(guard.quality, table) if uses_quality else None,
    )


def table_of(settings: RoundSettings, folder: Path, path: str | Path | None = None) -> TableRows:
    """Read the table of a folder of rounds; InputError if it is missing, or has other keys or embeddings.

    Args:
        settings: of the folder.
        folder: for messages.
        path: present path of the table; None if not moved.
    """
    place = Path(settings.table if path is None else path)
    if not place.exists():
        raise InputError(f"expected the table of {folder} at {place}, which is missing; pass its place as --table")
    scored = read_table(place, signals_of(settings.guard, open_table(place, require=[KEY])).columns)
    refuse_another(settings, folder, scored)
    return scored


def refuse_another(settings: RoundSettings, folder: Path, scored: TableRows) -> None:
    """Raise InputError, with the difference, for a table other than the folder's."""
    if scored.rows.model != settings.model:
        models = [digest[:12] or "unknown" for digest in (settings.model, scored.rows.model)]
        raise InputError(
            f"{folder} holds rounds of {settings.table} (model {models[0]}), got embeddings of another model in "
            f"{scored.table.path} (model {models[1]}); pass the table that it was made from, or make another folder"
        )
    if scored.rows.digest != settings.digest:
        raise InputError(
            f"{folder} holds rounds of {settings.table} ({settings.n_rows:,} rows, digest {settings.digest[:12]}), got "
            f"other keys or embeddings in {scored.table.path} ({len(scored.rows):,} rows, digest "
            f"{scored.rows.digest[:12]}); pass the table that it was made from, or make another folder"
        )


@dataclass(frozen=True)
class LabelProgress:
    """The labels imported so far.

    Attributes:
        votes: all votes.
        consensus: of every returned key.
        initial_labels: classes of held-out keys known from the start.
        held_out: held-out keys.
        arms: every key that was sent out -> its arm.
    """

    votes: RoundVotes
    consensus: dict[str, Consensus]
    initial_labels: dict[str, str]
    held_out: tuple[str, ...]
    arms: dict[str, str]

    def count(self, state: str) -> int:
        """Return the number of keys in a state: "labelled", "tied" or "skipped"."""
        return sum(agreed.state == state for agreed in self.consensus.values())

    def missing(self, of: Round) -> list[str]:
        """Return the keys of a round without a returned label, in the order sent out."""
        return [key for key in of.keys if key not in self.consensus]


def progress_of(folder: Folder) -> LabelProgress:
    """Return the labels imported so far."""
    votes = folder.votes
    held_out, initial_labels = held_out_keys(folder)
    return LabelProgress(votes, votes.consensus(), initial_labels, held_out, folder.arms)


def held_out_keys(folder: Folder) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the held-out keys, and the classes known from the start."""
    table = folder.holdout
    keys, labels = table["key"].to_pylist(), table["label"].to_pylist()
    return tuple(keys), {key: label for key, label in zip(keys, labels, strict=True) if label is not None}


@dataclass(frozen=True)
class RoundRows:
    """The rows of a table by their state in a folder of rounds, ascending; usable rows in no state are candidates.

    Attributes:
        folder: with the rounds so far.
        scored: the table.
        holdout: held out.
        requested: in a batch of any round.
        away: sent out, not held out, and not skipped: they count for diversity.
        known: with a consensus class, not held out.
        held_known: held out, with a known class.
        to_ask: held out, without a known class, and not sent out yet.
    """

    folder: Folder
    scored: TableRows
    holdout: Places
    requested: Places
    away: Places
    known: Labelled
    held_known: Labelled
    to_ask: Places

    @cached_property
    def spread(self) -> FeatureScale | None:
        """The scaling by rows that are not held out, for the linear probe; None for other probes."""
        if self.folder.settings.probe != "linear":
            return None
        rows = self.scored.usable.copy()
        rows[self.holdout] = False
        return spread_of(self.scored.vectors[rows])

    def fit_probe(self) -> Probe | None:
        """Fit the probe on rows with a known class; None without any."""
        settings = self.folder.settings
        if not len(self.known):
            return None
        return fit(settings.probe, self.scored.vectors, self.known, spread=self.spread, seed=settings.seed)

    def arms(self, up_to: int | None = None) -> Arms:
        """Return the labelled rows of both arms, of all rounds or up to a given one."""
        keys = [key for key, number in self.folder.requested.items() if up_to is None or number <= up_to]
        known = self.known.among(self.scored.find(keys))
        strategy, control = (self._of_arm(known, arm) for arm in (STRATEGY, CONTROL))
        return Arms(self.scored.vectors, strategy, control, self.held_known, self.folder.settings.probe, self.spread)

    def _of_arm(self, known: Labelled, arm: str) -> Labelled:
        """Return the rows of an arm with a known class, in the order sent out."""
        requested = []
        for each in self.folder.rounds:
            picks = zip(each.batch["pick"].to_pylist(), each.keys, each.batch["arm"].to_pylist(), strict=True)
            requested += [key for _, key, arm_of_key in sorted(picks) if arm_of_key == arm]
        rows = self.scored.find(requested)
        rows = rows[np.isin(rows, known.rows)]
        return Labelled(rows, known.codes[np.searchsorted(known.rows, rows)], known.classes)

    def lift(self, look: int) -> PairLift | None:
        """Return the strategy's lift over random labels at a look; None without a control arm or with few labels."""
        settings = self.folder.settings
        return pair_lift(self.arms(), look, settings.confidence) if settings.n_control else None

    def measure(self, probe: Probe, look: int) -> tuple[ModelQuality, pa.Table]:
        """Measure a probe, fitted on all known labels, on the held-out rows and on the fixed sample.

        ``look`` is the number of imports. The sample of the last round is compared.

        Returns:
            Its measures, and `key`, `predicted` and `probability` of the sample.
        """
        known, scored, settings, rounds = self.known, self.scored, self.folder.settings, self.folder.rounds
        sample = sample_of(np.setdiff1d(np.flatnonzero(scored.usable), self.holdout), settings.seed)
        probabilities = probe.predict(scored.vectors[sample])
        table = pa.table(
            {
                "key": pa.array(scored.keys(sample), pa.string()),
                "predicted": pa.array([known.classes[i] for i in probabilities.argmax(1)], pa.string()),
                "probability": pa.array(np.minimum(probabilities.max(1), 1), pa.float32()),
            }
        )
        holdout = accuracy(probe, scored.vectors, self.held_known)
        measured = ModelQuality(
            probe=settings.probe,
            n_labels=len(known),
            classes=known.counts(),
            temperature=getattr(probe, "temperature", None),
            holdout=holdout,
            entropy=entropy_share(probabilities),
            coverage=coverage(scored.vectors, sample, known.rows),
            against_last=compared(table, rounds[-1].folder / STOP if rounds else None),
            anytime=anytime_accuracy(holdout, look, settings.confidence),
        )
        return measured, table


def standing_of(folder: Folder, scored: TableRows, progress: LabelProgress) -> RoundRows:
    """Return the state of each row in a folder of rounds; InputError if the table lacks a key of the folder."""
    holdout = np.sort(scored.find(progress.held_out))
    requested = np.sort(scored.find(progress.arms))
    skipped = scored.find(key for key, agreed in progress.consensus.items() if agreed.state == SKIPPED)
    away = np.setdiff1d(np.setdiff1d(requested, holdout), skipped)
    known = known_rows(scored, progress.consensus, progress.initial_labels, folder.settings.classes)
    to_ask = [key for key in progress.held_out if key not in progress.initial_labels and key not in progress.arms]
    return RoundRows(
        folder,
        scored,
        holdout,
        requested,
        away,
        known.among(np.setdiff1d(known.rows, holdout)),
        known.among(holdout),
        np.sort(scored.find(to_ask)),
    )


def known_rows(
    scored: TableRows,
    consensus: Mapping[str, Consensus],
    initial_labels: Mapping[str, str],
    classes: Sequence[str] | None,
) -> Labelled:
    """Return the rows with a known class, from annotators or from the start; annotators take precedence.

    Args:
        scored: the table.
        consensus: of every returned key.
        initial_labels: key -> class, known from the start.
        classes: all classes; None for the classes that occur.

    Raises:
        InputError: for an unknown class.
    """
    class_of = {key: label for key, label in initial_labels.items() if key not in consensus}
    class_of |= {key: agreed.label for key, agreed in consensus.items() if agreed.state == LABELLED and agreed.label}
    names = tuple(sorted(set(class_of.values()))) if classes is None else tuple(classes)
    place = {name: number for number, name in enumerate(names)}
    unknown = [label for label in class_of.values() if label not in place]
    if unknown:
        raise InputError(f"expected the classes {', '.join(names)} in the labels of these rounds, got {unknown[0]!r}")
    rows = scored.find(class_of)
    labels = np.array([place[label] for label in class_of.values()], np.int64)
    order = np.argsort(rows)
    return Labelled(rows[order], labels[order], names)
