import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from synthetic import kinds

from scoring.cards import read_header
from scoring.checkpoint import load_model
from scoring.errors import InputError
from scoring.relative.columns import PER_IMAGE
from scoring.relative.fit import fit_dataset
from scoring.relative.junk.classifier import train
from scoring.relative.junk.features import JunkInputs
from scoring.relative.junk.stored import rounded
from scoring.relative.stored import digest_of_fit, fit_from, read_fit, tensors_of, write_fitted


@pytest.fixture(scope="module")
def fitted():
    rows, _ = kinds(n=100)
    odds = np.random.default_rng(0).normal(-4, 1, 100)
    draw = np.random.default_rng(1)
    copies = JunkInputs({"unc_losspred": draw.uniform(4, 5, 90)}, draw.normal(size=(90, 24)))
    dataset = JunkInputs({"unc_losspred": draw.uniform(1, 2, 100)}, rows)
    junk = rounded(train(dataset, copies, np.arange(90) % 30, ["dark"] * 90).classifier)
    fit = fit_dataset(rows, odds)[0]
    return replace(fit, junk=junk, groups=np.eye(2, len(fit.mean) + 1, dtype=np.float32))


def test_a_fitted_model_is_its_base_and_what_it_was_fitted_to(tmp_path, tiny_checkpoint, fitted):
    path = tmp_path / "fitted.safetensors"
    digest = write_fitted(path, tiny_checkpoint, fitted, {"seed": 3})
    model, card = load_model(path)
    base, card_of_base = load_model(tiny_checkpoint)
    assert card["digest"] == digest != card_of_base["digest"] == card["base"]
    assert card["fit"]["seed"] == 3
    assert all(torch.equal(value, base.state_dict()[name]) for name, value in model.state_dict().items())
    again = read_fit(path, card)
    assert digest_of_fit(again) == digest_of_fit(fitted)
    seen = JunkInputs({"unc_losspred": np.linspace(0.5, 4, 10)}, kinds(n=10, seed=5)[0])
    said, expected = again.score_images(seen).columns, fitted.score_images(seen).columns
    assert all(np.array_equal(said[name], expected[name]) for name in expected)
    assert said.keys() == PER_IMAGE.keys()
    assert (said["p_junk"] > 0.5).any()


def test_what_is_fitted_again_replaces_what_was(tmp_path, tiny_checkpoint, fitted):
    write_fitted(tmp_path / "a.safetensors", tiny_checkpoint, fitted, {})
    write_fitted(tmp_path / "b.safetensors", tmp_path / "a.safetensors", fit_dataset(kinds(n=60)[0])[0], {})
    with safe_open(tmp_path / "b.safetensors", "pt") as file:
        assert file.get_slice("fit.references").get_shape() == [60, 24]
    assert read_header(tmp_path / "b.safetensors")["base"] == read_header(tiny_checkpoint)["digest"]


def test_a_model_that_was_not_fitted_has_none(tiny_checkpoint):
    assert read_fit(tiny_checkpoint, read_header(tiny_checkpoint)) is None


def test_the_digest_differs_between_fits(fitted):
    other = fit_dataset(kinds(n=100)[0], seed=1)[0]
    assert digest_of_fit(other) != digest_of_fit(fitted)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fit.references", torch.zeros(0, 24, dtype=torch.float16)),
        ("fit.references", torch.zeros(9, 23, dtype=torch.float16)),
        ("fit.centres.4", torch.zeros(4, 3)),
        ("fit.quantiles.distance", torch.zeros(7)),
        ("fit.quantiles.ambiguity", torch.full((1001,), float("nan"))),
        ("fit.clusters", torch.zeros(9, 3)),
        ("fit.groups", torch.zeros(3, dtype=torch.int32)),
    ],
)
def test_a_section_of_another_shape_is_refused(fitted, name, value):
    record = {"weights": {"distance": 1.0}, "junk": None}
    with pytest.raises(ValueError, match=r"shape|width|number"):
        fit_from(record, tensors_of(fitted) | {name: value})


@pytest.mark.parametrize(
    "weights", [{}, {"distance": -1.0}, {"beauty": 1.0}, {"distance": float("nan")}, {"distance": float("inf")}]
)
def test_weights_of_no_rule_are_refused(fitted, weights):
    with pytest.raises(ValueError, match="weights"):
        fit_from({"weights": weights, "junk": None}, tensors_of(fitted))


@pytest.mark.parametrize("junk", [{}, {"version": 0}, {"version": 1, "columns": []}])
def test_a_junk_classifier_that_is_none_is_refused(fitted, junk):
    with pytest.raises((KeyError, ValueError)):
        fit_from({"weights": {"distance": 1.0}, "junk": junk}, tensors_of(fitted))


def test_a_changed_number_is_found_before_anything_is_scored(tmp_path, tiny_checkpoint, fitted):
    path = tmp_path / "fitted.safetensors"
    write_fitted(path, tiny_checkpoint, fitted, {})
    with safe_open(path, "pt") as file:
        card, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    tensors["fit.mean"][0] += 0.01
    save_file(tensors, path, card)
    assert json.loads(card["curate"])["fit"]
    with pytest.raises(InputError, match="damaged"):
        load_model(path)
