"""Labels read back from a tool: usable ones, and why others are not; nothing is guessed."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from curate.exporting.item import Item
from scoring.errors import InputError
from scoring.lookup import closest, name_list

N_EXAMPLES = 3
_SHOWN = 80  # maximum characters of an example

UNKNOWN_KEY = "unknown key"
UNKNOWN_CLASS = "unknown class"
EMPTY = "no label"
CANCELLED = "skipped by the annotator"
SEVERAL = "several labels in one annotation"
CONTRADICTION = "two labels by one annotator"
UNUSABLE = "not a label"
REPEATED = "given twice"
DISAGREEMENT = "annotators disagree"
MISSING = "not in the file"


@dataclass(frozen=True)
class Label:
    """The label of one image by one annotator.

    Attributes:
        key: of the table.
        label: the class, as written.
        annotator: name; None if the file has none.
        labelled_at: time, as written in the file; None if it has none.
    """

    key: str
    label: str
    annotator: str | None = None
    labelled_at: str | None = None


@dataclass(frozen=True)
class Ignored:
    """An annotation that was not used.

    Attributes:
        what: its name in the file, as messages show it.
        reason: why it was not used.
        key: of the image, if it belongs to the request; None if unknown.
    """

    what: str
    reason: str
    key: str | None = None


@dataclass(frozen=True)
class Problem:
    """One kind of problem, with examples.

    Attributes:
        kind: such as "unknown class".
        count: number of occurrences.
        examples: the first few.
        set_aside: whether the affected annotations are ignored; else it is only a note.
    """

    kind: str
    count: int
    examples: tuple[str, ...]
    set_aside: bool = True

    def __str__(self) -> str:
        more = ", ..." if self.count > len(self.examples) else ""
        return f"{self.kind}: {self.count:,} ({', '.join(self.examples)}{more})"


@dataclass(frozen=True)
class Labels:
    """The labels of a round read from a file.

    Attributes:
        rows: usable labels in file order; several of one key if several annotators labelled it; empty if every image
            was skipped.
        ignored: unused annotations in file order.
        problems: their counts by kind, and further notes for the user.
    """

    rows: tuple[Label, ...]
    ignored: tuple[Ignored, ...]
    problems: tuple[Problem, ...]

    def table(self) -> pa.Table:
        """The usable labels: `key`, `label`, `annotator`, `at`, all text, the last two nullable."""
        names = ("key", "label", "annotator", "at")
        rows = [(row.key, row.label, row.annotator, row.labelled_at) for row in self.rows]
        return pa.table({name: pa.array([row[i] for row in rows], pa.string()) for i, name in enumerate(names)})


@dataclass(frozen=True)
class ExpectedRows:
    """Rows whose labels are expected: their uris by key, and the allowed classes; None allows every name."""

    uris: Mapping[str, str | None]
    classes: tuple[str, ...] | None = None

    @classmethod
    def of(
        cls, keys: Collection[str] | Mapping[str, str | None], classes: Iterable[str] | None = None
    ) -> "ExpectedRows":
        """Return the rows of keys, or of keys with their uris.

        Raises:
            InputError: if there are no keys, or the given classes are empty.
        """
        uris = keys if isinstance(keys, Mapping) else dict.fromkeys(keys)
        known = None if classes is None else tuple(classes)
        if not uris:
            raise InputError("expected the keys of a round, got none; request labels of a batch first")
        if known is not None and not known:
            raise InputError(
                "expected at least one class, got none; list the classes, or leave them out to accept every name"
            )
        return cls(uris, known)

    def by_text(self, texts_of: Callable[[Item], Iterable[str | None]]) -> dict[str, str]:
        """Map each text that belongs to exactly one row to its key; empty texts are left out."""
        keys: dict[str, str] = {}
        shared: set[str] = set()
        for key, uri in self.uris.items():
            for text in filter(None, texts_of(Item(key, uri, {}))):
                if keys.setdefault(text, key) != key:
                    shared.add(text)
        return {text: key for text, key in keys.items() if text not in shared}


def text_of(value: Any) -> str | None:
    """Return a label, key or name as text: text unchanged, integers in digits; None for other types.

    >>> text_of("007"), text_of(7), text_of(True), text_of(["cat"])
    ('007', '7', None, None)
    """
    if isinstance(value, bool):
        return None
    return value if isinstance(value, str) else str(value) if isinstance(value, int) else None


def shown(value: object) -> str:
    """Return a value for a message: quoted, on one line, shortened."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


