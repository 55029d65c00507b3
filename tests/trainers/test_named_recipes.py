import numpy as np
import pytest
import torch
from PIL import Image

from curate.training.options import TrainOptions
from curate.training.recipe import AUGMENTATION, SHARED, recipe, request_of
from curate.training.train import train as curate_train
from scoring.backbone_options import parse_backbone_options
from scoring.cards import read_header
from scoring.errors import InputError
from scoring.lars import LARS
from trainers.loop import learning_rate
from trainers.methods.table import METHODS
from trainers.named_recipes import FOLDER, named_recipe, recipes_of


def requested(method, name, **options):
    return request_of(TrainOptions(method, "photos", out="m.safetensors", recipe=name, **options))


@pytest.mark.parametrize("method", METHODS)
def test_every_recipe_states_its_source_and_makes_a_config(method):
    assert {path.stem for path in FOLDER.glob("*.toml")} <= set(METHODS)
    for name, each in recipes_of(method).items():
        assert each.source
        assert set(each.options) <= {*SHARED, *AUGMENTATION, "backbone", "size", "stream"}
        filled = requested(method, name)
        options = {option: getattr(filled, option) for option in (*SHARED, *AUGMENTATION) if option != "seed"}
        config = recipe(method, options, filled.set)
        assert config.schedule == each.options.get("schedule", config.schedule)
        parse_backbone_options(filled.backbone_set)


def test_what_is_typed_goes_before_the_recipe():
    filled = requested("umm", "cifar10", lr=0.5, set={"lambda_n": "3"}, backbone="mlp")
    assert (filled.lr, filled.backbone, filled.epochs) == (0.5, "mlp", 200)
    assert (filled.set["lambda_n"], filled.set["lambda_r"]) == ("3", 0.078125)
    with pytest.raises(InputError, match=r"umm .*did you mean 'cifar10'"):
        named_recipe("umm", "cifar")
    with pytest.raises(InputError, match=r"junk .*'cub'.*nivmf"):
        named_recipe("junk", "cub")
    with pytest.raises(InputError, match="leave --recipe out"):
        requested("umm", "cifar10", cached="features")


def test_the_steps_of_umm_follow_its_paper():
    config = recipe("umm", {"schedule": named_recipe("umm", "cifar10").options["schedule"], "lr": 0.06})
    for epoch, rate in ((0, 0.06), (59, 0.06), (60, 0.03), (119, 0.03), (120, 0.006), (160, 0.003), (199, 0.003)):
        assert learning_rate(config, epoch, 200) == pytest.approx(rate)
    for text in ("step", "0.5", "0.5@0", "0.5@1", "0.5@0.6,0.1@0.3", "0@0.5", "nan@0.5", ""):
        with pytest.raises(InputError, match="schedule must be"):
            recipe("umm", {"schedule": text})


def test_a_recipe_is_recorded_in_the_card(tmp_path):
    (tmp_path / "photos").mkdir()
    for i in range(4):
        noise = np.random.default_rng(i).integers(0, 256, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(noise).save(tmp_path / "photos" / f"{i}.png")
    curate_train(
        "simsiam",
        tmp_path / "photos",
        out=tmp_path / "m.safetensors",
        recipe="cifar10",
        backbone="test_resnet",
        epochs=1,
        batch_size=4,
        set={"latent_dim": 8, "n_small": 0},
        device="cpu",
    )
    card = read_header(tmp_path / "m.safetensors")["training"]
    assert card["recipe_name"] == "cifar10"
    assert (card["recipe"]["lr"], card["recipe"]["schedule"], card["recipe"]["size"]) == (0.2, "cosine", 32)
    assert card["recipe"]["settings"]["latent_dim"] == 8


def test_lars_moves_a_matrix_by_a_share_of_its_norm_and_a_vector_as_sgd_does():
    matrix, vector = torch.nn.Parameter(torch.tensor([[3.0, 4.0]])), torch.nn.Parameter(torch.tensor([2.0]))
    optimizer = LARS([{"params": [matrix], "weight_decay": 0.5}, {"params": [vector]}], lr=0.1, momentum=0.9)
    changes = []
    for _ in range(2):
        before = matrix.detach().clone(), vector.detach().clone()
        matrix.grad, vector.grad = torch.tensor([[0.5, -1.0]]), torch.tensor([5.0])
        optimizer.step()
        changes.append((before[0] - matrix.detach(), before[1] - vector.detach()))
    # the gradient with decay is (2, 1), of norm sqrt(5); the weights' norm is 5; the share 0.001
    first = 0.1 * 0.001 * 5 / 5**0.5 * torch.tensor([[2.0, 1.0]])
    assert torch.allclose(changes[0][0], first, rtol=1e-3)
    assert changes[0][1].item() == pytest.approx(0.5)
    assert torch.allclose(changes[1][0], 1.9 * first, rtol=1e-3)
    assert changes[1][1].item() == pytest.approx(0.95)
