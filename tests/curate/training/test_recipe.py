"""What was typed becomes the recipe, and what a method does not read is refused."""

import runpy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from curate.cli import app
from curate.options.option import declared
from curate.training.dataset import fitted
from curate.training.recipe import AUGMENTATION, OF_EVERY_METHOD, SHARED, TrainRequest, recipe, split_settings
from scoring.cards import read_header
from scoring.errors import InputError
from trainers.config import TrainConfig
from trainers.methods.classes import Supervised
from trainers.methods.contrastive import MCInfoNCESettings
from trainers.methods.losspred import LossPredSettings
from trainers.methods.settings import Augmentation, Settings, setting
from trainers.methods.table import METHODS, WHERE

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("method", METHODS)
def test_what_is_left_out_is_the_methods_own(method):
    assert recipe(method, {"lr": None, "scale": None}) == TrainConfig(method, **METHODS[method].defaults)


def test_what_is_typed_takes_its_place():
    typed = {"lr": 0.5, "scale": 0.3, "blur_sigma": 4.0, "jitter": None}
    ours = recipe("losspred", typed, {"folds": "3", "task": "brier"})
    assert ours.settings == LossPredSettings(folds=3, task="brier")
    assert ours.lr == 0.5
    defaults = METHODS["losspred"].defaults["augmentation"]
    assert ours.augmentation == Augmentation(
        (0.3, 1.0), defaults.small_scale, defaults.jitter, defaults.gray, defaults.blur, (0.1, 4.0)
    )
    assert recipe("mcinfonce", {}, {"kappa": "norm", "phases": "0.5"}).settings == MCInfoNCESettings(
        kappa="norm", phases=0.5
    )


def test_settings_that_hold_only_together_may_come_in_any_order():
    ours = recipe("losspred", {}, {"stop_gradient": "false", "form": "l2"})
    assert ours.settings == LossPredSettings(form="l2", stop_gradient=False)


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("visimsiam", "folds"), ("losspred", "kappa_pos"), ("hib", "form"), ("hib", "kappa_pos"), ("elk", "samples"),
        ("infonce", "samples"), ("infonce", "kappa"), ("infonce", "phases"), ("losspred", "predictor"),
        ("losspred", "n_small"), ("losspred", "small_size"), ("losspred", "latent_dim"), ("supervised", "hidden_dim"),
        ("hib", "denominator"), ("hib", "cross"), ("infonce", "cross"),
        ("mcinfonce", "predictor_every"), ("hib", "n_small"),
    ],
)  # fmt: skip
def test_a_setting_that_a_method_does_not_have_is_refused_with_those_that_it_has(method, name):
    with pytest.raises(InputError, match=f"{method} .*parameter '{name}'") as caught:
        recipe(method, {}, {name: "2"})
    listed = str(caught.value).rpartition("its parameters: ")[2].removesuffix(")").split(", ")
    assert listed == (list(METHODS[method].Settings.about()) or ["none"])


def test_a_mistyped_setting_gets_a_hint_and_a_wrong_type_its_own():
    with pytest.raises(InputError, match="did you mean 'folds'"):
        recipe("losspred", {}, {"fold": "3"})
    with pytest.raises(InputError, match=r"folds .*'many'"):
        recipe("losspred", {}, {"folds": "many"})
    with pytest.raises(InputError, match="--batch-size"):
        split_settings({"batch_size": "64"})


@pytest.mark.parametrize("method", METHODS)
def test_every_setting_refuses_a_value_out_of_its_range_and_says_what_it_takes(method):
    kind = METHODS[method].Settings
    for name, about in kind.about().items():
        assert about.meaning
        assert about.allows(getattr(kind, name)), f"the default of {name}"
        bad = ["no such word"] if about.choices else []
        bad += [bound - 1 for bound in (about.least, about.above) if bound is not None]
        bad += [bound + 1 for bound in (about.most, about.below) if bound is not None]
        bad += [bound for bound in (about.above, about.below) if bound is not None]
        bad += [float("nan"), float("inf")] if isinstance(getattr(kind, name), float) else []
        for value in bad:
            with pytest.raises(InputError, match=f"^{name} must be "):
                kind(**{name: value})


def test_settings_of_another_method_are_a_callers_mistake():
    with pytest.raises(TypeError, match="LossPredSettings, got MCInfoNCESettings"):
        TrainConfig("losspred", settings=MCInfoNCESettings())


