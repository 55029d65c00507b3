"""The cache of features: what is in it, that it survives being killed, and what is refused."""

import io
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
from PIL import Image

from scoring.backbones import create_backbone
from scoring.errors import InputError
from scoring.heads import KappaHeadSpec
from scoring.images import Preprocessing, decode
from scoring.model import ModelSpec, ScoringModel
from trainers import cache_writer, extract
from trainers.augment import view
from trainers.build import build
from trainers.cache import FORMAT, epoch_name, open_cache
from trainers.cache_writer import make_cache
from trainers.config import TrainConfig
from trainers.draw import Draw
from trainers.extract import CacheRecipe, Images
from trainers.loop import train
from trainers.methods.augmentation import Augmentation
from trainers.methods.table import METHODS
from trainers.start import backbone_digest
from trainers.targets import TargetsDigest
from trainers.views import CachedViews

CPU = torch.device("cpu")
RECIPE = CacheRecipe(Augmentation(scale=(0.5, 1.0)), seed=3, batch_size=8)
N = 24


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    spec = ModelSpec("resnet10t", {}, {"visimsiam": KappaHeadSpec(16, 31.0)}, Preprocessing(size=32, resize=36))
    return ScoringModel(spec, backbone=create_backbone(spec.backbone)).eval()


@pytest.fixture(scope="module")
def files():
    """Encoded images; the sixth is not one."""
    generator = np.random.default_rng(0)
    encoded = []
    for _ in range(N):
        buffer = io.BytesIO()
        Image.fromarray(generator.integers(0, 256, (6, 6, 3), dtype=np.uint8)).resize((50, 40)).save(buffer, "PNG")
        encoded.append(buffer.getvalue())
    encoded[5] = b"no image"
    return encoded


def images(files, labels=True, losses=None):
    names = pa.array([f"c{i % 3}" for i in range(len(files))]) if labels else None
    keys = [f"k{i}" for i in range(len(files))]
    return Images(lambda: [lambda data=data: data for data in files], keys, names, losses)


def about(model, epochs=3, recipe=RECIPE, **columns):
    return {
        "kind": "cache", "format": FORMAT, "model": {"trunk": backbone_digest(model), "backbone": "resnet10t"},
        "made_from": {"name": "m.safetensors"}, "preprocessing": model.spec.preprocessing.to_json(),
        "width": model.width, "recipe": recipe.to_json(), "epochs": epochs, "data": "files", "input": "digest",
        "columns": {"label": "label", "loss": None, **columns}, "versions": {},
    }  # fmt: skip


def make(folder, model, files, epochs=3, recipe=RECIPE, **named):
    return make_cache(folder, about(model, epochs, recipe), images(files), model, recipe, workers=1, **named)


@pytest.fixture(scope="module")
def made(model, files, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache") / "f"
    assert sum(make(folder, model, files).values()) == 1
    return folder


@pytest.fixture
def copy(made, tmp_path):
    return shutil.copytree(made, tmp_path / "f")


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
    with pytest.raises(InputError, match=r"incomplete: it holds 1 of 3 epochs \(the first missing is 1\); repeat"):
        open_cache(tmp_path / "f")
    said = []
    make(tmp_path / "f", model, files, announce=said.append)
    assert said[0] == "going on: 1 of 3 epochs are there"
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
        with pytest.raises(InputError, match=rf"is being written by process {other.pid} on "):
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


def test_pixels_that_do_not_fit_are_decoded_anew_and_give_the_same_bytes(made, model, files, tmp_path, monkeypatch):
    monkeypatch.setattr(extract, "free_memory", lambda: 1)
    monkeypatch.setattr(extract, "BLOCK", 8)  # and in several blocks
    said = []
    make(tmp_path / "f", model, files, announce=said.append)
    assert "decoded again for each epoch" in said[0]
    for at in range(3):
        ours = torch.from_numpy(np.stack(pq.read_table(tmp_path / "f" / epoch_name(at)).column("features").to_pylist()))
        assert torch.equal(ours.half(), open_cache(made).epoch(at))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 4}, "holds a cache with another --seed: 3, this one has 4"),
        ({"dtype": "float32"}, "another --dtype: 'float16', this one has 'float32'"),
        ({"augmentation": Augmentation()}, "another --set scale: "),
        ({"batch_size": 7}, "another --batch-size: 8, this one has 7"),
    ],
)
def test_another_recipe_on_the_same_folder_is_refused_by_name(copy, model, files, change, words):
    with pytest.raises(InputError, match=words):
        make(copy, model, files, recipe=replace(RECIPE, **change))