@dataclass
class Collector:
    """Collects annotations, then returns the usable labels.

    Args:
        rows: the expected rows.
        where: path of the file, for messages.
        votes: whether several labels of one key without annotator are votes of several annotators; else they are
            contradictory and ignored.
    """

    rows: ExpectedRows
    where: str
    votes: bool = True
    _kept: list[Label] = field(default_factory=list)
    _ignored: list[Ignored] = field(default_factory=list)
    _hints: dict[str, str] = field(default_factory=dict)
    _touched: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._known = None if self.rows.classes is None else frozenset(self.rows.classes)

    def add(self, key: Any, label: Any, annotator: Any = None, at: Any = None) -> None:
        """Add an annotator's label for a key; it is ignored if the key or the label is invalid."""
        name = text_of(key)
        if name is None or name not in self.rows.uris:
            self.ignore(key, UNKNOWN_KEY)
            return
        self._touched.add(name)
        if label is None or label == "":
            self.ignore(name, EMPTY)
            return
        class_name = text_of(label)
        if class_name is None or not _is_text(class_name):
            self.ignore(name, UNUSABLE, label)
        elif self._known is not None and class_name not in self._known:
            if class_name not in self._hints and len(self._hints) < N_EXAMPLES:
                self._hints[class_name] = closest(class_name, self._known)
            self.ignore(name, UNKNOWN_CLASS, class_name)
        else:
            who = text_of(annotator)
            self._kept.append(Label(name, class_name, who if who and _is_text(who) else None, text_of(at) or None))

    def ignore(self, what: Any, reason: str, detail: Any = None) -> None:
        """Record an unused annotation; ``what`` is its key, or its name in the file."""
        name = text_of(what)
        key = name if name is not None and name in self.rows.uris else None
        if key is not None:
            self._touched.add(key)
        example = shown(what) if detail is None else f"{shown(detail)} for {shown(what)}"
        self._ignored.append(Ignored(example, reason, key))

    def finish(self) -> Labels:
        """Return the labels, without contradictory ones.

        Raises:
            InputError: if there is no usable label and no skipped image; states the reasons with counts and examples.
        """
        rows = self._without_contradictions()
        problems = self._problems(rows)
        if not rows and not any(ignored.reason == CANCELLED and ignored.key is not None for ignored in self._ignored):
            why = "; ".join(str(problem) for problem in problems if problem.set_aside) or "the file has none"
            raise InputError(f"expected labels of this round in {self.where}, got none that can be used: {why}")
        return Labels(tuple(rows), tuple(self._ignored), tuple(problems))

    def _without_contradictions(self) -> list[Label]:
        labels_of: dict[tuple[str, str | None], set[str]] = {}
        for row in self._kept:
            labels_of.setdefault((row.key, row.annotator), set()).add(row.label)
        rows: list[Label] = []
        seen: set[tuple[str, str | None, str]] = set()
        for row in self._kept:
            decides = row.annotator is not None or not self.votes
            if decides and len(labels_of[row.key, row.annotator]) > 1:
                self.ignore(row.key, CONTRADICTION, row.label)
            elif decides and (row.key, row.annotator, row.label) in seen:
                self.ignore(row.key, REPEATED)
            else:
                seen.add((row.key, row.annotator, row.label))
                rows.append(row)
        return rows

    def _problems(self, rows: list[Label]) -> list[Problem]:
        examples_of: dict[str, list[str]] = {}
        for ignored in self._ignored:
            examples_of.setdefault(ignored.reason, []).append(ignored.what)
        problems = [self._problem(kind, examples) for kind, examples in examples_of.items()]
        labels: dict[str, set[str]] = {}
        for row in rows:
            labels.setdefault(row.key, set()).add(row.label)
        split = [shown(key) for key, names in labels.items() if len(names) > 1]
        absent = [shown(key) for key in self.rows.uris if key not in self._touched]
        for kind, examples in ((DISAGREEMENT, split), (MISSING, absent)):
            if examples:
                problems.append(Problem(kind, len(examples), tuple(examples[:N_EXAMPLES]), set_aside=False))
        return problems

    def _problem(self, kind: str, examples: list[str]) -> Problem:
        first = tuple(dict.fromkeys(examples))[:N_EXAMPLES]
        if kind == UNKNOWN_CLASS and self.rows.classes is not None:
            hint = next((hint for hint in self._hints.values() if hint), "")
            first = (*first[:-1], f"{first[-1]}{hint}; known: {name_list(self.rows.classes)}")
        return Problem(kind, len(examples), first)


def _is_text(text: str) -> bool:
    """Return whether text can be written as UTF-8 (JSON can hold unpaired surrogates)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
