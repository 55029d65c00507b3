"""The folder of each image as a column of a table that was scored without labels."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curate
from curate.manifest.folder import folder_label
from curate.manifest.names import key_of
from curate.tables.moved import folders_of
from curate.tables.table import open_table
from scoring.errors import InputError

KEYS = ["train/cats/1.jpg", "train/cats/2.jpg", "Val/dogs/3.jpg", "train/4.jpg", "5.jpg"]


def scores(path, keys=KEYS, **more):
    columns = {"key": keys, "status": ["ok"] * len(keys), "unc_a": [float(at) for at in range(len(keys))], **more}
    columns["embedding"] = pa.array([[1.0, float(at)] for at in range(len(keys))], pa.list_(pa.float32(), 2))
    pq.write_table(pa.table(columns), path)
    return path


def test_folders_of_a_column_match_single_paths():
    parts = ["cats", "TRAIN", "valid", "..", "", ".", "é", "a b", "x.y", "\n"]
    rng = np.random.default_rng(3)
    paths = ["/".join(rng.choice(parts, rng.integers(1, 5))) + rng.choice(["", "/1.jpg"]) for _ in range(2000)]
    paths += ["https://a.b/c/1.jpg", "./cats/1.jpg", "", "/", "a.tar::cats/1.jpg"]
    expected = [folder_label(path.encode()) for path in paths]
    assert folders_of(pa.array(paths)).to_pylist() == expected
    assert folders_of(pa.array(paths).dictionary_encode()).to_pylist() == expected
    assert len({each for each in expected if each}) > 5


def test_folder_is_a_column_on_request_and_is_never_written(tmp_path):
    path = scores(tmp_path / "s.parquet")
    table = open_table(path, require=["folder"], embedding="embedding")
    assert table.read(["folder", "key"])["folder"].to_pylist() == ["cats", "cats", "dogs", None, None]
    assert table.take([2, 0], ["folder"])["folder"].to_pylist() == ["dogs", "cats"]
    assert "folder" not in open_table(path).schema.names
    curate.filter(path, tmp_path / "k.parquet", keep_top=1, per="folder", column="unc_a")
    kept = pq.read_table(tmp_path / "k.parquet")
    assert kept.column_names == pq.read_table(path).column_names
    assert kept["key"].to_pylist() == ["train/cats/1.jpg", "Val/dogs/3.jpg", "train/4.jpg"]
    assert curate.verify(tmp_path / "k.receipt.json").identical


def test_conditions_and_own_columns_named_folder(tmp_path):
    path = scores(tmp_path / "s.parquet")
    assert curate.filter(path, where="folder == 'cats'", dry_run=True).kept == 2
    with_folder_column = scores(tmp_path / "own.parquet", folder=["x", "x", "y", "y", "y"])
    assert curate.filter(with_folder_column, where="folder == 'y'", dry_run=True).kept == 3


def test_keys_that_are_numbers_have_no_folder(tmp_path):
    with pytest.raises(InputError, match=r"no column 'folder'"):
        open_table(scores(tmp_path / "s.parquet", [1, 2]), require=["folder"])


def test_keys_without_a_folder_have_no_such_column(tmp_path):
    flat = scores(tmp_path / "s.parquet", ["1.jpg", "train/2.jpg"])
    with pytest.raises(InputError, match="no column 'folder'"):
        curate.filter(flat, keep_top=1, per="folder", column="unc_a", dry_run=True)
    with pytest.raises(InputError, match=r"a column .folder."):
        curate.filter(flat, where="folder == 'x'", dry_run=True)
    assert curate.filter(flat, where="key != 'folder'", dry_run=True).kept == 2


def test_a_missing_label_points_to_the_folder(tmp_path):
    with pytest.raises(InputError, match="use the column folder"):
        open_table(scores(tmp_path / "s.parquet", [key_of(b"a/1.jpg")]), require=["label"])
