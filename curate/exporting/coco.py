"""COCO JSON: writes images; reads boxes or categories. Tools renumber `image_id`, so images are matched by name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from curate.columns import KEY
from curate.exporting.contract import Format, Plan
from curate.exporting.item import PREFIX, Item
from curate.exporting.labels import EMPTY, Collector, ExpectedRows, Labels, shown
from curate.exporting.parts import COMMA, AllParts, Part
from curate.exporting.rows import Rows
from curate.manifest.text import read_json, to_json, to_json_list
from curate.version import __version__
from scoring.errors import InputError

_WHAT = "a COCO file"
IMAGES, ANNOTATIONS = "images", "annotations"
UNKNOWN_CATEGORY = "unknown category_id"
UNKNOWN_IMAGE = "unknown image_id"
SHARED_IMAGE = "image_id of several images"


def part(rows: Rows, part: Part, plan: Plan) -> None:
    """Write `images` with `file_name`, size and `curate_*`, and one annotation for each known label.

    COCO has no image-level class: a label is a box around the whole image, or a category without box if its size is
    unknown. Predictions are `curate_predicted` and `curate_probability` of the image: as `annotations`, tools would
    read them as labels.
    """
    numbered = list(enumerate(rows.items, rows.start + 1))
    images = [_image(number, item) for number, item in numbered]
    annotations = [_annotation(number, item, plan.class_numbers) for number, item in numbered if item.label is not None]
    part.items(IMAGES, images)
    part.items(ANNOTATIONS, annotations)


def finish(parts: AllParts, plan: Plan) -> tuple[str, ...]:
    """Write the COCO file."""
    info = {"description": "images exported by curate", "version": __version__, "contributor": "curate"}
    categories = [{"id": number, "name": name, "supercategory": ""} for name, number in plan.class_numbers.items()]
    file = parts.target(parts.out)
    file.write(b'{"info": ' + to_json(info, indent=None).strip() + b',\n"licenses": [],\n"images": [\n')
    parts.join(file, IMAGES, COMMA)
    file.write(b'\n],\n"annotations": [\n')
    parts.join(file, ANNOTATIONS, COMMA)
    file.write(b'\n],\n"categories": ' + to_json_list(categories).rstrip() + b"}\n")
    if {"width", "height"} <= set(plan.schema.names):
        return ()
    return ("some tools need the width and height of every image: score the images with curate score",)


def name_of(item: Item) -> str:
    """Return the `file_name` of an item: its key if its path or URL ends in it, else its path or URL, else its key."""
    place = item.path_text or item.url
    return item.key if place is None or place == item.key or place.endswith("/" + item.key) else place


def _image(number: int, item: Item) -> dict[str, Any]:
    image: dict[str, Any] = {"id": number, "file_name": name_of(item)}
    image |= {name: item.values[name] for name in ("width", "height") if name in item.values}
    if item.url:
        image["coco_url"] = item.url
    return {**image, **item.prefixed}


def _annotation(number: int, item: Item, categories: Mapping[str, int]) -> dict[str, Any]:
    annotation: dict[str, Any] = {
        "id": number,
        "image_id": number,
        "category_id": categories[str(item.label)],
        "iscrowd": 0,
    }
    width, height = (item.values.get(name) for name in ("width", "height"))
    if isinstance(width, int) and isinstance(height, int):
        annotation |= {"bbox": [0, 0, width, height], "area": width * height, "segmentation": []}
    return annotation


def read(path: Path, rows: ExpectedRows, name: str | None = None) -> Labels:
    """Read the category of every annotated image; several boxes of one category are one label.

    An image is found by `curate_key`, else by a `file_name` that is the key or path of exactly one. Images with boxes
    of several categories are ignored, since COCO has no image-level class. ``annotator`` (or ``attributes.annotator``)
    separates annotators. ``name`` is not used.
    """
    lists = _lists(read_json(path, what=_WHAT), path)
    collector = Collector(rows, str(path), votes=False)
    categories = _unique(lists["categories"], "name")
    images, shared = _images(lists["images"], rows)
    annotated: set[Any] = set()
    written: set[tuple[Any, Any, str | None]] = set()
    for number, entry in enumerate(lists["annotations"]):
        image, category = _id(entry.get("image_id")), _id(entry.get("category_id"))
        if image in shared:
            collector.ignore(f"annotation {number} of image {shown(image)}", SHARED_IMAGE)
        elif image not in images:
            collector.ignore(f"annotation {number} of image {shown(image)}", UNKNOWN_IMAGE)
        elif category not in categories:
            annotated.add(image)
            collector.ignore(images[image], UNKNOWN_CATEGORY, entry.get("category_id"))
        else:
            annotated.add(image)
            who = _annotator(entry)
            if (image, category, who) not in written:  # one label, however many boxes
                written.add((image, category, who))
                collector.add(images[image], categories[category], who, entry.get("date_captured"))
    for image, key in images.items():
        if image not in annotated:
            collector.ignore(key, EMPTY)
    return collector.finish()


def _lists(content: Any, path: Path) -> dict[str, list[dict[str, Any]]]:
    names = ("images", "annotations", "categories")
    for name in names:
        entries = content.get(name) if isinstance(content, dict) else None
        if not isinstance(entries, list) or not all(isinstance(part, dict) for part in entries):
            raise InputError(f"expected {_WHAT} with the lists {', '.join(names)} in {path}, got no list {name!r}")
    return {name: content[name] for name in names}


def _id(value: Any) -> int | str | None:
    """Return an id that can be looked up: integers and text."""
    return value if isinstance(value, int | str) and not isinstance(value, bool) else None


def _unique(parts: list[dict[str, Any]], name: str) -> dict[int | str, Any]:
    """Return id -> value, without ids that occur with several values."""
    value_of_id: dict[int | str, Any] = {}
    shared = set()
    for part in parts:
        number, value = _id(part.get("id")), part.get(name)
        if number is not None and value is not None and value_of_id.setdefault(number, value) != value:
            shared.add(number)
    return {number: value for number, value in value_of_id.items() if number not in shared}


def _images(parts: list[dict[str, Any]], rows: ExpectedRows) -> tuple[dict[int | str, str], set[int | str]]:
    """Return image id -> key (or file name if there is none), and the ids shared by several images."""
    keys = rows.by_text(lambda item: {item.key, name_of(item), item.path_text, item.url})
    images: dict[int | str, str] = {}
    shared: set[int | str] = set()
    for part in parts:
        number, key = _id(part.get("id")), part.get(PREFIX + KEY)
        if not isinstance(key, str):
            file = part.get("file_name")
            key = keys.get(file, file) if isinstance(file, str) else "an image without file_name"
        if number is not None and images.setdefault(number, key) != key:
            shared.add(number)
    return images, shared


def _annotator(annotation: dict[str, Any]) -> str | None:
    attributes = annotation.get("attributes")
    annotator = annotation.get("annotator", attributes.get("annotator") if isinstance(attributes, dict) else None)
    return annotator if isinstance(annotator, str) and annotator else None


COCO = Format(
    part,
    finish,
    read=read,
    out="`images` with `file_name`, size and `curate_*`, `categories`, and annotations of known labels only",
    back="the category of each image, found by `curate_key`, else `file_name`; never by `image_id`",
    suffix=".json",
    load=("from pycocotools.coco import COCO; data = COCO({out})",),
)
