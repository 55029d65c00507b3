"""Lists of classes: found, stored, read from Hugging Face, and kept by every command that writes rows."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import curate
from curate.manifest.sources import open_manifest
from curate.tables.classes import CLASSES, MOST_CLASSES, class_columns, lists_from_values, lists_of, read_classes
from curate.tables.table import open_table
from scoring.errors import InputError

NAMES = ("zebra", "ant", "bee")  # not in the order of the alphabet: the numbers are theirs


def lists_found(**columns):
    table = pa.table(columns)
    return lists_from_values([table.select(class_columns(table.schema, ()))])


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (["b", "a", "", " ", None, "b"], ("a", "b")),
        (pa.array([10, 9, None, 1], pa.int8()), ("1", "9", "10")),
        (pa.array([2.0, float("nan"), None, 10.0]), ("2", "10")),
        (pa.array([True, None]), ("true",)),
        (pa.array(["b", "a", None]).dictionary_encode(), ("a", "b")),
    ],
)
def test_the_label_is_listed_whatever_its_type(values, names):
    assert lists_found(label=values) == {"label": names}


@pytest.mark.parametrize("values", [pa.array([0.5, 1.0]), pa.nulls(2), [[1], [2]], [b"a", b"b"], [None, ""]])
def test_what_holds_no_classes_is_not_listed(values):
    assert lists_found(label=values) == {}


def test_other_columns_are_listed_where_values_repeat_and_are_few():
    n = 2 * MOST_CLASSES + 2
    lists = lists_found(
        species=["x", "y"] * (n // 2),
        name=[f"file {i}" for i in range(n)],
        many=[f"class {i // 2}" for i in range(n)],
        number=list(range(n)),
        sha256=["same"] * n,  # ours
    )
    assert lists == {"species": ("x", "y")}


def hugging_face(path, labels, names=NAMES, **columns):
    """A Parquet file as `datasets` writes it."""
    features = {"label": {"_type": "ClassLabel", "names": list(names)}, "image": {"_type": "Image"}}
    note = json.dumps({"info": {"features": features}})
    for number, _ in enumerate(labels):
        pixels = np.random.default_rng(number).integers(0, 255, (40, 40, 3), np.uint8)
        Image.fromarray(pixels).save(path.parent / f"{number}.png")
    images = [{"bytes": (path.parent / f"{n}.png").read_bytes(), "path": None} for n, _ in enumerate(labels)]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    table = pa.table({"image": pa.array(images, kind), "label": pa.array(labels, pa.int64()), **columns})
    pq.write_table(table.replace_schema_metadata({"huggingface": note}), path)
    return path


def test_numbers_of_hugging_face_become_names_and_the_list_survives_a_subset(tmp_path, tiny_checkpoint, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hugging_face(tmp_path / "hf.parquet", [0, 2, None, -1, 2, 0])
    curate.score("hf.parquet", "s.parquet", model=tiny_checkpoint, fit=False, quality=False)
    table = open_table("s.parquet")
    assert table.read(["label"])["label"].to_pylist() == ["zebra", "bee", None, None, "bee", "zebra"]
    assert lists_of(table) == {"label": NAMES}
    curate.filter("s.parquet", "k.parquet", where="label = 'bee'")
    assert lists_of(open_table("k.parquet")) == {"label": NAMES}
    assert curate.info("k.parquet").facts[CLASSES]["label"].endswith("no row of zebra, ant")
    assert curate.export("k.parquet", to="coco", dry_run=True).classes == NAMES


def test_a_scored_subset_that_is_scored_again_keeps_the_list(tmp_path, tiny_checkpoint, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hugging_face(tmp_path / "hf.parquet", [0, 1, 2])
    rows = {"file_name": ["0.png", "1.png", "2.png", "0.png"], "key": list("abcd"), "label": ["x", "y", "z", "x"]}
    pq.write_table(pa.table(rows), "t.parquet")
    options = {"model": tiny_checkpoint, "fit": False, "quality": False}
    curate.score("t.parquet", "s.parquet", **options)
    curate.filter("s.parquet", "k.parquet", where="label != 'y'")
    curate.score("k.parquet", "again.parquet", **options)
    assert lists_of(open_table("again.parquet"))["label"] == ("x", "y", "z")


@pytest.mark.parametrize(("labels", "word"), [([0, 3], "got 3"), ([-2, 0], "got -2")])
def test_a_number_that_no_class_has_is_refused_before_any_image_is_scored(tmp_path, tiny_checkpoint, labels, word):
    path = hugging_face(tmp_path / "hf.parquet", labels)
    with pytest.raises(InputError, match=word):
        open_manifest(path).rows(0, 2)
    with pytest.raises(InputError, match=word):
        curate.score(path, tmp_path / "s.parquet", model=tiny_checkpoint)
    assert not (tmp_path / "s.parquet.part").exists()


def test_files_with_other_names_of_classes_are_refused(tmp_path):
    hugging_face(tmp_path / "a.parquet", [0, 1])
    hugging_face(tmp_path / "b.parquet", [0, 1], names=("ant", "bee", "zebra"))
    with pytest.raises(InputError, match="class names"):
        open_manifest([tmp_path / "a.parquet", tmp_path / "b.parquet"])


@pytest.mark.parametrize(
    "noted", [b"{", b"[]", b'{"info": 3}', b'{"info": {"features": {"label": {"_type": "ClassLabel"}}}}']
)
def test_metadata_that_names_no_classes_leaves_numbers_as_they_are(tmp_path, noted):
    path = hugging_face(tmp_path / "hf.parquet", [7, 8])
    pq.write_table(pq.read_table(path).replace_schema_metadata({b"huggingface": noted}), path)
    assert open_manifest(path).rows(0, 2)["label"].to_pylist() == [7, 8]


def test_a_list_of_classes_for_a_column_of_lists_is_left_alone(tmp_path):
    table = pa.table({"key": ["a"], "status": ["ok"], "label": [["cat"]]})
    note = json.dumps({"kind": "scores", CLASSES: {"label": ["cat"]}}).encode()
    pq.write_table(table.replace_schema_metadata({b"curate": note}), tmp_path / "t.parquet")
    assert lists_of(open_table(tmp_path / "t.parquet")) == {}
    curate.info(tmp_path / "t.parquet")


@pytest.mark.parametrize("lists", [3, {"label": "ab"}, {"label": ["a", "a"]}, {"label": [1]}, {"label": []}])
def test_an_invalid_list_of_curate_is_refused(tmp_path, lists):
    table = pa.table({"key": ["a"], "label": ["a"]})
    note = json.dumps({"kind": "scores", CLASSES: lists}).encode()
    pq.write_table(table.replace_schema_metadata({b"curate": note}), tmp_path / "t.parquet")
    with pytest.raises(InputError, match="classes"):
        lists_of(open_table(tmp_path / "t.parquet"))


def test_labels_that_are_corrected_have_the_classes_of_the_labels(tmp_path, monkeypatch):
    import synthetic

    monkeypatch.chdir(tmp_path)
    rows, kind = synthetic.kinds(n=120, n_kinds=3)
    embedding = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
    columns = {"key": [str(i) for i in range(120)], "label": [NAMES[i] for i in kind], "embedding": embedding}
    note = json.dumps({CLASSES: {"label": [*NAMES, "yak"]}}).encode()
    pq.write_table(pa.table(columns).replace_schema_metadata({b"curate": note}), "t.parquet")
    curate.labels("t.parquet", "k.parquet", label="label", relabel="better")
    assert lists_of(open_table("k.parquet"))["better"] == (*NAMES, "yak")


@pytest.mark.parametrize("text", ["", "a,a", "a,,b", "no/such.txt", "none.parquet"])
def test_an_invalid_list_is_refused(text):
    with pytest.raises(InputError, match=r"--classes"):
        read_classes(text)
