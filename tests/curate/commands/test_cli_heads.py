"""``curate train ... --freeze`` and ``losspred`` as typed: heads on a model that somebody trusts, and bad input."""

import shutil

import numpy as np
import polars as pl
import pytest
from commandline import run
from PIL import Image

from scoring.cards import read_header
from scoring.checkpoint import load_model, save_checkpoint

HEAD = ["--batch-size", "8", "--epochs", "2", "--device", "cpu", "--freeze"]


@pytest.fixture(scope="module")
def place(tiny_checkpoint, tmp_path_factory):
    """A model, images in two classes, and lists of them that lack this or that."""
    place = tmp_path_factory.mktemp("place")
    shutil.copy(tiny_checkpoint, place / "one.safetensors")
    generator = np.random.default_rng(0)
    rows = []
    for kind in ("cat", "dog"):
        (place / "photos" / kind).mkdir(parents=True)
        for i in range(8):
            pixels = generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).resize((40, 40)).save(place / "photos" / kind / f"{i}.png")
            rows.append({"path": f"photos/{kind}/{i}.png", "label": kind, "mine": float(i), "word": "x"})
    table = pl.DataFrame(rows)
    table.write_csv(place / "list.csv")
    table.with_columns(label=pl.lit("cat")).write_csv(place / "one_class.csv")
    table.drop("label").write_csv(place / "unlabelled.csv")
    holes = [None if i == 3 else row["label"] for i, row in enumerate(rows)]
    table.with_columns(label=pl.Series(holes)).write_csv(place / "holes.csv")
    table.with_columns(mine=pl.Series([float("nan"), *range(15)], strict=False)).write_parquet(place / "nan.parquet")
    table.head(3).write_csv(place / "few.csv")
    return place


@pytest.fixture(autouse=True)
def workdir(place, monkeypatch):
    monkeypatch.chdir(place)


def test_heads_accumulate_and_what_was_there_scores_the_same_to_the_bit(tmp_path):
    two, three = tmp_path / "two.safetensors", tmp_path / "three.safetensors"
    first = run("train", "losspred", "list.csv", "-o", two, "--backbone", "one.safetensors", *HEAD)
    assert first.exit_code == 0, first.output
    assert "are: visimsiam" in first.stderr
    assert "ordered " in first.stderr
    second = run("train", "mcinfonce", "photos", "-o", three, "--backbone", two, "--half", *HEAD)
    assert second.exit_code == 0, second.output
    assert "stored as float32" in second.stderr
    assert read_header(three)["preprocessing"] == read_header("one.safetensors")["preprocessing"]
    tables = {}
    for name, model in {"one": "one.safetensors", "two": two, "three": three}.items():
        out = tmp_path / f"{name}.parquet"
        assert run("score", "photos", "-o", out, "--model", model, "--device", "cpu").exit_code == 0
        tables[name] = pl.read_parquet(out)
    for name in ("two", "three"):
        for column in ("embedding", "kappa_visimsiam"):
            assert tables[name][column].equals(tables["one"][column])
    assert tables["three"]["unc_losspred"].equals(tables["two"]["unc_losspred"])
    assert "kappa_mcinfonce" in tables["three"].columns


def test_a_backbone_that_moves_says_which_heads_stay_behind(tmp_path):
    out = tmp_path / "m.safetensors"
    result = run("train", "losspred", "list.csv", "-o", out, "--backbone", "one.safetensors", *HEAD[:-1])
    assert result.exit_code == 0, result.output
    assert "visimsiam; --freeze" in result.stderr
    assert set(read_header(out)["heads"]) == {"losspred"}
    again = run("train", "losspred", "list.csv", "-o", tmp_path / "n.safetensors", "--backbone", out, *HEAD)
    assert "losspred is trained again" in again.stderr


