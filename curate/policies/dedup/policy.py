"""Deduplicate a table: find what is the same, decide who stays, write it all down, and say how good it is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from curate.columns import KEY
from curate.policies.decided import Decided, second_look
from curate.policies.dedup.decide import Found, decide_duplicates
from curate.policies.dedup.grouping.keep import DEFAULT as KEEP_DEFAULT
from curate.policies.dedup.grouping.keep import parse_keep
from curate.policies.dedup.grouping.members import MEANINGS as GROUP_MEANINGS
from curate.policies.dedup.grouping.members import Members, group_rows
from curate.policies.dedup.quality.examine import ANSWERS, PAGE, audit_pairs, pages, planted_recall, refuse_answers
from curate.policies.dedup.quality.recall import RecallSettings
from curate.policies.dedup.request import COSINE, STAR, Request, refuse_graph, resolved
from curate.policies.dedup.result import DedupResult, recall_lines
from curate.policies.dedup.words import MEANINGS, SCHEMA, Told, rule_text
from curate.policies.outcomes import DROP
from curate.policies.outputs import Outputs, outputs_for, write_outputs
from curate.policies.receipts import state_of
from curate.tables.images import require_images
from curate.tables.keys import keys_at
from curate.tables.table import Table, open_table
from scoring.errors import InputError

N_CONFLICTS = 5
MOST_PICTURES = 2000  # that a page to judge pairs on may hold


def dedup(
    table: str | Path,
    out: str | Path | None = None,
    finder: str | Sequence[str] | Mapping[str, float | None] | None = None,
    *,
    mirrored: bool = False,
    rotated: bool = False,
    cropped: bool = False,
    against: str | Path | None = None,
    report_only: bool = False,
    keep: str = KEEP_DEFAULT,
    protect: str | None = None,
    label: str | None = None,
    groups: str = STAR,
    similarity: str = COSINE,
    kappa: str | None = None,
    graph: str | Path | None = None,
    estimate_recall: int | None = None,
    audit: int | None = None,
    source: str | None = None,
    root: str | None = None,
    key: str | None = None,
    path_column: str | None = None,
    image_column: str | None = None,
    against_source: str | None = None,
    model: str | None = None,
    seed: int = 0,
    dry_run: bool = False,
    overwrite: bool = False,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> DedupResult:
    """Keep one row of each group that is the same; write subset, decisions, groups and receipt.

    Every keyword but ``report`` is the option of ``curate dedup`` of that name.

    Args:
        table: Parquet file or folder of ``part-*.parquet`` with a unique ``key``; it is never changed.
        out: subset to write, a name ending in ``.parquet``; may be None in a dry run.
        finder: one or several keys of ``FINDERS``, or name -> threshold in the finder's unit (None for its own); by
            default ``bytes`` and ``signature``.
        mirrored: mirrored copies are the same, of the finders ``signature`` and ``crop``.
        rotated: so are copies turned by 90, 180 or 270 degrees.
        cropped: also the finder ``crop``.
        against: another table: rows that it has already go. Its rows are not compared with one another.
        report_only: rows that ``against`` has stay, and are told.
        keep: who stays: criteria in order, separated by commas.
        protect: condition on the rows that never go.
        label: column of labels, to list groups that disagree; by default ``label`` where there is one.
        groups: ``star``, or ``chain``.
        similarity: of embeddings, ``cosine`` or ``elk``.
        kappa: column of the kappas for ``elk``; by default the model's own.
        graph: file of the graph of nearest neighbours, for the finder ``embedding``: read, or computed and written.
        estimate_recall: also edit so many of the table's own images, and say how many of the copies are found.
        audit: also write this many pairs near the threshold, for a person to judge.
        source: what was scored, where images are read again and the table has no paths.
        root: where relative paths of the source start.
        key: column of the source that holds the key.
        path_column: column of the source that holds paths or URLs.
        image_column: column of the source that holds image bytes.
        against_source: what was scored for ``against``.
        model: that scored the table, for ``estimate_recall``, if it does not ship.
        seed: of the images and pairs that are drawn.
        dry_run: count only; write nothing.
        overwrite: replace outputs that exist.
        report: told of images edited, of all.

    Returns:
        counts, notes and paths.

    Raises:
        InputError: for a table, option or output that cannot be used; nothing is written then.
    """
    opened = open_table(table, require=[KEY])
    other = open_table(against, require=[KEY]) if against is not None else None
    plant = RecallSettings(estimate_recall, seed=seed) if estimate_recall is not None else None
    request = Request(
        {},
        mirrored=mirrored,
        rotated=rotated,
        cropped=cropped,
        keep=keep,
        protect=protect,
        label=label,
        groups=groups,
        similarity=similarity,
        kappa=kappa,
        report_only=report_only,
        source=source,
        source_options={"root": root, "key": key, "path_column": path_column, "image_column": image_column},
        against_source=against_source,
    )
    request, notes = resolved(request, opened, finder)
    criteria = parse_keep(request.keep, opened, label=request.label)
    if other is not None and other.path.resolve() == opened.path.resolve():
        raise InputError(f"--against is {opened.path} itself, which has every row already; name another table")
    if request.report_only and other is None:
        raise InputError("--report-only tells what another table has too; name that with --against")
    if audit is not None and not 1 <= audit <= MOST_PICTURES // 2:
        raise InputError(f"--audit draws 1 to {MOST_PICTURES // 2:,} pairs, got {audit:,}; 200 is usual")
    if audit is not None and not 0 <= seed < 2**31:
        raise InputError(f"--seed must be between 0 and 2^31 - 1, got {seed}; choose another")
    if audit is not None and dry_run:
        raise InputError("--audit writes pairs to judge, and --dry-run writes nothing; leave one of them out")
    if plant is not None or audit is not None:
        require_images(opened, request.source)
    if graph is not None:
        refuse_graph(request)
    outputs = None if dry_run else _outputs(opened, other, out, graph, audit=audit is not None, overwrite=overwrite)
    before, before_other = state_of(opened), state_of(other) if other else []
    found = decide_duplicates(opened, request, criteria, other, graph=graph, write_graph=outputs is not None)
    decided, members = _decided(opened, request, found, other, before)
    result = _summary(request, found, decided, members, [*notes, *found.notes])
    if plant is not None:
        planted = planted_recall(
            opened, request, found.rows, found.searches, found.stars, members.group, plant, model=model, report=report
        )
        result = replace(result, planted=planted)
    texts: dict[str, bytes] = {}
    if audit is not None and outputs is not None:
        pairs = audit_pairs(opened, request, found.rows, found.order, found.stars, found.outside, audit, seed=seed)
        texts = pages(opened, request, pairs, outputs.texts[ANSWERS].name)
    if outputs is None:
        return result
    if other is not None and state_of(other) != before_other:
        raise InputError(f"{other.path} changed while it was being read; run the command again")
    facts = ("dropped_by", "failed_by", "n_groups", "recall")
    decided.facts.update({name: getattr(result, name) for name in facts})
    if result.planted is not None:
        decided.facts["planted"] = result.planted.to_json()
    write_outputs(decided, outputs, overwrite=overwrite, texts=texts)
    return replace(
        result,
        subset=outputs.subset,
        decisions=outputs.tables["decisions"],
        groups=outputs.tables["groups"],
        receipt=outputs.receipt,
        audit=outputs.texts.get(ANSWERS),
        audit_page=outputs.texts.get(PAGE),
    )


def _outputs(
    table: Table,
    other: Table | None,
    out: str | Path | None,
    graph: str | Path | None,
    *,
    audit: bool,
    overwrite: bool,
) -> Outputs:
    """The names of what is written, refused before any work where they cannot be."""
    inputs = [table, *([other] if other else [])]
    outputs = outputs_for(inputs, out, ("groups",), (ANSWERS, PAGE) if audit else (), overwrite=overwrite)
    if audit:
        refuse_answers(outputs.texts[ANSWERS])
    if graph is not None and Path(graph).resolve() in {path.resolve() for path in outputs.paths.values()}:
        raise InputError(f"{graph} is named by --graph and would be written over; choose another name with -o")
    return outputs


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
        protected=found.rows.holds(request.protect),
        leaks=found.leaks,
    )
    rule = request.to_json()
    if other is not None:
        rule["against"] = {"path": str(other.path.resolve()), "digest": found.other_digest}
    if found.graph:
        rule["graph"] = {**found.graph, "path": str(Path(found.graph["path"]).resolve())}
    groups = members.table(
        table,
        request,
        found.searches,
        found.stars,
        found.outside,
        told.kept_key,
        found.rows.texts.get(request.label or ""),
    )
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
        more_meanings={"groups": GROUP_MEANINGS},
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
        n_leaks=int(found.leaks.sum()),
        n_conflicts=conflicts.num_rows,
        conflicts=conflicts.select(["kept_key", "labels", "size"]).slice(0, N_CONFLICTS).to_pylist(),
        recall=recall_lines(found.searches),
        notes=notes,
        examples=examples,
        input_digest=found.rows.digest,
    )
