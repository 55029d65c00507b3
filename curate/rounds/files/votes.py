"""The labels of annotators by import, and their consensus."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import pyarrow as pa

LABELLED, SKIPPED, TIED = "labelled", "skipped", "tied"


@dataclass(frozen=True)
class Vote:
    """The label of one image by one annotator.

    Attributes:
        key: of the table.
        label: the class; None for "not this image".
        annotator: name of the annotator; None if unknown.
        labelled_at: time, as in the file; None if unknown.
    """

    key: str
    label: str | None
    annotator: str | None = None
    labelled_at: str | None = None


class RoundVotes:
    """All labels so far.

    A later vote of the same annotator on a key replaces the earlier one, as a correction. Votes without an annotator
    count as one annotator's.

    Args:
        imports: the votes of each import, in the order imported.
    """

    def __init__(self, imports: Iterable[Sequence[Vote]] = ()) -> None:
        self._held: dict[str, dict[str | None, tuple[str | None, ...]]] = {}
        for votes in imports:
            self.add(votes)

    def __contains__(self, key: str) -> bool:
        return key in self._held

    def add(self, votes: Sequence[Vote]) -> "News":
        """Add the votes of an import, and return which of them are new."""
        by_voter: dict[tuple[str, str | None], list[str | None]] = {}
        for vote in votes:
            by_voter.setdefault((vote.key, vote.annotator), []).append(vote.label)
        news = News()
        for (key, who), labels in by_voter.items():
            now = tuple(sorted(labels, key=lambda label: (label is None, label or "")))
            before = self._held.setdefault(key, {}).get(who)
            if before == now:
                news.repeated.append(key)
                continue
            (news.new if before is None else news.changed).append(key)
            self._held[key][who] = now
        return news

    def labels_of(self, key: str) -> list[str]:
        """Return the sorted labels of a key; empty if skipped or not returned."""
        return sorted(label for labels in self._held.get(key, {}).values() for label in labels if label is not None)

    def consensus(self) -> dict[str, "Consensus"]:
        """Return the consensus for every key with labels, in the order of the keys."""
        return {key: agree(self.labels_of(key)) for key in sorted(self._held)}

    def for_classes(self) -> list[tuple[str, str, str]]:
        """Return key, annotator (empty if unnamed) and class of every vote for a class."""
        held = ((key, who or "", labels) for key, by in self._held.items() for who, labels in by.items())
        return [(key, who, label) for key, who, labels in held for label in labels if label is not None]

    def annotators(self) -> list[str]:
        """Return the sorted names of known annotators."""
        return sorted({who for annotators in self._held.values() for who in annotators if who is not None})


@dataclass
class News:
    """The keys of an import by kind of change; one entry per key and annotator."""

    new: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Consensus:
    """The consensus on one key.

    Attributes:
        state: "labelled", "tied" (several classes have most votes) or "skipped".
        label: the class with most votes; None unless labelled.
        n_labels: number of votes for a class.
        entropy: of the votes, in nats; 0 if all agree.
        classes: the classes with most votes.
    """

    state: str
    label: str | None
    n_labels: int
    entropy: float
    classes: tuple[str, ...]


def agree(labels: Sequence[str]) -> Consensus:
    """Return the consensus of votes for classes; without votes the image counts as skipped.

    >>> agree(["cat", "cat", "dog"])
    Consensus(state='labelled', label='cat', n_labels=3, entropy=0.6365141682948128, classes=('cat',))
    >>> agree(["cat", "dog"]).state
    'tied'
    """
    if not labels:
        return Consensus(SKIPPED, None, 0, 0.0, ())
    counts = Counter(labels)
    most = max(counts.values())
    first = tuple(sorted(label for label, count in counts.items() if count == most))
    entropy = -sum(count / len(labels) * math.log(count / len(labels)) for count in counts.values())
    if len(first) > 1:
        return Consensus(TIED, None, len(labels), entropy, first)
    return Consensus(LABELLED, first[0], len(labels), abs(entropy), first)


@dataclass(frozen=True)
class Agreement:
    """The agreement of annotators.

    Attributes:
        n_keys: keys with at least two labels.
        pairs: share of pairs of labels on the same key that agree; NaN without pairs.
        alpha: Krippendorff's alpha for classes: 1 is agreement, 0 agreement by chance; NaN if undefined.
    """

    n_keys: int
    pairs: float
    alpha: float


def agreement(votes: Iterable[Sequence[str]]) -> Agreement:
    """Return the agreement of the labels of each key.

    Args:
        votes: the labels of each key; keys with fewer than two are ignored.

    Source: Krippendorff 2011, "Computing Krippendorff's alpha-reliability", C (nominal data, any number of observers).

    >>> agreement([["a", "a"], ["b", "b"], ["a", "b"]]).alpha.__round__(4)
    0.4444
    """
    several = [labels for labels in votes if len(labels) > 1]
    if not several:
        return Agreement(0, math.nan, math.nan)
    alike = [a == b for labels in several for a, b in combinations(labels, 2)]
    totals = Counter(label for labels in several for label in labels)
    n = sum(totals.values())
    observed = 0.0  # disagreeing ordered pairs inside keys, each key's votes weighing 1 / (m - 1)
    for labels in several:
        same = sum(count * (count - 1) for count in Counter(labels).values())
        observed += (len(labels) * (len(labels) - 1) - same) / (len(labels) - 1)
    expected = (n * (n - 1) - sum(count * (count - 1) for count in totals.values())) / (n - 1)
    alpha = 1 - observed / expected if expected else math.nan
    return Agreement(len(several), sum(alike) / len(alike), alpha)


def label_table(votes: RoundVotes, rounds: dict[str, int], arms: dict[str, str]) -> pa.Table:
    """Return one row for each key whose label was imported.

    Args:
        votes: all votes.
        rounds: key -> round in which it was sent out.
        arms: key -> arm: strategy, control or holdout.

    Returns:
        `key`, `label` (null if tied or skipped), `state`, `n_labels`, `entropy` (nats), `round`, `arm`.
    """
    consensus = votes.consensus()
    return pa.table(
        {
            "key": pa.array(list(consensus), pa.string()),
            "label": pa.array([agreed.label for agreed in consensus.values()], pa.string()),
            "state": pa.array([agreed.state for agreed in consensus.values()], pa.string()),
            "n_labels": pa.array([agreed.n_labels for agreed in consensus.values()], pa.int32()),
            "entropy": pa.array([agreed.entropy for agreed in consensus.values()], pa.float32()),
            "round": pa.array([rounds.get(key) for key in consensus], pa.int32()),
            "arm": pa.array([arms.get(key) for key in consensus], pa.string()),
        }
    )