def test_every_option_of_a_recipe_can_be_typed():
    typed = {param.name for param in typer.main.get_command(app).commands["train"].params}
    typed |= set(OF_EVERY_METHOD)
    assert {*SHARED, *AUGMENTATION} <= typed
    left = set(TrainConfig().to_json()) - typed - {"momentum", "betas", "augmentation", "settings", "backbone_options"}
    assert not left


def untyped(batch_size=None, settings=None):
    return TrainRequest("losspred", out="m.safetensors", batch_size=batch_size, set=settings or {})


def test_a_default_batch_shrinks_to_the_images_with_a_note_and_a_typed_one_does_not():
    said = []
    config = TrainConfig("losspred")
    assert fitted(config, 16, untyped(), said.append).batch_size == 16
    assert "a batch of 512" in said[0]
    for n, typed in ((16, 512), (512, None), (600, None)):
        assert fitted(config, n, untyped(typed), said.append) is config
    assert len(said) == 1


@pytest.mark.parametrize(
    ("method", "settings", "batch", "n", "expected"),
    [
        ("moco", {}, 256, 3000, {"queue": 2816}),
        ("moco", {}, 256, 5000, {}),
        ("moco", {}, 100, 9000, {"queue": 4000}),
        ("moco", {}, None, 10, {"queue": 10, "key_groups": 5}),
        ("umm", {}, 128, 200, {}),
        ("umm", {"learner": "moco"}, 128, 200, {"queue": 128}),
        ("umm", {"learner": "bank"}, 128, 200, {"queue": 72}),
    ],
)
def test_defaults_are_lowered_to_what_batches_and_images_have_room_for(method, settings, batch, n, expected):
    said, config = [], recipe(method, {"batch_size": batch}, settings)
    adapted = fitted(config, n, untyped(batch), said.append)
    changed = {name: value for name, value in vars(adapted.settings).items() if value != vars(config.settings)[name]}
    assert changed == expected
    METHODS[method].check_amount(adapted.settings, adapted.batch_size, n)
    assert [line.partition("=")[0] for line in said if "(--set" in line] == list(expected)
    assert fitted(adapted, n, untyped(batch), said.append) is adapted
    stays = fitted(config, n, untyped(batch, {"queue": "4096", "key_groups": "8"})).settings
    assert stays == config.settings


@dataclass(frozen=True)
class SmoothedSettings(Settings):
    """What a method from elsewhere can be determined."""

    smoothing: float = setting(0.25, "share of the label that all classes get", least=0, below=1)


class Smoothed(Supervised):
    """A method from elsewhere, in one file."""

    paper = "Somebody 2031, arXiv:3101.00001"
    Settings = SmoothedSettings


def test_a_method_with_settings_is_one_class_and_one_line_of_the_table(monkeypatch, tmp_path):
    """It is in the command, in its help and in the documents' tables, and its recipe in the checkpoint."""
    monkeypatch.setitem(WHERE, "smoothed", f"{__name__}:Smoothed")
    for kind in ("cat", "dog"):
        (tmp_path / "photos" / kind).mkdir(parents=True)
        for i in range(4):
            noise = np.random.default_rng(i).integers(0, 256, (40, 40, 3), dtype=np.uint8)
            Image.fromarray(noise).save(tmp_path / "photos" / kind / f"{i}.png")

    def run(*args):
        return CliRunner().invoke(app, [str(arg) for arg in args])

    trained = run("train", "smoothed", tmp_path / "photos", "--label-from-folder", "-o", tmp_path / "m.safetensors",
                  "--backbone", "test_resnet", "--size", 32, "--epochs", 1, "--set", "smoothing=0.5")  # fmt: skip
    assert trained.exit_code == 0, trained.output
    assert read_header(tmp_path / "m.safetensors")["training"]["recipe"]["settings"] == {"smoothing": 0.5}
    wrong = run("train", "smoothed", tmp_path / "photos", "-o", tmp_path / "n.safetensors", "--set", "smoothing=1")
    assert "below 1, got 1" in wrong.stderr
    wrong = run("train", "smoothed", tmp_path / "photos", "-o", tmp_path / "n.safetensors", "--backbone-set", "depth")
    assert "NAME=VALUE" in wrong.stderr
    help_of_it = run("train", "smoothed", "--help").stdout
    assert "smoothing=0.25" in help_of_it
    assert "that all classes get" in help_of_it
    assert "Somebody 2031" in help_of_it
    anew = runpy.run_path(str(ROOT / "curate/training/options.py"))["TrainOptions"]
    assert any("smoothed;" in field.about.text for field in declared(anew))
    tables = runpy.run_path(str(ROOT / "docs/generate.py"))["TABLES"]
    assert "| `smoothing` | 0.25 | share of the label" in tables["settings"]()
