"""What the real packages make of an export, and what comes back from them.

The packages are large and not among the project's own. They are looked for in this interpreter, and in those that the
variable INTERCHANGE_PYTHON names (`:` between them); where a package is in none, its test is skipped and says so.
"""

import json
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from exporting import KEYS, batch, counts, pairs

from curate.exporting.batches import read_labels, write_batch
from curate.exporting.subset import export

CLASSES = ("cat", "dog & co", "猫")


def run(package, code, *arguments):
    """Run code where the package can be imported, offline; skip where it can be nowhere. Returns what it printed."""
    for python in [sys.executable, *filter(None, os.environ.get("INTERCHANGE_PYTHON", "").split(":"))]:
        probe = f"import importlib.util as u, sys; sys.exit(any(u.find_spec(p) is None for p in {package.split()!r}))"
        if subprocess.run([python, "-c", probe], check=False).returncode == 0:
            break
    else:
        pytest.skip(f"{package} is not installed; name an interpreter that has it with INTERCHANGE_PYTHON")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "FIFTYONE_DO_NOT_TRACK": "1"}
    done = subprocess.run(
        [python, "-c", code, *map(str, arguments)], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "link", ["symbolic", *(pytest.param(link, marks=pytest.mark.slow) for link in ("copy", "hard"))]
)
def test_datasets_loads_an_image_folder_as_one_split_with_every_key_and_image(tmp_path, link):
    write_batch(batch(tmp_path / "i"), tmp_path / "out", "imagefolder", link=link)
    code = """
import json, sys
from datasets import load_dataset
loaded = load_dataset(sys.argv[1], cache_dir=sys.argv[2])
rows = [[r["curate_key"], r["image"].size[0], r["curate_rank"], r["curate_gain"]] for r in loaded["train"]]
print(json.dumps([list(loaded), rows]))
"""
    splits, rows = run("datasets", code, tmp_path / "out", tmp_path / "cache")
    assert splits == ["train"]
    assert sorted(rows, key=lambda row: row[2]) == [
        [key, 8 + number, number, None if number == 0 else -0.5] for number, key in enumerate(KEYS)
    ]


def test_labels_that_are_known_are_the_labels_of_datasets_and_of_pycocotools(tmp_path):
    classes = [CLASSES[i % 3] for i in range(len(KEYS))]
    table = batch(tmp_path / "i", species=classes)
    pq.write_table(table, tmp_path / "t.parquet")
    export(tmp_path / "t.parquet", tmp_path / "out", to="imagefolder", label="species")
    code = """
import json, sys
from datasets import load_dataset
loaded = load_dataset(sys.argv[1], cache_dir=sys.argv[2])["train"]
print(json.dumps([[row["curate_key"], row["label"], row["image"].size[0]] for row in loaded]))
"""
    rows = run("datasets", code, tmp_path / "out", tmp_path / "cache")
    assert sorted(rows, key=lambda row: row[2]) == [[key, classes[i], 8 + i] for i, key in enumerate(KEYS)]
    export(tmp_path / "t.parquet", tmp_path / "coco.json", to="coco", label="species")
    code = """
import contextlib, json, sys
from pycocotools.coco import COCO
with contextlib.redirect_stdout(sys.stderr):
    coco = COCO(sys.argv[1])
print(json.dumps([
    [coco.imgs[one["image_id"]]["curate_key"], coco.cats[one["category_id"]]["name"], one["bbox"], one["area"]]
    for one in coco.loadAnns(coco.getAnnIds(iscrowd=False))
]))
"""
    boxes = run("pycocotools", code, tmp_path / "coco.json")
    assert boxes == [[key, classes[i], [0, 0, 8 + i, 8], 8 * (8 + i)] for i, key in enumerate(KEYS)]


def test_labels_written_by_datasets_come_back(tmp_path):
    write_batch(batch(tmp_path / "i", ["a", "B", "c"]), tmp_path / "out", "imagefolder")
    code = """
import json, sys
from datasets import load_dataset
loaded = load_dataset(sys.argv[1], cache_dir=sys.argv[2])["train"].remove_columns("image")
loaded = loaded.add_column("label", ["class " + key for key in loaded["curate_key"]])
print(loaded.to_json(sys.argv[3]))
"""
    (tmp_path / "back").mkdir()
    run("datasets", code, tmp_path / "out", tmp_path / "cache", tmp_path / "back" / "metadata.jsonl")
    labels = read_labels(tmp_path / "back", "imagefolder", keys=["a", "B", "c"])
    assert sorted(pairs(labels)) == [("B", "class B"), ("a", "class a"), ("c", "class c")]


