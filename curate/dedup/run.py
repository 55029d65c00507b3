"""Deduplicate a table: read what is compared, find what is the same, decide who stays, write it all down."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.columns import KEY
from curate.dedup.chains import find_chains
from curate.dedup.finders import Options, build
from curate.dedup.groups import Members, group_rows, keys_at
from curate.dedup.keep import Criterion, keep_order
from curate.dedup.other import find_outside
from curate.dedup.request import CHAIN, Request, make_request
from curate.dedup.rows import Rows, read_rows
from curate.dedup.searches import Search
from curate.dedup.stars import Stars, find_stars
from curate.dedup.words import MEANINGS, SCHEMA, Told, rule_text
from curate.gather import check_unique
from curate.models import same_model
from curate.outcomes import DROP, FAILED, KEEP
from curate.policy import Decided, outputs_for, second_look, write_outputs
from curate.receipts import state_of
from curate.table import Table, open_table
from scoring.errors import InputError

N_CONFLICTS = 5


@dataclass(frozen=True)
class DedupResult:
    """What a deduplication did; what ``curate dedup`` prints.

    Attributes:
        n_rows: rows that came in; kept + dropped + failed.
        dropped_by: finder with its threshold -> rows that it dropped.
        n_groups: groups of two or more, those with a row of the other table among them.
        largest: rows of the largest group.
        n_leaks: rows that the other table has too.
        n_conflicts: groups whose rows carry different labels.
        conflicts: some of them: kept key, and the labels.
        recall: what each finder finds of all pairs, in words.
        notes: what a person should know.
        examples: a few decisions of rows that go.
        subset: path written; None in a dry run, as the others.
    """

    n_rows: int
    kept: int
    dropped: int
    failed: int
    dropped_by: dict[str, int]
    failed_by: dict[str, int]
    n_groups: int
    largest: int
    n_leaks: int
    n_conflicts: int
    conflicts: list[dict[str, Any]]
    recall: list[str]
    notes: list[str]
    examples: list[dict[str, str]]
    subset: Path | None = None
    decisions: Path | None = None
    groups: Path | None = None
    receipt: Path | None = None
    input_digest: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        paths = {name: str(value) if value else None for name, value in self.paths().items()}
        return {**{name: value for name, value in self.__dict__.items() if name not in paths}, **paths}

    def paths(self) -> dict[str, Path | None]:
        """Return the files written, by name."""
        return {"subset": self.subset, "decisions": self.decisions, "groups": self.groups, "receipt": self.receipt}


@dataclass
class Found:
    """A deduplication that has been decided.

    Attributes:
        rows: what was read.
        order: rows in the order of keeping.
        searches: finders, built.
        stars: who belongs to whom.
        outside: rows whose owner is a row of the other table, shape (N,) bool.
        outcome: shape (N,) uint8.
        other_digest: of the other table, or empty.
    """

    rows: Rows
    order: NDArray[np.int64]
    searches: dict[str, Search]
    stars: Stars
    outside: NDArray[np.bool_]
    outcome: NDArray[np.uint8]
    other_digest: str = ""
    notes: list[str] = field(default_factory=list)


def dedup_table(
    table: str | Path,
    out: str | Path | None = None,
    finders: Mapping[str, float | None] | Sequence[str] | None = None,
    *,
    against: str | Path | None = None,
    dry_run: bool = False,
    overwrite: bool = False,
    **asked: Any,
) -> DedupResult:
    """Keep one row of each group that is the same; write subset, decisions, groups and receipt.

    Args:
        table: Parquet file or folder of ``part-*.parquet`` with a unique ``key``; it is never changed.
        out: subset to write, a name ending in ``.parquet``; may be None in a dry run.
        finders: name -> threshold in the finder's unit (None for its own), or names; by default ``bytes`` and
            ``signature``.
        against: another table: rows that it has already go. Its rows are not compared with one another.
        dry_run: count only; write nothing.
        overwrite: replace outputs that exist.
        asked: ``mirrored``, ``rotated``, ``cropped``, ``keep``, ``protect``, ``label``, ``groups``, ``similarity``,
            ``kappa``, ``report_only``; see ``curate.dedup.request``.

    Returns:
        counts, notes and paths.

    Raises:
        InputError: for a table, option or output that cannot be used; nothing is written then.
    """
    opened = open_table(table, require=[KEY])
    other = open_table(against, require=[KEY]) if against is not None else None
    named = finders if finders is None or isinstance(finders, Mapping) else dict.fromkeys(finders)
    request, criteria, notes = make_request(opened, named, **asked)
    if request.report_only and other is None:
        raise InputError("--report-only tells what another table has too; name that with --against")
    inputs = [opened, *([other] if other else [])]
    outputs = None if dry_run else outputs_for(inputs, out, ("groups",), overwrite=overwrite)
    before = state_of(opened)
    found = decide_duplicates(opened, request, criteria, other)
    decided, members = _decided(opened, request, found, other, before)
    result = _summary(request, found, decided, members, [*notes, *found.notes])
    if outputs is None:
        return result
    decided.facts.update({name: getattr(result, name) for name in ("dropped_by", "failed_by", "n_groups", "recall")})
    write_outputs(decided, outputs, overwrite=overwrite)
    paths = outputs.paths
    return replace(
        result,
        subset=paths["subset"],
        decisions=paths["decisions"],
        groups=paths["groups"],
        receipt=paths["receipt"],
    )


def decide_duplicates(
    table: Table, request: Request, criteria: Sequence[Criterion], other: Table | None = None
) -> Found:
    """Find what is the same and decide who stays; nothing is written.

    Raises:
        InputError: for a column or key that cannot be used, or a table of another model.
    """
    if other is not None and "embedding" in request.thresholds:
        same_model(table, other)
    rows = read_rows(table, request.needs(criteria))
    check_unique(table, rows.ties)
    order = keep_order(rows, criteria)
    searches = build(rows, request.thresholds, Options(request.views(), request.kappa))
    open_rows = rows.ok.copy()
    stars = Stars.empty(len(rows), tuple(searches))
    digest = ""
    if other is not None:
        stars, digest = find_outside(other, request, searches, open_rows, rows.protected)
    outside = stars.finder >= 0
    open_rows &= ~outside
    if request.groups == CHAIN:
        inside = find_chains(order, searches, request.thresholds, open_rows, rows.protected)
    else:
        inside = find_stars(order, searches, open_rows.copy(), rows.protected)
    taken = ~outside & rows.ok
    for name in ("owner", "finder", "similarity", "view"):
        getattr(stars, name)[taken] = getattr(inside, name)[taken]
    outcome = np.where(rows.ok, np.where(stars.finder >= 0, DROP, KEEP), FAILED).astype(np.uint8)
    if request.report_only:
        outcome[outside & rows.ok] = KEEP
    return Found(rows, order, searches, stars, outside, outcome, digest, _notes(rows, searches))


def _notes(rows: Rows, searches: Mapping[str, Search]) -> list[str]:
    notes = [f"{n:,} rows have {what}: not compared by embedding" for what, n in rows.odd.items()]
    if rows.signature is not None:
        blank = int((rows.ok & ~rows.signature.any(1)).sum())
        if blank:
            notes.append(f"{blank:,} rows show one flat colour or have no signature: not compared by signature")
    for search in searches.values():
        notes += search.notes
    return notes


def _decided(
    table: Table, request: Request, found: Found, other: Table | None, before: list[tuple[str, int, int]]
) -> tuple[Decided, Members]:
    members = group_rows(found.stars, found.outside, found.order, found.rows)
    linked = found.stars.finder >= 0
    kept_key = keys_at(table, np.where(linked & ~found.outside, found.stars.owner, -1))
    if other is not None:
        theirs = keys_at(other, np.where(found.outside, found.stars.owner, -1))
        kept_key = pa.array(np.where(found.outside, theirs, kept_key), pa.string())
    told = Told(
        outcome=found.outcome,
        stars=found.stars,
        outside=found.outside,
        group=members.group,
        kept_key=pa.array(kept_key, pa.string()),
        thresholds=request.thresholds,
        views=[view.name for view in request.views()],
        other=str(other.path) if other else "",
        protected=found.rows.protected,
    )
    rule = request.to_json()
    if other is not None:
        rule["against"] = {"path": str(other.path.resolve()), "digest": found.other_digest}
    groups = members.table(table, request, found.searches, found.stars, found.outside, told.kept_key)
    decided = Decided(
        table=table,
        policy=[rule],
        outcome=found.outcome,
        words=told.rows,
        schema=SCHEMA,
        meanings=MEANINGS,
        digest=found.rows.digest,
        state=before,
        more={"groups": groups},
    )
    return decided, members


def _summary(request: Request, found: Found, decided: Decided, members: Members, notes: list[str]) -> DedupResult:
    examples, failed_by = second_look(decided)
    counts = decided.counts()
    groups = decided.more["groups"]
    dropped = found.stars.finder[found.outcome == DROP]
    by = {
        rule_text(name, request.thresholds[name]): int((dropped == number).sum())
        for number, name in enumerate(found.searches)
    }
    conflicts = groups.filter(groups.column("conflict"))
    return DedupResult(
        n_rows=counts["n_rows"],
        kept=counts["kept"],
        dropped=counts["dropped"],
        failed=counts["failed"],
        dropped_by=by,
        failed_by=failed_by,
        n_groups=groups.num_rows,
        largest=int(members.size.max(initial=0)),
        n_leaks=int(found.outside.sum()),
        n_conflicts=conflicts.num_rows,
        conflicts=conflicts.select(["kept_key", "labels", "size"]).slice(0, N_CONFLICTS).to_pylist(),
        recall=_recall(found.searches),
        notes=notes,
        examples=examples,
        input_digest=found.rows.digest,
    )


def _recall(searches: Mapping[str, Search]) -> list[str]:
    lines = []
    for name, search in searches.items():
        recall = search.recall
        if recall is None or recall.exact:
            lines.append(f"{name}: every pair was compared")
        elif not recall.n_pairs:
            lines.append(f"{name}: searched in clusters; the sampled rows have no pair to measure by")
        else:
            lines.append(
                f"{name}: searched in clusters, which find {recall.estimate:.2%} of the pairs "
                f"[{recall.low:.2%}, {recall.high:.2%}] (by brute force on sampled rows: {recall.n_pairs:,} pairs)"
            )
    return lines
