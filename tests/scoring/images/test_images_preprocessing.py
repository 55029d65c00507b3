"""The record of how bytes become model input: round trip, and what it refuses."""

import json

import pytest

from scoring.errors import InputError
from scoring.images import Preprocessing


def test_preprocessing_survives_json():
    original = Preprocessing(size=96, resize=112, interpolation="bilinear", mean=(0.1, 0.2, 0.3), std=(0.5, 1.0, 2.0))
    assert Preprocessing.from_json(json.loads(json.dumps(original.to_json()))) == original


def test_lists_become_tuples_of_floats_so_that_equal_records_hash_alike():
    listed = Preprocessing(mean=[0, 0, 0], std=[1, 1, 1])
    assert listed.mean == (0.0, 0.0, 0.0)
    assert hash(listed) == hash(Preprocessing(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"size": 0}, "and 4096, got 0"),
        ({"resize": 64.0}, "got 64.0"),
        ({"size": True}, "got True"),
        ({"resize": 5000}, "got 5000"),
        ({"size": 65}, "size 65 and resize"),
        ({"interpolation": "nearest"}, "got 'nearest'"),
        ({"interpolation": ["bicubic"]}, "got \\['bicubic'\\]"),
        ({"mean": (0.5, 0.5)}, "mean to be"),
        ({"mean": (0.5, 0.5, float("nan"))}, "expected mean"),
        ({"mean": "abc"}, "expected mean"),
        ({"std": (0.5, 0.5, 0.0)}, "expected std"),
        ({"std": None}, "std .* got None"),
    ],
)
def test_a_bad_field_is_refused_with_what_was_expected_and_what_came(fields, words):
    with pytest.raises(InputError, match=words) as caught:
        Preprocessing(**fields)
    assert "\n" not in str(caught.value)


def test_unknown_missing_and_absent_keys_are_refused():
    record = Preprocessing().to_json()
    for bad in ({**record, "crop": 1}, {k: v for k, v in record.items() if k != "std"}, {}, ["size"], None):
        with pytest.raises(InputError, match="exactly the keys"):
            Preprocessing.from_json(bad)
