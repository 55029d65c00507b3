"""The cache of features: what is in it, that it survives being killed, and what is refused."""

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from small_cache import CPU, RECIPE, N, about, images, make

from scoring.errors import InputError
from scoring.images import decode
from trainers import cache_writer, extract
from trainers.augment import Draw, view
from trainers.cache import TargetsDigest, epoch_name, open_cache
from trainers.cache_writer import make_cache
from trainers.methods.settings import Augmentation


def bytes_of(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.glob("epoch-*"))}


@torch.inference_mode()
def test_epoch_0_is_of_the_images_as_they_are_scored(made, model, files):
    cache = open_cache(made)
    pixels = [decode(data, model.spec.preprocessing).pixels for data in files]
    kept = torch.from_numpy(np.stack([p for p in pixels if p is not None])).permute(0, 3, 1, 2)
    expected = model.features(kept)
    assert cache.n == len(expected) == N - 1
    assert torch.allclose(cache.epoch(0).float(), expected, atol=2e-3, rtol=2e-3)
    assert not torch.allclose(cache.epoch(0).float().norm(dim=1), torch.ones(N - 1), atol=0.1)  # not of unit length


@torch.inference_mode()
def test_other_epochs_are_of_one_random_view_each(made, model, files):
    cache = open_cache(made)
    first, second = cache.epoch(1).float(), cache.epoch(2).float()
    assert (first - second).abs().mean() > 0.01
    pixels = [decode(data, model.spec.preprocessing).pixels for data in files]
    kept = torch.from_numpy(np.stack([p for p in pixels if p is not None])).permute(0, 3, 1, 2)
    draw = Draw(8, CPU, (3 * 1_000_003 + 1) * 1_000_000_007)
    seen = view(kept[:8], 32, (0.5, 1.0), RECIPE.augmentation, draw)
    assert torch.allclose(first[:8], model.features(seen), atol=2e-3, rtol=2e-3)


def test_rows_have_one_order_in_every_epoch_and_bad_images_are_left_out_and_counted(made, model, files, tmp_path):
    tables = [pq.read_table(made / epoch_name(at)) for at in range(3)]
    keys = [f"k{i}" for i in range(N) if i != 5]
    for table in tables:
        assert table.column_names == ["key", "label", "features"]
        assert table.column("key").to_pylist() == keys
        assert table.schema.field("features").type.list_size == model.width
        assert table.schema.field("features").type.value_type == pa.float16()
    cache = open_cache(made)
    assert sum(cache.failures.values()) == 1
    assert cache.classes == ["c0", "c1", "c2"]
    assert cache.labels.tolist() == [i % 3 for i in range(N) if i != 5]
    assert cache.augmented == [1, 2]


def test_a_cache_that_was_killed_goes_on_with_the_missing_epochs_and_ends_the_same(made, model, files, tmp_path):
    class Killed(BaseException):
        pass

    def kill(progress):
        if progress.epoch == 1:
            raise Killed

    with pytest.raises(Killed):
        make(tmp_path / "f", model, files, report=kill)
    assert sorted(bytes_of(tmp_path / "f")) == [epoch_name(0)]
    with pytest.raises(InputError, match=r"1 of 3 epochs .*repeat"):
        open_cache(tmp_path / "f")
    said = []
    make(tmp_path / "f", model, files, announce=said.append)
    assert said[0] == "resuming: 1 of 3 epochs are done"
    assert bytes_of(tmp_path / "f") == bytes_of(made)
    assert not list((tmp_path / "f").glob(".*"))


@pytest.mark.slow
def test_a_process_that_dies_leaves_no_lock_and_no_half_of_an_epoch(copy, model, files):
    (copy / epoch_name(2)).unlink()
    code = (
        "import sys, os, signal\nfrom pathlib import Path\nfrom trainers.cache_writer import CacheFolder\n"
        "from scoring.atomic import AtomicFile\nplace = CacheFolder(Path(sys.argv[1])).__enter__()\n"
        "file = AtomicFile(Path(sys.argv[1]) / 'epoch-000002.parquet')\nfile.write(b'half')\nfile.flush()\n"
        "print('ready', flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(copy)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "ready\n"
        with pytest.raises(InputError, match=f"by process {other.pid}"):
            make(copy, model, files)
        other.kill()
    for leftover in copy.glob(".*.tmp.*"):
        os.utime(leftover, (time.time() - 60,) * 2)
    make(copy, model, files)
    assert open_cache(copy).n == N - 1
    assert not list(copy.glob(".*.tmp.*"))


def test_more_epochs_lengthen_a_cache_and_fewer_leave_it(copy, made, model, files):
    before = bytes_of(copy)
    make(copy, model, files, epochs=2)
    assert bytes_of(copy) == before
    make(copy, model, files, epochs=4)
    assert open_cache(copy).augmented == [1, 2, 3]
    assert {name: data for name, data in bytes_of(copy).items() if name in before} == before


def test_pixels_that_do_not_fit_are_decoded_again_and_give_the_same_bytes(made, model, files, tmp_path, monkeypatch):
    monkeypatch.setattr(extract, "free_memory", lambda: 1)
    monkeypatch.setattr(extract, "BLOCK", 8)  # and in several blocks
    said = []
    make(tmp_path / "f", model, files, announce=said.append)
    assert "decoded again" in said[0]
    for at in range(3):
        ours = torch.from_numpy(np.stack(pq.read_table(tmp_path / "f" / epoch_name(at)).column("features").to_pylist()))
        assert torch.equal(ours.half(), open_cache(made).epoch(at))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 4}, "another --seed: 3"),
        ({"dtype": "float32"}, "another --dtype: 'float16'"),
        ({"augmentation": Augmentation()}, "another --set scale: "),
        ({"batch_size": 7}, "another --batch-size: 8"),
    ],
)
def test_another_recipe_on_the_same_folder_is_refused_by_name(copy, model, files, change, words):
    with pytest.raises(InputError, match=words):
        make(copy, model, files, recipe=replace(RECIPE, **change))


