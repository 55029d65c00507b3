"""Selection of rows of a table, to label next or to train on, and near copies among the selected rows."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from curate.columns import KEY, SIGNATURE
from curate.counted import counted
from curate.engines.table import searching
from curate.manifest.store_path import path_to_read
from curate.options.function import callable_of
from curate.options.values import part_of
from curate.policies.arranged import Ranked, compare_arranged
from curate.policies.contract import apply
from curate.policies.decided import DROP, UNDECIDED, Decided, Result
from curate.policies.dedup.finders.table import FINDERS
from curate.policies.outputs import Files
from curate.policies.select.decide import MEANINGS, SCHEMA, Picked, pick
from curate.policies.select.options import SelectOptions
from curate.policies.select.request import SelectRequest, settings_of
from curate.selectors.picking import ReportPicks
from curate.tables.amount import Amount
from curate.tables.copies import first_equal
from curate.tables.digests import is_text
from curate.tables.images import SHA256
from curate.tables.keys import keys_at, named
from curate.tables.provenance import fitted_apart
from curate.tables.signatures import signature_matrix
from curate.tables.table import Table, open_table
from scoring.arrays import Ints
from scoring.relative.space import unit

MOST = 20_000  # maximal picks and labelled rows to compare
BLOCK = 1024  # picks at a time
ALIKE = FINDERS["signature"].threshold or 1.0  # default threshold of ``curate dedup``


@dataclass(frozen=True)
class PickedCopies:
    """Picks that are copies of an earlier pick or a labelled row.

    Attributes:
        n: number of such picks.
        of: number of all picks.
        key: of the first copy; None if absent.
        earlier: key of the row that it is a copy of; None if absent.
    """

    n: int
    of: int
    key: str | None = None
    earlier: str | None = None

    def words(self) -> list[str]:
        """Return a warning if picks are copies."""
        if not self.n:
            return []
        copies = counted(self.n, f"of {self.of:,} picks is a copy", f"of {self.of:,} picks are copies")
        return [
            f"{copies} of an earlier pick or of a labelled row (equal files, or a cosine of signatures of {ALIKE:g} or "
            f"more), such as {self.key} of {self.earlier}: drop copies with curate dedup first"
        ]


def find_picked_copies(table: Table, picks: Ints, labelled: Ints) -> PickedCopies | None:
    """Return the picks that are copies, by the default finders of ``curate dedup``.

    Args:
        table: the input.
        picks: rows in the order picked, shape (K,).
        labelled: labelled rows, shape (L,).

    Returns:
        None if the table has no column for finding copies, or there are more than 20,000 rows to compare.
    """
    columns = [name for name in (SHA256, SIGNATURE) if name in table.schema.names]
    rows = np.concatenate([labelled, picks])
    if not columns or len(rows) > MOST:
        return None
    values = table.take(rows, columns)
    owner = np.full(len(rows), -1)
    if SIGNATURE in columns:
        owner = _by_signature(signature_matrix(values.column(SIGNATURE)), len(labelled))
    if SHA256 in columns and is_text(table.schema.field(SHA256).type):  # a user's column may have that name
        first = first_equal(values.column(SHA256))
        owner = np.where(first < np.arange(len(rows)), first, owner)
    owner[: len(labelled)] = -1
    copies = np.flatnonzero(owner >= 0)
    if not len(copies):
        return PickedCopies(0, len(picks))
    key, earlier = keys_at(table, rows[[copies[0], owner[copies[0]]]]).tolist()
    return PickedCopies(len(copies), len(picks), key, earlier)


def _by_signature(signatures: NDArray[np.int8], start: int) -> Ints:
    """Return the first earlier row that each row from ``start`` is a copy of, -1 for none; shape (N,)."""
    units = unit(signatures)
    owner = np.full(len(units), -1)
    for low in range(start, len(units), BLOCK):
        high = min(low + BLOCK, len(units))
        near = units[low:high] @ units[:high].T >= np.float32(ALIKE)
        near &= np.arange(high) < np.arange(low, high)[:, None]
        has_copy = near.any(1)
        owner[low:high][has_copy] = near[has_copy].argmax(1)
    return owner


N_FIRST = 5
FILES = ("labelled", "exclude")  # parameters that are files


@dataclass(frozen=True)
class SelectResult(Result):
    """The result of a selection, as ``curate select`` prints it.

    Attributes:
        requested: resolved budget; ``kept``, unless a minimal distance stopped the selection.
        stopped_at: the distance of the first pick that was too near; or None.
        gains: of every pick, in order; None if not finite.
        first: the first picks: key, rank and gain.
        groups: picked rows by group, if there are groups.
        model: the probe, as plain JSON; empty without one.
        strategy: its name; ``settings`` are all its parameters.
        copies: picks that are copies of an earlier pick or a labelled row; None if unknown.
    """

    requested: int = 0
    stopped_at: float | None = None
    gains: list[float | None] = field(default_factory=list)
    first: list[dict[str, Any]] = field(default_factory=list)
    groups: dict[str, int] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    strategy: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    copies: PickedCopies | None = None

    def facts(self) -> dict[str, Any]:
        """Return the receipt's facts next to the counts, as plain JSON."""
        return {
            "settings": self.settings,
            "asked": self.requested,
            "stopped_at": self.stopped_at,
            **super().facts(),
            "groups": self.groups,
            "probe": self.model,
            "notes": self.notes,
            "copies": None if self.copies is None else asdict(self.copies),
            "gain": {"first": self.gains[0], "last": self.gains[-1]} if self.gains else {},
        }

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        return {**super().to_json(), "copies": None if self.copies is None else asdict(self.copies)}


