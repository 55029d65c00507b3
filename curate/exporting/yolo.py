"""YOLO's layout for classification: `SPLIT/CLASS/IMAGE`, and the classes in `data.yaml`."""

from curate.exporting.contract import Format, Plan
from curate.exporting.imagefolder import class_folders, folder_notes
from curate.exporting.parts import AllParts, Part
from curate.exporting.rows import Rows
from curate.exporting.sides import VAL
from curate.manifest.text import to_json
from scoring.errors import InputError

DATA = "data.yaml"


def part(rows: Rows, part: Part, plan: Plan) -> None:
    """Write the images of some rows to the folders of their splits and classes; InputError without a class."""
    if None in rows.labels:
        key = rows.keys[rows.labels.index(None)]
        raise InputError(
            f"yolo: expected a class for every image, got none for {key!r}; choose a label column with --label"
        )
    sides = plan.sides.of(rows.keys, rows.labels, rows.texts(plan.per) if plan.per else [])
    folders = [
        f"{side}/{plan.class_folders[label]}" if side else plan.class_folders[label]
        for side, label in zip(sides, rows.labels, strict=True)
    ]
    for _ in part.store(rows, plan.names, folders.__getitem__):
        pass


def finish(parts: AllParts, plan: Plan) -> tuple[str, ...]:
    """Write `data.yaml`: the splits, and the classes in YOLO's numbering."""
    class_folders(parts, plan)
    names = [f"  {number}: ".encode() + to_json(name, indent=None) for number, name in enumerate(plan.in_folder_order)]
    sides = "".join(f"{side}: {side}\n" for side in plan.sides.names)
    parts.write(DATA, f"path: .\n{sides}names:\n".encode(), *names)
    notes = folder_notes(plan)
    if VAL not in plan.sides.names:
        notes += (f"no row of {plan.per} is val, which YOLO needs to train; export both sides together",)
    return notes


YOLO = Format(
    part,
    finish,
    out="`train/CLASS/IMAGE`, `val/CLASS/IMAGE` as YOLO reads it for classification, by the column `split` or `--per`, "
    "else a fifth of each class is val; and `data.yaml` with the classes",
    folder=True,
    reads_images=True,
    links=True,
    per=True,
    sides=True,
    splits=True,
    load=("from ultralytics import YOLO; model = YOLO('yolo11n-cls.pt'); model.train(data={out})",),
)
