"""A contact sheet of the rows whose labels are suspected most: given -> suggested."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from curate.columns import KEY
from curate.display.captions import plain_line
from curate.display.picture import check_picture, save_picture
from curate.display.sheet import TILE, Tile, contact_sheet
from curate.display.tiles import Pictures
from curate.tables.images import require_images
from curate.tables.table import open_table

COLUMNS = 10
LETTERS = 18  # of a line beneath a tile


def check_sheet(path: Path, table: Path, source: str | None, *, overwrite: bool) -> None:
    """Refuse an image that cannot be drawn, before the work; InputError says why."""
    check_picture(path, overwrite=overwrite)
    require_images(open_table(table, require=[KEY]), source)


def draw_sheet(
    path: Path,
    table: Path,
    worst: Sequence[Mapping[str, Any]],
    source: str | None,
    *,
    overwrite: bool,
) -> None:
    """Draw suspected rows, the least certain of their labels first.

    Args:
        path: NAME.png.
        table: that was examined.
        worst: ``LabelsResult.worst``.
        source: what was scored, where the table holds no paths.
        overwrite: replace what is there.
    """
    keys = [str(row["key"]) for row in worst]
    read = Pictures(open_table(table), keys, side=TILE, source=source)
    tiles = [
        Tile(
            read(key).pixels,
            f"{plain_line(str(row['given']), LETTERS)} ->",
            plain_line(str(row["suggested"]), LETTERS),
            (f"{row['quality']:.3f}", plain_line(key, LETTERS)),
        )
        for key, row in zip(keys, worst, strict=True)
    ]
    save_picture(
        contact_sheet([("suspected labels, given -> suggested", tiles)], columns=COLUMNS), path, overwrite=overwrite
    )
