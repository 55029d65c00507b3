"""A folder of images, copied or linked, flat or in subfolders by a column, with `metadata.jsonl`."""

from curate.columns import LABEL
from curate.exporting.contract import Format, Plan
from curate.exporting.parts import AllParts, Part
from curate.exporting.rows import Rows
from curate.manifest.text import to_json

METADATA = "metadata.jsonl"


def part(rows: Rows, part: Part, plan: Plan) -> None:
    """Write the images of some rows into the folders of their values, and one line of `metadata.jsonl` per row."""
    folders = [plan.folders[value] for value in rows.texts(plan.per)] if plan.per else [""] * len(rows)
    columns = rows.columns
    for image in part.store(rows, plan.names, folders.__getitem__):
        item = rows.items[image.index].updated(image.facts)
        known = {LABEL: item.label} if plan.labelled else {}
        part.piece(METADATA, to_json({"file_name": image.name, **known, **item.record(columns)}, indent=None))


def finish(parts: AllParts, plan: Plan) -> tuple[str, ...]:
    """Write `metadata.jsonl`."""
    parts.joined(METADATA, METADATA)
    return ()


FOLDER = Format(
    part,
    finish,
    out="images in the folders of their keys or of the column `--per`, and `metadata.jsonl`: key, `label`, columns",
    folder=True,
    reads_images=True,
    links=True,
    per=True,
    nested=True,
    minimal=True,
    load=("import json; data = [json.loads(line) for line in open({out} + '/metadata.jsonl', encoding='utf-8')]",),
)
