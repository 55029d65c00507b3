"""``curate cache`` and ``curate train --cached`` as typed."""

import datetime
import json
import shutil

import numpy as np
import polars as pl
import pytest
import torch
from commandline import run
from PIL import Image

from curate.training.dataset import class_column, label_column, open_source
from curate.training.options import CacheOptions
from scoring.cards import read_header
from scoring.checkpoint import load_model, save_checkpoint
from trainers.cache import open_cache
from trainers.data import number_labels

HEAD = ["--batch-size", "8", "--epochs", "3", "--device", "cpu"]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Sixteen images in two classes, one broken, and a list that knows a loss for each."""
    folder = tmp_path_factory.mktemp("photos")
    generator = np.random.default_rng(0)
    rows = []
    for kind in ("cat", "dog"):
        (folder / kind).mkdir()
        for i in range(8):
            pixels = generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).resize((40, 40)).save(folder / kind / f"{i}.png")
            rows.append({"path": f"{kind}/{i}.png", "label": kind, "mine": i / 7})
    (folder / "cat" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    pl.DataFrame(rows).write_csv(folder / "list.csv")
    return folder


@pytest.fixture(scope="module")
def cache(photos, tiny_checkpoint, tmp_path_factory):
    """A cache that the command line made, and what it said."""
    out = tmp_path_factory.mktemp("cache") / "f"
    result = run("cache", photos, "--label-from-folder", "--model", tiny_checkpoint, "--epochs", 3, "-o", out,
                 "--device", "cpu", "--set", "corrupt=0.5")  # fmt: skip
    assert result.exit_code == 0, result.output
    return out, result.stderr


def test_a_cache_says_what_it_holds_and_what_it_left_out(cache, tiny_checkpoint):
    out, said = cache
    assert "1 corrupt" in said
    assert f"3 epochs of 16 images: {out}" in said
    note = json.loads((out / "cache.json").read_text())
    assert note["made_from"] == {"digest": read_header(tiny_checkpoint)["digest"], "name": str(tiny_checkpoint)}
    assert note["recipe"]["augmentation"]["corrupt"] == 0.5
    text = run("info", out).stdout
    assert text.startswith(f"{out}: cache\n")
    assert f"curate train METHOD --cached {out}" in text
    assert note["recipe"]["augmentation"]["scale"] == [0.08, 1.0]
    assert pl.read_parquet(out / "epoch-000002.parquet").columns == ["key", "label", "features"]
    assert pl.read_parquet(out / "epoch-000002.parquet")["label"].to_list() == ["cat"] * 8 + ["dog"] * 8


def test_repeating_the_command_does_nothing_and_more_epochs_are_added(cache, photos, tiny_checkpoint, tmp_path):
    out = shutil.copytree(cache[0], tmp_path / "f")
    args = ["cache", photos, "--label-from-folder", "--model", tiny_checkpoint, "-o", out, "--device", "cpu"]
    args += ["--set", "corrupt=0.5"]
    again = run(*args, "--epochs", 3)
    assert again.exit_code == 0, again.output
    assert "complete already: 3 epochs" in again.stderr
    assert "3 of 4 epochs" in run(*args, "--epochs", 4).stderr
    for other, said in (
        (["--seed", 1], "another --seed: 0, this one has 1;"),
        (["--model", "trio"], "another --model;"),
        (["--set", "gray=0.5"], "another --set gray: 0.0, this one has 0.5;"),
    ):
        refused = run(*args, "--epochs", 4, *other)
        assert refused.exit_code == 1
        assert f"holds a cache with {said}" in refused.stderr


def test_heads_accumulate_from_one_cache_and_old_scores_stay_to_the_bit(cache, photos, tiny_checkpoint, tmp_path):
    two, three = tmp_path / "two.safetensors", tmp_path / "three.safetensors"
    first = run("train", "losspred", "--cached", cache[0], "--backbone", tiny_checkpoint, "-o", two, *HEAD)
    assert first.exit_code == 0, first.output
    assert "are: visimsiam" in first.stderr
    assert "features 96 wide" in first.stderr
    second = run("train", "mcinfonce", "--cached", cache[0], "--backbone", two, "-o", three, *HEAD)
    assert second.exit_code == 0, second.output
    card = read_header(three)
    assert set(card["heads"]) == {"visimsiam", "losspred", "mcinfonce"}
    assert card["training"]["recipe"]["augmentation"]["corrupt"] == 0.5
    assert card["training"]["start"]["digest"] == read_header(two)["digest"]
    for model, name in ((tiny_checkpoint, "one"), (three, "three")):
        assert (
            run("score", photos, "-o", tmp_path / f"{name}.parquet", "--model", model, "--device", "cpu").exit_code == 0
        )
    single, all_three = pl.read_parquet(tmp_path / "one.parquet"), pl.read_parquet(tmp_path / "three.parquet")
    assert single["kappa_visimsiam"].equals(all_three["kappa_visimsiam"])
    assert single["embedding"].equals(all_three["embedding"])
    assert all_three["unc_losspred"].drop_nulls().min() > 0
    assert all_three["kappa_mcinfonce"].drop_nulls().len() == 16
    kept = run("filter", tmp_path / "three.parquet", "--keep-top", 4, "-o", tmp_path / "k.parquet")
    assert kept.exit_code == 0, kept.output
    assert "kappa_mcinfonce" in kept.stderr  # of three scores, that of the model's own method


def test_a_head_for_junk_is_trained_from_a_cache_of_damaged_views_alone(cache, photos, tiny_checkpoint, tmp_path):
    damaged, model = tmp_path / "damaged", tmp_path / "junk.safetensors"
    made = run("cache", photos, "--model", tiny_checkpoint, "--epochs", 3, "-o", damaged, "--device", "cpu",
               "--set", "damage=1", "--set", "scale=0.9", "--set", "jitter=0")  # fmt: skip
    assert made.exit_code == 0, made.output
    refused = run("train", "junk", "--cached", cache[0], "--backbone", tiny_checkpoint, "-o", model, *HEAD)
    assert refused.exit_code == 1
    assert "--set damage=1, got 0" in refused.stderr
    result = run(
        "train", "junk", "--cached", damaged, "--backbone", tiny_checkpoint, "-o", model, *HEAD, "--set", "n_damaged=2"
    )
    assert result.exit_code == 0, result.output
    card = read_header(model)
    assert card["heads"]["junk"]["kind"] == "junk"
    assert card["training"]["recipe"]["augmentation"]["damage"] == 1
    scored = run("score", photos, "-o", tmp_path / "s.parquet", "--model", model, "--device", "cpu")
    assert scored.exit_code == 0, scored.output
    assert pl.read_parquet(tmp_path / "s.parquet")["unc_junk"].drop_nulls().min() > 0


def test_fewer_images_than_a_default_batch_are_one_batch_and_a_note(cache, photos, tiny_checkpoint, tmp_path):
    for name, args in {"cached": ["--cached", cache[0]], "images": [photos / "list.csv", "--freeze"]}.items():
        out = tmp_path / f"{name}.safetensors"
        result = run(
            "train", "losspred", *args, "--backbone", tiny_checkpoint, "-o", out, "--epochs", 2, "--device", "cpu"
        )
        assert result.exit_code == 0, result.output
        assert "a batch of 512" in result.stderr
        assert read_header(out)["training"]["recipe"]["batch_size"] == 16


def test_losses_of_ones_own_travel_with_the_cache(photos, tiny_checkpoint, tmp_path):
    args = ["cache", photos / "list.csv", "--model", tiny_checkpoint, "--device", "cpu", "--epochs", 2]
    assert run(*args, "-o", tmp_path / "f", "--loss-column", "mine").exit_code == 0
    out = tmp_path / "m.safetensors"
    common = ["train", "losspred", "--cached", tmp_path / "f", "--backbone", tiny_checkpoint, "-o", out, *HEAD]
    result = run(*common, "--set", "loss_column=mine", "--set", "form=l2")
    assert result.exit_code == 0, result.output
    assert read_header(out)["training"]["recipe"]["settings"]["loss_column"] == "mine"
    wrong = run(*common, "--set", "loss_column=theirs", "--overwrite")
    assert "not from 'theirs'" in wrong.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["losspred", "--backbone", "other.safetensors"], "other.safetensors is another model"),
        (["losspred"], "pass it as --backbone"),
        (["losspred", "--backbone", "resnet10t"], "with random weights"),
        (["losspred", "--backbone", "m.safetensors", "--set", "corrupt=0.1"], "--set corrupt is for"),
        (["visimsiam", "--backbone", "m.safetensors", "--set", "n_small=2"], "--set n_small is for"),
        (
            ["losspred", "--backbone", "m.safetensors", "--set", "form=l2", "--set", "stop_gradient=false"],
            "stop_gradient=false is for",
        ),
        (["losspred", "--backbone", "m.safetensors", "--set", "backbone_lr=0.1"], "backbone_lr is for"),
        (["losspred", "--backbone", "m.safetensors", "--freeze-batchnorm"], "--freeze-batchnorm is for"),
        (["losspred", "--backbone", "m.safetensors", "--batch-size", "99"], "99 images, got 16"),
        (["losspred", "--backbone", "m.safetensors", "--set", "kappa=norm"], "no parameter 'kappa'"),
        (["supervised", "--cached", "plain", "--backbone", "m.safetensors"], "plain has none"),
        (["losspred", "--cached", "one", "--backbone", "m.safetensors"], "all 8 images"),
    ],
)
def test_a_cache_that_does_not_serve_is_one_line(
    cache, photos, tiny_checkpoint, others, tmp_path, monkeypatch, args, words
):
    monkeypatch.chdir(others)
    args = args if "--cached" in args else [args[0], "--cached", "f", *args[1:]]
    result = run("train", args[0], "-o", tmp_path / "out.safetensors", *HEAD, *args[1:])
    assert result.exit_code == 1, result.output
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert words in errors[0]
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def others(cache, photos, tiny_checkpoint, tmp_path_factory):
    """Caches and models that do not fit, side by side."""
    place = tmp_path_factory.mktemp("others")
    shutil.copytree(cache[0], place / "f")
    shutil.copy(tiny_checkpoint, place / "m.safetensors")
    model, card = load_model(tiny_checkpoint)
    with torch.no_grad():
        next(model.backbone.parameters()).add_(1e-3)
    save_checkpoint(place / "other.safetensors", model, card)
    common = ["--model", tiny_checkpoint, "--device", "cpu", "--epochs", 2]
    assert run("cache", photos / "cat", "-o", place / "plain", *common).exit_code == 0
    rows = pl.read_csv(photos / "list.csv").filter(pl.col("label") == "cat")
    rows.with_columns(path=str(photos) + "/" + pl.col("path")).write_csv(place / "cats.csv")
    assert run("cache", place / "cats.csv", "-o", place / "one", *common).exit_code == 0
    return place


def test_a_shipped_model_need_not_be_named_again(cache, photos, tiny_checkpoint, tmp_path, monkeypatch):
    for place in ("scoring.cards", "trainers.start"):
        monkeypatch.setattr(f"{place}.shipped_models", lambda: {"world": tiny_checkpoint})
    out = tmp_path / "f"
    made = run("cache", photos, "--label-from-folder", "--epochs", 2, "-o", out, "--device", "cpu")
    assert made.exit_code == 0, made.output
    result = run("train", "losspred", "--cached", out, "-o", tmp_path / "m.safetensors", *HEAD)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--model", "resnet10t"], "or timm:NAME"),
        (["--model", "none.safetensors"], "got none at none.safetensors"),
        (["--dtype", "float8"], "unknown dtype 'float8'"),
        (["--batch-size", "0"], "batch size must be"),
        (["--loss-column", "theirs"], "has no column 'theirs'"),
        (["-o", "/dev/null/f"], "not a folder"),
    ],
)
def test_a_cache_that_cannot_be_made_is_one_line(photos, tiny_checkpoint, tmp_path, monkeypatch, args, words):
    monkeypatch.chdir(tmp_path)
    typed = ["cache", photos, "--model", tiny_checkpoint, "-o", "f", "--device", "cpu"]
    result = run(*typed, *args)
    assert result.exit_code == 1, result.output
    assert words in result.stderr.splitlines()[-1]
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize("args", [[], ["photos", "--cached", "f"]])
def test_neither_images_nor_a_cache_or_both_is_bad_usage(args, tmp_path):
    result = run("train", "losspred", *args, "-o", tmp_path / "m.safetensors")
    assert result.exit_code == 2
    assert "or --cached FOLDER" in result.output


@pytest.mark.parametrize(
    ("options", "said"),
    [(["--label", "mine"], "not from 'mine'"), (["--label-from-folder"], "--label-from-folder is for")],
)
def test_a_class_that_the_cache_does_not_hold_is_refused_and_not_passed_over(
    cache, tiny_checkpoint, tmp_path, options, said
):
    result = run("train", "losspred", "--cached", cache[0], "--backbone", tiny_checkpoint,
                 "-o", tmp_path / "m.safetensors", *options, *HEAD)  # fmt: skip
    assert result.exit_code == 1
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "m.safetensors").exists()


def test_fewer_epochs_than_there_are_leave_the_cache_and_its_count_as_they_are(cache, photos, tiny_checkpoint):
    out = cache[0]
    before = {path.name: path.read_bytes() for path in out.glob("*.parquet")}
    result = run("cache", photos, "--label-from-folder", "--model", tiny_checkpoint, "--epochs", 1, "-o", out,
                 "--device", "cpu", "--set", "corrupt=0.5")  # fmt: skip
    assert result.exit_code == 0, result.output
    assert f"3 epochs of 16 images: {out}" in result.stderr
    assert {path.name: path.read_bytes() for path in out.glob("*.parquet")} == before


def test_a_cache_is_not_made_where_a_file_is(photos, tiny_checkpoint, tmp_path):
    taken = tmp_path / "taken"
    taken.write_text("mine")
    result = run("cache", photos, "--model", tiny_checkpoint, "--epochs", 1, "-o", taken, "--device", "cpu")
    assert result.exit_code == 1
    assert "choose another --out" in result.stderr
    assert taken.read_text() == "mine"


CLASSES = {  # column -> the classes that it holds
    "truth": (pl.Series([True, False] * 8), ["false", "true"]),
    "gaps": (pl.Series([3.0, 20.0] * 8, dtype=pl.Float32), ["3", "20"]),
    "kinds": (pl.Series(["b", "a"] * 8, dtype=pl.Categorical), ["a", "b"]),
}


@pytest.mark.parametrize("name", CLASSES)
def test_a_cache_and_training_from_images_take_the_same_labels(photos, tiny_checkpoint, tmp_path, name):
    values, classes = CLASSES[name]
    rows = pl.read_csv(photos / "list.csv").drop("label").with_columns(values.alias(name))
    table = tmp_path / "t.parquet"
    rows.with_columns(path=str(photos) + "/" + pl.col("path")).write_parquet(table)
    manifest = open_source([str(table)], CacheOptions(table, tmp_path / "f"))
    assert class_column(manifest, name).to_pylist() == label_column(manifest, name, "losspred").to_pylist()
    made = run("cache", table, "--model", tiny_checkpoint, "--device", "cpu", "--epochs", 1, "--label", name,
               "-o", tmp_path / "f")  # fmt: skip
    assert made.exit_code == 0, made.output
    cache = open_cache(tmp_path / "f")
    assert cache.classes == classes
    assert number_labels(label_column(manifest, name, "losspred").to_pylist())[0].tolist() == cache.labels.tolist()


def test_a_cache_reports_missing_labels_when_it_is_made(photos, tiny_checkpoint, tmp_path):
    rows = pl.read_csv(photos / "list.csv").with_columns(path=str(photos) + "/" + pl.col("path"))
    rows.with_columns(label=pl.col("label").replace("dog", None)).write_parquet(tmp_path / "t.parquet")
    made = run("cache", tmp_path / "t.parquet", "--model", tiny_checkpoint, "--device", "cpu", "--epochs", 1,
               "-o", tmp_path / "f")  # fmt: skip
    assert "8 of 16 images" in made.stderr


@pytest.mark.parametrize("command", ["cache", "train"])
def test_fractions_and_dates_are_no_classes_for_a_cache_nor_for_training(photos, tiny_checkpoint, tmp_path, command):
    rows = pl.read_csv(photos / "list.csv").with_columns(path=str(photos) + "/" + pl.col("path"))
    day = pl.Series([datetime.date(2020, 1, 1)] * 16)
    rows.with_columns(day=day, far=pl.lit(1e300)).write_parquet(tmp_path / "t.parquet")
    first = {"cache": ["cache", "--model"], "train": ["train", "supervised", "--backbone"]}[command]
    out = ["-o", tmp_path / ("f" if command == "cache" else "f.safetensors")]
    for label, words in {
        "mine": "expected classes in 'mine', got numbers with fractions (12 of 16, such as 0.142857)",
        "far": "got numbers with fractions (16 of 16, such as 1e+300)",
        "day": "expected one class an image in 'day', got date32[day]; choose a column of text, integers or boole",
    }.items():
        result = run(*first, tiny_checkpoint, tmp_path / "t.parquet", "--label", label, "--device", "cpu", *out)
        assert result.exit_code == 1, result.output
        assert words in result.stderr


def test_the_denominator_and_the_pairs_of_draws_can_be_typed(cache, tiny_checkpoint, tmp_path):
    common = ["train", "mcinfonce", "--cached", cache[0], "--backbone", tiny_checkpoint, *HEAD]
    losses = {}
    for name, options in {
        "default": [],
        "the same": ["--set", "cross=true", "--set", "denominator=eq7"],
        "step": ["--set", "cross=false"],
        "authors": ["--set", "denominator=authors"],
    }.items():
        out = tmp_path / f"{name}.safetensors"
        result = run(*common, "-o", out, *options)
        assert result.exit_code == 0, result.output
        losses[name] = read_header(out)["metrics"]["loss"]
    assert losses["default"] == losses["the same"]
    assert len(set(losses.values())) == 3
    recipe = read_header(tmp_path / "step.safetensors")["training"]["recipe"]["settings"]
    assert recipe["cross"] is False
    wrong = run(*common, "-o", tmp_path / "w.safetensors", "--set", "denominator=eq8")
    assert wrong.exit_code == 1
    assert "negatives, got 'eq8'" in wrong.stderr


def test_a_folder_without_a_readable_image_leaves_no_cache(tiny_checkpoint, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (tmp_path / "there").mkdir()
    for out in (tmp_path / "new", tmp_path / "there"):
        assert run("cache", tmp_path / "photos", "--model", tiny_checkpoint, "-o", out).exit_code == 1
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "there" / "cache.json").exists()


@pytest.mark.parametrize("command", ["info", "models"])
def test_the_card_of_a_checkpoint_with_another_weight_is_refused(command, tiny_checkpoint, tmp_path):
    changed = bytearray(tiny_checkpoint.read_bytes())
    changed[-1] ^= 1  # of the last weight
    (tmp_path / "changed.safetensors").write_bytes(changed)
    result = run(command, tmp_path / "changed.safetensors")
    assert (result.exit_code, "digest" in result.stderr) == (1, True)
    assert run(command, tiny_checkpoint).exit_code == 0
