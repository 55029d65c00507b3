"""A subset as a data set: order, classes, workers, weights, and images that are gone."""

import io
import pickle
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, WeightedRandomSampler

from curate.torch import SubsetDataset
from scoring.errors import InputError

N = 12


def encoded(number):
    out = io.BytesIO()
    Image.new("RGB", (4 + number, 4), (number * 20, 0, 0)).save(out, "PNG")
    return out.getvalue()


def red(image):
    """What the tests train on: the red of the first pixel, and the width."""
    return torch.tensor([np.asarray(image)[0, 0, 0], image.size[0]])


@pytest.fixture
def table(tmp_path):
    """Files, URLs of files and members of a tar in turn; row 5 could not be scored, row 7 has no class."""
    uris = []
    with tarfile.open(tmp_path / "s.tar", "w") as shard:
        for number in range(N):
            path = tmp_path / f"{number}.png"
            path.write_bytes(encoded(number))
            shard.add(path, path.name)
            uris.append([str(path), f"file://{path}", f"{tmp_path / 's.tar'}::{path.name}"][number % 3])
    columns = {
        "key": [f"k{number}" for number in range(N)],
        "uri": uris,
        "label": [None if number == 7 else ["dog", "cat", "猫"][number % 3] for number in range(N)],
        "kappa_x": [float("nan"), 3.0, 1.0, 2.0, 2.0, 9.0, *range(6)],
        "status": ["corrupt" if number == 5 else "ok" for number in range(N)],
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    return tmp_path / "t.parquet"


ROWS = [row for row in range(N) if row != 5]


def test_items_come_in_the_order_of_the_table_with_their_classes(table):
    data = SubsetDataset(table)
    assert len(data) == len(ROWS)
    assert data.classes == ("cat", "dog", "猫")
    items = [data[index] for index in range(len(data))]
    assert [item["key"] for item in items] == [f"k{row}" for row in ROWS]
    assert [item["row"] for item in items] == ROWS
    assert [item["image"].size for item in items] == [(4 + row, 4) for row in ROWS]
    assert [item["label"] for item in items] == [-1 if row == 7 else [1, 0, 2][row % 3] for row in ROWS]
    assert data.targets.tolist() == [item["label"] for item in items]
    assert data[-1]["key"] == "k11"
    with pytest.raises(IndexError):
        data[len(data)]


def read_by_workers(table, method):
    """Read all rows by two other processes, and compare them."""
    data = SubsetDataset(table, transform=red)
    loader = DataLoader(data, batch_size=4, num_workers=2, multiprocessing_context=method)
    batches = list(loader)
    assert torch.cat([batch["row"] for batch in batches]).tolist() == ROWS
    assert torch.cat([batch["image"] for batch in batches]).tolist() == [[row * 20, 4 + row] for row in ROWS]


@pytest.mark.slow
def test_workers_read_what_one_process_reads(table):
    read_by_workers(table, "spawn")


def test_forked_workers_read_what_one_process_reads(table):
    """In its own interpreter, for a process in which OpenVINO ran dies when it forks."""
    line = "import sys; sys.path.insert(0, sys.argv[1]); from test_torch import *; read_by_workers(sys.argv[2], 'fork')"
    folder = str(Path(__file__).parent)
    subprocess.run([sys.executable, "-c", line, folder, str(table)], check=True)


def test_images_inside_a_table_are_found_by_key_and_the_data_set_pickles(table, tmp_path):
    photos = {"key": [f"k{number}" for number in range(N)][::-1], "image": [encoded(n) for n in range(N)][::-1]}
    pq.write_table(pa.table(photos), tmp_path / "photos.parquet")
    pq.write_table(pq.read_table(table).drop_columns(["uri"]), table)
    data = SubsetDataset(table, source=str(tmp_path / "photos.parquet"), transform=red)
    again = pickle.loads(pickle.dumps(data))
    for each in (data, again):
        assert [each[index]["image"].tolist() for index in range(len(each))] == [[row * 20, 4 + row] for row in ROWS]
    with pytest.raises(InputError, match="no path"):
        SubsetDataset(table)


def test_weights_follow_the_direction_of_the_score(table):
    rows = pq.read_table(table)
    kappa = rows["kappa_x"].to_numpy()
    pq.write_table(rows.append_column("unc_x", [1 / kappa.clip(0.1)]).append_column("aesthetic", [kappa]), table)
    data = SubsetDataset(table)
    weights = data.weights("kappa_x")
    assert weights.dtype == torch.float64
    assert weights[0] == 0  # no score
    known = kappa[ROWS][1:]
    for i, first in enumerate(known):
        for j, second in enumerate(known):
            assert (first < second) == bool(weights[1 + i] < weights[1 + j])
    assert torch.equal(data.weights("unc_x")[3:], data.weights("min:unc_x")[3:])
    assert torch.equal(data.weights("max:aesthetic"), weights)
    with pytest.raises(InputError, match="weights aesthetic"):
        data.weights("aesthetic")
    drawn = WeightedRandomSampler(weights, 2000, generator=torch.Generator().manual_seed(0))
    counts = np.bincount(list(drawn), minlength=len(data))
    assert counts[0] == 0
    assert np.corrcoef(counts, weights.numpy())[0, 1] > 0.95


def test_an_image_that_is_gone_is_named_or_left_out_and_listed(table, tmp_path):
    (tmp_path / "3.png").unlink()
    (tmp_path / "4.png").write_bytes(b"\x89PNG\r\n\x1a\n junk")
    data = SubsetDataset(table)
    with pytest.raises(InputError, match=r"'k3' .*row 3"):
        data[3]
    with pytest.raises(InputError, match=r"image of 'k4'"):
        data[4]
    fewer = SubsetDataset(table, missing="skip")
    assert fewer.missing == ("k3",)
    assert fewer.rows.tolist() == [row for row in ROWS if row != 3]
    assert len(fewer.weights("kappa_x")) == len(fewer)
    with pytest.raises(InputError, match="'skip', got 'ignore'"):
        SubsetDataset(table, missing="ignore")
