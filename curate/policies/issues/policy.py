"""Issues of a table: which rows have a problem, of which kind; those go whose kind is harmful."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from curate.columns import KEY, QUALITY
from curate.policies.apply import apply
from curate.policies.decided import Decided
from curate.policies.issues.kinds import COMMON, KINDS, Kind, Values, cut_of
from curate.policies.issues.words import MEANINGS, SCHEMA, IssueWords
from curate.policies.outcomes import DROP, FAILED, KEEP, UNDECIDED
from curate.policies.outputs import Files
from curate.policies.result import Result
from curate.tables.needs import Needs, is_number
from curate.tables.rows import Rows, read_rows
from curate.tables.table import Table, open_table
from curate.tables.typed_json import from_json
from scoring.errors import InputError
from scoring.lookup import lookup

N_WORST = 3  # rows of each kind that are shown


@dataclass(frozen=True)
class IssuesResult(Result):
    """What issues a table has; what ``curate issues`` prints.

    Attributes:
        kinds: by kind that was looked for: ``n`` rows, ``begins`` at, ``median`` of the measure, whether its rows
            ``go``, and the ``common`` ones, that are left alone for they are what the heap is.
        n_issues: rows with any.
        overlaps: pairs of kinds and the rows that have both, the most first.
        not_looked: kinds whose columns the table lacks, or that hold no value.
        worst: by kind, numbers of the worst rows in the table, the worst first.
    """

    kinds: dict[str, dict[str, Any]] = field(default_factory=dict)
    n_issues: int = 0
    overlaps: list[tuple[str, str, int]] = field(default_factory=list)
    not_looked: list[str] = field(default_factory=list)
    worst: dict[str, list[int]] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """Return what the receipt says beside the counts, as plain JSON."""
        return {**super().facts(), "kinds": self.kinds}


@dataclass(frozen=True)
class Looked:
    """What was found of N rows, by kind.

    Attributes:
        measures: shape (N,).
        cuts: where each kind begins.
        has: shape (N,) bool; nowhere for a kind that is common.
        common: rows of the harmless kinds that most of the heap has.
    """

    measures: dict[str, Values]
    cuts: dict[str, float]
    has: dict[str, np.ndarray]
    common: dict[str, int]


@dataclass(frozen=True)
class Issues:
    """What to look for; a ``Policy``.

    Attributes:
        only: kinds to look for; all without one. What is named here goes, harmless or not.
        without: kinds not to look for.
        also: kinds that go too, though they are harmless by themselves.
        set: kind -> where it begins, in place of what the heap says.
        show: rows of each kind that are named as its worst.

    Raises:
        InputError: for a kind that does not exist, or none left to look for.
    """

    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    set: dict[str, float] = field(default_factory=dict)
    show: int = N_WORST
    files: ClassVar[Files] = Files()

    def __post_init__(self) -> None:
        for name in (*self.only, *self.without, *self.also, *self.set):
            lookup(KINDS, name, kind="kind of issue")
        for name, value in self.set.items():
            if not np.isfinite(value):
                raise InputError(f"--set {name}: expected a number, got {value}")
        if not self.kinds:
            raise InputError("--without leaves no kind to look for; name fewer")
        out = sorted({*self.also, *self.set} - set(self.kinds))
        if out:
            raise InputError(f"{out[0]} is not looked for; name it in --only, or leave it out of --without")

    @property
    def kinds(self) -> dict[str, Kind]:
        """What is looked for."""
        return {
            name: kind
            for name, kind in KINDS.items()
            if (not self.only or name in self.only) and name not in self.without
        }

    def goes(self, name: str) -> bool:
        """Return whether the rows of a kind go."""
        return KINDS[name].drops or name in self.only or name in self.also

    @classmethod
    def from_receipt(cls, rules: Sequence[Mapping[str, Any]]) -> Self:
        """Return what a receipt asked for; InputError if it holds something else."""
        return from_json(cls, rules[0], what="the rule of the receipt", ignored=("rule",))

    def decide(self, table: Table, *, write: bool) -> Decided[IssuesResult]:
        """Decide every row of a table; InputError for one without measures of quality."""
        kinds, absent = self.kinds_in(table)
        names = tuple(dict.fromkeys(name for kind in kinds.values() for name in kind.columns))
        rows = read_rows(table, Needs(exact=names, advice="score the images again"))
        columns = {name: values_of(rows, name, rows.ok) for name in names}
        looked = self.look(kinds, columns, rows.ok)
        measures, cuts, has, common = looked.measures, looked.cuts, looked.has, looked.common
        outcome = self._outcome(rows, has, [columns[name] for name in names if name.startswith(QUALITY)])
        first = _first(has, outcome, self.goes)
        words = IssueWords(kinds, measures, cuts, has, outcome, first)
        worst = {name: worst_of(kind, measures[name], has[name], self.show) for name, kind in kinds.items()}
        result = IssuesResult(
            dropped_by={
                name: int(((first == i) & (outcome == DROP)).sum()) for i, name in enumerate(has) if self.goes(name)
            },
            undecided_by={"no measures": int((outcome == UNDECIDED).sum())} if (outcome == UNDECIDED).any() else {},
            kinds={
                name: {
                    "n": int(has[name].sum()),
                    "begins": float(cuts[name]),
                    "median": _median(measures[name]),
                    "goes": self.goes(name),
                    **({"common": common[name]} if name in common else {}),
                }
                for name in kinds
            },
            n_issues=int(np.logical_or.reduce([*has.values()]).sum()),
            overlaps=_overlaps(has),
            not_looked=[*absent, *(name for name in kinds if np.isnan(measures[name]).all() and len(rows))],
            worst={name: each.tolist() for name, each in worst.items() if len(each)},
        )
        return Decided(
            table=table,
            policy=[
                {
                    "rule": "issues",
                    **{name: list(getattr(self, name)) for name in ("only", "without", "also")},
                    "set": dict(self.set),
                    "show": self.show,
                }
            ],
            outcome=outcome,
            hashes=rows.hashes,
            digest=rows.digest,
            words=words.rows,
            schema=SCHEMA,
            meanings=MEANINGS,
            result=result,
            examples={name: each for name, each in worst.items() if len(each)},
        )

    def look(self, kinds: Mapping[str, Kind], columns: Mapping[str, Values], ok: np.ndarray) -> "Looked":
        """Look for kinds of issues.

        Args:
            kinds: which.
            columns: that they are made of, shape (N,) each, NaN where there is no value.
            ok: whether the image was scored, shape (N,).
        """
        measures = {name: kind.measure(*(columns[each] for each in kind.columns)) for name, kind in kinds.items()}
        cuts = {name: self.set.get(name, cut_of(kind, measures[name])) for name, kind in kinds.items()}
        has = {name: ok & kind.beyond(measures[name], cuts[name]) for name, kind in kinds.items()}
        n_ok = max(1, int(ok.sum()))
        common = {
            name: int(each.sum())
            for name, each in has.items()
            if not self.goes(name) and name not in self.set and each.sum() > COMMON * n_ok
        }
        for name in common:
            has[name] = np.zeros(len(ok), bool)
        return Looked(measures, cuts, has, common)

    def kinds_in(self, table: Table) -> tuple[dict[str, Kind], list[str]]:
        """Return the kinds whose columns a table has, and those whose it lacks; InputError if those were asked for."""
        schema = table.schema
        numbers = {name for name in schema.names if is_number(schema.field(name).type)}
        there = {name: kind for name, kind in self.kinds.items() if numbers.issuperset(kind.columns)}
        absent = [name for name in self.kinds if name not in there]
        asked = next((name for name in absent if name in {*self.only, *self.also, *self.set}), None)
        if asked is None and not (any(name.startswith(QUALITY) for name in numbers) or (there and self.only)):
            asked = next(iter(absent), None)
        if asked is not None:
            lacking = next(name for name in KINDS[asked].columns if name not in numbers)
            raise InputError(
                f"{table.path} has no column {lacking!r}, by which {asked} is told; score the images again with "
                "curate score, without --no-quality"
            )
        return there, absent

    def _outcome(self, rows: Rows, has: Mapping[str, np.ndarray], measured: Sequence[Values]) -> np.ndarray:
        outcome = np.full(len(rows), KEEP, np.uint8)
        if measured:
            outcome[np.logical_and.reduce([np.isnan(each) for each in measured])] = UNDECIDED
        for name, each in has.items():
            if self.goes(name):
                outcome[each] = DROP
        outcome[~rows.ok] = FAILED
        return outcome


def issues(
    table: str | Path,
    out: str | Path | None = None,
    *,
    only: Iterable[str] | None = None,
    without: Iterable[str] | None = None,
    also: Iterable[str] | None = None,
    set: Mapping[str, object] | None = None,
    show: int = N_WORST,
    dry_run: bool = False,
    overwrite: bool = False,
) -> IssuesResult:
    """Say which pictures have a problem and of which kind; with ``out``, write the subset without them.

    Args:
        table: Parquet file or folder of ``part-*.parquet`` with a unique ``key``; it is never changed.
        out: subset to write, a name ending in ``.parquet``; None only counts.
        only: kinds to look for, keys of ``KINDS``; those named here go, harmless or not.
        without: kinds not to look for.
        also: kinds that go too, though they are harmless by themselves.
        set: kind -> where it begins, in the unit of its measure.
        show: rows of each kind that are named as its worst.
        dry_run: count only; write nothing.
        overwrite: replace outputs that exist.

    Returns:
        counts by kind, where each begins, overlaps, the worst rows, and paths.

    Raises:
        InputError: for a table, kind or output that cannot be used; nothing is written then.
    """
    cuts = {name: _number(name, value) for name, value in (set or {}).items()}
    policy = Issues(tuple(only or ()), tuple(without or ()), tuple(also or ()), cuts, show)
    return apply(policy, open_table(table, require=[KEY]), out, dry_run=dry_run or out is None, overwrite=overwrite)


def _number(name: str, value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        raise InputError(f"--set {name}: expected a number, such as 0.1, got {str(value)!r}") from None


def values_of(rows: Rows, name: str, ok: np.ndarray) -> Values:
    """Return a column as measures are made of it: NaN where there is no value, or no image that was scored."""
    column = rows.exact[name]
    values = column.values.astype(np.float32)
    values[~(column.valid & ok)] = np.nan
    return values


def _first(has: Mapping[str, np.ndarray], outcome: np.ndarray, goes: Any) -> np.ndarray:
    """The kind that decided, as a place among them: of those for which a row goes, the first; else the first; or -1."""
    first = np.full(len(outcome), -1, np.int8)
    for number, (name, each) in reversed([*enumerate(has.items())]):
        first[each & ((outcome != DROP) | goes(name))] = number
    return first


def worst_of(kind: Kind, values: Values, has: np.ndarray, n: int) -> np.ndarray:
    """Return up to n rows that have an issue, the worst first."""
    rows = np.flatnonzero(has)
    order = np.argsort(values[rows] if kind.low else -values[rows], kind="stable")
    return rows[order[:n]]


def _median(values: Values) -> float | None:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else None


def _overlaps(has: Mapping[str, np.ndarray]) -> list[tuple[str, str, int]]:
    names = list(has)
    pairs = [(a, b, int((has[a] & has[b]).sum())) for i, a in enumerate(names) for b in names[i + 1 :]]
    return sorted((pair for pair in pairs if pair[2]), key=lambda pair: -pair[2])
