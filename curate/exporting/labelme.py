"""LabelMe: an image and a JSON file next to it, its class as a flag."""

from typing import Any

from curate.columns import KEY
from curate.exporting.contract import Format, Plan, nothing_more
from curate.exporting.item import PREFIX
from curate.exporting.parts import Part
from curate.exporting.rows import Rows
from curate.manifest.text import to_json

VERSION = "5.0.1"  # of the layout


def part(rows: Rows, part: Part, plan: Plan) -> None:
    """Write the images of some rows, copied or linked, and `IMAGE.json` next to each."""
    for image in part.store(rows, plan.names, lambda _: ""):
        item = rows.items[image.index].updated(image.facts)
        content: dict[str, Any] = {
            "version": VERSION,
            "flags": {item.label: True} if item.label is not None else {},
            "shapes": [],
            "imagePath": image.name,
            "imageData": None,
            "imageHeight": item.values.get("height"),
            "imageWidth": item.values.get("width"),
            PREFIX + KEY: item.key,
        }
        with part.file(f"{image.name}.json") as file:
            file.write(to_json(content))


LABELME = Format(
    part,
    nothing_more,
    out="the images, and `IMAGE.json` next to each with its class as a flag",
    folder=True,
    reads_images=True,
    links=True,
    nested=True,
    load=("import json, pathlib; data = [json.load(open(path)) for path in pathlib.Path({out}).rglob('[!.]*.json')]",),
)
