"""Every format by name; imported when it is looked up, so that help can name all at no cost."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from scoring.lookup import Lazy

if TYPE_CHECKING:
    from curate.export.contract import Format

WHERE: dict[str, str] = {  # to add a format, add a line
    "csv": "curate.export.csv_file:CSV",
    "label-studio": "curate.export.label_studio:LABEL_STUDIO",
    "coco": "curate.export.coco:COCO",
    "imagefolder": "curate.export.imagefolder:IMAGEFOLDER",
    "fiftyone": "curate.export.fiftyone:FIFTYONE",
}
FORMATS: "Mapping[str, Format]" = Lazy(WHERE)