@dataclass(frozen=True)
class Select:
    """A selection of rows by a strategy; a ``Policy``.

    Raises:
        InputError: for an unknown strategy, or unknown parameters.
    """

    request: SelectRequest
    picked: ReportPicks = lambda done, total: None

    def __post_init__(self) -> None:
        self.request.selector()

    @property
    def files(self) -> Files:
        """Files that contain keys of rows."""
        paths = {name: getattr(self.request, name) for name in FILES}
        return Files(read={f"--{name}": path for name, path in paths.items() if path is not None})

    @classmethod
    def from_receipt(cls, rules: Sequence[Mapping[str, Any]]) -> Self:
        """Return the selection in a receipt; InputError for another policy."""
        return cls(SelectRequest.from_json(rules[0]))

    def decide(self, table: Table) -> Decided[SelectResult]:
        """Decide every row of a table; InputError for an unusable column, key, label or budget."""
        picked = pick(table, self.request, picked=self.picked)
        rule = self.request.to_json()
        for name, known in picked.files.items():
            rule[name] = {"path": str(path_to_read(known.path).resolve()), "digest": known.digest}
        return Decided(
            table=table,
            policy=[rule],
            outcome=picked.verdict.outcome,
            hashes=picked.rows.in_table(picked.rows.hashes),
            digest=picked.rows.digest,
            words=picked.verdict.rows,
            schema=SCHEMA,
            meanings=MEANINGS,
            result=self._result(table, picked),
            arranged=Ranked(table.stored.schema, picked.picks, *picked.pick_columns()),
            compare=partial(compare_arranged, table, picked.expected()),
        )

    def _result(self, table: Table, picked: Picked) -> SelectResult:
        chosen = picked.chosen
        gains = [gain if np.isfinite(gain) else None for gain in chosen.gains.tolist()]
        keys = named(table, picked.picks[:N_FIRST])
        return SelectResult(
            requested=chosen.budget,
            stopped_at=chosen.stopped,
            dropped_by=dict(reversed(picked.verdict.counts(DROP).items())),
            undecided_by=picked.verdict.counts(UNDECIDED),
            gains=gains,
            first=[
                {"key": key, "rank": rank, "gain": gain}
                for rank, (key, gain) in enumerate(zip(keys, gains, strict=False), 1)
            ],
            groups=chosen.quotas if chosen.stopped is None else {},
            model=picked.ready.model,
            strategy=self.request.strategy,
            settings=settings_of(self.request.selector()),
            notes=[*picked.notes, *fitted_apart(table, self.request.signals(table).columns)],
            copies=find_picked_copies(table, picked.picks, picked.labelled()),
        )


def run_select(options: SelectOptions) -> SelectResult:
    """Pick rows of a scored table, to label next or to train on; write batch, decisions and receipt.

    Picks do not depend on the row order: rows are first sorted by a hash of their keys, and ties go to the lower hash.
    Every keyword except ``picked`` and ``announce`` is an option of ``curate select``.

    Returns:
        counts, gains, notes and paths.

    Raises:
        InputError: for an unusable table, option or output; nothing is written.
    """
    paths = {name: getattr(options, name) for name in FILES}  # in full, as the receipt has them: reasons name them
    files = {name: None if path is None else str(path_to_read(str(path)).resolve()) for name, path in paths.items()}
    settings = dict(options.set or {})
    request = part_of(SelectRequest, options, budget=str(options.budget), settings=settings, **files)
    opened = open_table(options.table, require=[KEY], embedding=options.embedding)
    with searching(options.engine, None if options.dry_run else options.out, options.announce):
        result = apply(
            Select(request, options.picked), opened, options.out, dry_run=options.dry_run, overwrite=options.overwrite
        )
    other = Amount.parse(request.budget, "--budget").other_reading("--budget", result.requested, result.n_rows)
    return result if other is None else replace(result, notes=[*result.notes, other])


select = callable_of(SelectOptions, run_select)
