"""Label Studio tasks out; annotations in, and never a prediction."""

import base64
import json
import xml.etree.ElementTree as ET

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from exporting import KEYS, batch, counts, pairs, picture

from curate.exporting.batches import read_labels, write_batch
from curate.exporting.subset import export as export_subset
from scoring.errors import InputError


def annotation(*choices, who=7, **more):
    result = [
        {"from_name": "label", "to_name": "image", "type": "choices", "value": {"choices": list(choices)}}
    ] * bool(choices)
    return {"result": result, "completed_by": who, "created_at": "2024-01-02T03:04:05Z", "was_cancelled": False, **more}


def task(key, *annotations, **data):
    return {"id": 1, "data": {"image": "x", "curate_key": key, **data}, "annotations": list(annotations)}


def export(path, tasks):
    path.write_text(json.dumps(tasks))
    return path


def read(tmp_path, tasks, keys=("a", "b", "c"), **more):
    return read_labels(export(tmp_path / "e.json", tasks), "label-studio", keys=keys, **more)


def test_every_key_comes_back_exactly_from_annotated_tasks(tmp_path):
    out = tmp_path / "tasks.json"
    write_batch(batch(tmp_path / "images"), out, "label-studio")
    tasks = json.loads(out.read_text("utf-8"))
    for number, entry in enumerate(tasks):
        entry.update(id=1000 - number, annotations=[annotation(f"class {number % 3}")])
    labels = read_labels(export(out, tasks), "label-studio", keys=KEYS)
    assert pairs(labels) == [(key, f"class {i % 3}") for i, key in enumerate(KEYS)]
    assert {(row.annotator, row.labelled_at) for row in labels.rows} == {("7", "2024-01-02T03:04:05Z")}
    assert labels.problems == ()


def test_a_task_says_where_it_stands_and_what_is_predicted(tmp_path):
    write_batch(batch(tmp_path / "a b", ["x", "y"]), tmp_path / "t.json", "label-studio")
    first, second = json.loads((tmp_path / "t.json").read_text())
    assert second["data"] == {
        "image": "/data/local-files/?d=a%20b/001.png",
        "curate_key": "y",
        "curate_rank": 1,
        "curate_round": 3,
        "curate_gain": -0.5,
        "curate_score": -0.5,
        "curate_kappa_x": 3.25,
        "curate_predicted": "cat",
        "curate_probability": 0.25,
        "curate_width": 9,
        "curate_height": 8,
    }
    assert "curate_score" not in first["data"]  # infinite: JSON has no number for it
    (prediction,) = second["predictions"]
    assert prediction["score"] == 0.25
    assert prediction["model_version"].startswith("curate-")
    assert prediction["result"] == [
        {"from_name": "label", "to_name": "image", "type": "choices", "value": {"choices": ["cat"]}}
    ]


def test_only_the_folder_of_the_images_is_served_and_never_the_whole_disk(tmp_path):
    photos = tmp_path / "photos"
    photos.mkdir()
    table = batch(photos / "cats", ["a", "b"])
    table = pa.concat_tables([table, batch(photos / "dogs", ["c"])])
    written = write_batch(table, tmp_path / "t.json", "label-studio")
    links = [entry["data"]["image"] for entry in json.loads((tmp_path / "t.json").read_text())]
    assert sorted(links) == [
        f"/data/local-files/?d=photos/{p}" for p in ("cats/000.png", "cats/001.png", "dogs/000.png")
    ]
    (note,) = [note for note in written.notes if "DOCUMENT_ROOT" in note]
    assert f"DOCUMENT_ROOT={tmp_path}, and the project has {photos} as a local storage" in note
    for link in links:
        assert (tmp_path / link.partition("?d=")[2]).is_file()


@pytest.mark.parametrize(
    "places", [("/a.png", "/b.png"), ("/photos/a.png", "/photos/b.png"), ("/x/a/a.png", "/y/b/b.png")]
)
def test_images_that_only_the_whole_disk_holds_are_embedded(tmp_path, places):
    data = {"a": picture(1), "b": picture(2)}
    table = batch(tmp_path / "i", ["a", "b"], uri=list(places))
    written = write_batch(table, tmp_path / "t.json", "label-studio", images=data.__getitem__)
    images = [entry["data"]["image"] for entry in json.loads((tmp_path / "t.json").read_text())]
    assert [base64.b64decode(image.split(",")[1]) for image in images] == [data["a"], data["b"]]
    assert not any("DOCUMENT_ROOT" in note for note in written.notes)


