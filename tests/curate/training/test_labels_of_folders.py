"""Training and caches take the folder of each key as its class where `folder` is the label."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from curate.manifest.contract import SourceOptions
from curate.manifest.sources import open_manifest
from curate.training.dataset import class_column, label_column
from scoring.errors import InputError


def table(tmp_path, keys, **columns):
    uris = []
    for number, _ in enumerate(keys):
        Image.new("RGB", (4, 3), (40 * number, 0, 0)).save(tmp_path / f"{number}.png")
        uris.append(f"{number}.png")
    pq.write_table(pa.table({"key": keys, "uri": uris, **columns}), tmp_path / "t.parquet")
    return open_manifest(str(tmp_path / "t.parquet"), SourceOptions(key="key"))


def test_the_folder_of_a_key_is_its_class(tmp_path):
    manifest = table(tmp_path, ["train/cat/1.png", "train/bee/2.png", "train/cat/3.png"])
    assert label_column(manifest, "folder", "sclr").to_pylist() == ["cat", "bee", "cat"]


def test_a_column_of_that_name_wins(tmp_path):
    manifest = table(tmp_path, ["cat/1.png", "bee/2.png"], folder=["x", "y"])
    assert class_column(manifest, "folder").to_pylist() == ["x", "y"]


def test_keys_without_folders_are_refused(tmp_path):
    with pytest.raises(InputError, match="folder"):
        label_column(table(tmp_path, ["1.png", "2.png"]), "folder", "sclr")
