"""The exported file for annotators, compared with its batch."""

import csv
import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from curate.columns import KEY
from curate.counted import counted
from curate.exporting.batches import write_batch
from curate.exporting.labels import shown
from curate.manifest.text import read_text
from curate.rounds.files.settings import RoundSettings
from scoring.errors import InputError
from scoring.file_digest import file_sha256

CSV = "csv"
HIDDEN = ("arm", "pick", "gain")  # columns that show why an image was picked
FILLED_IN = ("label", "annotator")  # columns for annotators
DELIMITERS = ",;\t"
N_SHOWN = 3
CLOSE = 1e-9

Cells = dict[str, dict[str, str]]  # key -> column -> text


def for_annotators(batch: pa.Table) -> pa.Table:
    """Return the columns of a batch that annotators see."""
    return batch.select([name for name in batch.column_names if name not in HIDDEN and not name.startswith("part_")])


def noted_export(settings: RoundSettings, path: Path) -> dict[str, Any]:
    """Return the record of an export: format, name, and the digest if the file is not filled in by annotators."""
    noted = {"format": settings.format, "file": path.name}
    return {**noted, "sha256": file_sha256(path)} if settings.format != CSV and path.is_file() else noted


def export_problems(place: Path, noted: Mapping[str, Any], batch: pa.Table, settings: RoundSettings) -> list[str]:
    """Return the differences between an export and its batch; empty if the export was removed.

    All cells of a CSV except labels and annotators are compared, in any order of rows and columns; for other files the
    digest in the state, if any. Folders of images are not compared, since annotators sort them.

    Args:
        place: folder of the round.
        noted: ``export`` in its state.
        batch: as derived, or as on disk.
        settings: of the rounds.
    """
    name = str(noted.get("file", ""))
    path = place / name
    if Path(name).name != name or not path.is_file():
        return []
    if noted.get("format") != CSV:
        same = "sha256" not in noted or noted["sha256"] == file_sha256(path)
        return [] if same else [f"{name} changed after it was written for the annotators"]
    try:
        present = _cells(path)
    except InputError as error:
        return [str(error)]
    with tempfile.TemporaryDirectory(prefix="curate-") as folder:
        again = Path(folder) / name
        write_batch(for_annotators(batch), again, CSV, classes=settings.classes or ())
        expected = _cells(again)
    extra = [key for key in present if key not in expected]
    lacking = [key for key in expected if key not in present]
    other = [
        key
        for key, cells in expected.items()
        if key in present
        and not all(_same(text, present[key].get(name)) for name, text in cells.items() if name not in FILLED_IN)
    ]
    return [
        f"{name} {what} ({', '.join(map(shown, keys[:N_SHOWN]))}{', ...' if len(keys) > N_SHOWN else ''})"
        for keys, what in (
            (extra, f"has {counted(len(extra), 'row')} that the batch lacks"),
            (lacking, f"lacks {counted(len(lacking), 'row')} of the batch"),
            (other, f"shows other cells than the batch in {counted(len(other), 'row')}"),
        )
        if keys
    ]


def _cells(path: Path) -> Cells:
    text = read_text(path, what="a CSV file")
    first = text.partition("\n")[0]
    lines = csv.DictReader(text.splitlines(keepends=True), delimiter=max(DELIMITERS, key=first.count), restval="")
    try:
        rows = list(lines)
    except csv.Error as error:
        raise InputError(f"{path.name} is no longer a CSV file: {error}") from None
    if KEY not in (lines.fieldnames or ()):
        raise InputError(f"{path.name} no longer has a column {KEY!r}")
    return {str(row[KEY]): {name: value for name, value in row.items() if name is not None} for row in rows}


def _same(text: str, other: str | None) -> bool:
    if other is None or text == other:
        return other is not None
    try:  # spreadsheets write numbers in their own way
        return math.isclose(float(text), float(other), rel_tol=CLOSE)
    except ValueError:
        return False
