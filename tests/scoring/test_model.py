import pytest
import torch

from scoring.backbones import create_backbone
from scoring.errors import InputError
from scoring.head_modules import KappaHead
from scoring.heads import KappaHeadSpec
from scoring.images import Preprocessing
from scoring.model import ModelSpec, ScoringModel


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    spec = ModelSpec("test_resnet", {}, {"visimsiam": KappaHeadSpec(32, 127.0)}, Preprocessing(size=32, resize=32))
    return ScoringModel(spec).eval()


def pixels(n, seed=0):
    return torch.randint(0, 256, (n, 3, 32, 32), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


@torch.inference_mode()
def test_embeddings_have_unit_length_and_kappas_are_positive(model):
    outputs = model(pixels(7))
    assert outputs.embedding.shape == (7, 96)
    assert torch.allclose(outputs.embedding.norm(dim=1), torch.ones(7), atol=1e-6)
    assert outputs.columns["kappa_visimsiam"].shape == (7,)
    assert (outputs.columns["kappa_visimsiam"] > 0).all()


@torch.inference_mode()
def test_a_batch_a_split_batch_and_a_batch_of_one_score_alike(model):
    images = pixels(8)
    together = model(images)
    for parts in (images.split(4), images.split(1)):
        outputs = [model(part) for part in parts]
        assert torch.allclose(torch.cat([o.embedding for o in outputs]), together.embedding, atol=1e-5)
        assert torch.allclose(
            torch.cat([o.columns["kappa_visimsiam"] for o in outputs]), together.columns["kappa_visimsiam"], rtol=1e-4
        )


@torch.inference_mode()
def test_pixels_are_normalised_as_in_the_preprocessing(model):
    image = pixels(1)
    by_hand = (image[0, :, 5, 6] / 255 - torch.tensor([0.485, 0.456, 0.406])) / torch.tensor([0.229, 0.224, 0.225])
    assert torch.allclose(model.normalize(image)[0, :, 5, 6], by_hand, atol=1e-6)


@torch.inference_mode()
def test_a_kappa_head_is_softplus_of_two_layers():
    torch.manual_seed(1)
    head = KappaHead(16, hidden=8, scale=3.0).eval()
    x = torch.randn(5, 16)
    hidden = (x @ head.hidden.weight.T + head.hidden.bias) / (1 + 1e-5) ** 0.5
    by_hand = 3.0 * torch.log1p(torch.exp(hidden.clamp(min=0) @ head.out.weight.T + head.out.bias)).squeeze(1)
    assert torch.allclose(head(x), by_hand, atol=1e-5)


def test_heads_run_in_float32_under_autocast(model):
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        outputs = model(pixels(4))
    assert outputs.columns["kappa_visimsiam"].dtype == torch.float32
    assert outputs.embedding.dtype == torch.float32
    assert torch.allclose(outputs.embedding.norm(dim=1), torch.ones(4), atol=1e-6)


def test_an_unknown_backbone_names_close_ones():
    with pytest.raises(InputError, match=r"no model 'resnet81'.*close names:.*resnet"):
        create_backbone("resnet81")


def test_a_head_without_a_scale_is_refused():
    with pytest.raises(InputError, match=r"scale .*got 0"):
        KappaHeadSpec(8, 0.0)
