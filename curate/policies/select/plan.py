"""Selection from arrays alone, shared by rounds and ``curate select``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import polars as pl

from curate.counted import counted
from curate.policies.select.request import SAFE_GATE, SelectRequest, can_discount, guard
from curate.selectors.contract import Pool, Selection, Selector
from curate.selectors.geometry import members, spans, squared_distances, unit
from curate.selectors.picking import ReportPicks, reporting_picks
from curate.tables.amount import Amount
from curate.tables.digests import tie_breaks
from curate.tables.rows import Codes
from scoring.arrays import Array, Ints
from scoring.errors import InputError

MEETINGS = 5_000_000  # groups x labelled rows up to which every group uses all labelled rows
N_NOTES = 3


def pick_in_groups(
    pool: Pool,
    selector: Selector,
    by_group: Mapping[str, Ints],
    quotas: Mapping[str, int],
    labelled: Mapping[str, Ints],
    seed: int,
) -> Selection:
    """Pick the quota of each group from its candidates, independently of the other groups' candidates.

    Every group uses all labelled rows; only its labelled rows, with a note, if that would be more than five million
    over all groups.

    Args:
        pool: with the data that the selector needs.
        selector: the strategy.
        by_group: candidates of each group, in the order of their turns.
        quotas: picks of each group.
        labelled: labelled rows of groups that have any.
        seed: of random draws; a group's draws depend on its name, not on the other groups.
    """
    names = [name for name in by_group if quotas[name]]
    in_group_only = len(names) * len(pool.labelled) > MEETINGS
    nobody = np.zeros(0, np.int64)
    picked = []
    for name in names:
        mixed = int(tie_breaks([name.encode("utf-8", "backslashreplace")])[0] >> np.uint64(32))
        part, rows = part_of(pool, by_group[name], labelled.get(name, nobody) if in_group_only else pool.labelled)
        drawn = int(np.random.SeedSequence([seed, mixed]).generate_state(1)[0])
        each = selector(part, quotas[name], seed=drawn)
        notes = tuple(f"{name}: {note}" for note in each.notes)
        picked.append(replace(each, rows=rows[each.rows], notes=notes))
    order = in_turns([quotas[name] for name in names])
    note = (
        f"{len(pool.labelled):,} labelled rows and {len(names):,} groups: each group keeps its distance "
        "only from its own labelled rows"
    )
    return Selection(
        np.concatenate([each.rows for each in picked])[order],
        np.concatenate([each.gains for each in picked])[order],
        {part: np.concatenate([each.parts[part] for each in picked])[order] for part in picked[0].parts},
        (*((note,) if in_group_only else ()), *(note for each in picked for note in each.notes)),
    )


def part_of(pool: Pool, candidates: Ints, labelled: Ints) -> tuple[Pool, Ints]:
    """Return the pool restricted to candidates and labelled rows, and the indices of these rows, shape (M,)."""
    rows = members(candidates, labelled)
    taken: dict[str, Any] = {}
    for each in fields(Pool):
        values = getattr(pool, each.name)
        if each.name in ("candidates", "labelled") or values is None:
            continue
        taken[each.name] = values[rows]
    return Pool(np.searchsorted(rows, candidates), np.searchsorted(rows, labelled), **taken), rows


def water_fill(sizes: Sequence[int], budget: int) -> list[int]:
    """Return the picks of each group: equal shares, with the remainder of small groups distributed over the others.

    Earlier groups get one more if the budget does not divide evenly. The budget is in [0, sum of the sizes].

    >>> water_fill([2, 10, 10], 13)
    [2, 6, 5]
    """
    level, rest = 0, budget
    while True:
        open_groups = [size for size in sizes if size > level]
        if not open_groups or rest < len(open_groups):
            break
        step = min(min(open_groups) - level, rest // len(open_groups))
        level, rest = level + step, rest - step * len(open_groups)
    shares = []
    for size in sizes:
        extra = 1 if size > level and rest > 0 else 0
        rest -= extra
        shares.append(min(size, level) + extra)
    return shares


def group_order(names: Sequence[str]) -> Ints:
    """Return the groups sorted by a hash of their names, independent of the input order."""
    hashes = tie_breaks([name.encode("utf-8", "backslashreplace") for name in names])
    return np.lexsort((np.array(names, object).astype(str), hashes)) if len(names) else np.zeros(0, np.int64)


def in_turns(quotas: Sequence[int]) -> Ints:
    """Return the indices of picks sorted by group, in turns: the first of each group, then the second.

    So the start of a balanced batch is also balanced.

    >>> in_turns([1, 3, 2]).tolist()
    [0, 1, 4, 2, 5, 3]
    """
    group = np.repeat(np.arange(len(quotas)), quotas)
    place = np.concatenate([np.arange(quota) for quota in quotas]) if len(quotas) else np.zeros(0, np.int64)
    return np.lexsort((group, place))


@dataclass(frozen=True)
class Chosen(Selection):
    """Rows of a pool in the order picked, with notes.

    Attributes:
        budget: resolved number of rows; K, unless ``stopped``.
        stopped: distance of the first pick that is too near, or None.
        quotas: rows by group, if there are groups.
        gated: number of candidates excluded by the quality gate.
        least: share of the quality gate.
    """

    budget: int = 0
    stopped: float | None = None
    quotas: dict[str, int] = field(default_factory=dict)
    gated: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    least: float = 0.0


def choose(
    pool: Pool, request: SelectRequest, groups: Codes | None = None, *, picked: ReportPicks = lambda done, total: None
) -> Chosen:
    """Select rows of a pool, deterministically.

    With groups, each group's rows are picked independently (``pick_in_groups``), and the picks then alternate: the
    first of each group, the second of each, and so on.

    Args:
        pool: rows sorted by a hash of their keys, with the data that the strategy needs.
        request: strategy and budget.
        groups: of the pool's rows, if the request has groups.
        picked: called with the numbers of picked and all rows, if they are picked sequentially.

    Raises:
        InputError: if the pool lacks data for the strategy, or has fewer candidates than the budget.
        ValueError: if groups are missing.
    """
    if request.group and groups is None:
        raise ValueError("a selection in groups needs groups")
    if request.min_distance is not None and pool.vectors is None:
        raise ValueError("a least distance needs vectors")
    selector = request.selector()
    amount, n = Amount.parse(request.budget, "--budget"), len(pool.candidates)
    by_group = _by_group(pool.candidates, groups) if request.group and groups else {}
    quotas = _quotas(request, amount, by_group, n)
    budget = sum(quotas.values())
    _check_budget(amount, budget, n)
    before, least = pool.candidates, request.gate or (SAFE_GATE if request.noise_guard else 0.0)
    pool, selector, notes = _guarded(pool, request, selector, least, budget)
    if groups is not None and request.group:
        by_group = _by_group(pool.candidates, groups)  # candidates that passed the gate
        quotas = _quotas(request, amount, by_group, len(pool.candidates), passed=quotas)
        notes += _short_groups(request, amount, by_group, quotas)
        labelled = _by_group(pool.labelled, groups)
        with reporting_picks(picked, sum(quotas.values())):
            choice = pick_in_groups(pool, selector, by_group, quotas, labelled, request.seed)
    else:
        with reporting_picks(picked, budget):
            choice = selector(pool, budget, seed=request.seed)
    different = list(dict.fromkeys(choice.notes))
    more = len(different) - N_NOTES
    some = different if more <= 1 else [*different[:N_NOTES], f"and {more:,} more such notes"]
    chosen = Chosen(
        choice.rows,
        choice.gains,
        choice.parts,
        (*notes, *some),
        sum(quotas.values()),
        quotas=quotas if request.group else {},
        gated=np.setdiff1d(before, pool.candidates, assume_unique=True),
        least=least,
    )
    return chosen if request.min_distance is None else _stopped(pool, chosen, request.min_distance)


def _guarded(
    pool: Pool, request: SelectRequest, selector: Selector, least: float, budget: int
) -> tuple[Pool, Selector, list[str]]:
    """Return the candidates that pass the quality gate, a selector that uses quality as requested, and notes."""
    n = len(pool.candidates)
    discount = request.discount or (request.noise_guard and can_discount(selector))
    pool, selector, notes = guard(pool, request.strategy, selector, least=least, discount=discount)
    if not request.per and budget > len(pool.candidates):
        raise InputError(
            f"the budget must be at most the {len(pool.candidates):,} of {n:,} candidates that pass the gate at "
            f"{least:g}, got {budget:,}; lower the gate or the budget"
        )
    if request.noise_guard and not discount:
        notes.append(f"{request.strategy} has no discount: the noise guard is the gate alone")
    return pool, selector, notes


def _check_budget(amount: Amount, budget: int, most: int) -> None:
    if not 1 <= budget <= most:
        other = amount.other_reading("--budget", budget, most)
        raise InputError(
            f"the budget must be between 1 and the {counted(most, 'row')} that may be picked, got {budget:,}"
            + ("; every row is labelled or left out" if not most else f"; {other}" if other else "")
        )


def _by_group(rows: Ints, groups: Codes) -> dict[str, Ints]:
    """Return the rows in each non-empty group, in the order of their turns."""
    by_code = pl.DataFrame({"code": groups.codes[rows], "row": rows}).partition_by("code", as_dict=True)
    rows_of = {code: part["row"].to_numpy() for (code,), part in by_code.items()}
    return {groups.names[code]: rows_of[code] for code in group_order(groups.names).tolist() if code in rows_of}


def _quotas(
    request: SelectRequest,
    amount: Amount,
    by_group: Mapping[str, Ints],
    n: int,
    passed: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Return the quota of each group; without groups, one unnamed group has the whole budget."""
    if not request.group:
        return {"": amount.count if amount.count is not None else amount.of(n, up=False)}
    sizes = [len(rows) for rows in by_group.values()]
    if request.per:
        if passed is not None and amount.count is None:
            return {name: min(passed[name], len(rows)) for name, rows in by_group.items()}
        return {name: amount.of(size, up=False) for name, size in zip(by_group, sizes, strict=True)}
    total = sum(passed.values()) if passed else amount.count if amount.count is not None else amount.of(n, up=False)
    if total > n:
        _check_budget(amount, total, n)
    return dict(zip(by_group, water_fill(sizes, total), strict=True))


