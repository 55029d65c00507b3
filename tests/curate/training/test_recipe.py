"""What was typed becomes the recipe, and what a method does not read is refused."""

import pytest

from curate.training.recipe import OWN, SECTIONS, recipe
from scoring.errors import InputError
from trainers.config import Augmentation, Contrastive, LossPrediction, TrainConfig
from trainers.methods import METHODS


@pytest.mark.parametrize("method", METHODS)
def test_what_is_left_out_is_the_methods_own(method):
    assert recipe(method, {"lr": None, "scale": None}) == TrainConfig(method, **METHODS[method].defaults)


def test_what_is_typed_takes_its_place_in_its_section():
    ours = recipe("losspred", {"folds": 3, "task": "brier", "lr": 0.5, "scale": 0.3, "blur_sigma": 4.0, "jitter": None})
    assert ours.losspred == LossPrediction(folds=3, task="brier")
    assert ours.lr == 0.5
    own = METHODS["losspred"].defaults["augmentation"]
    assert ours.augmentation == Augmentation((0.3, 1.0), own.small_scale, own.jitter, own.gray, own.blur, (0.1, 4.0))
    assert recipe("mcinfonce", {"kappa": "norm", "phases": 0.5}).contrastive == Contrastive(kappa="norm", phases=0.5)


def test_options_that_hold_only_together_may_come_in_any_order():
    ours = recipe("losspred", {"stop_gradient": False, "form": "l2"})
    assert ours.losspred == LossPrediction(form="l2", stop_gradient=False)


@pytest.mark.parametrize(
    ("method", "option"),
    [
        ("visimsiam", "folds"), ("losspred", "kappa_pos"), ("hib", "form"), ("hib", "kappa_pos"), ("elk", "samples"),
        ("infonce", "samples"), ("infonce", "kappa"), ("infonce", "phases"), ("losspred", "predictor"),
        ("losspred", "n_small"), ("losspred", "small_size"), ("losspred", "latent_dim"), ("supervised", "hidden_dim"),
        ("hib", "denominator"), ("hib", "cross"), ("infonce", "cross"),
        ("mcinfonce", "predictor_every"), ("hib", "n_small"),
    ],
)  # fmt: skip
def test_an_option_that_a_method_does_not_read_is_refused(method, option):
    flag = f"--{option.replace('_', '-')} is of .*; {method} does not read it"
    with pytest.raises(InputError, match=flag):
        recipe(method, {option: 2})


def test_every_setting_of_a_section_can_be_typed_but_those_that_are_named():
    typed = {"contrastive": set(), "losspred": set()}
    for option, (section, _) in SECTIONS.items():
        typed[section].add(option)
    left = {"kappa_init", "hib_a", "hib_b"}  # where kappa starts, and the slope and offset of HIB
    assert set(vars(Contrastive())) - typed["contrastive"] == left
    assert set(vars(LossPrediction())) == typed["losspred"]


def test_every_option_and_method_of_a_section_exists():
    sections = {"contrastive": Contrastive(), "losspred": LossPrediction()}
    for option, (section, methods) in SECTIONS.items():
        assert hasattr(sections[section], option)
        assert set(methods) <= set(METHODS)
    for option, methods in OWN.items():
        assert hasattr(TrainConfig(), option)
        assert set(methods) <= set(METHODS)
    assert set(OWN["n_small"]) == {name for name, method in METHODS.items() if method.multi_crop}


def test_every_option_of_a_recipe_can_be_typed():
    import typer

    from curate.cli import app

    typed = {param.name for param in typer.main.get_command(app).commands["train"].params}
    assert set(SECTIONS) <= typed
    left = set(TrainConfig().to_json()) - typed - {"momentum", "betas", "augmentation", "contrastive", "losspred"}
    assert not left
