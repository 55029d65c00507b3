"""Detection of image issues in a table; rows are only dropped by named kinds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, ClassVar

import numpy as np

from curate.columns import KEY, QUALITY
from curate.counted import Grid
from curate.options.function import callable_of
from curate.options.values import several
from curate.policies.contract import Request, apply
from curate.policies.decided import DROP, FAILED, KEEP, UNDECIDED, Decided, Result
from curate.policies.issues.kinds import ALL, FEW, GROUPS, KINDS, STYLE, UNUSABLE, UNUSABLE_KINDS, Kind, Values, cut_of
from curate.policies.issues.options import IssuesOptions
from curate.policies.issues.words import MEANINGS, SCHEMA, IssueWords, Looked
from curate.policies.outputs import Files
from curate.tables.needs import Needs, is_number
from curate.tables.rows import Rows, read_rows
from curate.tables.table import Table, open_table
from scoring.errors import InputError
from scoring.lookup import lookup
from scoring.relative.columns import UNLIKE


@dataclass(frozen=True)
class IssuesResult(Result):
    """The issues of a table, as ``curate issues`` prints them.

    Attributes:
        kinds: by checked kind: ``n`` rows, threshold ``begins``, ``median`` of the measure, whether its rows are
            ``dropped``; ``off`` is the number of rows of a kind that is the style of the dataset.
        n_issues: rows with any issue, without groups of images unlike the rest.
        overlaps: pairs of kinds and the number of rows with both, most rows first.
        not_looked: kinds whose columns are missing or empty.
        worst: by kind, indices of the worst rows, worst first.
        groups: of images unlike the rest: ``group``, ``rows``, ``examples`` (row indices), whether it is ``dropped``,
            and the facts in the table.
        n_unlike: rows in these groups.
        no_junk: why ``p_junk`` does not apply to the dataset; empty if it does, or unknown.
    """

    kinds: dict[str, dict[str, Any]] = field(default_factory=dict)
    n_issues: int = 0
    overlaps: list[tuple[str, str, int]] = field(default_factory=list)
    not_looked: list[str] = field(default_factory=list)
    worst: dict[str, list[int]] = field(default_factory=dict)
    groups: list[dict[str, Any]] = field(default_factory=list)
    n_unlike: int = 0
    no_junk: str = ""

    IN_RECEIPT: ClassVar[tuple[str, ...]] = ("kinds", "groups")

    def lines(self) -> list[str | Grid]:
        """Return the rows of each kind of issue, the account of all rows, and the written files, as lines."""
        by_kind = [(name, about["n"]) for name, about in self.kinds.items() if about["n"]]
        return [*([Grid(by_kind, header=("kind", "rows"), right=1)] if by_kind else []), *super().lines()]


@dataclass(frozen=True)
class Issues(Request):
    """The kinds to look for and to drop; a ``Policy``.

    Attributes:
        only: kinds to look for; all without one.
        without: kinds not to look for.
        drop: kinds whose rows are dropped; ``unusable`` and ``all`` stand for several.
        force: kinds that are flagged even if they are the style of the dataset.
        drop_group: numbers of groups of images unlike the rest, whose rows are dropped.
        set: kind -> threshold, instead of the adaptive one.
        show: number of worst rows to list for each kind.

    Raises:
        InputError: for an unknown kind, or if no kind is left.
    """

    rule: ClassVar[str] = "issues"
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    force: tuple[str, ...] = ()
    drop_group: tuple[int, ...] = ()
    set: dict[str, float] = field(default_factory=dict)
    show: int = 3
    files: ClassVar[Files] = Files()

    def __post_init__(self) -> None:
        for name in (*self.only, *self.without, *self.force, *self.set):
            lookup(KINDS, name, kind="kind of issue")
        for name in self.drop:
            lookup({**KINDS, UNUSABLE: None, ALL: None}, name, kind="kind of issue")
        for name, value in self.set.items():
            if not np.isfinite(value):
                raise InputError(f"--set {name}: expected a number, got {value}")
        if not self.kinds:
            raise InputError("--without leaves no kind to look for; exclude fewer")
        named = [name for name in self.drop if name in KINDS]
        out = sorted({*named, *self.force, *self.set} - {*self.kinds})
        if out:
            raise InputError(f"{out[0]} is excluded; add it to --only, or remove it from --without")

    @property
    def kinds(self) -> dict[str, Kind]:
        """The kinds to find."""
        return {
            name: kind
            for name, kind in KINDS.items()
            if (not self.only or name in self.only) and name not in self.without
        }

    def drops(self, name: str) -> bool:
        """Return whether the rows of a kind are dropped."""
        return name in self.drop or ALL in self.drop or (UNUSABLE in self.drop and name in UNUSABLE_KINDS)

    def decide(self, table: Table) -> Decided[IssuesResult]:
        """Decide every row of a table; InputError if it lacks the columns of the kinds."""
        kinds, absent = self.kinds_in(table)
        names = columns_of(kinds, table)
        rows = read_rows(table, Needs(exact=names, advice="score the images again"))
        columns = {name: values_of(rows, name, rows.ok) for name in names}
        looked = self.look(kinds, columns, rows.ok)
        groups = self._groups(table, columns.get(UNLIKE), looked.has)
        in_groups = np.isin(columns[UNLIKE], self.drop_group) if self.drop_group else np.zeros(len(rows), bool)
        outcome = self._outcome(
            rows, looked.has, in_groups, [columns[each] for each in names if each.startswith(QUALITY)]
        )
        first = self._first(looked.has, outcome, in_groups)
        words = IssueWords(kinds, looked, outcome, first)
        worst = {
            name: worst_of(kind, looked.measures[name], looked.has[name], self.show) for name, kind in kinds.items()
        }
        pairs = [(a, b, int((looked.has[a] & looked.has[b]).sum())) for a, b in combinations(looked.has, 2)]
        not_looked = [*absent, *(name for name in kinds if np.isnan(looked.measures[name]).all() and len(rows))]
        result = IssuesResult(
            dropped_by={
                name: int(((first == number) & (outcome == DROP)).sum())
                for number, name in enumerate(looked.has)
                if self.drops(name) or (name == GROUPS and self.drop_group)
            },
            undecided_by={"no measures": n_undecided} if (n_undecided := int((outcome == UNDECIDED).sum())) else {},
            kinds={name: self._facts(name, looked) for name in kinds},
            n_issues=int(np.any([each for name, each in looked.has.items() if name != GROUPS], axis=0).sum()),
            overlaps=sorted((pair for pair in pairs if pair[2]), key=lambda pair: -pair[2]),
            not_looked=not_looked,
            worst={name: each.tolist() for name, each in worst.items() if len(each)},
            groups=groups,
            n_unlike=sum(group["rows"] for group in groups),
            no_junk=str(table.noted("fit", "junk").get("problem") or "") if "junk" in not_looked else "",
        )
        return Decided(
            table=table,
            policy=[self.to_json()],
            outcome=outcome,
            hashes=rows.hashes,
            digest=rows.digest,
            words=words.rows,
            schema=SCHEMA,
            meanings=MEANINGS,
            result=result,
            examples={
                **{name: each for name, each in worst.items() if len(each) and name != GROUPS},
                **{f"group {group['group']}": np.array(group["examples"], np.int64) for group in groups},
            },
        )

    def look(self, kinds: Mapping[str, Kind], columns: Mapping[str, Values], ok: np.ndarray) -> Looked:
        """Find issues of the given kinds, from columns (N,), NaN if missing, for scored images ``ok`` (N,)."""
        measures = {name: kind.measure(*(columns[each] for each in kind.columns)) for name, kind in kinds.items()}
        cuts = {name: self.set.get(name, cut_of(kind, measures[name])) for name, kind in kinds.items()}
        has = {
            name: ok & kind.beyond(measures[name], cuts[name]) & kind.confirmed(columns, len(ok))
            for name, kind in kinds.items()
        }
        most = max(STYLE * max(1, int(ok.sum())), FEW)
        off = {}
        for name, kind in kinds.items():
            free = has[name] if kind.always is None else has[name] & ~kind.beyond(measures[name], kind.always)
            if kind.style and name not in self.set and name not in self.force and free.sum() > most:
                off[name] = int(free.sum())
                has[name] = has[name] & ~free
        return Looked(measures, cuts, has, off)

    def kinds_in(self, table: Table) -> tuple[dict[str, Kind], list[str]]:
        """Return the kinds whose columns a table has, and the other kinds; InputError if those were requested."""
        schema = table.schema
        numbers = {name for name in schema.names if is_number(schema.field(name).type)}

        def is_known(kind: Kind) -> bool:
            needed = kind.witness.columns if kind.witness is not None and kind.witness.needed else ()
            return numbers.issuperset((*kind.columns, *needed))

        known = {name: kind for name, kind in self.kinds.items() if is_known(kind)}
        absent = [name for name in self.kinds if name not in known]
        named = {*self.only, *(name for name in self.drop if name in KINDS), *self.force, *self.set}
        if self.drop_group:
            named.add(GROUPS)
        if UNUSABLE in self.drop:
            named.add("blank")
        lacking = next((name for name in absent if name in named), None)
        if lacking is None and not (any(name.startswith(QUALITY) for name in numbers) or (known and self.only)):
            lacking = next((name for name in absent if KINDS[name].columns[0].startswith(QUALITY)), None)
        if lacking is not None:
            column = next(name for name in KINDS[lacking].reads if name not in numbers)
            raise InputError(
                f"{table.path} has no column {column!r}, which {lacking} needs; score the images again with "
                "curate score, without --no-quality and --no-fit"
            )
        return known, absent

    def _groups(self, table: Table, numbers: Values | None, has: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
        """Return the facts of each group of images unlike the rest; InputError for a missing group."""
        if numbers is None or GROUPS not in has:
            return []
        stored = table.noted("fit").get("groups")
        listed = stored if isinstance(stored, list) else ()
        known = {each.get("group"): each for each in listed if isinstance(each, Mapping)}
        groups = sorted({int(number) for number in np.unique(numbers[has[GROUPS]])})
        wrong = next((number for number in self.drop_group if number not in groups), None)
        if wrong is not None:
            these = f" ({', '.join(map(str, groups))})" if groups else ", of which the table has none"
            raise InputError(f"--drop-group {wrong}: expected the number of a group unlike the rest{these}")
        return [
            {
                **known.get(number, {}),
                "group": number,
                "rows": int((has[GROUPS] & (numbers == number)).sum()),
                "examples": np.flatnonzero(has[GROUPS] & (numbers == number))[: self.show].tolist(),
                "dropped": self.drops(GROUPS) or number in self.drop_group,
            }
            for number in groups
        ]

    def _facts(self, name: str, looked: Looked) -> dict[str, Any]:
        measure = looked.measures[name]
        return {
            "n": int(looked.has[name].sum()),
            "begins": float(looked.cuts[name]),
            "median": float(np.nanmedian(measure)) if not np.isnan(measure).all() else None,
            "dropped": self.drops(name),
            **({"off": looked.off[name]} if name in looked.off else {}),
        }

    def _outcome(
        self, rows: Rows, has: Mapping[str, np.ndarray], in_groups: np.ndarray, measured: Sequence[Values]
    ) -> np.ndarray:
        outcome = np.full(len(rows), KEEP, np.uint8)
        if measured:
            outcome[np.logical_and.reduce([np.isnan(each) for each in measured])] = UNDECIDED
        for name, each in has.items():
            if self.drops(name):
                outcome[each] = DROP
        outcome[in_groups & rows.ok] = DROP
        outcome[~rows.ok] = FAILED
        return outcome

    def _first(self, has: Mapping[str, np.ndarray], outcome: np.ndarray, in_groups: np.ndarray) -> np.ndarray:
        """Return the index of the first kind that drops each row; -1 for none."""
        first = np.full(len(outcome), -1, np.int8)
        for number, (name, each) in reversed([*enumerate(has.items())]):
            drops = each & (in_groups | self.drops(name)) if name == GROUPS else each & self.drops(name)
            first[(each & (outcome != DROP)) | drops] = number
        return first


def run_issues(options: IssuesOptions) -> IssuesResult:
    """Report which images have a finding, and of which kind; with ``drop`` and ``out``, write the subset without them.

    The table is never changed.

    Returns:
        counts and thresholds by kind, overlaps, the worst rows, and paths.

    Raises:
        InputError: for an unusable table, kind or output; nothing is written.
    """
    cuts = {name: _number(name, value) for name, value in (options.set or {}).items()}
    dropped = tuple(each.strip() for text in several(options.drop) for each in text.split(",") if each.strip())
    if several(options.drop) and not dropped:
        raise InputError("--drop: expected kinds of issues such as dark,blurry, or unusable, or all, got none")
    policy = Issues(
        several(options.only),
        several(options.without),
        dropped,
        several(options.force),
        tuple(int(number) for number in options.drop_group or ()),
        cuts,
        options.show,
    )
    table, out = open_table(options.table, require=[KEY]), options.out
    return apply(policy, table, out, dry_run=out is None, overwrite=options.overwrite)


issues = callable_of(IssuesOptions, run_issues)


def _number(name: str, value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        raise InputError(f"--set {name}: expected a number, such as 0.1, got {str(value)!r}") from None


def columns_of(kinds: Mapping[str, Kind], table: Table) -> tuple[str, ...]:
    """Return the columns of a table that kinds need, each once."""
    numeric = {name for name in table.schema.names if is_number(table.schema.field(name).type)}
    return tuple(dict.fromkeys(name for kind in kinds.values() for name in kind.reads if name in numeric))


def values_of(rows: Rows, name: str, ok: np.ndarray) -> Values:
    """Return a column for the measures: NaN without a value or a scored image."""
    column = rows.exact[name]
    values = column.values.astype(np.float32)
    values[~(column.valid & ok)] = np.nan
    return values


def worst_of(kind: Kind, values: Values, has: np.ndarray, n: int) -> np.ndarray:
    """Return up to n rows that have an issue, worst first."""
    rows = np.flatnonzero(has)
    order = np.argsort(values[rows] if kind.low else -values[rows], kind="stable")
    return rows[order[:n]]
