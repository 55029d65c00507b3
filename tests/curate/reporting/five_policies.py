"""A table with five policies over it, and the document of its report."""

import io

from PIL import Image

from curate.reporting.document import gather
from curate.reporting.options import ReportOptions
from curate.tables.table import open_table

N = 400
FAILED = [7, 91, 200]


def png(row):
    row = row if row % 40 else 0  # of 40 rows one has the bytes of the first
    buffer = io.BytesIO()
    Image.new("RGB", (40 + row % 7, 30), (row % 256, 100, 200)).save(buffer, "PNG")
    return buffer.getvalue()


def made(folder, *results, thumbs=0, **options):
    options = {"points": 0, "column": "unc_losspred", **options}
    results = [folder / name for name in results]
    facts = gather(open_table(folder / "scores.parquet"), ReportOptions("s", results, **options))
    return facts.full_document(thumbs=thumbs)