def test_a_folder_with_something_else_is_left_alone(model, files, tmp_path):
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "thesis.txt").write_text("precious")
    with pytest.raises(InputError, match=r"holds 'thesis.txt' and no cache; it is left alone"):
        make(tmp_path / "f", model, files)
    assert (tmp_path / "f" / "thesis.txt").read_text() == "precious"


def test_a_feature_that_does_not_fit_float16_is_refused_by_the_name_of_its_image(model, files, tmp_path, monkeypatch):
    real = cache_writer.features

    def large(*args):
        features = real(*args).clone()
        features[7, 3] = 1e6
        return features

    monkeypatch.setattr(cache_writer, "features", large)
    with pytest.raises(
        InputError, match=r"features of 'k8' do not fit float16 \(the largest is 1e\+06\).*--dtype float32"
    ):
        make(tmp_path / "f", model, files)
    make(tmp_path / "g", model, files, recipe=replace(RECIPE, dtype="float32"))
    assert open_cache(tmp_path / "g").epoch(0)[7, 3] == 1e6


def test_an_image_that_can_no_longer_be_read_is_noticed(copy, model, files):
    (copy / epoch_name(2)).unlink()
    with pytest.raises(InputError, match=r"other images can be read now than in epoch 0 \(22, then 23\)"):
        make(copy, model, [b"gone", *files[1:]])


def test_too_few_images_are_refused(model, tmp_path):
    with pytest.raises(InputError, match=r"at least 2 readable images, got 0, 2 "):
        make(tmp_path / "f", model, [b"x", b"y"])


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
        with pytest.raises(InputError, match=r"epoch-000001.parquet is damaged \(.*\); remove it, and repeat"):
            open_cache(copy).epoch(1)


def test_an_epoch_of_another_cache_or_place_is_refused(copy, model, files, tmp_path):
    shutil.copy(copy / epoch_name(1), copy / epoch_name(2))
    with pytest.raises(InputError, match="belongs to another cache or epoch; expected epoch 2"):
        open_cache(copy)
    make(tmp_path / "g", model, files, recipe=replace(RECIPE, seed=9))
    shutil.copy(tmp_path / "g" / epoch_name(2), copy / epoch_name(2))
    with pytest.raises(InputError, match="belongs to another cache or epoch"):
        open_cache(copy)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 99}, "cache format 99; this version of curate reads 1"),
        ({"epochs": 10**9}, "no good value for epochs"),
        ({"epochs": "many"}, "no good value for epochs"),
        ({"width": 1 << 40}, "no good value"),
        ({"recipe": {}}, "no good value for recipe"),
        ({"recipe": {"dtype": "float16", "augmentation": {"shear": 1}}}, "belongs to another cache"),
        ({"data": 3}, "no good value for data"),
        ({"epochs": True}, "no good value for epochs"),
        ({"made_from": None}, "no good value for made_from"),
        ({"made_from": ["one"]}, r"no good value for made_from\); remove the whole folder"),
        ({"recipe": {"dtype": ["float16"]}}, "no good value for recipe"),
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
        ({"failures": [1]}, "no note of what it is"),
        ({"failures": {"corrupt": "many"}}, "no good note of its images"),
        ({"keys": [1]}, "no good note of its images"),
        ({"targets": 1}, "no good note of its images"),
        ({"epoch": 2}, "belongs to another cache or epoch"),
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
    with pytest.raises(InputError, match=r"epoch-000001.parquet is damaged \(no features"):
        open_cache(copy)


def test_a_folder_that_is_no_cache_says_what_makes_one(tmp_path):
    with pytest.raises(InputError, match="is not a cache of features; expected a folder that `curate cache` made"):
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
    arrays = [pa.array(["k"] * rows), pa.array(["c"] * rows), pa.FixedSizeListArray.from_arrays(values, type=schema.field("features").type)]  # fmt: skip  # noqa: E501
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), copy / epoch_name(1), compression="zstd")
    with pytest.raises(InputError, match=r"20,000 rows claimed in [0-9,]+ bytes"):
        open_cache(copy)


def forget_targets(folder):
    """Make every epoch one of an earlier version, which did not note what the labels and losses are."""
    for path in folder.glob("epoch-*"):
        note = json.loads(pq.read_metadata(path).metadata[b"curate"])
        del note["targets"]
        table = pq.read_table(path).replace_schema_metadata({b"curate": json.dumps(note).encode()})
        pq.write_table(table, path, compression="NONE")


