"""Where the rounds of a folder stand, as rows of its table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from curate.probes.accuracy import KnownClasses
from curate.rounds.files.folder import Folder, Round
from curate.rounds.files.votes import LABELLED, SKIPPED, Consensus, Votes
from curate.rounds.state.batch import Standing
from curate.rounds.state.pool import Places, TableRows
from scoring.errors import InputError


@dataclass(frozen=True)
class Progress:
    """What came back so far.

    Attributes:
        votes: all of them.
        consensus: of every key that came back.
        given: classes of held-out keys that were known from the start.
        held_out: keys that are held out.
        arms: every key that was asked -> why.
    """

    votes: Votes
    consensus: dict[str, Consensus]
    given: dict[str, str]
    held_out: tuple[str, ...]
    arms: dict[str, str]

    def count(self, state: str) -> int:
        """Return the keys whose votes came to "labelled", "tied" or "skipped"."""
        return sum(one.state == state for one in self.consensus.values())

    def missing(self, of: Round) -> list[str]:
        """Return the keys of a round that did not come back, in the order asked."""
        return [key for key in of.keys if key not in self.consensus]


def progress_of(folder: Folder) -> Progress:
    """Return what came back so far."""
    votes = folder.votes
    held_out, given = held_out_keys(folder)
    return Progress(votes, votes.consensus(), given, held_out, folder.arms)


def held_out_keys(folder: Folder) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the keys that are held out, and the classes that were known from the start."""
    table = folder.holdout
    keys, labels = table["key"].to_pylist(), table["label"].to_pylist()
    return tuple(keys), {key: label for key, label in zip(keys, labels, strict=True) if label is not None}


@dataclass(frozen=True)
class Stand:
    """Rows of the table: who may be picked is everyone else who is usable.

    Attributes:
        standing: of the pool.
        held_known: rows held out whose class is known.
        ask: rows held out whose class is to be asked: not known from the start, and never asked.
    """

    standing: Standing
    held_known: KnownClasses
    ask: Places


def stand(folder: Folder, found: TableRows, progress: Progress) -> Stand:
    """Return where the rounds stand, as rows of the table.

    Raises:
        InputError: if the table lacks a key of the folder.
    """
    holdout = np.sort(found.find(progress.held_out))
    asked = np.sort(found.find(progress.arms))
    skipped = found.find(key for key, one in progress.consensus.items() if one.state == SKIPPED)
    away = np.setdiff1d(np.setdiff1d(asked, holdout), skipped)
    everything = known_rows(found, progress.consensus, progress.given, folder.settings.classes)
    ask = [key for key in progress.held_out if key not in progress.given and key not in progress.arms]
    pool_known = everything.among(np.setdiff1d(everything.rows, holdout))
    standing = Standing(holdout, asked, away, pool_known)
    return Stand(standing, everything.among(holdout), np.sort(found.find(ask)))


def rows_of_arm(folder: Folder, found: TableRows, known: KnownClasses, arm: str) -> KnownClasses:
    """Return the rows of an arm whose class is known, in the order in which they were asked."""
    asked = []
    for each in folder.rounds:
        picks = zip(each.batch["pick"].to_pylist(), each.keys, each.batch["arm"].to_pylist(), strict=True)
        asked += [key for _, key, one in sorted(picks) if one == arm]
    rows = found.find(asked)
    rows = rows[np.isin(rows, known.rows)]
    return KnownClasses(rows, known.labels[np.searchsorted(known.rows, rows)], known.classes)


def known_rows(
    found: TableRows, consensus: Mapping[str, Consensus], given: Mapping[str, str], classes: Sequence[str] | None
) -> KnownClasses:
    """Return the rows whose class is known, by annotators or from the start; annotators come first.

    Args:
        found: the table.
        consensus: of every key that came back.
        given: key -> class, known from the start.
        classes: all of them; None for those that are seen.

    Raises:
        InputError: for a class that is not among them.
    """
    said = {**given, **{key: one.label for key, one in consensus.items() if one.state == LABELLED and one.label}}
    said = {key: label for key, label in said.items() if key not in consensus or consensus[key].state == LABELLED}
    names = tuple(sorted(set(said.values()))) if classes is None else tuple(classes)
    place = {name: number for number, name in enumerate(names)}
    strange = [label for label in said.values() if label not in place]
    if strange:
        raise InputError(f"expected the classes {', '.join(names)} in the labels of these rounds, got {strange[0]!r}")
    rows = found.find(said)
    labels = np.array([place[label] for label in said.values()], np.int64)
    order = np.argsort(rows)
    return KnownClasses(rows[order], labels[order], names)
