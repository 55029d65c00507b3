"""To annotation tools and back: one file a format."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from curate.export.batch import Batch, Item, batch_of
from curate.export.coco import COCO
from curate.export.contract import Format, Going, ImageReader, Written
from curate.export.csv_file import CSV
from curate.export.fiftyone import FIFTYONE
from curate.export.imagefolder import IMAGEFOLDER
from curate.export.label_studio import LABEL_STUDIO
from curate.export.labels import Ignored, Label, Labels, Problem, Round, summary
from scoring.atomic import require_folder
from scoring.lookup import lookup

FORMATS: dict[str, Format] = {
    "csv": CSV,
    "label-studio": LABEL_STUDIO,
    "coco": COCO,
    "imagefolder": IMAGEFOLDER,
    "fiftyone": FIFTYONE,
}


def write_batch(table: pa.Table, out: str | Path, format: str, how: Going | None = None) -> Written:
    """Write the rows of a batch for an annotation tool.

    Args:
        table: as `batch_of` takes it.
        out: a file that is not there yet, or for the formats of images, a folder that is not.
        format: one of FORMATS.
        how: images, links and classes.

    Raises:
        InputError: for an unknown format, a batch that cannot be written, or a place that refuses.
    """
    writer = lookup(FORMATS, format, kind="format")
    path = Path(out)
    require_folder(path)
    batch = batch_of(table)
    written = writer.write(batch, path, how or Going())
    if not batch.left_out:
        return written
    note = f"left out, as no tool reads them: {', '.join(batch.left_out)}"
    return replace(written, notes=(*written.notes, note))


def read_labels(
    path: str | Path,
    format: str,
    *,
    keys: Collection[str] | Mapping[str, str | None],
    classes: Iterable[str] | None = None,
    name: str | None = None,
) -> Labels:
    """Read labels back from an annotation tool.

    Args:
        path: the tool's export.
        format: one of FORMATS.
        keys: of the round; with their uris, images are also found by these where a tool lost the keys.
        classes: names that are known; None takes every name.
        name: the column, control or field that holds the labels, where a file has several.

    Raises:
        InputError: for an unknown format, a file of another format, or one in which nothing can be used.
    """
    reader = lookup(FORMATS, format, kind="format")
    return reader.read(Path(path), Round.of(keys, classes), name)


__all__ = [
    "FORMATS",
    "Batch",
    "Format",
    "Going",
    "Ignored",
    "ImageReader",
    "Item",
    "Label",
    "Labels",
    "Problem",
    "Round",
    "Written",
    "batch_of",
    "read_labels",
    "summary",
    "write_batch",
]
