"""What is damaged in a cache, or is not one, is refused in one line."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_cache import RECIPE, N, make, note_targets

from scoring.errors import InputError
from trainers.cache import TargetsDigest, epoch_name, open_cache


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def test_every_damage_to_a_cache_is_one_line_that_names_the_file(copy, made):
    sizes = (copy / epoch_name(1)).stat().st_size
    damages = {
        "a bit": lambda path: flip(path, sizes // 2),
        "cut": lambda path: path.write_bytes(path.read_bytes()[: sizes // 2]),
        "empty": lambda path: path.write_bytes(b""),
        "text": lambda path: path.write_text("hello" * 100),
        "another table": lambda path: pq.write_table(pa.table({"key": ["a"]}), path),
    }
    for damage in damages.values():
        shutil.copy(made / epoch_name(1), copy / epoch_name(1))
        damage(copy / epoch_name(1))
        with pytest.raises(InputError, match=r"epoch-000001\.parquet .*remove it"):
            open_cache(copy).epoch(1)


def test_an_epoch_of_another_cache_or_place_is_refused(copy, model, files, tmp_path):
    shutil.copy(copy / epoch_name(1), copy / epoch_name(2))
    with pytest.raises(InputError, match=r"another .*expected epoch 2"):
        open_cache(copy)
    make(tmp_path / "g", model, files, recipe=replace(RECIPE, seed=9))
    shutil.copy(tmp_path / "g" / epoch_name(2), copy / epoch_name(2))
    with pytest.raises(InputError, match="another cache"):
        open_cache(copy)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 99}, "format 99.*reads 1"),
        ({"epochs": 10**9}, "good value for epochs"),
        ({"epochs": "many"}, "good value for epochs"),
        ({"width": 1 << 40}, "no good value"),
        ({"recipe": {}}, "good value for recipe"),
        ({"recipe": {"dtype": "float16", "augmentation": {"shear": 1}}}, "belongs to another cache"),
        ({"data": 3}, "good value for data"),
        ({"epochs": True}, "good value for epochs"),
        ({"made_from": None}, "good value for made_from"),
        ({"made_from": ["one"]}, "remove the whole folder"),
        ({"recipe": {"dtype": ["float16"]}}, "good value for recipe"),
    ],
)
def test_a_note_that_cannot_be_is_refused(copy, change, words):
    note = json.loads((copy / "cache.json").read_text())
    (copy / "cache.json").write_text(json.dumps({**note, **change}))
    with pytest.raises(InputError, match=words):
        open_cache(copy)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"failures": [1]}, "no note"),
        ({"failures": {"corrupt": "many"}}, "no good note"),
        ({"keys": [1]}, "no good note"),
        ({"targets": 1}, "no good note"),
        ({"epoch": 2}, "another cache or epoch"),
    ],
)
def test_a_footer_whose_note_cannot_be_is_refused(copy, change, words):
    path = copy / epoch_name(1)
    note = {**json.loads(pq.read_metadata(path).metadata[b"curate"]), **change}
    table = pq.read_table(path).replace_schema_metadata({b"curate": json.dumps(note).encode()})
    pq.write_table(table, path, compression="NONE")
    with pytest.raises(InputError, match=words):
        open_cache(copy)


def test_an_epoch_without_features_is_refused(copy):
    path = copy / epoch_name(1)
    note = {b"curate": pq.read_metadata(path).metadata[b"curate"]}
    pq.write_table(pq.read_table(path).drop_columns(["features"]).replace_schema_metadata(note), path)
    with pytest.raises(InputError, match=r"epoch-000001\.parquet .*no features"):
        open_cache(copy)


def test_a_folder_that_is_no_cache_says_what_makes_one(tmp_path):
    with pytest.raises(InputError, match="not a cache"):
        open_cache(tmp_path)
    (tmp_path / "cache.json").write_text("{")
    with pytest.raises(InputError, match="damaged"):
        open_cache(tmp_path)


def test_a_footer_that_claims_more_rows_than_its_file_can_hold_is_refused(copy, model):
    """Runs of one value compress to nothing; a small file must not ask for a large tensor."""
    note = pq.ParquetFile(copy / epoch_name(1)).metadata.metadata
    schema = pq.read_schema(copy / epoch_name(1)).with_metadata({b"curate": note[b"curate"]})
    rows = 20_000
    values = pa.array(np.zeros(rows * model.width, np.float16))
    arrays = [
        pa.array(["k"] * rows),
        pa.array(["c"] * rows),
        pa.FixedSizeListArray.from_arrays(values, type=schema.field("features").type),
    ]
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), copy / epoch_name(1), compression="zstd")
    with pytest.raises(InputError, match="20,000 rows"):
        open_cache(copy)


def rewrite(folder, at, labels, **how):
    """Write an epoch again, around other labels, with the digest of these in the notes of all."""
    targets = TargetsDigest()
    targets.update(labels, None)
    note_targets(folder, targets.hexdigest())
    path = folder / epoch_name(at)
    note = {b"curate": pq.read_metadata(path).metadata[b"curate"]}
    table = pq.read_table(path).set_column(1, "label", labels).replace_schema_metadata(note)
    pq.write_table(table, path, store_schema=True, write_statistics=False, **how)


PACKED = {"compression": {"key": "NONE", "label": "ZSTD", "features.list.element": "NONE"}, "use_dictionary": False}
PREFIXES = {"compression": "NONE", "column_encoding": {"label": "DELTA_BYTE_ARRAY"}, "use_dictionary": False}


@pytest.mark.parametrize("how", [PACKED, PREFIXES])
def test_labels_that_could_unfold_to_more_than_the_file_are_not_read(copy, how):
    rewrite(copy, 0, pa.array(["a" * 100_000] * (N - 1)), **how)
    with pytest.raises(InputError, match=r"epoch-000000\.parquet .*'label'"):
        open_cache(copy)


def test_one_long_label_is_held_once_however_many_rows_have_it(copy):
    long = "a" * 1_000_000
    rewrite(copy, 0, pa.array([long, "b"] * 11 + [long]), use_dictionary=["label"], compression="NONE")
    assert (copy / epoch_name(0)).stat().st_size < 2_000_000
    cache = open_cache(copy)
    assert cache.classes == [long, "b"]
    assert cache.labels.tolist() == [0, 1] * 11 + [0]


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (pa.array([30, 4, 30, 5] * 5 + [4] * 3), ["4", "5", "30"]),
        (pa.array(["é", "z", "a"] * 7 + ["é", "a"]), ["a", "z", "é"]),
        (pa.array(["a", ""] * 11 + ["b"]), None),
        (pa.array(["a", None] * 11 + ["b"]), None),
    ],
)
def test_labels_are_numbered_in_their_order_over_several_row_groups(copy, labels, classes):
    rewrite(copy, 0, labels, row_group_size=3, compression="NONE")
    cache = open_cache(copy)
    assert cache.classes == (classes or [])
    names = None if cache.labels is None else [cache.classes[at] for at in cache.labels.tolist()]
    assert names == (None if classes is None else [str(value) for value in labels.to_pylist()])