@pytest.mark.parametrize("form", ["ranking", "l2"])
def test_losses_of_ones_own_need_no_labels(tmp_path, form):
    out = tmp_path / "m.safetensors"
    result = run("train", "losspred", "unlabelled.csv", "--set", "loss_column=mine", "--set", f"form={form}", "-o", out,
                 "--backbone", "one.safetensors", *HEAD)  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "accuracy" not in result.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["losspred", "unlabelled.csv"], "no column 'label'"),
        (["losspred", "photos"], "(columns: key, uri)"),
        (["mcinfonce", "unlabelled.csv", "--set", "positives=labels"], "mcinfonce needs labels"),
        (["losspred", "holes.csv"], "1 of 16 images"),
        (["losspred", "one_class.csv"], "all 16 images"),
        (["losspred", "few.csv"], "--batch-size to 3"),
        (["losspred", "nan.parquet", "--set", "loss_column=mine"], "no finite loss"),
        (["losspred", "list.csv", "--set", "loss_column=none"], "has no column 'none'"),
        (["losspred", "list.csv", "--set", "loss_column=word"], "losses 'word'"),
        (["losspred", "list.csv", "--set", "optimizer=lion"], "unknown optimizer 'lion'"),
    ],
)
def test_bad_input_is_one_line_and_no_checkpoint(tmp_path, args, words):
    out = tmp_path / "m.safetensors"
    result = run("train", *args[:2], "-o", out, "--backbone", "one.safetensors", *HEAD, *args[2:])
    assert result.exit_code == 1, result.output
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert words in errors[0]
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_diverges_keeps_its_state_and_the_command_with_a_lower_rate_goes_on(tmp_path, monkeypatch):
    import trainers.loop
    from trainers.methods.losspred import LossPred
    from trainers.monitor import Monitor

    out, state = tmp_path / "m.safetensors", tmp_path / ".m.safetensors.work" / "state.safetensors"
    args = ["train", "losspred", "list.csv", "-o", out, "--backbone", "one.safetensors", *HEAD]
    real, forward, seen = trainers.loop.train, LossPred.forward, []

    def poisoned(self, features, head, labels):
        seen.append(1)
        return forward(self, features * (float("nan") if len(seen) == 3 else 1), head, labels)

    with monkeypatch.context() as patch:
        patch.setattr(
            trainers.loop, "train", lambda *a, **named: real(*a, **named | {"monitor": Monitor(save_every=-1.0)})
        )
        patch.setattr(LossPred, "forward", poisoned)
        result = run(*args)
    assert result.exit_code == 1
    error = result.stderr.splitlines()[-1]
    assert "nan at step 2" in error
    assert f"The last good state, of step 2, is saved in {state}: repeat the command with a lower --lr" in error
    assert state.exists()
    assert "a lower --lr" in run(*args).stderr
    result = run(*args, "--lr", "1e-4")
    assert result.exit_code == 0, result.output
    assert f"resuming from {state}" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["m.safetensors"]


def test_a_run_that_diverges_leaves_an_older_checkpoint_as_it_is(tmp_path):
    out = tmp_path / "m.safetensors"
    model, card = load_model("one.safetensors")
    save_checkpoint(out, model, card)
    before = out.read_bytes()
    result = run("train", "losspred", "list.csv", "-o", out, "--backbone", "one.safetensors", "--overwrite", *HEAD,
                 "--lr", "1e30", "--set", "form=l2")  # fmt: skip
    assert result.exit_code == 1
    assert out.read_bytes() == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--set", "latent_dim=1"], "latent_dim must be"),
        (["--set", "latent_dim=1000000000"], "got 1,000,000,000"),
        (["--set", "hidden_dim=1000000000"], "hidden_dim must"),
        (["--epochs", "1000000000000000000"], "epochs must be"),
        (["--lr", "inf"], "lr must be"),
        (["--set", "weight_decay=-5"], "weight_decay must be"),
        (["--set", "weight_decay=nan"], "or none, got 'nan'"),
        (["--set", "backbone_lr=-1"], "backbone_lr must be"),
        (["--seed", "9" * 30], "got 999"),
        (["--seed", "-1"], "2,147,483,647, got -1"),
        (["--set", "blur_sigma=-3"], "augmentation blur_sigma"),
        (["--set", "blur_sigma=nan"], "blur_sigma takes a number"),
    ],
)
def test_a_number_that_makes_no_sense_is_one_line_before_any_image_is_read(tmp_path, options, said):
    out = tmp_path / "m.safetensors"
    result = run("train", "mcinfonce", "list.csv", "-o", out, "--backbone", "one.safetensors", *HEAD, *options)
    assert result.exit_code == 1
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert not out.exists()


def test_a_class_that_is_nan_is_none_and_a_list_is_no_class(place, tmp_path):
    table = pl.read_csv("list.csv").with_row_index()
    nan = table.select("path", label=pl.when(pl.col("index") < 3).then(float("nan")).otherwise(pl.col("index") % 2))
    nan.write_parquet("nan_label.parquet")
    table.select("path", label=pl.concat_list("index", "index")).write_parquet("list_label.parquet")
    for name, said in {
        "nan_label.parquet": "3 of 16 images have no label; drop them from the table",
        "list_label.parquet": "expected one class an image in 'label', got large_list<",
    }.items():
        out = tmp_path / "m.safetensors"
        result = run("train", "supervised", name, "-o", out, "--backbone", "one.safetensors", *HEAD)
        assert result.exit_code == 1
        assert said in result.stderr


def test_a_frozen_backbone_of_random_weights_is_reported(tmp_path):
    out = tmp_path / "m.safetensors"
    result = run("train", "losspred", "list.csv", "-o", out, "--backbone", "resnet10t", "--size", 32, *HEAD)
    assert result.exit_code == 0, result.output
    assert "has random weights" in result.stderr


def test_modules_that_memory_does_not_hold_are_one_line(tmp_path, monkeypatch):
    from trainers.methods import siamese

    def no_memory(*sizes, **named):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 2048000000000 bytes")

    monkeypatch.setattr(siamese, "projector", no_memory)
    result = run(
        "train", "visimsiam", "list.csv", "-o", tmp_path / "m.safetensors", "--backbone", "one.safetensors", *HEAD
    )
    assert result.exit_code == 1
    assert "visimsiam with latent_dim=2048" in result.stderr