def _short_groups(
    request: SelectRequest, amount: Amount, by_group: Mapping[str, Ints], quotas: Mapping[str, int]
) -> list[str]:
    if request.balance:
        most = max(quotas.values(), default=0)
        short = [name for name in quotas if quotas[name] < most - 1]
        what = "have fewer rows than an equal share, and all are picked"
    else:
        short = [name for name, rows in by_group.items() if amount.count is not None and len(rows) < amount.count]
        what = f"have fewer than {amount}, and all are picked"
    if not short:
        return []
    named = ", ".join(f"{name} ({quotas[name]:,})" for name in short[:3])
    return [f"{len(short):,} of {len(by_group):,} groups {what}: {named}{', ...' if len(short) > 3 else ''}"]


def _stopped(pool: Pool, chosen: Chosen, least: float) -> Chosen:
    """Return the picks before the first that is too near, if any."""
    n, distance = first_too_near(pool.array("vectors"), pool.labelled, chosen.rows, least)
    if n == len(chosen.rows):
        picks = "the one pick is" if n == 1 else f"all {n:,} picks are"
        note = f"{picks} at least {least:g} from one another and from the labelled rows"
        return replace(chosen, notes=(*chosen.notes, note))
    note = (
        f"stopped after {n:,} of {chosen.budget:,}: the next pick is {distance:.3g} from a row that is chosen or "
        f"labelled, nearer than {least:g}"
    )
    return replace(
        chosen,
        rows=chosen.rows[:n],
        gains=chosen.gains[:n],
        parts={name: values[:n] for name, values in chosen.parts.items()},
        notes=(*chosen.notes, note),
        stopped=distance,
    )


