"""``curate train`` as typed: real, tiny runs on images of 32 pixels."""

import errno
import functools
import json
import os
import time

import numpy as np
import polars as pl
import pytest
import torch
from commandline import run
from PIL import Image

import trainers.loop
import trainers.views
from scoring.cards import read_header
from scoring.checkpoint import load_model, save_checkpoint
from trainers.monitor import Monitor
from trainers.work import TrainingFolder

TRUNK = ["--backbone", "test_resnet", "--size", "32", "--batch-size", "8", "--epochs", "2", "--device", "cpu"]
OWN = ["small_size=16", "n_small=1", "latent_dim=16", "hidden_dim=16"]
TINY = [*TRUNK, *(word for setting in OWN for word in ("--set", setting))]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Sixteen images in two sub-folders, and a broken one."""
    folder = tmp_path_factory.mktemp("train") / "photos"
    generator = np.random.default_rng(0)
    for kind in ("cat", "dog"):
        (folder / kind).mkdir(parents=True)
        for i in range(8):
            pixels = generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).resize((40, 40)).save(folder / kind / f"{i}.png")
    (folder / "cat" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    return folder


@pytest.fixture(scope="module")
def trained(photos, tmp_path_factory):
    """A model that the command line made, and what it said."""
    out = tmp_path_factory.mktemp("trained") / "mine.safetensors"
    result = run("train", "visimsiam", photos, "-o", out, *TINY, "--licence", "CC0", "--note", "a test")
    assert result.exit_code == 0, result.output
    return out, result.stderr


def tensors(path):
    return {name: value.clone() for name, value in load_model(path)[0].state_dict().items()}


def test_training_says_what_it_reads_what_it_leaves_out_and_what_came_of_it(trained):
    out, said = trained
    assert "on the CPU" in said
    assert "photos: 17 files" in said
    assert "1 corrupt" in said
    assert "spread " in said
    assert f"model {read_header(out)['digest'][:12]}: {out}" in said
    assert [path.name for path in out.parent.iterdir()] == ["mine.safetensors"]  # no state is left


def test_the_card_holds_the_recipe_the_data_and_the_measures(trained):
    card = read_header(trained[0])
    assert card["method"] == "visimsiam"
    assert card["backbone"]["name"] == "test_resnet"
    assert card["preprocessing"]["size"] == 32
    assert card["data_licence"] == "CC0"
    assert card["training"]["images"] == 16
    assert card["training"]["note"] == "a test"
    recipe = card["training"]["recipe"]
    assert {name: recipe[name] for name in ("epochs", "lr", "schedule", "seed")} == {
        "epochs": 2,
        "lr": 0.1,
        "schedule": "constant",
        "seed": 0,
    }
    assert recipe["settings"] == {
        "latent_dim": 16,
        "hidden_dim": 16,
        "predictor": "direct",
        "predictor_every": 10,
        "n_small": 1,
        "small_size": 16,
    }
    assert set(card["metrics"]) == {"loss", "cosine", "spread", "kappa"}
    assert all(np.isfinite(value) for value in card["metrics"].values())


def test_score_accepts_what_train_made(trained, photos, tmp_path):
    result = run("score", photos, "-o", tmp_path / "s.parquet", "--model", trained[0], "--device", "cpu", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["model"] == read_header(trained[0])["digest"]
    table = pl.read_parquet(tmp_path / "s.parquet")
    assert table.height == 17
    kappa = table["kappa_visimsiam"].drop_nulls()
    assert len(kappa) == 16
    assert kappa.min() > 0
    assert run("filter", tmp_path / "s.parquet", "--keep-top", "4", "-o", tmp_path / "k.parquet").exit_code == 0
    assert pl.read_parquet(tmp_path / "k.parquet")["kappa_visimsiam"].min() == kappa.sort()[-4]


def test_the_same_command_makes_the_same_model_and_another_seed_another(trained, photos, tmp_path):
    args = ["train", "visimsiam", photos, *TINY, "--licence", "CC0", "--note", "a test", "--quiet"]
    again, other = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    result = run(*args, "-o", again)
    assert (result.exit_code, result.output) == (0, "")
    assert run(*args, "-o", other, "--seed", 1).exit_code == 0
    first, second, third = tensors(trained[0]), tensors(again), tensors(other)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not all(torch.equal(first[name], third[name]) for name in first)


def test_a_run_that_was_killed_goes_on_and_ends_as_if_it_had_not_been(trained, photos, tmp_path, monkeypatch):
    out = tmp_path / "mine.safetensors"
    args = ["train", "visimsiam", photos, "-o", out, *TINY]
    ticks = iter(range(0, 10**6, 10))
    real = trainers.loop.train

    def cut(progress):
        if progress.step == 3:
            raise KeyboardInterrupt

    def killed(*positional, monitor, **named):
        clock = time.monotonic
        monkeypatch.setattr(trainers.loop.time, "monotonic", lambda: next(ticks))  # each step is long enough to save
        try:
            return real(*positional, **named, monitor=Monitor(save_every=1.0, report=cut))
        finally:
            monkeypatch.setattr(trainers.loop.time, "monotonic", clock)

    monkeypatch.setattr(trainers.loop, "train", killed)
    result = run(*args)
    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1].startswith("interrupted")
    state = tmp_path / ".mine.safetensors.work" / "state.safetensors"
    assert [path.name for path in tmp_path.iterdir()] == [state.parent.name]

    monkeypatch.setattr(trainers.loop, "train", real)
    refused = run(*args, "--lr", 0.5)
    assert refused.exit_code == 1
    assert "this one has 0.5" in refused.stderr
    steps = []
    views = trainers.views.ImageViews.__call__

    def counted(self, rows, *, epoch, step):
        steps.append(step)
        return views(self, rows, epoch=epoch, step=step)

    monkeypatch.setattr(trainers.views.ImageViews, "__call__", counted)
    result = run(*args)
    assert result.exit_code == 0, result.output
    assert f"resuming from {state}" in result.stderr
    assert steps == [3]  # three of four steps were in the state
    assert [path.name for path in tmp_path.iterdir()] == ["mine.safetensors"]
    complete, resumed = tensors(trained[0]), tensors(out)
    assert all(torch.equal(complete[name], resumed[name]) for name in complete)


def test_a_state_whose_model_has_its_name_is_swept_and_never_gone_on_from(trained, photos, tmp_path, monkeypatch):
    """A disk that fails when the state is to go: the model is there, and the state of a run that is done."""
    out, work = tmp_path / "mine.safetensors", tmp_path / ".mine.safetensors.work"
    args = ["train", "visimsiam", photos, "-o", out, *TINY, "--licence", "CC0", "--note", "a test"]

    def refuse(self):
        raise OSError(errno.EIO, "Input/output error", str(self.state))

    def fail_at_the_end():
        with monkeypatch.context() as patch:
            patch.setattr(TrainingFolder, "finish", refuse)
            result = run(*args, "--overwrite")
        assert result.exit_code == 1, result.output
        assert "Input/output error" in result.stderr.splitlines()[-1]
        assert {path.name for path in work.iterdir()} >= {"state.safetensors", "finished"}
        assert out.read_bytes() == trained[0].read_bytes()

    fail_at_the_end()
    result = run(*args)
    assert result.exit_code == 1
    assert "exists already" in result.stderr.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["mine.safetensors"]
    fail_at_the_end()
    result = run(*args, "--overwrite", "--seed", 1)
    assert result.exit_code == 0, result.output
    assert "resuming" not in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.safetensors"]
    assert out.read_bytes() != trained[0].read_bytes()


def test_a_state_that_is_to_replace_a_model_outlives_a_repeat_without_overwrite(trained, photos, tmp_path):
    out, work = tmp_path / "mine.safetensors", tmp_path / ".mine.safetensors.work"
    out.write_bytes(trained[0].read_bytes())
    work.mkdir()
    for digest in (None, "of another model"):  # cut off in the middle, and when all but the name was there
        (work / "state.safetensors").write_bytes(b"hours of work")
        if digest is not None:
            (work / "finished").write_text(digest)
        result = run("train", "visimsiam", photos, "-o", out, *TINY)
        assert "exists already" in result.stderr.splitlines()[-1]
        assert (work / "state.safetensors").read_bytes() == b"hours of work"


@pytest.mark.parametrize("made", [False, True])
def test_a_second_process_that_trains_the_same_model_is_refused(trained, photos, tmp_path, made):
    out = tmp_path / "mine.safetensors"
    if made:
        out.write_bytes(trained[0].read_bytes())
    with TrainingFolder(out) as work:
        work.state.write_bytes(b"its state")
        result = run("train", "visimsiam", photos, "-o", out, *TINY, *(["--overwrite"] if made else []))
        assert result.exit_code == 1
        assert f"is being written by process {os.getpid()} on " in result.stderr.splitlines()[-1]
        assert work.state.read_bytes() == b"its state"
    work.state.unlink()
    with work:
        assert (work.folder / "lock").exists()
    assert not work.folder.exists()


def test_a_file_where_the_folder_of_a_run_is_to_be_is_one_line_and_left_alone(photos, tmp_path):
    out, work = tmp_path / "mine.safetensors", tmp_path / ".mine.safetensors.work"
    work.write_bytes(b"somebody's")
    result = run("train", "visimsiam", photos, "-o", out, *TINY)
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert f"expected a folder at {work}, or nothing, got something else" in result.stderr.splitlines()[-1]
    assert (work.read_bytes(), out.exists()) == (b"somebody's", False)


@pytest.mark.parametrize("name", ["notes", "finished"])
def test_a_folder_in_the_folder_of_a_run_is_left_alone(trained, photos, tmp_path, name):
    out, inside = tmp_path / "mine.safetensors", tmp_path / ".mine.safetensors.work" / name
    inside.mkdir(parents=True)
    (inside / "a.txt").write_text("somebody's")
    args = ["train", "visimsiam", photos, "-o", out, *TINY, "--licence", "CC0", "--note", "a test"]
    result = run(*args)
    assert result.exit_code == (1 if name == "finished" else 0), result.output
    assert isinstance(result.exception, SystemExit | None)
    assert (inside / "a.txt").read_text() == "somebody's"
    if name == "notes":
        assert out.read_bytes() == trained[0].read_bytes()
        assert [path.name for path in inside.parent.iterdir()] == [name]


def test_supervised_training_takes_classes_from_folders_and_from_a_column(photos, tmp_path):
    backbone = tmp_path / "trunk.safetensors"
    result = run("train", "supervised", photos, "--label-from-folder", "-o", backbone, *TRUNK, "--json")
    assert result.exit_code == 0, result.output
    assert "accuracy " in result.stderr
    card, said = read_header(backbone), json.loads(result.stdout)
    assert (said["model"], said["images"], said["metrics"]) == (card["digest"], 16, card["metrics"])
    assert card["heads"] == {"supervised": {"kind": "classifier", "classes": 2}}
    pl.DataFrame({"path": [str(path) for path in sorted(photos.rglob("[0-9].png"))], "kind": [1, 2] * 8}).write_csv(
        tmp_path / "list.csv"
    )
    again = run(
        "train", "supervised", tmp_path / "list.csv", "--label", "kind", "-o", tmp_path / "b.safetensors", *TRUNK
    )
    assert again.exit_code == 0, again.output
    assert run("score", photos, "-o", tmp_path / "s.parquet", "--model", backbone, "--device", "cpu").exit_code == 0
    columns = pl.read_parquet(tmp_path / "s.parquet").columns
    assert "embedding" in columns
    assert [name for name in columns if name.startswith(("kappa_", "unc_"))] == ["unc_supervised_entropy"]


@pytest.mark.parametrize("command", ["train", "cache"])
def test_a_table_of_labels_by_key_feeds_training(photos, tiny_checkpoint, tmp_path, command):
    """As `curate round labels` writes it: keys, which are paths below the folder that was scored, and no other path."""
    keys = [str(path.relative_to(photos)) for path in sorted(photos.rglob("[0-9].png"))]
    pl.DataFrame({"key": keys, "label": [key[:3] for key in keys], "state": "labelled", "votes": 1}).write_parquet(
        tmp_path / "labels.parquet"
    )
    rest = [*TRUNK, "-o", tmp_path / "m.safetensors"] if command == "train" else ["--epochs", 1, "-o", tmp_path / "f"]
    rest += [] if command == "train" else ["--model", tiny_checkpoint, "--device", "cpu"]
    words = ["train", "supervised"] if command == "train" else ["cache"]
    lost = run(*words, tmp_path / "labels.parquet", *rest)
    assert lost.exit_code == 1
    assert "--path-column" in lost.stderr.splitlines()[-1]
    result = run(*words, tmp_path / "labels.parquet", "--path-column", "key", "--root", photos, *rest, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["images"] == 16


def test_a_checkpoint_as_backbone_is_where_a_run_starts_and_the_card_says_which(photos, tmp_path):
    backbone, out = tmp_path / "trunk.safetensors", tmp_path / "mine.safetensors"
    assert run("train", "supervised", photos, "--label-from-folder", "-o", backbone, *TRUNK).exit_code == 0
    result = run("train", "visimsiam", photos, "-o", out, "--backbone", backbone, "--freeze", *TINY[2:])
    assert result.exit_code == 0, result.output
    before, after = tensors(backbone), tensors(out)
    assert all(torch.equal(before[name], after[name]) for name in before if name.startswith("backbone."))
    assert read_header(out)["training"]["start"]["digest"] == read_header(backbone)["digest"]


def test_half_stores_half_the_bytes_and_scores_alike(trained, photos, tmp_path):
    out = tmp_path / "half.safetensors"
    assert run("train", "visimsiam", photos, "-o", out, *TINY, "--half").exit_code == 0
    assert out.stat().st_size < 0.55 * trained[0].stat().st_size
    full, half = tensors(trained[0]), tensors(out)
    assert max((full[name].float() - half[name].float()).abs().max().item() for name in full) < 1e-2


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["visimsian", "photos"], "did you mean 'visimsiam'"),
        (["visimsiam", "photos", "--backbone", "resnet1O"], "no model 'resnet1O'"),
        (["visimsiam", "nowhere"], "nowhere"),
        (["visimsiam", "photos", "--device", "tpu"], "auto, cpu, cuda"),
        (["visimsiam", "photos", "--precision", "fp8"], "unknown precision 'fp8'"),
        (["visimsiam", "photos", "--epochs", "0"], "epochs must be"),
        (["visimsiam", "photos", "--set", "schedule=linear"], "schedule must be"),
        (["supervised", "flat", "--label-from-folder"], "expected sub-folders as labels"),
        (["supervised", "flat"], "or use --label-from-folder"),
        (["supervised", "list.csv"], "no column 'label'"),
        (["losspred", "list.csv", "--set", "margin"], "--set takes NAME=VALUE"),
        (["visimsiam", "one"], "2 readable images, got 1"),
    ],
)
def test_a_mistake_ends_in_one_line_with_exit_1_and_no_checkpoint(photos, tmp_path, monkeypatch, args, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").symlink_to(photos)
    for folder, n in (("flat", 2), ("one", 1)):
        (tmp_path / folder).mkdir()
        for i in range(n):
            Image.new("RGB", (40, 40)).save(tmp_path / folder / f"{i}.png")
    (tmp_path / "list.csv").write_text(f"path,kind\n{photos}/cat/0.png,1\n{photos}/cat/1.png,2\n")
    typed = TINY if args[0] == "visimsiam" else TRUNK
    options = [word for word in typed if args[-2:-1] != ["--device"] or word not in ("--device", "cpu")]
    result = run("train", *args[:2], "-o", "m.safetensors", *options, *args[2:])
    assert result.exit_code == 1, result.output
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert words in errors[0]
    assert result.stderr.splitlines()[-1] == errors[0]
    assert not list(tmp_path.glob("*.safetensors"))
    assert not list(tmp_path.glob(".*.work"))


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("there.safetensors", "there.safetensors exists already"),
        ("m.pt", "got m.pt"),
        ("there.safetensors/m.safetensors", "not a folder"),
    ],
)
def test_an_output_that_cannot_be_is_refused_before_any_image_is_read(photos, tmp_path, monkeypatch, out, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.safetensors").write_text("precious")
    monkeypatch.setattr("curate.manifest.sources.open_manifest", functools.partial(pytest.fail, "it was read"))
    result = run("train", "visimsiam", photos, "-o", out, *TINY)
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert words in result.stderr
    assert (tmp_path / "there.safetensors").read_text() == "precious"


def test_overwrite_replaces_a_checkpoint_only_when_the_new_one_is_whole(trained, photos, tmp_path, monkeypatch):
    out = tmp_path / "m.safetensors"
    model, card = load_model(trained[0])
    save_checkpoint(out, model, {**card, "method": "old"})
    before = out.read_bytes()

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(trainers.loop, "train", interrupted)
        assert run("train", "visimsiam", photos, "-o", out, *TINY, "--overwrite").exit_code == 130
    assert out.read_bytes() == before
    assert run("train", "visimsiam", photos, "-o", out, *TINY, "--overwrite").exit_code == 0
    assert read_header(out)["method"] == "visimsiam"


def test_low_resolution_views_larger_than_the_others_are_reported(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "one.png")  # too few to train on: what is reported comes before
    out = tmp_path / "m.safetensors"
    typed = ["train", "simsiam", tmp_path, "-o", out, "--backbone", "test_resnet", "--size", "32"]
    words = "low-resolution views, of 96 pixels, are larger than the others, of 32, and cost more: --set small_size=16"
    for settings, is_said in ((["n_small=6"], True), (["n_small=0"], False), (["small_size=32"], False)):
        result = run(*typed, "--device", "cpu", *(word for setting in settings for word in ("--set", setting)))
        assert (words in result.stderr, result.exit_code) == (is_said, 1), result.stderr


def test_a_default_queue_is_shortened_and_a_typed_one_refused_before_any_image_is_decoded(
    photos, tmp_path, monkeypatch
):
    small = ["--set", "hidden_dim=8", "--set", "latent_dim=8", "--epochs", "1", "-o", tmp_path / "m.safetensors"]
    words = ["train", "moco", photos, "--backbone", "test_resnet", "--size", "32", "--device", "cpu", *small]
    result = run(*words)
    assert result.exit_code == 0, result.output
    assert "queue=16 instead of 4096" in result.stderr
    assert "key_groups" not in result.stderr
    monkeypatch.setattr("trainers.data.load_training_set", None)
    refused = run(*words, "--overwrite", "--set", "queue=4096")
    assert refused.exit_code == 1
    assert "queue must not" in refused.stderr or "multiple of the batch" in refused.stderr
