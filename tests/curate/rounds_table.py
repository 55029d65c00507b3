"""A scored table of rows whose classes are known, and annotators who know them."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from curate.rounds.files.sealed import digest_of
from curate.rounds.options import RoundStatusOptions
from curate.rounds.status import run_round_status
from curate.tables.table import METADATA_KEY, embedding_field

CLASSES = ("ant", "bee", "cow")


def table(
    path: Path, n: int = 120, *, seed: int = 0, order=None, noise: float = 1.2, model: str = "m1", **columns
) -> dict:
    """Write a table of n rows in three clusters; return key -> class."""
    generator = np.random.default_rng(seed)
    classes = generator.integers(0, 3, n)
    centres = np.random.default_rng(99).standard_normal((3, 8))
    vectors = centres[classes] + noise * generator.standard_normal((n, 8))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    keys = [f"set/{i:04}.png" for i in range(n)]
    keys = columns.pop("key", keys)
    rows = pa.table(
        {
            "key": keys,
            "uri": [str(path.parent / "images" / f"{i:04}.png") for i in range(n)],
            "status": ["ok"] * n,
            "embedding": pa.FixedSizeListArray.from_arrays(
                pa.array(vectors.astype(np.float32).ravel()), type=embedding_field(8, "float32").type
            ),
            "truth": [CLASSES[i] for i in classes],
            "kappa_x": pa.array(generator.random(n) * 100, pa.float32()),
            **columns,
        }
    )
    if order is not None:
        rows = rows.take(pa.array(order))
    text = json.dumps({"kind": "scores", "model": {"digest": model}})
    pq.write_table(rows.replace_schema_metadata({METADATA_KEY: text.encode()}), path)
    return dict(zip(keys, (CLASSES[i] for i in classes), strict=True))


def images(folder: Path, n: int) -> None:
    """Write the images that the table names."""
    (folder / "images").mkdir()
    for i in range(n):
        Image.new("RGB", (8, 8), (i % 256, i // 256, 99)).save(folder / "images" / f"{i:04}.png")


def sheet(path: Path, rows, header=("key", "label", "annotator")) -> Path:
    """Write answers as CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def answer(made, truth: dict, path: Path) -> Path:
    """Label every image of a round's CSV export; return the sheet."""
    with made.export.open(newline="", encoding="utf-8-sig") as file:
        keys = [row["key"] for row in csv.DictReader(file)]
    return sheet(path, [(key, truth[key], "ann") for key in keys])


def annotate(format: str, made, truth: dict, out: Path) -> Path:
    """Do in an export what annotators would do with their tool; return what to import."""
    if format == "csv":
        return answer(made, truth, out / "labels.csv")
    if format in ("label-studio", "coco"):
        value = json.loads(made.export.read_text("utf-8"))
        (_label_studio if format == "label-studio" else _coco)(value, truth)
        (out / "back.json").write_text(json.dumps(value))
        return out / "back.json"
    copy = out / "back"
    shutil.copytree(made.export, copy)
    if format == "fiftyone":
        value = json.loads((copy / "samples.json").read_text("utf-8"))
        for sample in value["samples"]:
            sample["ground_truth"] = {"_cls": "Classification", "label": truth[sample["curate_key"]]}
        (copy / "samples.json").write_text(json.dumps(value))
        return copy
    lines = [json.loads(line) for line in (copy / "train" / "metadata.jsonl").read_text("utf-8").splitlines()]
    for line in lines:
        line["label"] = truth[line["curate_key"]]
    (copy / "train" / "metadata.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return copy


def _label_studio(tasks: list, truth: dict) -> None:
    for task in tasks:
        result = {"from_name": "label", "to_name": "image", "type": "choices"}
        result["value"] = {"choices": [truth[task["data"]["curate_key"]]]}
        task["annotations"] = [{"completed_by": 1, "result": [result], "was_cancelled": False}]


def _coco(value: dict, truth: dict) -> None:
    number = {category["name"]: category["id"] for category in value["categories"]}
    value["annotations"] = [
        {"id": i, "image_id": image["id"], "category_id": number[truth[image["curate_key"]]], "bbox": [0, 0, 1, 1]}
        for i, image in enumerate(value["images"])
    ]


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a folder of rounds by name, without what differs from run to run."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != "lock":
            data = path.read_bytes()
            if path.name == "state.json":
                value = json.loads(data)
                data = json.dumps({k: v for k, v in value.items() if k not in DIFFERS}).encode()
            files[path.relative_to(folder).as_posix()] = data
    return files


def status(folder: Path, *, lift: bool = True):
    """How far a folder of rounds is; the arms are compared only on request, for that takes seconds."""
    return run_round_status(RoundStatusOptions(folder), lift=lift)


DIFFERS = ("wall_s", "peak_mb", "digest", "parent", "labels")


def edit_state(path, **changes):
    """Change what a small file says, and its own digest with it: only the chain can determine."""
    value = json.loads(path.read_text()) | changes
    path.write_text(json.dumps(value | {"digest": digest_of(value)}))
