"""Groups of a deduplication as one image, kept row first, most doubtful group on top."""

from collections.abc import Sequence
from math import isnan
from pathlib import Path
from textwrap import wrap

import numpy as np
from numpy.typing import NDArray

from curate.sheets.captions import number, plain_line
from curate.sheets.doubtful import Group, Member, doubtful_groups
from curate.sheets.picture import check_picture, save_picture
from curate.sheets.tiles import TILE, Tile, contact_sheet, small_image
from curate.tables.images import Images
from curate.tables.keys import rows_with_keys
from curate.tables.table import Table
from scoring.errors import InputError

BITS = "hash"  # the finder whose similarity is a count of bits that differ
MOST_GROUPS = 100
FEWEST_COLUMNS = 4  # a heading must fit above a pair
MOST_COLUMNS = 12  # that small groups share
KEPT_FRAME = "green"
LETTERS = 21  # that fit beneath a tile
REASON_LINES = 3
Shown = tuple[NDArray[np.uint8] | None, str]  # of a row: RGB, (H, W, 3), None where it cannot be read; its label


def group_sheet(
    table: Table,
    decisions: Table,
    groups: Table,
    out: Path,
    *,
    source: str | None = None,
    against: tuple[Table, str | None] | None = None,
    label: str | None = None,
    overwrite: bool = False,
) -> int:
    """Draw the 100 most doubtful groups: smallest margin over the threshold first, kept row of each first.

    At most 12 rows of each group are shown, with the number of others.

    Args:
        table: the deduplicated table, with ``key``, and ``uri`` unless a source is given.
        decisions: of the run.
        groups: of the run.
        out: ``NAME.png``.
        source: the scored source, for tables whose images are in a Parquet file; rows are matched by key.
        against: the other table, if kept rows may be rows of it, and its scored source.
        label: column to show below each image; None for none.
        overwrite: replace an existing file.

    Returns:
        Number of groups drawn; a run without duplicates gives an image with a note.

    Raises:
        InputError: for another suffix, an existing file, tables of different runs, or rows without a path if no source
            is given. An unreadable image gives a tile with a note.
    """
    check_picture(out, overwrite=overwrite)
    chosen = doubtful_groups(decisions, groups, limit=MOST_GROUPS)
    n_elsewhere = sum(group.members[0].is_elsewhere for group in chosen)
    if n_elsewhere and against is None:
        raise InputError(f"the kept images of {n_elsewhere:,} groups are rows of another table; pass it as --against")
    members = [member for group in chosen for member in group.members]
    of_table = _shown(table, [member.key for member in members if not member.is_elsewhere], source, label)
    of_other = {}
    if against is not None:
        of_other = _shown(against[0], [member.key for member in members if member.is_elsewhere], against[1], label)
    sections = [
        (
            _heading(group),
            [
                _tile(member, *(of_other if member.is_elsewhere else of_table)[member.key], group.members[0].key)
                for member in group.members
            ],
        )
        for group in chosen
    ]
    sizes = [max(FEWEST_COLUMNS, len(tiles)) for _, tiles in sections]  # small groups stand side by side
    columns = min(max([*sizes, MOST_COLUMNS]), sum(sizes) or FEWEST_COLUMNS)
    drawn = contact_sheet(sections or [("no duplicates", [])], columns=columns, fewest=FEWEST_COLUMNS)
    save_picture(drawn, out, overwrite=overwrite)
    return len(chosen)


def _shown(table: Table, keys: Sequence[str], source: str | None, label: str | None) -> dict[str, Shown]:
    """Return the image and the label of each key; InputError for a missing key, label or source."""
    table.require([label] if label else [])
    row_of = rows_with_keys(table, keys)
    absent = sorted(set(keys) - set(row_of))
    if absent:
        raise InputError(
            f"{table.path} has no row with the key {plain_line(absent[0])!r} ({len(absent):,} of "
            f"{len(set(keys)):,} are missing); pass the table that was deduplicated"
        )
    rows = list(row_of.values())
    images = Images.of(table, rows, source=source)
    labels = table.take(rows, [label]).column(0).to_pylist() if label else [None] * len(rows)
    return {
        key: (small_image(images, row, TILE), "" if text is None else str(text))
        for (key, row), text in zip(row_of.items(), labels, strict=True)
    }


def _facts(group: Group) -> list[str]:
    """Return number, size and lowest similarity of a group as text."""
    facts = [f"group {group.number}", f"{group.size:,} images"]
    if group.smallest is None or isnan(group.smallest):
        return facts
    if group.measure == BITS:
        facts.append(f"up to {number(group.smallest)} bits differ")
    else:
        facts.append(f"smallest similarity {number(group.smallest)}" + (f" ({group.measure})" if group.measure else ""))
    return facts


def _heading(group: Group) -> str:
    words = _facts(group) + ([group.finders] if group.finders else [])
    words += [f"LABELS DIFFER: {group.labels}"] if group.is_conflict else []
    words += [f"and {group.n_hidden:,} more"] if group.n_hidden else []
    return " · ".join(words)


def _tile(member: Member, pixels: NDArray[np.uint8] | None, label: str, kept_key: str) -> Tile:
    labels = (f"label: {label}",) if label else ()
    if member.is_kept:
        return Tile(pixels, "kept", member.key, labels, frame=KEPT_FRAME)
    decided = "" if member.decision == "drop" else f", {member.decision}"
    more = (*labels, *_short(member.reason, kept_key))
    return Tile(pixels, f"{number(member.similarity)}{decided}", member.key, more)


def _short(reason: str, kept_key: str) -> list[str]:
    """Return a reason in a few lines, without the key of the kept row next to it."""
    words = reason.replace(f"the same as {kept_key}", "").replace(kept_key, "the kept one") if kept_key else reason
    lines = wrap(plain_line(words.strip(), 200), LETTERS)
    return [*lines[: REASON_LINES - 1], " ".join(lines[REASON_LINES - 1 :])] if len(lines) >= REASON_LINES else lines
