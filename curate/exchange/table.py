"""Every format by name; imported when it is looked up, so that help can name all at no cost."""

from collections import ChainMap
from collections.abc import Mapping
from typing import TYPE_CHECKING

from scoring.lookup import Lazy

if TYPE_CHECKING:
    from curate.exchange.contract import Format

OF_TOOLS: dict[str, str] = {  # labels come back from these: to add one, add a line
    "csv": "curate.exchange.csv_file:CSV",
    "label-studio": "curate.exchange.label_studio:LABEL_STUDIO",
    "coco": "curate.exchange.coco:COCO",
    "imagefolder": "curate.exchange.imagefolder:IMAGEFOLDER",
    "fiftyone": "curate.exchange.fiftyone:FIFTYONE",
}
OF_LOADERS: dict[str, str] = {  # these are for training, and for other programs
    "folder": "curate.exchange.folder:FOLDER",
    "webdataset": "curate.exchange.webdataset:WEBDATASET",
    "parquet": "curate.exchange.parquet:PARQUET",
    "huggingface": "curate.exchange.parquet:PARQUET",  # as annotators call it
    "yolo": "curate.exchange.yolo:YOLO",
    "labelme": "curate.exchange.labelme:LABELME",
    "cvat": "curate.exchange.cvat:CVAT",
    "jsonl": "curate.exchange.jsonl:JSONL",
    "paths": "curate.exchange.paths:PATHS",
    "npy": "curate.exchange.npy:NPY",
    "lance": "curate.exchange.lance:LANCE",
}
ALIASES = {"hf": "huggingface", "pytorch": "imagefolder", "torchvision": "imagefolder", "ultralytics": "yolo"}
TOOLS: "Mapping[str, Format]" = Lazy(OF_TOOLS)
FORMATS: "Mapping[str, Format]" = Lazy(ChainMap(OF_TOOLS, OF_LOADERS))