def test_predictions_never_count_as_labels(tmp_path):
    write_batch(batch(tmp_path / "i", ["a", "b"]), tmp_path / "t.json", "label-studio")
    with pytest.raises(InputError, match="no label: 2"):
        read_labels(tmp_path / "t.json", "label-studio", keys=["a", "b"])


def test_images_inside_a_table_are_embedded_and_urls_stay(tmp_path):
    table = batch(tmp_path / "i", ["a", "b", "c"], uri=[None, "https://host/b.jpg?x=1", "/data/s.tar::c.jpg"])
    data = {"a": picture(1), "c": picture(2, "JPEG")}
    write_batch(table, tmp_path / "t.json", "label-studio", images=data.__getitem__)
    images = [entry["data"]["image"] for entry in json.loads((tmp_path / "t.json").read_text())]
    assert images[0].startswith("data:image/png;base64,")
    assert base64.b64decode(images[0].split(",")[1]) == data["a"]
    assert images[1] == "https://host/b.jpg?x=1"
    assert images[2].startswith("data:image/jpeg;base64,")


def test_an_image_that_no_tool_can_open_is_refused_without_a_reader_and_leaves_no_file(tmp_path):
    table = batch(tmp_path / "i", ["a"], uri=[None])
    with pytest.raises(InputError, match=r"'a': .*no file"):
        write_batch(table, tmp_path / "t.json", "label-studio")
    assert [path.name for path in tmp_path.iterdir()] == ["i"]


def test_the_configuration_offers_the_classes_and_quotes_them(tmp_path):
    classes = ("cat & dog", 'the "big" <one>', "猫")
    written = write_batch(batch(tmp_path / "i", ["a"]), tmp_path / "t.json", "label-studio", classes=classes)
    assert [path.name for path in written.paths] == ["t.json", "t.xml"]
    root = ET.fromstring((tmp_path / "t.xml").read_text("utf-8"))
    assert tuple(choice.get("value") for choice in root.iter("Choice")) == classes
    assert root.find("Choices").get("toName") == root.find("Image").get("name") == "image"


def test_a_class_with_a_character_that_no_xml_may_hold_leaves_the_configuration_readable(tmp_path):
    classes = ("a\x00b", "c\x1bd", "e\ufffef", "tab\tline\n")
    write_batch(batch(tmp_path / "i", ["a"]), tmp_path / "t.json", "label-studio", classes=classes)
    root = ET.fromstring((tmp_path / "t.xml").read_bytes())
    assert [choice.get("value") for choice in root.iter("Choice")] == [
        "a\ufffdb",
        "c\ufffdd",
        "e\ufffdf",
        "tab\tline\n",
    ]


def test_overwrite_replaces_a_curate_configuration_and_no_other_file(tmp_path):
    for name in ("a", "b"):
        pq.write_table(batch(tmp_path / "i", ["x"], label=[name]), tmp_path / f"{name}.parquet")
        export_subset(tmp_path / f"{name}.parquet", tmp_path / "t.json", to="label-studio", overwrite=True)
    assert '"b"' in (tmp_path / "t.xml").read_text()
    (tmp_path / "t.xml").write_text("<View>mine</View>")
    before = (tmp_path / "t.json").read_bytes()
    with pytest.raises(InputError, match=r"t.xml exists already"):
        export_subset(tmp_path / "a.parquet", tmp_path / "t.json", to="label-studio", overwrite=True)
    assert not (tmp_path / "t.json.part").exists()
    assert (tmp_path / "t.xml").read_text() == "<View>mine</View>"
    assert (tmp_path / "t.json").read_bytes() == before


def test_neither_file_appears_where_one_of_the_two_names_is_taken(tmp_path):
    (tmp_path / "t.xml").write_text("mine")
    with pytest.raises(InputError, match=r"t.xml exists already"):
        write_batch(batch(tmp_path / "i", ["a"]), tmp_path / "t.json", "label-studio", classes=("a",))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["i", "t.xml"]
    assert (tmp_path / "t.xml").read_text() == "mine"


def test_what_an_annotator_skipped_left_empty_or_chose_twice_is_set_aside_by_name(tmp_path):
    box = {"from_name": "box", "type": "rectanglelabels", "value": {"rectanglelabels": ["cat"]}}
    tasks = [
        task("a", annotation("cat"), annotation("dog", who={"id": 3, "email": "ann@host"})),
        task("b", annotation("cat", was_cancelled=True), annotation(), annotation("cat", "dog")),
        task("c", {"result": [box], "completed_by": 1}, 12),
        task("d"),
        {"id": 9, "annotations": [annotation("cat")]},
    ]
    labels = read(tmp_path, tasks, keys=["a", "b", "c", "d"])
    assert [(row.key, row.label, row.annotator) for row in labels.rows] == [("a", "cat", "7"), ("a", "dog", "ann@host")]
    assert counts(labels) == {
        "skipped by the annotator": 1,
        "no label": 2,
        "several labels in one annotation": 1,
        "not a label": 2,
        "unknown key": 1,
        "annotators disagree": 1,
    }


