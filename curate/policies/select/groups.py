"""Picks within each group separately, in turns."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.selectors.contract import Selector
from curate.selectors.geometry import members
from curate.selectors.pool import Pool, Selection
from curate.tables.digests import tie_breaks

MEETINGS = 5_000_000  # groups times labelled rows, up to which every group sees all of them


def pick_in_groups(
    pool: Pool,
    selector: Selector,
    by_group: Mapping[str, NDArray[np.int64]],
    quotas: Mapping[str, int],
    labelled: Mapping[str, NDArray[np.int64]],
    seed: int,
) -> Selection:
    """Pick a group's quota among its candidates, group by group, as if there were no other candidates.

    Every group sees all labelled rows, but where that would be more than five million in all groups together, only
    its own: that is reported in a note.

    Args:
        pool: with what the selector needs.
        selector: that picks.
        by_group: candidates of each group, groups in the order in which they take turns.
        quotas: how many of each.
        labelled: labelled rows of each group that has some.
        seed: of everything that is drawn; a group's draws depend on its name and not on the other groups.
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


def part_of(pool: Pool, candidates: NDArray[np.int64], labelled: NDArray[np.int64]) -> tuple[Pool, NDArray[np.int64]]:
    """Return the pool of some candidates and labelled rows, and which rows of the pool these are, shape (M,)."""
    rows = members(candidates, labelled)
    taken: dict[str, Any] = {}
    for each in fields(Pool):
        values = getattr(pool, each.name)
        if each.name in ("candidates", "labelled") or values is None:
            continue
        taken[each.name] = values[rows]
    return Pool(np.searchsorted(rows, candidates), np.searchsorted(rows, labelled), **taken), rows


def water_fill(sizes: Sequence[int], budget: int) -> list[int]:
    """Return the picks of each group: equal shares, with the remainder of small groups taken from the others.

    Groups that come first give one more where it does not come out even.

    Args:
        sizes: rows of each group.
        budget: in [0, sum of the sizes].

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


def group_order(names: Sequence[str]) -> NDArray[np.int64]:
    """Return the groups in an order independent of the files: by a hash of their names."""
    hashes = tie_breaks([name.encode("utf-8", "backslashreplace") for name in names])
    return np.lexsort((np.array(names, object).astype(str), hashes)) if len(names) else np.zeros(0, np.int64)


def in_turns(quotas: Sequence[int]) -> NDArray[np.int64]:
    """Return the indices of picks sorted by group, in turns: the first of each group, then the second.

    So the start of a balanced batch is a balanced batch.

    >>> in_turns([1, 3, 2]).tolist()
    [0, 1, 4, 2, 5, 3]
    """
    group = np.repeat(np.arange(len(quotas)), quotas)
    place = np.concatenate([np.arange(quota) for quota in quotas]) if len(quotas) else np.zeros(0, np.int64)
    return np.lexsort((group, place))
