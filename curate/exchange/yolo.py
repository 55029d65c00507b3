"""YOLO's layout for classification: `SPLIT/CLASS/IMAGE`, the classes in `data.yaml`."""

from curate.exchange.contract import Format
from curate.exchange.parts import Part, Whole
from curate.exchange.plan import Plan
from curate.exchange.rows import Rows
from curate.manifest.text import to_json
from scoring.errors import InputError

SIDES = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
NO_SIDE = "train"
DATA = "data.yaml"


def part(rows: Rows, part: Part, plan: Plan) -> None:
    """Write the images of some rows into the folders of their sides and classes.

    Raises:
        InputError: for a row without a class, or a side that is none.
    """
    folders = []
    sides = rows.classes(plan.per) if plan.per else [NO_SIDE] * len(rows)
    for key, side, label in zip(rows.keys, sides, rows.classes(plan.label), strict=True):
        if label is None:
            raise InputError(f"yolo: expected a class for every image, got none for {key!r}; name them with --label")
        if side not in SIDES:
            raise InputError(
                f"yolo --per {plan.per}: expected train, val or test, got {side!r} for {key!r}; name classes by --label"
            )
        folders.append(f"{SIDES[side]}/{plan.class_folders[label]}")
    for _ in part.store(rows, folders.__getitem__):
        pass


def finish(whole: Whole, plan: Plan) -> tuple[str, ...]:
    """Write `data.yaml`: the sides, and the names of the classes as they are, in the order of their folders' names."""
    ordered = sorted(plan.classes, key=plan.class_folders.__getitem__)
    names = [f"  {number}: ".encode() + to_json(name, indent=None) for number, name in enumerate(ordered)]
    val = "val" if "val" in {SIDES.get(str(value)) for value in plan.folders} else "train"
    whole.write(DATA, f"path: .\ntrain: train\nval: {val}\nnames:\n".encode(), *names)
    return ()


YOLO = Format(
    part,
    finish,
    out="`train/CLASS/IMAGE` (`--per split`: also `val` and `test`) as YOLO reads it for classification, and "
    "`data.yaml` with the classes",
    folder=True,
    reads_images=True,
    links=True,
    per=True,
    load='ultralytics.YOLO("yolo11n-cls.pt").train(data="subset")',
)
