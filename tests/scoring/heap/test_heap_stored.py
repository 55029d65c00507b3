import json

import numpy as np
import pytest
import torch
from heaps import kinds
from safetensors import safe_open
from safetensors.torch import save_file

from scoring.checkpoint import load_model, read_header
from scoring.errors import InputError
from scoring.heap.fit import fit_heap
from scoring.heap.stored import digest_of_fit, fit_from, read_fit, tensors_of, write_fitted


@pytest.fixture(scope="module")
def fitted():
    rows, _ = kinds(n=100)
    return fit_heap(rows, {"unc_losspred": np.random.default_rng(0).uniform(1, 2, 100)})[0]


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
    columns = {"unc_losspred": np.linspace(0.5, 4, 10)}
    rows = kinds(n=10, seed=5)[0]
    said, expected = again.score(rows, columns).columns, fitted.score(rows, columns).columns
    assert all(np.array_equal(said[name], expected[name]) for name in expected)


def test_what_is_fitted_anew_takes_the_place_of_what_was(tmp_path, tiny_checkpoint, fitted):
    write_fitted(tmp_path / "a.safetensors", tiny_checkpoint, fitted, {})
    write_fitted(tmp_path / "b.safetensors", tmp_path / "a.safetensors", fit_heap(kinds(n=60)[0])[0], {})
    with safe_open(tmp_path / "b.safetensors", "pt") as file:
        assert file.get_slice("fit.references").get_shape() == [60, 24]
    assert read_header(tmp_path / "b.safetensors")["base"] == read_header(tiny_checkpoint)["digest"]


def test_a_model_that_was_not_fitted_has_none(tiny_checkpoint):
    assert read_fit(tiny_checkpoint, read_header(tiny_checkpoint)) is None


def test_the_digest_tells_fits_apart(fitted):
    other = fit_heap(kinds(n=100)[0], seed=1)[0]
    assert digest_of_fit(other) != digest_of_fit(fitted)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fit.references", torch.zeros(0, 24, dtype=torch.float16)),
        ("fit.references", torch.zeros(9, 23, dtype=torch.float16)),
        ("fit.centres.4", torch.zeros(4, 3)),
        ("fit.quantiles.distance", torch.zeros(7)),
        ("fit.quantiles.ambiguity", torch.full((1001,), float("nan"))),
    ],
)
def test_a_section_of_another_shape_is_refused(fitted, name, value):
    record = {"weights": {"distance": 1.0}, "junk": {}}
    with pytest.raises(ValueError, match=r"shape|width|number"):
        fit_from(record, tensors_of(fitted) | {name: value})


@pytest.mark.parametrize(
    "weights", [{}, {"distance": -1.0}, {"beauty": 1.0}, {"distance": float("nan")}, {"distance": float("inf")}]
)
def test_weights_of_no_rule_are_refused(fitted, weights):
    with pytest.raises(ValueError, match="weights"):
        fit_from({"weights": weights, "junk": {}}, tensors_of(fitted))


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
