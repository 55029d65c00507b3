"""Choose rows of a table, and write them down: batch, decisions and receipt."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from curate.columns import KEY
from curate.policies.decided import Decided, second_look
from curate.policies.outputs import outputs_for, write_outputs
from curate.policies.receipts import state_of
from curate.policies.select.batch import Ranked
from curate.policies.select.decide import Picked, pick
from curate.policies.select.request import Request
from curate.policies.select.strategy import settings_of
from curate.policies.select.words import MEANINGS, SCHEMA
from curate.tables.table import Table, open_table
from scoring.errors import InputError

N_FIRST = 5


@dataclass(frozen=True)
class ChoiceResult:
    """What a choice did; what ``curate select`` prints.

    Attributes:
        n_rows: rows that came in; picked + dropped + undecided + failed.
        asked: rows that the budget came to; ``picked``, unless a least distance stopped the choice.
        dropped_by: why rows were not picked -> how many.
        undecided_by: what is missing -> how many rows lack it.
        failed_by: status -> rows.
        gains: of every pick, in order; None where one is not finite.
        first: the first picks: key, rank and gain.
        groups: rows picked by group, where the budget was shared.
        model: the light model, as plain JSON; empty without one.
        strategy: its name; ``settings`` are all its parameters.
        notes: what a person should know.
        subset: path written; None in a dry run, as ``decisions`` and ``receipt``.
    """

    n_rows: int
    picked: int
    asked: int
    dropped: int
    undecided: int
    failed: int
    dropped_by: dict[str, int]
    undecided_by: dict[str, int]
    failed_by: dict[str, int]
    gains: list[float | None]
    first: list[dict[str, Any]]
    groups: dict[str, int]
    model: dict[str, Any]
    strategy: str
    settings: dict[str, Any]
    notes: list[str]
    subset: Path | None = None
    decisions: Path | None = None
    receipt: Path | None = None
    input_digest: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        paths = {name: str(value) if value else None for name, value in self.paths().items()}
        return {**{name: value for name, value in self.__dict__.items() if name not in paths}, **paths}

    def paths(self) -> dict[str, Path | None]:
        """Return the files written, by name."""
        return {"subset": self.subset, "decisions": self.decisions, "receipt": self.receipt}


def select(
    table: str | Path,
    out: str | Path | None = None,
    strategy: str = "auto",
    budget: str | int | float = 100,
    *,
    set: Mapping[str, object] | None = None,
    labelled: str | Path | None = None,
    labelled_where: str | None = None,
    label: str | None = None,
    exclude: str | Path | None = None,
    per: str | None = None,
    balance: str | None = None,
    min_distance: float | None = None,
    noise_guard: bool = False,
    gate: float = 0.0,
    discount: bool = False,
    quality: str | None = None,
    score: str | None = None,
    loss: str | None = None,
    holdout_loss: str | None = None,
    graph: str | Path | None = None,
    seed: int = 0,
    dry_run: bool = False,
    overwrite: bool = False,
) -> ChoiceResult:
    """Pick rows of a scored table, to label next or to train on; write batch, decisions and receipt.

    The same rows are picked, in the same order, whatever the order of the table: rows are sorted by a hash of their
    keys first, and ties go to the lower hash. Every keyword is the option of ``curate select`` of that name.

    Args:
        table: Parquet file or folder of ``part-*.parquet`` with a unique ``key``; it is never changed.
        out: batch to write, a name ending in ``.parquet``; may be None in a dry run.
        strategy: a key of ``curate.selectors.SELECTORS``.
        budget: rows to pick, or a share of those that may be picked (``0.1``, ``10%``).
        set: the strategy's own parameters.
        labelled: file of the keys, and labels, that are labelled already.
        labelled_where: condition on the rows that are labelled already.
        label: column of the labels; by default ``label`` where there is one.
        exclude: file of keys that are never picked.
        per: column of groups that each give the budget.
        balance: column of groups that share the budget.
        min_distance: stop at the first pick nearer than this to another or to a labelled row, in [0, 2].
        noise_guard: a gate of a fifth and a discount in one.
        gate: share of the lowest quality that is left out, in [0, 1).
        discount: low quality lowers a row's rank or weight.
        quality: column that guards, as typed (``max:COLUMN``); by default the model's own score.
        score: column that ranks, likewise, for the strategy ``score``.
        loss: column of losses of the model in training, for ``rho-loss``.
        holdout_loss: column of losses of a model of other rows, for ``rho-loss`` and ``small-loss``.
        graph: file of the graph of nearest neighbours: read, or computed and written.
        seed: the same one gives the same picks.
        dry_run: count only; write nothing.
        overwrite: replace outputs that exist.

    Returns:
        counts, gains, notes and paths.

    Raises:
        InputError: for a table, option or output that cannot be used; nothing is written then.
    """
    request = Request(
        strategy,
        str(budget),
        dict(set or {}),
        labelled=_name(labelled),
        labelled_where=labelled_where,
        label=label,
        exclude=_name(exclude),
        per=per,
        balance=balance,
        score=score,
        quality=quality,
        loss=loss,
        holdout_loss=holdout_loss,
        gate=gate,
        discount=discount,
        noise_guard=noise_guard,
        min_distance=min_distance,
        graph=_name(graph),
        seed=seed,
    )
    request.plan.selector()
    opened = open_table(table, require=[KEY])
    outputs = None if dry_run else outputs_for([opened], out, overwrite=overwrite)
    if outputs is not None:
        _refuse_sources(request, list(outputs.paths.values()))
    before = state_of(opened)
    picked = pick(opened, request, write_graph=outputs is not None)
    decided = _decided(opened, request, picked, before)
    result = _summary(request, picked, decided)
    if outputs is None:
        return result
    told, meanings = picked.told()
    with Ranked(opened.schema, picked.picks, told, meanings) as ranked:
        decided = replace(decided, arranged=ranked, facts=_facts(result, picked))
        write_outputs(decided, outputs, overwrite=overwrite)
    return replace(result, subset=outputs.subset, decisions=outputs.tables["decisions"], receipt=outputs.receipt)


def _name(path: str | Path | None) -> str | None:
    return None if path is None else str(path)


def _refuse_sources(request: Request, outputs: list[Path]) -> None:
    """Refuse to write over a file that the choice reads."""
    written = {path.resolve() for path in outputs}
    for flag, name in (("--labelled", request.labelled), ("--exclude", request.exclude), ("--graph", request.graph)):
        if name is not None and Path(name).resolve() in written:
            raise InputError(f"{name} is read by {flag} and would be written over; choose another name with -o")


def _decided(table: Table, request: Request, picked: Picked, before: list[tuple[str, int, int]]) -> Decided:
    rule = request.to_json()
    for name, known in picked.others.items():
        rule[name] = {"path": str(Path(known.path).resolve()), "digest": known.digest}
    return Decided(
        table=table,
        policy=[rule],
        outcome=picked.verdict.outcome,
        words=picked.verdict.rows,
        schema=SCHEMA,
        meanings=MEANINGS,
        digest=picked.rows.digest,
        state=before,
    )


def _summary(request: Request, picked: Picked, decided: Decided) -> ChoiceResult:
    _, failed_by = second_look(decided)
    counts, chosen = decided.counts(), picked.chosen
    gains = [gain if np.isfinite(gain) else None for gain in chosen.gains.tolist()]
    keys = keys_of(decided.table, picked.picks[:N_FIRST])
    first = [
        {"key": key, "rank": at + 1, "gain": gain} for at, (key, gain) in enumerate(zip(keys, gains, strict=False))
    ]
    return ChoiceResult(
        n_rows=counts["n_rows"],
        picked=counts["kept"],
        asked=chosen.asked,
        dropped=counts["dropped"],
        undecided=counts["undecided"],
        failed=counts["failed"],
        dropped_by=picked.verdict.dropped_by(),
        undecided_by=picked.verdict.undecided_by(),
        failed_by=failed_by,
        gains=gains,
        first=first,
        groups=chosen.quotas if chosen.stopped is None else {},
        model=picked.ready.model,
        strategy=request.strategy,
        settings=settings_of(request.plan.selector()),
        notes=picked.notes,
        input_digest=decided.digest,
    )


def keys_of(table: Table, places: np.ndarray) -> list[str]:
    """Return the keys of a few rows of a table, in the order given."""
    found: dict[int, str] = {}
    start = 0
    for batch in table.batches([KEY]):
        for row in places[(places >= start) & (places < start + batch.num_rows)].tolist():
            found[row] = str(batch.column(0)[row - start].as_py())
        start += batch.num_rows
        if len(found) == len(np.unique(places)):
            break
    return [found[row] for row in places.tolist()]


def _facts(result: ChoiceResult, picked: Picked) -> dict[str, Any]:
    """What the receipt says besides."""
    return {
        "settings": result.settings,
        "asked": result.asked,
        "stopped_at": picked.chosen.stopped,
        "dropped_by": result.dropped_by,
        "undecided_by": result.undecided_by,
        "failed_by": result.failed_by,
        "groups": result.groups,
        "light_model": result.model,
        "notes": result.notes,
        "gain": {"first": result.gains[0], "last": result.gains[-1]} if result.gains else {},
    }