def rewrite(folder, at, labels, **how):
    """Write an epoch of an earlier version again, with its note, around other labels."""
    forget_targets(folder)
    path = folder / epoch_name(at)
    note = {b"curate": pq.read_metadata(path).metadata[b"curate"]}
    table = pq.read_table(path).set_column(1, "label", labels).replace_schema_metadata(note)
    pq.write_table(table, path, store_schema=True, write_statistics=False, **how)


PACKED = {"compression": {"key": "NONE", "label": "ZSTD", "features.list.element": "NONE"}, "use_dictionary": False}
PREFIXES = {"compression": "NONE", "column_encoding": {"label": "DELTA_BYTE_ARRAY"}, "use_dictionary": False}


@pytest.mark.parametrize("how", [PACKED, PREFIXES])
def test_labels_that_could_unfold_to_more_than_the_file_are_not_read(copy, how):
    rewrite(copy, 0, pa.array(["a" * 100_000] * (N - 1)), **how)
    with pytest.raises(InputError, match=r"epoch-000000.parquet is damaged \(a column 'label' that was not written so"):
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


def config(method="losspred", **changes):
    kind = METHODS[method].Settings
    settings = {"latent_dim": 8, "hidden_dim": 16, "n_small": 0}
    base = TrainConfig(
        method, "resnet10t", size=32, epochs=5, batch_size=8, lr=0.01, freeze="trunk", optimizer="adamw",
        settings=kind(**{name: value for name, value in settings.items() if name in kind.about()}),
    )  # fmt: skip
    return replace(base, **changes)


@pytest.mark.parametrize("method", ["losspred", "mcinfonce", "visimsiam"])
def test_a_head_trained_from_the_cache_stands_on_an_untouched_backbone(made, model, tmp_path, method):
    before = {name: value.clone() for name, value in model.backbone.state_dict().items()}
    cache = open_cache(made)
    recipe = config(method)
    start = build(recipe, len(cache.classes), init=model)
    first = {name: value.clone() for name, value in start[0].heads[method].state_dict().items()}
    trained, measures = train(recipe, cache, state=tmp_path / "s", device=CPU, start=start)
    assert np.isfinite(list(measures.values())).all()
    assert all(torch.equal(value, trained.backbone.state_dict()[name]) for name, value in before.items())
    assert any(not torch.equal(value, trained.heads[method].state_dict()[name]) for name, value in first.items())
    assert set(trained.heads) == {"visimsiam", method}


def test_training_from_the_cache_gives_what_the_same_features_give_from_anywhere(made, model, tmp_path):
    """The definition: the method's own steps over the cached rows, by hand."""
    from trainers.build import make_optimizer, set_mode
    from trainers.data import batches
    from trainers.loop import learning_rate
    from trainers.methods.method import Batch

    cache, recipe = open_cache(made), config(epochs=2)
    trained, _ = train(recipe, cache, state=tmp_path / "s", device=CPU, start=build(recipe, 3, init=model))
    ours, method = build(recipe, 3, init=model)
    optimizer = make_optimizer(recipe, ours, method)
    set_mode(recipe, ours, method)
    views = CachedViews(recipe, cache, method, device=CPU)
    held = {at: cache.epoch(at).float() for at in cache.augmented}
    step = 0
    for epoch in range(2):
        (chosen,) = views.turn(epoch)
        for rows in batches(cache.n, 8, epoch=epoch, seed=0):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(recipe, step, 4)
            method.before_step(Batch(rows, None, step / 4))
            loss = method(held[chosen][rows][None], ours.heads["losspred"], cache.labels[rows]).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
    assert step == 4
    for name, value in ours.heads["losspred"].state_dict().items():
        assert torch.allclose(value, trained.heads["losspred"].state_dict()[name], atol=1e-6)


def test_views_of_an_image_come_from_different_epochs_and_each_is_used_before_any_comes_again(copy, model, files):
    make(copy, model, files, epochs=6)
    cache = open_cache(copy)
    _, method = build(config("mcinfonce"), 3, init=model)
    views = CachedViews(config("mcinfonce"), cache, method, device=CPU)
    turns = [views.turn(epoch) for epoch in range(8)]
    assert all(len(set(turn)) == 2 for turn in turns)
    for start in range(0, 8, 2):
        assert len(set(turns[start] + turns[start + 1])) == 4  # of five; one sits out
    assert len({tuple(turn) for turn in turns}) > 2
    rows = torch.tensor([4, 0, 9])
    features = views(rows, epoch=3, step=0).features
    assert features.shape == (2, 3, model.width)
    assert torch.equal(features, torch.stack([cache.epoch(at)[rows].float() for at in turns[3]]))


