"""The difference of two tables as one image: rows of the first on the left, rows of the second on the right."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from PIL import Image

from curate.columns import KEY
from curate.evaluation.comparison.results import SIGNIFICANT, DistinctiveRow, TableComparison
from curate.sheets.tiles import Tile, contact_sheet, refuse_too_many, tiles
from curate.tables.table import Table

HALF = 5  # images per row on either side
MOST_CLUSTERS = 12


def comparison_sheet(
    comparison: TableComparison, tables: tuple[Table, Table], sources: tuple[str | None, str | None]
) -> Image.Image:
    """Return a contact sheet of the most distinctive rows, and of the clusters whose shares differ.

    Args:
        comparison: the comparison.
        tables: both, with ``key``.
        sources: the scored source of either, if images are not at the table's uris.

    Raises:
        InputError: if images cannot be read.
    """
    pairs = [(("tells", ""), comparison.distinctive)]
    pairs += [
        ((f"cluster {cluster.number}: {cluster.first.value:.1%}", f"{cluster.second.value:.1%}"), cluster.examples)
        for cluster in comparison.clusters
        if cluster.adjusted_p <= SIGNIFICANT
    ][:MOST_CLUSTERS]
    refuse_too_many(sum(len(rows) for _, sides in pairs for rows in sides))
    drawn = [_tiles(tables[side], [row for _, sides in pairs for row in sides[side]], sources[side]) for side in (0, 1)]
    names = [Path(name).stem for name in comparison.tables]
    sections: list[tuple[str, Sequence[Tile]]] = []
    for number, (words, sides) in enumerate(pairs):
        for side, rows in enumerate(sides):
            title = f"most unlike {names[1 - side]}: {names[side]}" if not number else f"{words[side]} of {names[side]}"
            sections.append((title, [replace(drawn[side][row.row], first=f"{row.score:.2f}") for row in rows]))
    return contact_sheet(_aligned_sections(sections), columns=2 * HALF, fewest=HALF)


def _tiles(table: Table, rows: Sequence[DistinctiveRow], source: str | None) -> dict[int, Tile]:
    if not rows:
        return {}
    return tiles(table, [row.row for row in rows], KEY, source=source)


def _aligned_sections(sections: Sequence[tuple[str, Sequence[Tile]]]) -> list[tuple[str, Sequence[Tile]]]:
    """Cut sections longer than half a line into parts, so that both sides stay aligned."""
    cut: list[tuple[str, Sequence[Tile]]] = []
    for left, right in zip(sections[::2], sections[1::2], strict=True):
        for start in range(0, max(len(left[1]), len(right[1]), 1), HALF):
            for title, rows in (left, right):
                cut.append(("" if start else title, rows[start : start + HALF]))
    return cut
