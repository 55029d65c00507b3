"""The state of a review: open groups, decisions, and the results of a random sample of the kept rows."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.columns import LABEL
from curate.policies.verdicts import (
    AUDIT,
    COPY,
    DECISIONS,
    DROP,
    IMAGE,
    KEEP,
    LABELS,
    MEANWHILE,
    RELABEL,
    SPLIT,
    UNDO,
    Line,
    VerdictFile,
    Verdicts,
    combined,
)
from curate.reporting.columns import Dataset
from curate.reporting.findings import COPIED
from curate.reviewing.clusters import in_view
from curate.reviewing.keys import images_of, keys_of
from curate.reviewing.queue import SHOWN, Group, id_of
from curate.reviewing.samples import SAMPLE
from curate.reviewing.standing import Standing
from curate.tables.digests import text_hashes
from scoring.errors import InputError

PAGE = 500  # images of a page of all
DRAWN = 60  # sampled images at a time: if all are good, fewer than 5 % are bad
LEVEL = 0.95
DISAGREE = "reviewers-disagree"
OPPOSITE = {KEEP: DROP, DROP: KEEP}
LEFT_OUT = {KEEP: 1.0, DROP: 0.0}  # weight of an image excluded from a decision
MOST_LABEL = 500  # characters of a new label


class Review:
    """The groups of a table and the decisions on them; thread-safe.

    Args:
        dataset: the table.
        kept: mask of the presently kept rows, shape (N,).
        groups: to decide, most consequential first.
        file: the file of decisions.
        column: the label column; None without one.
    """

    def __init__(
        self, dataset: Dataset, kept: NDArray[np.bool_], groups: Sequence[Group], file: VerdictFile, column: str | None
    ) -> None:
        self.dataset, self.table, self.file, self.column = dataset, dataset.table, file, column
        self._kept, self._groups = kept, {group.id: group for group in groups}
        self._rows: dict[str, tuple[NDArray[np.int64], int, int]] = {}
        self._lock = threading.RLock()
        self._stood: tuple[Verdicts, Standing] | None = None

    def refuse_other(self) -> None:
        """Raise InputError if no verdict in the file is on an image of the table."""
        verdicts = [line for line in self.file.verdicts.live() if line.keys]
        if verdicts and not any((self._rows_of(line) >= 0).any() for line in verdicts):
            raise InputError(
                f"{self.file.path} belongs to another table: none of its images is in {self.table.path}; pass "
                "another file as --verdicts"
            )

    # What the page asks for

    def state(self) -> dict[str, Any]:
        """Return the queue and the counts, as JSON."""
        with self._lock:
            now, queue = self._standing, []
            concerned = np.zeros(self.dataset.n, bool)
            for group, rows in self._waiting():
                concerned[rows] |= group.kind != COPIED
                queue.append({**self._named(group), "n": len(rows)})
            return {
                "seq": len(self.file.verdicts.all),
                "reviewer": self.file.reviewer,
                "queue": queue,
                "remaining": int(concerned.sum()),
                "groups": sum(each["kind"] != COPIED for each in queue),
                "rows": int(self._kept.sum()),
                "dropped": int(now.dropped.sum()),
                "kept": int((now.kept & ~now.dropped).sum()),
                "relabelled": len(now.labels),
                "can_undo": self._last() is not None,
                "audit": self._audit(),
            }

    def group(self, id: str, offset: int | None = None) -> dict[str, Any]:
        """Return a sample of a group's images, or with an offset a page, worst first; InputError if not open."""
        with self._lock:
            group = self._standing.groups.get(id)
            rows = self._open(group) if group is not None else np.zeros(0, np.int64)
            if group is None or not len(rows):
                raise InputError("this group is decided already; continue with the next one")
            places = np.flatnonzero(np.isin(group.rows, rows))
            if offset is None:
                vectors = None if group.vectors is None else group.vectors[places]
                shown, typical = in_view(vectors, len(places), SHOWN)
                places = places[shown]
            else:
                places, typical = places[offset : offset + PAGE], 0
            return {**self._named(group), "n": len(rows), "typical": typical, "items": self._items(group, places)}

    def sample(self) -> dict[str, Any]:
        """Return the next images of a random sample of the kept images, in random order."""
        with self._lock:
            rows = np.flatnonzero(self._population() & ~self._standing.audited)
            chosen = rows[np.argsort(self.dataset.draw[rows], kind="stable")[:DRAWN]]
            keys = keys_of(self.table, chosen)
            items = [{"row": row, "key": key, "why": ""} for row, key in zip(chosen.tolist(), keys, strict=True)]
            return {"n": len(chosen), "items": items}

    # What a reviewer does

    def act(self, seq: int, action: str, id: str, *, rows: Sequence[int] = (), label: str = "") -> str:
        """Append a decision to the file.

        Args:
            seq: number of lines known to the page.
            action: keep, drop, relabel, split, undo or audit.
            id: of the group.
            rows: excluded from the decision; for an audit, all shown rows.
            label: the new label, for ``relabel``.

        Returns:
            The id of the group to show next: after ``undo`` the reopened group, else empty for the first.

        Raises:
            InputError: if the page is outdated, or the action is invalid; nothing is written.
        """
        with self._lock:
            self._check(seq)
            if action == UNDO:
                return self._undo()
            elif action == SPLIT:
                self._split(id)
            elif action in DECISIONS:
                self._decide(action, id, frozenset(rows), label)
            else:
                raise InputError(f"expected keep, drop, relabel, split or undo, got {action[:40]!r}")
            return ""

    def judge(self, seq: int, good: Sequence[int], bad: Sequence[int]) -> None:
        """Append the verdicts on rows of a random sample; ``seq`` is as in ``act``."""
        with self._lock:
            self._check(seq)
            rows = np.array([*bad, *good], np.int64)
            allowed = self._population() & ~self._standing.audited
            if not len(rows) or not (rows >= 0).all() or not (rows < len(allowed)).all() or not allowed[rows].all():
                raise InputError("expected rows of the sample; load it again")
            keys, images = keys_of(self.table, rows), images_of(self.table, rows)
            self.file.append(
                AUDIT, question=IMAGE, words="random sample", keys=keys, images=images, bad=tuple(range(len(bad)))
            )

    def notes(self) -> list[str]:
        """Return notes on the file for the reviewer."""
        for line in self.file.verdicts.live():
            self._rows_of(line)
        gone = sum(dropped for _, dropped, _ in self._rows.values())
        notes, changed = [], sum(restored for _, _, restored in self._rows.values())
        if self.file.verdicts.torn:
            notes.append(f"{self.file.path}: its last line was cut off and is left out; decide that group again")
        if gone:
            notes.append(f"{self.file.path}: {gone:,} verdicts on images that are not in the table are kept unchanged")
        if changed:
            notes.append(f"{self.file.path}: {changed:,} verdicts on images that changed since do not count")
        return notes

    def _check(self, seq: int) -> None:
        if seq != len(self.file.verdicts.all):
            raise InputError(MEANWHILE)

    def _decide(self, action: str, id: str, out: frozenset[int], label: str) -> None:
        group = self._standing.groups.get(id)
        rows = self._open(group) if group is not None else np.zeros(0, np.int64)
        rows = rows[~np.isin(rows, list(out))] if out else rows
        if group is None or not len(rows):
            raise InputError("no image is left in this group; restore one, or continue with the next group")
        fields: dict[str, Any] = {}
        if action == RELABEL:
            label, column = label or group.label, self.column or (LABEL if group.kind == SAMPLE else None)
            if column is None or not label or len(label) > MOST_LABEL:
                raise InputError("expected a table with labels and a new label; choose the column with --label")
            fields = {"column": column, "label": label}
        decisions = [(action, {**self._about(group, rows), **fields})]
        others = group.rows[np.isin(group.rows, list(out))] if out else rows[:0]
        if group.kind == SAMPLE and group.question != LABELS and action in OPPOSITE and len(others):
            decisions.append((OPPOSITE[action], self._about(group, others)))  # none is left out for it is bad
        self.file.append_all(decisions)

    def _about(self, group: Group, rows: NDArray[np.int64]) -> dict[str, Any]:
        """Return the fields of a line on rows of a group."""
        keys, images = keys_of(self.table, rows), images_of(self.table, rows)
        about: dict[str, Any] = {"group": group.id, "question": group.question, "keys": keys, "images": images}
        about |= {"words": f"{group.kind}: {group.words}", "settles": group.kind == DISAGREE}
        if len(group.beside):
            beside = group.beside[np.isin(group.rows, rows)]
            others = iter(keys_of(self.table, beside[beside >= 0]))
            about["beside"] = tuple(next(others) if row >= 0 else "" for row in beside.tolist())
        return about

    def _split(self, id: str) -> None:
        group = self._standing.groups.get(id)
        if group is None or len(self._open(group)) < 2:
            raise InputError("a group of one image cannot be split")
        self.file.append(SPLIT, group=id)

    def _undo(self) -> str:
        last = self._last()
        if last is None:
            raise InputError("you have no decision to undo")
        self.file.append(UNDO, group=last.id)
        return last.group

    def _last(self) -> Line | None:
        """Return the last line of this reviewer that can be undone."""
        mine = (line for line in reversed(self.file.verdicts.live()) if line.reviewer == self.file.reviewer)
        return next((line for line in mine if line.verdict in (*DECISIONS, SPLIT, AUDIT)), None)

    # What stands

    @property
    def _standing(self) -> Standing:
        """Return the state after all lines so far."""
        read = self.file.verdicts
        if self._stood is None or self._stood[0] is not read:
            self._stood = read, self._stand()
        return self._stood[1]

    def _stand(self) -> Standing:
        n, lines = self.dataset.n, self.file.verdicts.live()
        answered: dict[str, NDArray[np.bool_]] = {}
        decisions, disagree = combined(lines)
        dropped, kept, restored = (np.zeros(n, bool) for _ in range(3))
        labels: dict[int, str] = {}
        pairs: set[tuple[int, int]] = set()
        apart: list[tuple[str, int]] = []
        audited, bad = np.zeros(n, bool), np.zeros(n, bool)
        for line in lines:
            rows = self._rows_of(line)
            known = rows[rows >= 0]
            if line.verdict == AUDIT:
                audited[known] = True
                wrong = rows[list(line.bad)]
                bad[wrong[wrong >= 0]] = True
                continue
            if line.beside:
                pairs |= set(zip(rows.tolist(), self.dataset.find(text_hashes(line.beside)).tolist(), strict=True))
            answered.setdefault(line.question, np.zeros(n, bool))[known] = True
            for key, row in zip(line.keys, rows.tolist(), strict=True):
                decision = decisions.get(key)
                if row >= 0 and decision is not None:
                    dropped[row], kept[row] = decision.drop, decision.keep
                    restored[row] = decision.answers.get(COPY) == KEEP
                    apart += [(other, row) for other in decision.apart]
                    labels.update((row, label) for label in decision.labels.values())
        dropped |= bad
        if any(group.kind == SAMPLE for group in self._groups.values()):
            disagree = {}  # disagreements are ignored for samples
        groups = self._disagreeing({key: (each.question, each.words) for key, each in disagree.items()})
        split = {line.group for line in lines if line.verdict == SPLIT}
        for group in self._groups.values():
            groups |= self._divided(group, split)
        for line in lines:
            if line.verdict in LEFT_OUT and line.group in groups and groups[line.group].kind != SAMPLE:
                group = groups[line.group]
                groups[group.id] = replace(group, weights=np.full(len(group.rows), LEFT_OUT[line.verdict]))
        others = self.dataset.find(text_hashes(key for key, _ in apart)).tolist()
        turned = set(zip(others, (row for _, row in apart), strict=True))
        return Standing(answered, dropped, kept, restored, labels, pairs, turned, audited, bad, groups)

    def _divided(self, group: Group, split: set[str]) -> dict[str, Group]:
        """Return a group, or the parts into which reviewers split it, by id."""
        if group.id not in split:
            return {group.id: group}
        keys = keys_of(self.table, group.rows)
        groups: dict[str, Group] = {}
        for part in group.split(dict(zip(group.rows.tolist(), keys, strict=True))):
            groups |= self._divided(part, split - {group.id})
        return groups

    def _disagreeing(self, disagree: Mapping[str, tuple[str, str]]) -> dict[str, Group]:
        """Return the groups of images on which reviewers disagree, by question."""
        groups = {}
        for question in dict.fromkeys(question for question, _ in disagree.values()):
            keys = [key for key, (of_question, _) in disagree.items() if of_question == question]
            rows = self.dataset.find(text_hashes(keys))
            known = [at for at, row in enumerate(rows.tolist()) if row >= 0]
            if known:
                made = id_of(DISAGREE, keys)
                texts = [disagree[keys[at]][1] for at in known]
                words, nothing = "reviewers disagree; this decision settles it", np.zeros(0, np.int64)
                groups[made] = Group(
                    made, DISAGREE, words, question, rows[known], texts, nothing, "", np.ones(len(known))
                )
        return groups

    def _waiting(self) -> list[tuple[Group, NDArray[np.int64]]]:
        """Return the open groups and their open rows: first with disagreement, then with most expected bad images."""
        waiting = [(group, self._open(group)) for group in self._standing.groups.values()]
        return sorted(
            [each for each in waiting if len(each[1])],
            key=lambda each: (each[0].kind != DISAGREE, -each[0].weights[np.isin(each[0].rows, each[1])].sum()),
        )

    def _open(self, group: Group) -> NDArray[np.int64]:
        """Return the rows of a group that are still to be decided."""
        if group.kind == DISAGREE:
            return group.rows
        pairs = [*zip(group.rows.tolist(), group.beside.tolist(), strict=False)]  # skips groups without compared images
        if group.kind == SAMPLE and pairs:
            return group.rows[[pair not in self._standing.pairs for pair in pairs]]
        answered = self._standing.answered.get(group.question)
        closed = self._standing.dropped[group.rows]
        if answered is not None:
            closed |= answered[group.rows]
        if group.question == COPY and pairs:
            closed |= np.array([pair in self._standing.apart for pair in pairs], bool)
        return group.rows[~closed]

    def _rows_of(self, line: Line) -> NDArray[np.int64]:
        """Return the row of each image of a line, shape (M,); -1 if it is missing or has changed."""
        if line.id not in self._rows:
            rows = self.dataset.find(text_hashes(line.keys))
            known = np.flatnonzero(rows >= 0)
            gone = len(rows) - len(known)
            images = images_of(self.table, rows[known])
            same = [not a or not b or a == b for a, b in zip(images, (line.images[at] for at in known), strict=True)]
            rows[known[~np.array(same, bool)]] = -1
            self._rows[line.id] = rows, gone, len(same) - sum(same)
        return self._rows[line.id][0]

    # What is shown

    def _named(self, group: Group) -> dict[str, Any]:
        can_relabel = bool(group.label) if group.kind == SAMPLE else self.column is not None and group.kind != DISAGREE
        fields = {name: getattr(group, name) for name in ("id", "kind", "words", "question", "label")}
        return {**fields, "can_relabel": can_relabel}

    def _items(self, group: Group, places: NDArray[np.int64]) -> list[dict[str, Any]]:
        rows = group.rows[places]
        keys = keys_of(self.table, rows)
        beside = group.beside[places] if len(group.beside) else np.full(len(rows), -1)
        others = iter(keys_of(self.table, beside[beside >= 0]))
        labels = self._labels(rows)
        return [
            {
                "row": row,
                "key": key,
                "why": group.texts[place],
                "label": label,
                "beside": {"row": other, "key": next(others)} if other >= 0 else None,
            }
            for row, key, place, other, label in zip(
                rows.tolist(), keys, places.tolist(), beside.tolist(), labels, strict=True
            )
        ]

    def _labels(self, rows: NDArray[np.int64]) -> list[str | None]:
        if self.column is None:
            return [None] * len(rows)
        labels = self.table.take(rows, [self.column]).column(0).to_pylist()
        return [None if label is None else str(label) for label in labels]

    # What a random sample shows

    def _population(self) -> NDArray[np.bool_]:
        """Return a mask of the rows kept by the decisions so far, and of the bad rows of the sample."""
        now = self._standing
        return (self._kept | now.restored) & (~now.dropped | now.bad)

    def _audit(self) -> dict[str, Any]:
        """Return the number of bad images in the sample, and the bound on the share of all kept images."""
        from scoring.metrics.proportions import Stratum, lower_bound

        population = self._population()
        size, n = int(population.sum()), int((population & self._standing.audited).sum())
        bad = int((population & self._standing.bad).sum())
        audit: dict[str, Any] = {"n": n, "bad": bad, "of": size, "level": LEVEL, "at_most": None}
        if n:
            audit["at_most"] = 1 - lower_bound([Stratum(size, n, bad).turned()], LEVEL)
        return audit