def test_pycocotools_reads_the_images_and_its_results_come_back(tmp_path):
    out = tmp_path / "coco.json"
    write_batch(batch(tmp_path / "i"), out, "coco", classes=CLASSES)
    code = """
import contextlib, json, sys
from pycocotools.coco import COCO
with contextlib.redirect_stdout(sys.stderr):
    coco = COCO(sys.argv[1])
    boxes = [
        {"image_id": i, "category_id": 1 + i % 3, "bbox": [0, 0, image["width"], image["height"]], "score": 1.0}
        for i, image in coco.imgs.items()
    ]
    found = coco.loadRes(boxes)
whole = {**found.dataset, "annotations": [{**one, "segmentation": []} for one in found.dataset["annotations"]]}
json.dump(whole, open(sys.argv[2], "w"))
names = [coco.cats[i]["name"] for i in sorted(coco.cats)]
print(json.dumps([names, [coco.imgs[i]["curate_key"] for i in sorted(coco.imgs)]]))
"""
    names, keys = run("pycocotools", code, out, tmp_path / "back.json")
    assert tuple(names) == CLASSES
    assert keys == KEYS
    labels = read_labels(tmp_path / "back.json", "coco", keys=KEYS, classes=CLASSES)
    assert pairs(labels) == [(key, CLASSES[(i + 1) % 3]) for i, key in enumerate(KEYS)]


def test_label_studio_takes_tasks_predictions_and_configuration_and_its_exports_come_back(tmp_path):
    out = tmp_path / "tasks.json"
    write_batch(batch(tmp_path / "i"), out, "label-studio", classes=CLASSES)
    code = """
import json, os, sys
from label_studio_sdk.label_interface import LabelInterface
from label_studio_sdk.converter import Converter
tasks, xml, back = json.load(open(sys.argv[1])), open(sys.argv[2]).read(), sys.argv[3]
interface = LabelInterface(xml)
classes = list(interface.get_control("label").labels)
for number, task in enumerate(tasks):
    interface.validate_task({"data": task["data"]})
    predictions = task.pop("predictions")
    if not all(interface.validate_prediction(one) for one in predictions):
        raise SystemExit("a prediction does not fit the configuration")
    region = {"id": "r", "from_name": "label", "to_name": "image", "type": "choices"}
    task["id"] = 9000 - number
    task["annotations"] = [
        {"id": 100 + 2 * number + who, "was_cancelled": number == 3,
         "completed_by": {"id": who, "email": f"{who}@host"},
         "created_at": "2024-01-02T00:00:00Z", "updated_at": "2024-01-02T00:00:00Z", "lead_time": 1.0,
         "result": [{**region, "value": {"choices": [classes[(number + who) % 3]]}}]}
        for who in range(1 + number % 2)
    ]
json.dump(tasks, open(os.path.join(back, "export.json"), "w"))
Converter(xml, back, download_resources=False).convert_to_json_min(
    os.path.join(back, "export.json"), os.path.join(back, "min"), is_dir=False)
print(json.dumps(classes))
"""
    back = tmp_path / "back"
    back.mkdir()
    assert tuple(run("label_studio_sdk", code, out, out.with_suffix(".xml"), back)) == CLASSES
    expected = [
        (key, CLASSES[(i + who) % 3], f"{who}@host") for i, key in enumerate(KEYS) for who in range(1 + i % 2) if i != 3
    ]
    labels = read_labels(back / "export.json", "label-studio", keys=KEYS, classes=CLASSES)
    assert [(row.key, row.label, row.annotator) for row in labels.rows] == expected
    assert counts(labels)["skipped by the annotator"] == 2
    labels = read_labels(back / "min" / "result.json", "label-studio", keys=KEYS, classes=CLASSES)
    assert [(row.key, row.label, row.annotator) for row in labels.rows if row.key != KEYS[3]] == expected


def test_fiftyone_imports_the_folder_and_what_it_exports_comes_back(tmp_path):
    """The database is mongomock's, in memory: FiftyOne's importer and exporter are the real ones."""
    keys = KEYS[:6]
    table = batch(tmp_path / "i", keys).append_column("phash", pa.array([2**64 - 1] * len(keys), pa.uint64()))
    write_batch(table, tmp_path / "out", "fiftyone", classes=CLASSES)
    code = """
import os, sys
os.environ["FIFTYONE_DATABASE_URI"] = "mongodb://localhost"
os.environ["FIFTYONE_DATABASE_VALIDATION"] = "false"
os.environ["FIFTYONE_DATABASE_DIR"] = sys.argv[3]
import json, mongoengine, mongomock
client = mongomock.MongoClient("localhost")
import fiftyone.core.odm.database as database
database.establish_db_conn = database._connect = lambda *a, **k: None
mongoengine.connect("fiftyone", mongo_client_class=lambda *a, **k: client)
import fiftyone as fo
database._client = client
found = fo.Dataset.from_dir(dataset_dir=sys.argv[1], dataset_type=fo.types.FiftyOneDataset, name="batch")
rows = [[s.curate_key, s.curate_rank, os.path.isfile(s.filepath), s.curate_prediction.confidence] for s in found]
for number, sample in enumerate(found):
    sample["ground_truth"] = fo.Classification(label="class %d" % (number % 3))
    sample.save()
found.export(export_dir=sys.argv[2], dataset_type=fo.types.FiftyOneDataset)
print(json.dumps([rows, found.classes]))
"""
    rows, classes = run("fiftyone mongomock", code, tmp_path / "out", tmp_path / "back", tmp_path / "database")
    assert rows == [[key, number, True, 0.25] for number, key in enumerate(keys)]
    assert classes == {"ground_truth": list(CLASSES)}
    labels = read_labels(tmp_path / "back", "fiftyone", keys=keys)
    assert pairs(labels) == [(key, f"class {i % 3}") for i, key in enumerate(keys)]