def test_memory_holds_no_more_epochs_than_fit(copy, model, files, monkeypatch):
    make(copy, model, files, epochs=6)
    cache = open_cache(copy)
    _, method = build(config("losspred"), 3, init=model)
    views = CachedViews(config("losspred"), cache, method, device=CPU)
    monkeypatch.setattr("trainers.cache.free_memory", lambda: int(1.5 * cache.epoch_bytes))
    for epoch in range(5):
        views(torch.tensor([0]), epoch=epoch, step=0)
        assert len(views._held) == 1
    monkeypatch.setattr("trainers.cache.free_memory", lambda: 100 * cache.epoch_bytes)
    for epoch in range(5):
        views(torch.tensor([0]), epoch=epoch, step=0)
    assert len(views._held) == 5
    monkeypatch.setattr("trainers.cache.free_memory", lambda: cache.epoch_bytes)
    with pytest.raises(InputError, match="GB of memory"):
        cache.epoch(1)


def test_too_few_epochs_for_the_views_say_how_many_to_make(made, model, files, tmp_path):
    make(tmp_path / "f", model, files, epochs=2)
    cache = open_cache(tmp_path / "f")
    with pytest.raises(InputError, match=r"mcinfonce takes 2 views of an image.* has 1 to give; .* --epochs 3"):
        train(config("mcinfonce"), cache, state=tmp_path / "s", device=CPU, start=build(config("mcinfonce"), 3, init=model))  # fmt: skip  # noqa: E501


def test_the_only_epoch_there_is_serves_a_method_with_one_view(model, files, tmp_path):
    make(tmp_path / "f", model, files, epochs=1)
    cache = open_cache(tmp_path / "f")
    assert cache.augmented == [0]
    train(config(epochs=1), cache, state=tmp_path / "s", device=CPU, start=build(config(), 3, init=model))


def test_a_recipe_whose_trunk_moves_cannot_read_a_cache(made, model, tmp_path):
    with pytest.raises(ValueError, match="frozen backbone"):
        train(config(freeze="nothing"), open_cache(made), state=tmp_path / "s", device=CPU)


def test_a_method_that_reads_pixels_cannot_read_a_cache(made, model, tmp_path, monkeypatch):
    monkeypatch.setattr("trainers.methods.losspred.LossPred.needs_pixels", True)
    with pytest.raises(InputError, match=r"losspred reads pixels, and .* holds features; give images"):
        train(config(), open_cache(made), state=tmp_path / "s", device=CPU, start=build(config(), 3, init=model))


def test_losses_of_ones_own_are_kept(model, files, tmp_path):
    losses = [float(i) for i in range(N)]
    note = about(model, 1, RECIPE, loss="mine")
    make_cache(tmp_path / "f", note, images(files, losses=losses), model, RECIPE, workers=1)
    assert open_cache(tmp_path / "f").losses.tolist() == [float(i) for i in range(N) if i != 5]


def test_an_augmentation_that_nobody_knows_is_refused(made, tmp_path, model, files):
    """Even where every file agrees on it, as another version would's."""
    strange = {**about(model, 1), "recipe": {**RECIPE.to_json(), "augmentation": {"shear": 1}}}
    make_cache(tmp_path / "f", strange, images(files), model, RECIPE, workers=1)
    with pytest.raises(InputError, match=r"cache.json is damaged \(no good value for the augmentation: .*shear"):
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
    with pytest.raises(InputError, match=r"epoch-000001.parquet is damaged \(other labels or losses than in epoch 0"):
        open_cache(copy)


def test_a_cache_of_an_earlier_version_has_its_digest_computed_when_it_is_opened(copy, made):
    forget_targets(copy)
    assert open_cache(copy).digest == open_cache(made).digest


def test_the_digest_of_labels_is_that_of_every_row_in_whatever_blocks():
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
    with pytest.raises(InputError, match=r"^3 of 24 images have no finite loss .* read is 'k11'; drop them first$"):
        make_cache(tmp_path / "f", note, images(files, losses=losses), model, RECIPE, workers=1)
    assert not (tmp_path / "f").exists()
    losses[11] = losses[20] = 0.5
    make_cache(tmp_path / "f", note, images(files, losses=losses), model, RECIPE, workers=1)
    assert open_cache(tmp_path / "f").losses.tolist() == [losses[i] for i in range(N) if i != 5]
