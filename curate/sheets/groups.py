"""An image of what a deduplication did: groups with the kept one first, the most doubtful group on top."""

from collections.abc import Iterator, Sequence
from math import isnan
from pathlib import Path
from textwrap import wrap

from PIL import Image

from curate.sheets.captions import number, plain_line
from curate.sheets.doubtful import Group, Member, doubtful_groups
from curate.sheets.picture import check_picture, save_picture
from curate.sheets.sheet import TILE, Tile, contact_sheet
from curate.sheets.tiles import Shown, TileImages
from curate.tables.table import Table
from scoring.errors import InputError

BITS = "hash"  # the finder whose similarity is a count of bits that differ
MOST_GROUPS = 100
FEWEST_COLUMNS = 4  # a heading must fit above a pair
MOST_COLUMNS = 12  # that small groups share
KEPT_FRAME = "green"
LETTERS = 21  # that fit beneath a tile
REASON_LINES = 3


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
    """Draw the 100 most doubtful groups: the smallest margin over the threshold first, the kept one of each first.

    Of each at most 12 rows are shown, and how many more there are.

    Args:
        table: that was deduplicated, with ``key``, and ``uri`` unless a source is given.
        decisions: of the run.
        groups: of the run.
        out: ``NAME.png``.
        source: what was scored, for tables whose images are in a Parquet file; rows are found by key.
        against: the other set, where the kept ones may be rows of it, and what was scored for it.
        label: column whose value is shown beneath each image; None for none.
        overwrite: replace a file that is there already.

    Returns:
        Groups drawn; a run that found no duplicates gives an image that says so.

    Raises:
        InputError: for another ending, a file that is there, tables that do not belong together, or rows without a path
            where no source is given. An image that cannot be read is no error: its tile says so.
    """
    check_picture(out, overwrite=overwrite)
    chosen = doubtful_groups(decisions, groups, limit=MOST_GROUPS)
    n_elsewhere = sum(group.members[0].is_elsewhere for group in chosen)
    if n_elsewhere and against is None:
        raise InputError(f"the kept images of {n_elsewhere:,} groups are rows of another table; name it with --against")
    members = [member for group in chosen for member in group.members]
    keys = [member.key for member in members if not member.is_elsewhere]
    read = TileImages(table, keys, side=TILE, source=source, label=label)
    read_other = read
    if against is not None:
        other = [member.key for member in members if member.is_elsewhere]
        read_other = TileImages(against[0], other, side=TILE, source=against[1], label=label)
    drawn = [(group, _shown(group, read, read_other)) for group in chosen]
    save_picture(_sheet(drawn), out, overwrite=overwrite)
    return len(chosen)


def _shown(group: Group, read: TileImages, read_other: TileImages) -> Iterator[Shown]:
    for member in group.members:
        yield (read_other if member.is_elsewhere else read)(member.key)


def _sheet(groups: Sequence[tuple[Group, Iterator[Shown]]]) -> Image.Image:
    """Each group under its heading, in one row; small ones side by side."""
    sections = [
        (_heading(group), [_tile(*pair, group.members[0].key) for pair in zip(group.members, shown, strict=True)])
        for group, shown in groups
    ]
    sizes = [max(FEWEST_COLUMNS, len(tiles)) for _, tiles in sections]
    columns = min(max([*sizes, MOST_COLUMNS]), sum(sizes) or FEWEST_COLUMNS)
    return contact_sheet(sections or [("no duplicates", [])], columns=columns, fewest=FEWEST_COLUMNS)


def _facts(group: Group) -> list[str]:
    """Return the number of a group, its size, and how alike the least alike of its pairs are, in words."""
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


def _tile(member: Member, shown: Shown, kept_key: str) -> Tile:
    label = (f"label: {shown.label}",) if shown.label else ()
    if member.is_kept:
        return Tile(shown.pixels, "kept", member.key, label, frame=KEPT_FRAME)
    decided = "" if member.decision == "drop" else f", {member.decision}"
    more = (*label, *_short(member.reason, kept_key))
    return Tile(shown.pixels, f"{number(member.similarity)}{decided}", member.key, more)


def _short(reason: str, kept_key: str) -> list[str]:
    """A reason in a few lines, without the key of the kept row, which is next to it."""
    words = reason.replace(f"the same as {kept_key}", "").replace(kept_key, "the kept one") if kept_key else reason
    lines = wrap(plain_line(words.strip(), 200), LETTERS)
    return [*lines[: REASON_LINES - 1], " ".join(lines[REASON_LINES - 1 :])] if len(lines) >= REASON_LINES else lines
