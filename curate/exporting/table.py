"""Registry of all formats by name; a format is imported when it is used, so that help is fast."""

from collections import ChainMap
from collections.abc import Mapping
from typing import TYPE_CHECKING

from scoring.lookup import Lazy

if TYPE_CHECKING:
    from curate.exporting.contract import Format

OF_TOOLS: dict[str, str] = {  # formats whose labels are read back; to add one, add a line
    "csv": "curate.exporting.csv_file:CSV",
    "label-studio": "curate.exporting.label_studio:LABEL_STUDIO",
    "coco": "curate.exporting.coco:COCO",
    "imagefolder": "curate.exporting.imagefolder:IMAGEFOLDER",
    "fiftyone": "curate.exporting.fiftyone:FIFTYONE",
}
OF_LOADERS: dict[str, str] = {  # formats for training and other programs
    "folder": "curate.exporting.folder:FOLDER",
    "webdataset": "curate.exporting.webdataset:WEBDATASET",
    "parquet": "curate.exporting.parquet:PARQUET",
    "huggingface": "curate.exporting.parquet:PARQUET",  # the name that most users look for
    "yolo": "curate.exporting.yolo:YOLO",
    "jsonl": "curate.exporting.lines:JSONL",
    "paths": "curate.exporting.lines:PATHS",
}
ALIASES = {"hf": "huggingface", "pytorch": "imagefolder", "torchvision": "imagefolder", "ultralytics": "yolo"}
TOOLS: "Mapping[str, Format]" = Lazy(OF_TOOLS)
FORMATS: "Mapping[str, Format]" = Lazy(ChainMap(OF_TOOLS, OF_LOADERS))
