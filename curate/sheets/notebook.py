"""A scored table for notebooks: displayed as a strip of its most and least certain images."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from curate.columns import LABEL, STATUS, describe
from curate.counted import counted
from curate.manifest.store_path import AnyPath
from curate.sheets.captions import number
from curate.sheets.page import isolated, picture_html
from curate.sheets.rank import RANK, Extremes, extremes
from curate.sheets.tiles import small_image
from curate.tables.images import Images
from curate.tables.table import Table, open_table
from scoring.errors import InputError

if TYPE_CHECKING:
    import polars as pl

STRIP = 6  # images of either end
SIDE = 96  # pixels of an image's longest side
CERTAIN = {"more certain": ("most certain", "least certain"), "less certain": ("least certain", "most certain")}


class Dataset(Table):
    """A scored table that displays as images in a notebook, and as one line elsewhere.

    Attributes:
        source: the scored source, if the table has no paths of images.
    """

    def __init__(self, path: AnyPath, files: Sequence[AnyPath], source: str | None = None) -> None:
        super().__init__(path, files)
        self.source = source

    def to_polars(self, columns: Sequence[str] | None = None) -> "pl.DataFrame":
        """Return the named columns, or all, as a Polars data frame."""
        import polars as pl

        return pl.DataFrame(self.read(columns))

    def __repr__(self) -> str:
        return f"{self.path}: {counted(self.n_rows, 'row')}, {counted(len(self.schema.names), 'column')}"

    def _repr_html_(self) -> str:
        """Return the table as HTML for a notebook: counts, and images from both ends of its score."""
        return f"<p>{isolated(str(self))}{self._statuses()}</p>{self._strips()}"

    def _statuses(self) -> str:
        if STATUS not in self.schema.names:
            return ""
        seen: Counter[str] = Counter()
        for batch in self.batches([STATUS]):
            for each in batch.column(0).value_counts().to_pylist():
                seen[str(each["values"])] += each["counts"]
        return "".join(f" · {n:,} {isolated(name)}" for name, n in seen.most_common())

    def _strips(self) -> str:
        try:
            ends = extremes(self, None, top=STRIP, bottom=STRIP)
            shown = self._images(ends)
        except InputError as problem:  # without score or images the rest is shown
            return f"<p>{isolated(str(problem), 400)}</p>"
        high, low = CERTAIN.get(describe(ends.column).higher, ("highest", "lowest"))
        titles = ((high, ends.top), ("first" if ends.column == RANK else low, ends.bottom))
        return "".join(
            f"<p><b>{title}</b> {isolated(ends.column)}</p>"
            f'<div style="display: flex; flex-wrap: wrap; gap: 8px">{"".join(shown[row] for row in rows)}</div>'
            for title, rows in titles
            if rows
        )

    def _images(self, ends: Extremes) -> dict[int, str]:
        """Return the captioned image of each row."""
        rows = sorted({*ends.top, *ends.bottom})
        images = Images.of(self, rows, source=self.source)
        label = [LABEL] if LABEL in self.schema.names else []
        values = self.take(rows, [ends.column, *label]).to_pylist()
        return {row: self._figure(images, row, value, ends.column) for row, value in zip(rows, values, strict=True)}

    def _figure(self, images: Images, row: int, value: dict[str, object], column: str) -> str:
        lines = [number(value[column]), isolated(images.key[row], 80)]  # type: ignore[arg-type]
        if value.get(LABEL) is not None:
            lines.append(isolated(str(value[LABEL]), 40))
        picture = picture_html(small_image(images, row, SIDE), images.key[row])
        style = f"margin: 0; width: {SIDE + 16}px; font-size: 11px; overflow-wrap: anywhere"
        return f'<figure style="{style}">{picture}<figcaption>{"<br>".join(lines)}</figcaption></figure>'


def open(path: str | Path, *, source: str | None = None) -> Dataset:
    """Open a scored table or subset; a notebook shows it as images from both ends of its score.

    Args:
        path: a Parquet file, or a folder of ``part-*.parquet``; only its footers are read.
        source: the scored source, for tables without paths of images; rows are matched by key.

    Returns:
        The table; ``read``, ``batches`` and ``take`` return Arrow data, ``to_polars`` a Polars data frame.

    Raises:
        InputError: for a path that is no table.
    """
    opened = open_table(path)
    return Dataset(opened.path, opened.files, source)
