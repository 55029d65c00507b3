"""Picks in each group by itself, taking turns."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.choice.shares import in_turns
from curate.digests import tie_breaks
from curate.selectors import Pool, Selection, Selector
from curate.selectors.geometry import members

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
    its own: that is said in a note. The graph of a pool's neighbours is left behind: most are rows of other groups.

    Args:
        pool: with what the selector needs.
        selector: that picks.
        by_group: candidates of each group, groups in the order in which they take turns.
        quotas: how many of each.
        labelled: labelled rows of each group that has some.
        seed: of everything that is drawn; a group's draws depend on its name and not on the other groups.
    """
    names = [name for name in by_group if quotas[name]]
    own_only = len(names) * len(pool.labelled) > MEETINGS
    nobody = np.zeros(0, np.int64)
    found = []
    for name in names:
        mixed = int(tie_breaks([name.encode("utf-8", "backslashreplace")])[0] >> np.uint64(32))
        part, rows = part_of(pool, by_group[name], labelled.get(name, nobody) if own_only else pool.labelled)
        drawn = int(np.random.SeedSequence([seed, mixed]).generate_state(1)[0])
        each = selector(part, quotas[name], seed=drawn)
        told = tuple(f"{name}: {note}" for note in each.notes)
        found.append(replace(each, rows=rows[each.rows], notes=told))
    order = in_turns([quotas[name] for name in names])
    note = (
        f"{len(pool.labelled):,} labelled rows and {len(names):,} groups: each group keeps away from its own ones only"
    )
    return Selection(
        np.concatenate([each.rows for each in found])[order],
        np.concatenate([each.gains for each in found])[order],
        {part: np.concatenate([each.parts[part] for each in found])[order] for part in found[0].parts},
        (*((note,) if own_only else ()), *(note for each in found for note in each.notes)),
    )


def part_of(pool: Pool, candidates: NDArray[np.int64], labelled: NDArray[np.int64]) -> tuple[Pool, NDArray[np.int64]]:
    """Return the pool of some candidates and labelled rows, and which rows of the pool these are, shape (M,)."""
    rows = members(candidates, labelled)
    taken: dict[str, Any] = {}
    for each in fields(Pool):
        values = getattr(pool, each.name)
        if each.name in ("candidates", "labelled") or values is None:
            continue
        taken[each.name] = values[:, rows] if each.name == "draws" else values[rows]
    return Pool(np.searchsorted(rows, candidates), np.searchsorted(rows, labelled), **taken), rows