def first_too_near(vectors: Array, labelled: Ints, picks: Ints, least: float) -> tuple[int, float]:
    """Return the number of picks before the first that is nearer than ``least`` to an earlier pick or labelled row.

    Args:
        vectors: shape (N, D); normalised here.
        labelled: labelled rows, shape (L,).
        picks: rows in the order picked, shape (K,).
        least: Euclidean distance between unit rows, in (0, 2].

    Returns:
        index of that pick and its distance; K and infinity if there is none.
    """
    for block in spans(len(picks)):
        rows = unit(vectors[picks[block]], np.float64)  # in float32, copies would have distances of 0.0003
        nearest = np.full(len(rows), np.inf)
        for earlier in (labelled, picks[: block.start]):
            for span in spans(len(earlier)):
                gaps = squared_distances(rows, unit(vectors[earlier[span]], np.float64))
                nearest = np.minimum(nearest, gaps.min(axis=1))
        between = squared_distances(rows, rows)
        between[np.triu_indices(len(rows))] = np.inf  # only earlier rows
        nearest = np.sqrt(np.minimum(nearest, between.min(axis=1)))
        near = np.flatnonzero(nearest < least)
        if len(near):
            return block.start + int(near[0]), float(nearest[near[0]])
    return len(picks), float("inf")
