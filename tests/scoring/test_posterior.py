"""A posterior head: its decoder, its columns, and the embedding that a model takes from it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from curate.columns import describe
from scoring.checkpoint import load_model, save_checkpoint
from scoring.errors import InputError
from scoring.heads import KappaHeadSpec, NormHeadSpec, PosteriorHeadSpec
from scoring.images import Preprocessing
from scoring.maps import map_of_decoder
from scoring.model import ModelSpec, ScoringModel
from scoring.posterior import Decoder
from scoring.runner import Runner
from trainers.build import build
from trainers.config import TrainConfig
from trainers.methods.table import METHODS

CARD = {"method": "simvae", "training": {"data": "none"}, "metrics": {}, "data_licence": "CC0"}


@pytest.fixture
def model():
    torch.manual_seed(0)
    heads = {"simvae": PosteriorHeadSpec(5, 32, 8), "visimsiam": KappaHeadSpec(8, 3.0)}
    return ScoringModel(
        ModelSpec("test_resnet", {}, heads, Preprocessing(size=32, resize=32), embedding="simvae")
    ).eval()


@pytest.fixture
def pixels():
    return torch.randint(0, 256, (6, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_a_map_of_4_to_7_pixels_is_doubled_until_it_is_an_image():
    able = {size for size in range(1, 400) if any(size == side << n for side in range(4, 8) for n in range(1, 8))}
    for size in range(1, 400):
        if size in able:
            side, doublings = map_of_decoder(size)
            assert (side << doublings, 4 <= side <= 7, doublings >= 1) == (size, True, True)
        else:
            with pytest.raises(InputError, match=f"got {size}$"):
                map_of_decoder(size)


@pytest.mark.parametrize("size", [8, 20, 32, 48, 56])
def test_a_decoder_makes_images_of_its_size(size):
    pictures = Decoder(3, size, 32)(torch.randn(2, 3))
    assert pictures.shape == (2, 3, size, size)
    assert 0 <= pictures.min() <= pictures.max() <= 1


def test_the_columns_are_mean_log_variance_and_the_error_of_the_decoded_mean(model, pixels):
    head = model.heads["simvae"]
    with torch.no_grad():
        said, features = model(pixels), model.features(pixels)
        log_variance = features @ head.log_variance.weight.T + head.log_variance.bias
        decoded = head.decoder(features @ head.mean.weight.T + head.mean.bias)
    assert list(said.columns) == ["unc_simvae", "unc_simvae_error", "kappa_visimsiam", "unc_visimsiam"]
    assert torch.allclose(said.columns["unc_simvae"], log_variance.sum(1) / 5, atol=1e-5)
    squares = (decoded - pixels.float() / 255) ** 2
    assert torch.allclose(said.columns["unc_simvae_error"], squares.sum((1, 2, 3)) / (3 * 32 * 32), atol=1e-5)
    assert describe("unc_simvae_error").meaning.startswith("mean squared error of the decoded")
    assert describe("unc_simvae").meaning == "uncertainty of the representation"
    with pytest.raises(ValueError, match="simvae needs pixels"):
        model.read(features)


def test_the_embedding_is_the_direction_of_mu_and_survives_a_checkpoint(model, pixels, tmp_path):
    head = model.heads["simvae"]
    with torch.no_grad():
        said = model(pixels)
        mu = model.features(pixels) @ head.mean.weight.T + head.mean.bias
    assert model.embedding_width == 5
    assert torch.allclose(said.embedding, F.normalize(mu, dim=1), atol=1e-6)
    save_checkpoint(tmp_path / "m.safetensors", model, CARD)
    again, card = load_model(tmp_path / "m.safetensors")
    assert card["embedding"] == again.spec.embedding == "simvae"
    with torch.no_grad():
        assert torch.equal(again(pixels).embedding, said.embedding)


def test_batches_of_any_size_have_the_same_scores(model, pixels):
    images = pixels.permute(0, 2, 3, 1).numpy()
    runner = Runner(model, torch.device("cpu"))
    outputs = runner.submit(images).result()
    runner.step = 4
    parts = runner.submit(images).result()
    assert list(runner.columns) == list(outputs.columns)
    for name, values in outputs.columns.items():
        assert np.allclose(parts.columns[name], values, rtol=1e-4, atol=1e-6)
    assert np.allclose(parts.embedding, outputs.embedding, atol=1e-5)


def test_a_card_cannot_take_the_embedding_from_a_head_that_has_none(model):
    for heads, name in ((model.spec.heads, "visimsiam"), ({}, "simvae")):
        with pytest.raises(InputError, match=f"no '{name}'"):
            replace(model.spec, heads=heads, embedding=name)
    assert replace(model.spec, heads={"a": NormHeadSpec(4)}, embedding="a").embedding == "a"
    for wrong in ({"dim": 0}, {"size": 100}, {"channels": 10**9}, {"size": 10**9}):
        with pytest.raises(InputError):
            PosteriorHeadSpec(**wrong)


def config(method, **changes):
    kind = METHODS[method].Settings
    values = {"latent_dim": 4, "channels": 8, "views": 2, "hidden_dim": 8, "n_small": 0}
    settings = kind(**{name: value for name, value in values.items() if name in kind.about()})
    return TrainConfig(method, backbone="test_resnet", size=32, settings=settings, **changes)


def test_a_frozen_start_keeps_its_embedding_and_one_that_moves_takes_the_new_one(model, pixels):
    before = model(pixels).embedding
    kept, _ = build(config("visimsiam", freeze="trunk"), 0, init=model)
    assert torch.equal(kept.eval()(pixels).embedding, before)
    other, _ = build(config("vae", freeze="trunk"), 0, init=model)
    assert torch.equal(other.eval()(pixels).embedding, before)
    with pytest.raises(InputError, match="leave --freeze out"):
        build(config("simvae", freeze="trunk"), 0, init=model)
    assert build(config("vae"), 0, init=model)[0].spec.embedding == "vae"
    assert build(config("visimsiam"), 0, init=model)[0].spec.embedding == ""