@pytest.mark.parametrize("place", ["data/x%20y.jpg", "x%20y.jpg"])  # whichever folder was the document root
def test_a_lost_key_is_found_by_the_place_of_exactly_one_image(tmp_path, place):
    uris = {"a": "/data/x y.jpg", "b": "https://host/b.jpg", "c": "/same.jpg", "d": "/same.jpg"}
    images = [f"/data/local-files/?d={place}", "https://host/b.jpg", "/same.jpg", "/data/upload/1/b.jpg"]
    tasks = [{"data": {"image": image}, "annotations": [annotation("cat")]} for image in images]
    labels = read(tmp_path, tasks, keys=uris)
    assert pairs(labels) == [("a", "cat"), ("b", "cat")]
    assert counts(labels) == {"unknown key": 2, "not in the file": 2}


def test_several_controls_have_to_be_distinguished_by_name(tmp_path):
    both = annotation("cat")
    both["result"] = [both["result"][0], {"from_name": "quality", "type": "choices", "value": {"choices": ["blurred"]}}]
    with pytest.raises(InputError, match="got label, quality"):
        read(tmp_path, [task("a", both)])
    assert pairs(read(tmp_path, [task("a", both)], name="quality")) == [("a", "blurred")]
    with pytest.raises(InputError, match=r"'other' .*label, quality"):
        read(tmp_path, [task("a", both)], name="other")


def test_json_min_is_read_one_annotation_an_object(tmp_path):
    rows = [
        {"image": "x", "curate_key": "a", "label": "cat", "annotator": 1, "updated_at": "t"},
        {"image": "x", "curate_key": "a", "label": "dog", "annotator": 2},
        {"image": "x", "curate_key": "b", "label": {"choices": ["cat", "dog"]}, "annotator": 1},
        {"image": "x", "curate_key": "c", "annotator": 1},
    ]
    labels = read(tmp_path, rows)
    assert [(row.key, row.label, row.annotator, row.labelled_at) for row in labels.rows] == [
        ("a", "cat", "1", "t"),
        ("a", "dog", "2", None),
    ]
    assert counts(labels) == {"several labels in one annotation": 1, "no label": 1, "annotators disagree": 1}
    with pytest.raises(InputError, match=r"image, sentiment; .*control"):
        read(tmp_path, [{"image": "x", "curate_key": "a", "sentiment": "cat"}])


@pytest.mark.parametrize("value", [{"images": []}, 3, "text", [1, 2], None])
def test_a_file_that_is_no_export_is_refused(tmp_path, value):
    with pytest.raises(InputError, match="project as JSON"):
        read(tmp_path, value)


@pytest.mark.parametrize(
    "annotations",
    [None, "x", [None], [[]], [{}], [{"result": 3}], [{"result": [3]}], [{"result": [{"value": 3}]}]]
    + [
        [{"result": [{"value": {"choices": value}, "from_name": "label"}]}]
        for value in (None, 3.5, {}, [None], [[]], [{}])
    ],
)
def test_odd_shapes_are_set_aside_and_never_crash(tmp_path, annotations):
    tasks = [{"data": {"curate_key": "a"}, "annotations": annotations}, task("b", annotation("cat"))]
    labels = read(tmp_path, tasks)
    assert pairs(labels) == [("b", "cat")]
    assert len(labels.ignored) == 1


def test_a_file_in_which_everything_was_skipped_is_reported_with_its_keys(tmp_path):
    long = "k" * 200
    tasks = [{"data": {"curate_key": key}, "annotations": [{"result": [], "was_cancelled": True}]} for key in "ab"]
    tasks[1]["data"]["curate_key"] = long + "2"
    (tmp_path / "f.json").write_text(json.dumps(tasks))
    labels = read_labels(tmp_path / "f.json", "label-studio", keys=["a", long + "1", long + "2"])
    assert labels.rows == ()
    assert [(entry.reason, entry.key) for entry in labels.ignored] == [
        ("skipped by the annotator", "a"),
        ("skipped by the annotator", long + "2"),
    ]
    assert [str(entry).split(" (")[0] for entry in labels.problems] == [
        "skipped by the annotator: 2",
        "not in the file: 1",
    ]
    with pytest.raises(InputError, match="can be used"):
        read_labels(tmp_path / "f.json", "label-studio", keys=["other"])
