"""COCO out and in: found by curate_key or file_name, whatever number a tool gives an image."""

import json
import random

import pytest
from exporting import KEYS, batch, counts, pairs

from curate.exporting.batches import read_labels, write_batch
from scoring.errors import InputError


def coco(images, annotations, categories=("cat", "dog")):
    return {
        "images": images,
        "annotations": annotations,
        "categories": [{"id": i, "name": name} for i, name in enumerate(categories, 1)],
    }


def read(tmp_path, value, keys=("a", "b", "c"), **more):
    (tmp_path / "c.json").write_text(json.dumps(value))
    return read_labels(tmp_path / "c.json", "coco", keys=keys, **more)


def test_every_key_comes_back_exactly_after_a_tool_renumbered_and_shuffled_the_images(tmp_path):
    out = tmp_path / "coco.json"
    write_batch(batch(tmp_path / "images"), out, "coco", classes=("cat", "dog"))
    content = json.loads(out.read_text("utf-8"))
    assert content["annotations"] == []
    assert [category["name"] for category in content["categories"]] == ["cat", "dog"]
    random.Random(0).shuffle(content["images"])
    expected = {}
    for number, image in enumerate(content["images"]):
        image["id"] = 5000 - number
        expected[image["curate_key"]] = ("cat", "dog")[number % 2]
        annotation = {"id": number, "image_id": image["id"], "category_id": 1 + number % 2, "bbox": [0, 0, 8, 8]}
        content["annotations"].append(annotation)
    labels = read(tmp_path, content, keys=KEYS)
    assert dict(pairs(labels)) == expected
    assert set(expected) == set(KEYS)
    assert labels.problems == ()


def test_an_image_has_its_size_and_its_prediction_is_no_annotation(tmp_path):
    table = batch(tmp_path / "i", ["x"], uri=["https://host/photos/x"])
    write_batch(table, tmp_path / "c.json", "coco")
    content = json.loads((tmp_path / "c.json").read_text())
    (image,) = content["images"]
    assert (image["id"], image["file_name"], image["width"], image["height"]) == (1, "x", 8, 8)
    assert (image["coco_url"], image["curate_predicted"]) == ("https://host/photos/x", "cat")
    assert [category["name"] for category in content["categories"]] == ["cat"]
    with pytest.raises(InputError, match="no label: 1"):
        read_labels(tmp_path / "c.json", "coco", keys=["x"])


def test_without_curate_key_the_file_name_has_to_be_the_key_or_the_place_of_exactly_one(tmp_path):
    uris = {"cats/1.jpg": "/photos/cats/1.jpg", "2": "/photos/2.jpg", "s": "/same.jpg", "t": "/same.jpg"}
    names = ["cats/1.jpg", "/photos/2.jpg", "1.jpg", "/same.jpg"]
    images = [{"id": i, "file_name": name} for i, name in enumerate(names)]
    annotations = [{"image_id": i, "category_id": 1} for i in range(len(names))]
    labels = read(tmp_path, coco(images, annotations), keys=uris)
    assert pairs(labels) == [("cats/1.jpg", "cat"), ("2", "cat")]
    assert counts(labels) == {"unknown key": 2, "not in the file": 2}


def test_boxes_of_one_category_are_one_label_and_of_several_categories_none(tmp_path):
    images = [{"id": i, "file_name": name} for i, name in enumerate("abc")]
    chosen = [(0, 1), (0, 1), (0, 1), (1, 1), (1, 2)]
    labels = read(tmp_path, coco(images, [{"image_id": i, "category_id": c} for i, c in chosen]))
    assert pairs(labels) == [("a", "cat")]
    assert counts(labels) == {"no label": 1, "two labels by one annotator": 2}


def test_named_annotators_may_disagree(tmp_path):
    images = [{"id": 1, "file_name": "a"}]
    annotations = [
        {"image_id": 1, "category_id": 1, "annotator": "ann"},
        {"image_id": 1, "category_id": 2, "attributes": {"annotator": "bob"}},
    ]
    labels = read(tmp_path, coco(images, annotations), keys=["a"])
    assert [(row.label, row.annotator) for row in labels.rows] == [("cat", "ann"), ("dog", "bob")]
    assert counts(labels) == {"annotators disagree": 1}


def test_numbers_without_or_with_two_classes_are_named(tmp_path):
    images = [{"id": 1, "file_name": "a"}, {"id": 2, "file_name": "b"}, {"id": 2, "file_name": "c"}]
    annotations = [
        {"image_id": i, "category_id": c} for i, c in [(1, 1), (2, 1), (9, 1), (1, 7), (None, None), ([], {})]
    ]
    labels = read(tmp_path, coco(images, annotations))
    assert pairs(labels) == [("a", "cat")]
    assert counts(labels) == {
        "image_id of several images": 1,
        "unknown image_id": 3,
        "unknown category_id": 1,
        "no label": 1,
        "not in the file": 1,
    }


def test_categories_that_share_a_number_are_not_used(tmp_path):
    value = coco([{"id": 1, "file_name": "a"}], [{"image_id": 1, "category_id": 1}])
    value["categories"] = [{"id": 1, "name": "cat"}, {"id": 1, "name": "dog"}]
    with pytest.raises(InputError, match=r"category_id: 1 \(1"):
        read(tmp_path, value)


@pytest.mark.parametrize("value", [[], 3, {}, {"images": []}, {"images": {}, "annotations": [], "categories": []}])
def test_a_file_of_another_format_is_refused(tmp_path, value):
    with pytest.raises(InputError, match="lists images, annotations, categories"):
        read(tmp_path, value)
