"""Numbers and names of classes, and the printed line that loads an export, run by the real package."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from exporting import picture
from PIL import Image
from typer.testing import CliRunner

import curate
from curate.cli import app
from curate.exporting.batches import read_labels
from curate.exporting.table import ALIASES, FORMATS
from curate.torch import SubsetDataset
from scoring.errors import InputError

CLASSES = ("ant", "bee", "cat", "dog")
N = 24


@pytest.fixture
def workdir(tmp_path, monkeypatch):
    """A table whose keys have the folders of classes, and a subset of it without bees."""
    monkeypatch.chdir(tmp_path)
    labels = [CLASSES[row % 4] for row in range(N)]
    keys = [f"{label}/{row // 4}.png" for row, label in enumerate(labels)]
    for row, key in enumerate(keys):
        Path("i", key).parent.mkdir(parents=True, exist_ok=True)
        Path("i", key).write_bytes(picture(row))
    columns = {
        "key": keys,
        "uri": [str(tmp_path / "i" / key) for key in keys],
        "label": labels,
        "number": pa.array([row % 4 for row in range(N)], pa.int8()),
        "kappa_x": [float(row) for row in range(N)],
        "status": ["ok"] * N,
    }
    pq.write_table(pa.table(columns), "s.parquet")
    curate.filter("s.parquet", where="label != 'bee'", out="val.parquet")
    return tmp_path


@pytest.fixture
def hub(workdir, monkeypatch):
    """`datasets`, offline, with its cache in the folder of the test."""
    datasets = pytest.importorskip("datasets")
    # HF_HUB_OFFLINE is read when the package is imported, so in the environment it would stay for all later tests
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", workdir / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    return datasets


def loaded(result, package):
    """Run the line that an export names for a package; return its ``data``."""
    names = {}
    exec(next(line for line in result.load if package in line), names)
    return names["data"]


def numbers(subset, **options):
    """The number of each class by everything that numbers."""
    curate.export(subset, "c.json", to="coco", overwrite=True, **options)
    numbered = {
        "coco": {
            category["name"]: category["id"] - 1 for category in json.loads(Path("c.json").read_text())["categories"]
        }
    }
    data = SubsetDataset(subset, label="label", **options)
    numbered["torch"] = {name: number for number, name in enumerate(data.classes)}
    return numbered


def test_a_class_has_the_same_number_in_every_subset_and_the_subset_says_what_it_lacks(workdir):
    expected = {name: number for number, name in enumerate(CLASSES)}
    assert numbers("val.parquet") == numbers("s.parquet") == {"coco": expected, "torch": expected}
    data = SubsetDataset("val.parquet")
    assert data.lacking == ("bee",)
    assert Counter(data.targets.tolist()) == {0: 6, 2: 6, 3: 6}
    result = curate.export("val.parquet", to="coco", dry_run=True)
    assert (result.classes, result.lacking) == (CLASSES, ("bee",))
    assert any("bee" in note for note in result.notes)
    assert curate.export("s.parquet", to="coco", dry_run=True).lacking == ()


def test_the_list_of_the_table_outlives_several_policies(workdir):
    curate.filter("val.parquet", where="label != 'dog'", out="less.parquet")
    curate.select("less.parquet", "few.parquet", budget=4, strategy="random")
    assert SubsetDataset("few.parquet").classes == CLASSES


@pytest.mark.parametrize("how", ["typed", "sequence", "file", "table"])
def test_classes_are_numbered_by_a_list_that_is_given(workdir, how):
    Path("names.txt").write_text("\ufeffdog\r\n\r\ncat\r\nbee\r\nant\r\neel\r\n", "utf-8")
    classes = {"typed": "dog, cat,bee,ant,eel", "sequence": ["dog", "cat", "bee", "ant", "eel"], "file": "names.txt"}
    if how == "table":
        pq.write_table(pa.table({"label": ["b", "ant", "dog", "cat", "bee"]}), "all.parquet")
        expected = {"ant": 0, "b": 1, "bee": 2, "cat": 3, "dog": 4}
        assert numbers("val.parquet", classes="all.parquet") == {"coco": expected, "torch": expected}
        return
    expected = {"dog": 0, "cat": 1, "bee": 2, "ant": 3, "eel": 4}
    assert numbers("val.parquet", classes=classes[how]) == {"coco": expected, "torch": expected}


@pytest.mark.parametrize(
    ("classes", "word"),
    [
        ("ant,cat", "'dog'"),
        ("ant,ant,cat,dog", "twice"),
        ("none.txt", "none.txt"),
        ("ant,,cat,dog", "empty"),
        ([], "none"),
    ],
)
def test_a_list_that_cannot_number_the_rows_is_refused(workdir, classes, word):
    for call in (
        lambda: curate.export("val.parquet", "c.json", to="coco", classes=classes),
        lambda: SubsetDataset("val.parquet", classes=classes),
    ):
        with pytest.raises(InputError, match=word):
            call()
    assert not Path("c.json").exists()


def test_given_names_are_assigned_to_numbers_in_order(workdir):
    curate.export("val.parquet", "out", to="imagefolder", label="number", classes="ANT,BEE,CAT,DOG")
    assert sorted(path.name for path in Path("out").iterdir() if path.is_dir()) == ["ANT", "BEE", "CAT", "DOG"]
    assert {path.parent.name for path in Path("out").glob("*/*.png")} == {"ANT", "CAT", "DOG"}
    data = SubsetDataset("val.parquet", label="number", classes=["ANT", "BEE", "CAT", "DOG"])
    assert Counter(data.targets.tolist()) == {0: 6, 2: 6, 3: 6}
    with pytest.raises(InputError, match="from 0 to 1"):
        SubsetDataset("val.parquet", label="number", classes="ANT,BEE")


def test_whole_numbers_are_classes_in_the_order_of_numbers(workdir):
    labels = pa.array([[10, 2, 9, 1][row % 4] for row in range(N)])
    table = pq.read_table("s.parquet").drop_columns(["label"]).append_column("label", labels)
    pq.write_table(table, "n.parquet")
    assert SubsetDataset("n.parquet").classes == ("1", "2", "9", "10")
    assert curate.export("n.parquet", to="coco", dry_run=True).classes == ("1", "2", "9", "10")


def test_rows_that_nothing_lists_the_classes_of_are_numbered_with_a_caution(workdir):
    assert any("--classes" in note for note in curate.export("s.parquet", to="coco", dry_run=True).notes)
    assert not any("--classes" in note for note in curate.export("val.parquet", to="coco", dry_run=True).notes)


def test_names_of_hugging_face_come_along_and_are_written_again(workdir, hub):
    from curate.manifest.sources import open_manifest

    result = curate.export("val.parquet", "hf", to="hf")
    assert result.to == "huggingface"
    data = loaded(result, "import datasets")
    assert tuple(data.features["label"].names) == CLASSES
    assert all(CLASSES[row["label"]] == row["key"].split("/")[0] for row in data)
    assert len(data) == 18
    manifest = open_manifest("hf/data/*.parquet")
    assert manifest.classes == {"label": CLASSES}
    rows = manifest.rows(0, manifest.n_rows).to_pylist()
    assert {
        (row["source_key"] if "source_key" in row else row["key"]).split("/")[0] == row["label"] for row in rows
    } == {True}


def test_torchvision_and_datasets_load_real_folders_with_real_names(workdir, hub):
    for name, lacking in (("s", 0), ("val", 1)):
        result = curate.export(f"{name}.parquet", name, to="pytorch")
        assert len(result.lacking) == lacking
        data = loaded(result, "torchvision")
        assert tuple(data.classes) == CLASSES
        assert all(Path(path).parent.name == CLASSES[number] for path, number in data.samples)
        assert len(data) == result.rows
        table = pq.read_table("s.parquet")["key"].to_pylist()
        rows = [*loaded(result, "import datasets")]
        assert len(rows) == result.rows
        for row in rows:  # the width of an image is its row in the table
            assert row["curate_key"] == table[row["image"].size[0] - 8]
            assert row["curate_key"].startswith(row["label"] + "/")
    single = pq.read_table("s.parquet").take([0, 5, 10, 15])  # ant/0, bee/1, cat/2, dog/3: no two are alike
    pq.write_table(single, "one.parquet")
    curate.export("one.parquet", "one", to="imagefolder")
    files = sorted(path.relative_to("one").as_posix() for path in Path("one").glob("*/*"))
    assert files == ["ant/0.png", "bee/1.png", "cat/2.png", "dog/3.png"]


def test_a_column_of_sides_becomes_folders_of_sides(workdir, hub):
    sides = pa.array([("train", "validation", "test")[row // 4 % 3] for row in range(N)])
    pq.write_table(pq.read_table("s.parquet").append_column("split", sides), "sides.parquet")
    result = curate.export("sides.parquet", "out", to="imagefolder")
    assert {path.name for path in Path("out").iterdir() if path.is_dir()} == {"train", "val", "test"}
    data = loaded(result, "torchvision")
    assert (tuple(data.classes), len(data)) == (CLASSES, 8)
    keys = {side: sorted(rows["curate_key"]) for side, rows in hub.load_dataset("out").items()}
    table = pq.read_table("sides.parquet").to_pylist()
    assert keys == {
        side: sorted(row["key"] for row in table if row["split"] == side) for side in ("train", "validation", "test")
    }
    labels = read_labels("out", "imagefolder", keys=[row["key"] for row in table])
    assert {row.key: row.label for row in labels.rows} == {row["key"]: row["label"] for row in table}
    curate.export("sides.parquet", "csv", to="hf", shard="10")  # a name that `datasets` has for a loader
    assert {side: sorted(rows["key"]) for side, rows in hub.load_dataset("./csv").items()} == keys
    assert len(loaded(curate.export("sides.parquet", "csv", to="hf", shard="10"), "import datasets")) == 8


def test_names_that_datasets_takes_for_splits_lose_no_row(workdir, hub):
    table = pq.read_table("s.parquet").slice(0, 4)
    table = table.set_column(0, "key", [["a/test_1.png", "b/train.png", "c/val/2.png", "d.png"]])
    pq.write_table(table.set_column(2, "label", [["test", "dev", "cat", "cat"]]), "odd.parquet")
    result = curate.export("odd.parquet", "out", to="imagefolder")
    assert sorted(loaded(result, "import datasets")["label"]) == ["cat", "cat", "dev", "test"]
    assert any("load_dataset" in note for note in result.notes)


def test_an_image_that_was_moved_to_another_folder_has_the_class_of_that(workdir):
    curate.export("s.parquet", "out", to="imagefolder")
    keys = pq.read_table("s.parquet")["key"].to_pylist()
    line = json.loads(Path("out/metadata.jsonl").read_text().splitlines()[3])
    Path("out", line["file_name"]).rename(Path("out/cat", Path(line["file_name"]).name))
    labels = {row.key: row.label for row in read_labels("out", "imagefolder", keys=keys).rows}
    assert labels == {key: "cat" if key == line["curate_key"] else key.split("/")[0] for key in keys}


def test_yolo_without_sides_holds_out_a_fifth_of_each_class(workdir):
    yaml = pytest.importorskip("yaml")
    result = curate.export("s.parquet", "out", to="ultralytics")
    assert result.to == "yolo"
    data = yaml.safe_load(Path("out/data.yaml").read_text())
    assert (data["train"], data["val"], "test" in data) == ("train", "val", False)
    assert tuple(data["names"].values()) == CLASSES
    held = Counter(path.parent.name for path in Path("out/val").glob("*/*"))
    assert held == dict.fromkeys(CLASSES, 1)
    assert len([*Path("out/train").glob("*/*")]) == N - 4
    assert any("--per" in note for note in result.notes)
    curate.export("val.parquet", "less", to="yolo")
    assert yaml.safe_load(Path("less/data.yaml").read_text())["names"] == data["names"]
    assert Path("less/train/bee").is_dir()  # or YOLO numbers the classes otherwise
    names = {path.name for path in Path("less/val").glob("*/*")}
    assert {name.split("~")[0] for name in names} <= {path.name.split("~")[0] for path in Path("out/val").glob("*/*")}


def test_yolo_trains_on_what_its_line_names(workdir):
    python = os.environ.get("INTERCHANGE_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import ultralytics"], capture_output=True, check=False).returncode:
        pytest.skip("ultralytics is not installed; name an interpreter that has it with INTERCHANGE_PYTHON")
    for path in Path("i").rglob("*.png"):
        Image.new("RGB", (32, 32)).save(path)  # it leaves out what is smaller than 10 pixels
    result = curate.export("val.parquet", "out", to="yolo")
    line = result.load[0].replace("yolo11n-cls.pt", "yolo11n-cls.yaml")  # the weights are fetched, the layout is not
    line = line.replace("train(", "train(epochs=1, imgsz=32, batch=2, workers=0, device='cpu', plots=False, ")
    code = f"{line}\nimport json; print(json.dumps(list(model.names.values())))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert tuple(json.loads(done.stdout.splitlines()[-1])) == CLASSES


def test_key_and_label_go_along_and_others_where_they_are_requested(workdir):
    result = curate.export("s.parquet", "few", to="huggingface")
    assert pq.read_schema(next(Path("few/data").iterdir())).names == ["image", "key", "label"]
    assert any("--take" in note for note in result.notes)
    curate.export("s.parquet", "some", to="huggingface", take="kappa_*")
    assert pq.read_schema(next(Path("some/data").iterdir())).names == ["image", "key", "uri", "label", "kappa_x"]
    curate.export("s.parquet", "all", to="huggingface", take="*")
    assert set(pq.read_schema(next(Path("all/data").iterdir())).names) == {
        "image",
        *pq.read_schema("s.parquet").names,
    } - {"status"}
    with pytest.raises(InputError, match="zzz"):
        curate.export("s.parquet", "none", to="huggingface", take="zzz*")


def test_an_image_that_changed_is_found_though_its_digest_does_not_go_along(workdir):
    digests = pa.array(["0" * 64] * N)
    pq.write_table(pq.read_table("s.parquet").append_column("sha256", digests), "old.parquet")
    with pytest.raises(InputError, match="that was scored"):
        curate.export("old.parquet", "out", to="imagefolder")


@pytest.mark.parametrize("to", [name for name in FORMATS if name not in ("fiftyone", "yolo")])
def test_the_printed_line_loads_what_was_written(hub, to):
    out = f"it's {to}{FORMATS[to].suffix}"  # a path that has to be quoted
    result = CliRunner().invoke(app, ["export", "s.parquet", "--to", to, "-o", out])
    assert result.exit_code == 0, result.output
    lines = [line.removeprefix("load it: ") for line in result.stderr.splitlines() if line.startswith("load it: ")]
    assert lines
    for line in lines:
        names = {}
        exec(line, names)
        data = names["data"]
        held = getattr(data, "imgs", data)
        assert len(held if hasattr(held, "__len__") else list(held)) == N


@pytest.mark.parametrize("other", ALIASES)
def test_a_format_uses_the_name_of_its_package_too(workdir, other):
    assert curate.export("s.parquet", to=other, dry_run=True).to == ALIASES[other]
