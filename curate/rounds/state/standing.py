"""The state of a table's rows in a folder of rounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from curate.probes.probabilities import Labelled
from curate.rounds.files.folder import Folder, Round
from curate.rounds.files.votes import LABELLED, SKIPPED, Consensus, RoundVotes
from curate.rounds.state.pool import Places, TableRows
from scoring.errors import InputError


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
    """Row indices by state, ascending; usable rows in none of them are candidates.

    Attributes:
        holdout: held out.
        requested: in a batch of any round.
        away: sent out, not held out, and not skipped: they count for diversity.
        known: with a consensus class, not held out.
        held_known: held out, with a known class.
        to_ask: held out, without a known class, and not sent out yet.
    """

    holdout: Places
    requested: Places
    away: Places
    known: Labelled
    held_known: Labelled
    to_ask: Places


def standing_of(folder: Folder, scored: TableRows, progress: LabelProgress) -> RoundRows:
    """Return the state of each row in a folder of rounds; InputError if the table lacks a key of the folder."""
    holdout = np.sort(scored.find(progress.held_out))
    requested = np.sort(scored.find(progress.arms))
    skipped = scored.find(key for key, agreed in progress.consensus.items() if agreed.state == SKIPPED)
    away = np.setdiff1d(np.setdiff1d(requested, holdout), skipped)
    known = known_rows(scored, progress.consensus, progress.initial_labels, folder.settings.classes)
    to_ask = [key for key in progress.held_out if key not in progress.initial_labels and key not in progress.arms]
    return RoundRows(
        holdout,
        requested,
        away,
        known.among(np.setdiff1d(known.rows, holdout)),
        known.among(holdout),
        np.sort(scored.find(to_ask)),
    )


def rows_of_arm(folder: Folder, scored: TableRows, known: Labelled, arm: str) -> Labelled:
    """Return the rows of an arm with a known class, in the order sent out."""
    requested = []
    for each in folder.rounds:
        picks = zip(each.batch["pick"].to_pylist(), each.keys, each.batch["arm"].to_pylist(), strict=True)
        requested += [key for _, key, arm_of_key in sorted(picks) if arm_of_key == arm]
    rows = scored.find(requested)
    rows = rows[np.isin(rows, known.rows)]
    return Labelled(rows, known.codes[np.searchsorted(known.rows, rows)], known.classes)


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