def test_a_folder_with_something_else_is_left_alone(model, files, tmp_path):
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "thesis.txt").write_text("precious")
    with pytest.raises(InputError, match=r"holds 'thesis\.txt'"):
        make(tmp_path / "f", model, files)
    assert (tmp_path / "f" / "thesis.txt").read_text() == "precious"


def test_a_feature_that_does_not_fit_float16_is_refused_by_the_name_of_its_image(model, files, tmp_path, monkeypatch):
    real = cache_writer.features

    def large(*args):
        features = real(*args).clone()
        features[7, 3] = 1e6
        return features

    monkeypatch.setattr(cache_writer, "features", large)
    with pytest.raises(InputError, match=r"'k8' .*float16.*--dtype float32"):
        make(tmp_path / "f", model, files)
    make(tmp_path / "g", model, files, recipe=replace(RECIPE, dtype="float32"))
    assert open_cache(tmp_path / "g").epoch(0)[7, 3] == 1e6


def test_an_image_that_can_no_longer_be_read_is_noticed(copy, model, files):
    (copy / epoch_name(2)).unlink()
    with pytest.raises(InputError, match="22, then 23"):
        make(copy, model, [b"gone", *files[1:]])


def test_too_few_images_are_refused(model, tmp_path):
    with pytest.raises(InputError, match="readable images, got 0"):
        make(tmp_path / "f", model, [b"x", b"y"])


def test_losses_of_ones_own_are_kept(model, files, tmp_path):
    losses = [float(i) for i in range(N)]
    note = about(model, 1, RECIPE, loss="mine")
    make_cache(tmp_path / "f", note, images(files, losses=losses), model, RECIPE, workers=1)
    assert open_cache(tmp_path / "f").losses.tolist() == [float(i) for i in range(N) if i != 5]


def test_an_unknown_augmentation_is_refused(made, tmp_path, model, files):
    """Even where every file agrees on it, as another version would's."""
    strange = {**about(model, 1), "recipe": {**RECIPE.to_json(), "augmentation": {"shear": 1}}}
    make_cache(tmp_path / "f", strange, images(files), model, RECIPE, workers=1)
    with pytest.raises(InputError, match=r"cache\.json .*shear"):
        open_cache(tmp_path / "f")


def test_a_cache_with_other_labels_or_losses_is_another_one(model, files, tmp_path):
    digests = []
    for name, losses, shift in (("a", 0.0, 0), ("same", 0.0, 0), ("b", 1.0, 0), ("c", 0.0, 1)):
        training = images(files, losses=[losses] * N)
        training = replace(training, labels=pa.array([f"c{(i + shift) % 3}" for i in range(N)]))
        make_cache(tmp_path / name, about(model, 1, loss="mine"), training, model, RECIPE, workers=1)
        digests.append(open_cache(tmp_path / name).digest)
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_labels_that_changed_between_two_epochs_are_noticed(copy, made, model, files):
    other = replace(images(files), labels=pa.array([f"c{i % 2}" for i in range(N)]))
    with pytest.raises(InputError, match=r"labels or losses.*epoch 0"):
        make_cache(copy, about(model, 4), other, model, RECIPE, workers=1)
    assert not (copy / epoch_name(3)).exists()
    path = copy / epoch_name(1)
    note = json.loads(pq.read_metadata(path).metadata[b"curate"])
    table = pq.read_table(path).replace_schema_metadata({b"curate": json.dumps({**note, "targets": "x"}).encode()})
    pq.write_table(table, path, compression="NONE")
    shutil.copy(made / "cache.json", copy / "cache.json")
    with pytest.raises(InputError, match=r"epoch-000001\.parquet .*other labels"):
        open_cache(copy)


def test_the_digest_of_labels_covers_every_row_in_whatever_blocks():
    def digest(*blocks):
        targets = TargetsDigest()
        for labels, losses in blocks:
            targets.update(None if labels is None else pa.array(labels), None if losses is None else pa.array(losses))
        return targets.hexdigest()

    complete = digest((["a", None, "b", "a"], [1.0, float("nan"), 2.0, 0.0]))
    assert digest((["a", ""], [1.0, None]), (["b", "a"], [2.0, 0.0])) == complete
    coded = TargetsDigest()
    coded.update(pa.array(["a", None, "b", "a"]).dictionary_encode(), pa.array([1.0, None, 2.0, 0.0]))
    assert coded.hexdigest() == complete
    assert digest((["a", None, "a", "b"], [1.0, None, 2.0, 0.0])) != complete
    assert digest((["a", None, "b", "a"], None)) != complete
    assert digest(([1, 2], None)) != digest((["1", "2"], None))


@pytest.mark.parametrize("missing", [None, float("nan"), float("inf")])
def test_an_image_without_a_loss_is_refused_before_any_work_unless_it_is_broken(model, files, tmp_path, missing):
    losses = [missing if i in (5, 11, 20) else float(i) for i in range(N)]  # the sixth is no image
    note = about(model, 1, loss="mine")
    with pytest.raises(InputError, match=r"^3 of 24 .*'k11'; drop .*first$"):
        make_cache(tmp_path / "f", note, images(files, losses=losses), model, RECIPE, workers=1)
    assert not (tmp_path / "f").exists()
    losses[11] = losses[20] = 0.5
    make_cache(tmp_path / "f", note, images(files, losses=losses), model, RECIPE, workers=1)
    assert open_cache(tmp_path / "f").losses.tolist() == [losses[i] for i in range(N) if i != 5]
