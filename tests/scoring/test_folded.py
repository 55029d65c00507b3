import pytest
import timm
import torch
from torch import nn

from scoring.cards import PartSpec
from scoring.folded import (
    BackboneInputs,
    PackedBackbone,
    PackedConv,
    fold_batchnorm,
    followers,
    for_inference,
    relative_error,
)
from scoring.heads import KappaHeadSpec
from scoring.images import Preprocessing
from scoring.joined_backbone import JoinedBackbone
from scoring.model import ModelSpec, ScoringModel
from scoring.runner import Runner, has_bfloat16, select_precision

CPU = torch.device("cpu")
MIDDLE = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
needs_bfloat16 = pytest.mark.skipif(not has_bfloat16(), reason="this CPU does not multiply in bfloat16")


def lively(net, seed=0):
    """Random statistics of batch normalisation: those of a fresh network do nothing."""
    generator = torch.Generator().manual_seed(seed)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            for value, low, high in ((module.running_mean, -0.5, 0.5), (module.running_var, 0.5, 2.0)):
                value.copy_(low + (high - low) * torch.rand(value.shape, generator=generator))
            module.weight.data.copy_(0.5 + torch.rand(module.weight.shape, generator=generator))
    return net.eval()


def network(name):
    torch.manual_seed(0)
    return lively(timm.create_model(name, num_classes=0))


def pictures(n, size):
    values = torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(1))
    return values.contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("name", ["resnet10t", "tf_efficientnet_lite0", "mobilenetv2_050"])
@torch.no_grad()
def test_folding_leaves_no_batch_normalisation_and_changes_no_feature(name):
    net = network(name)
    before = {key: value.clone() for key, value in net.state_dict().items()}
    folded = fold_batchnorm(net, pictures(1, 64))
    assert not any(isinstance(module, nn.BatchNorm2d) for module in folded.modules())
    assert relative_error(folded(pictures(3, 64)), net(pictures(3, 64))) < 1e-5
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())


@torch.no_grad()
def test_a_backbone_with_weights_that_are_no_convolutions_is_not_folded():
    assert fold_batchnorm(network("convnext_atto"), pictures(1, 64)) is None
    assert fold_batchnorm(network("vit_tiny_patch16_224"), pictures(1, 224)) is None


@torch.no_grad()
def test_an_activation_after_something_was_added_in_place_follows_no_convolution():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.act = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1), nn.ReLU()
            self.early = nn.ReLU()

        def forward(self, x):
            y = self.two(self.early(self.one(x)))
            y += x
            return self.act(y)

    block = Block()
    assert followers(block, torch.randn(1, 3, 4, 4), (nn.ReLU,)) == [(block.one, block.early)]


@pytest.mark.parametrize("dtype", [pytest.param(torch.bfloat16, marks=needs_bfloat16), torch.float32])
@pytest.mark.parametrize(
    ("size", "kernel", "stride"), [(16, 3, 2), (16, 5, 2), (15, 3, 2), (15, 5, 2), (16, 3, 1), (14, 5, 1)]
)
@torch.no_grad()
def test_zeros_before_the_kernel_do_what_tensorflows_padding_does(size, kernel, stride, dtype):
    from timm.layers import Conv2dSame

    torch.manual_seed(0)
    conv = Conv2dSame(8, 8, kernel, stride=stride, groups=8)
    low = torch.randn(2, 8, size, size).bfloat16().to(dtype).contiguous(memory_format=torch.channels_last)
    conv.weight.copy_(conv.weight.bfloat16().float())
    conv.bias.copy_(conv.bias.bfloat16().float())
    result = PackedConv(conv, nn.ReLU6(), low.shape, dtype)(low).float()
    expected = conv(low.float()).clamp(0, 6)
    assert result.shape == expected.shape
    near = 0.01 if dtype == torch.bfloat16 else 1e-5  # bfloat16 keeps 8 bits
    assert torch.allclose(result, expected, rtol=near, atol=near)


@needs_bfloat16
@pytest.mark.parametrize("name", ["resnet10t", "tf_efficientnet_lite0"])
@torch.inference_mode()
def test_in_bfloat16_features_are_near_and_heads_and_batches_are_as_they_were(name):
    spec = ModelSpec(name, {}, {"visimsiam": KappaHeadSpec(8, 31.0)}, Preprocessing(size=64, resize=64))
    torch.manual_seed(0)
    model = ScoringModel(spec, backbone=network(name)).eval().to(memory_format=torch.channels_last)
    fast = for_inference(model, CPU, "bf16")
    assert fast is not model
    assert fast.heads is model.heads
    pixels = torch.randint(0, 256, (9, 3, 64, 64), generator=torch.Generator().manual_seed(2), dtype=torch.uint8)
    full, low = model(pixels), fast(pixels)
    assert relative_error(low.embedding, full.embedding) < 0.03
    kappas = [outputs.columns["kappa_visimsiam"] for outputs in (full, low)]
    assert torch.allclose(*kappas, rtol=0.05)
    parts = torch.cat([fast(part).embedding for part in pixels.split(4)])
    assert relative_error(parts, low.embedding) < 0.01


@pytest.mark.parametrize("name", ["resnet10t", "tf_efficientnet_lite0", "mobilenetv2_050"])
@torch.inference_mode()
def test_in_full_precision_folding_moves_the_last_digits_alone(name):
    spec = ModelSpec(name, {}, {"visimsiam": KappaHeadSpec(8, 31.0)}, Preprocessing(size=64, resize=64))
    model = ScoringModel(spec, backbone=network(name)).eval().to(memory_format=torch.channels_last)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    fast = for_inference(model, CPU, "fp32")
    assert isinstance(fast.quick.backbones[0], PackedBackbone)
    pixels = torch.randint(0, 256, (40, 3, 64, 64), generator=torch.Generator().manual_seed(2), dtype=torch.uint8)
    full, folded = model(pixels), fast(pixels)
    assert relative_error(folded.embedding, full.embedding) < 1e-5
    assert torch.allclose(folded.columns["kappa_visimsiam"], full.columns["kappa_visimsiam"], rtol=1e-4)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


@torch.inference_mode()
def test_what_backbones_read_is_what_the_model_would_have_made_of_the_pixels():
    parts = [PartSpec("resnet10t", 64, 0.6, (0.5, 0.4, 0.3), (0.5, 0.2, 0.1)), PartSpec("resnet10t", 32, 0.4, **MIDDLE)]
    seen = Preprocessing(64, 64, mean=(0, 0, 0), std=(1, 1, 1))
    several = ScoringModel(ModelSpec("two", {}, {}, seen, tuple(parts))).eval()
    network = ScoringModel(ModelSpec("resnet10t", preprocessing=Preprocessing(64, 64, mean=(0.1, 0.2, 0.3)))).eval()
    pixels = torch.randint(0, 256, (5, 64, 64, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
    plain = several.normalize(pixels)
    pairs = [*zip(BackboneInputs(several)(pixels), [several.backbone.read(at, plain) for at in (0, 1)], strict=True)]
    pairs.append((BackboneInputs(network)(pixels)[0], network.normalize(pixels)))
    for result, expected in pairs:
        assert result.is_contiguous(memory_format=torch.channels_last)
        assert torch.allclose(result, expected, rtol=1e-5, atol=2e-6)


@torch.inference_mode()
def test_nothing_changes_without_bfloat16_and_for_a_backbone_that_cannot_be_folded(monkeypatch):
    model = ScoringModel(ModelSpec("resnet10t", preprocessing=Preprocessing(size=32, resize=32))).eval()
    monkeypatch.setattr("scoring.folded.has_bfloat16", lambda: False)
    assert for_inference(model, CPU, "bf16") is model
    monkeypatch.undo()
    other = ScoringModel(ModelSpec("convnext_atto", preprocessing=Preprocessing(size=64, resize=64))).eval()
    assert for_inference(other, CPU, "bf16") is other
    assert for_inference(other, CPU, "fp32") is other


@needs_bfloat16
@torch.inference_mode()
def test_backbones_side_by_side_are_each_folded_and_the_model_they_came_from_stays():
    parts = [PartSpec("resnet10t", 64, 0.6, **MIDDLE), PartSpec("resnet10t", 32, 0.4, **MIDDLE)]
    spec = ModelSpec("two", {}, {}, Preprocessing(64, 64, mean=(0, 0, 0), std=(1, 1, 1)), tuple(parts), 0, "bf16")
    model = ScoringModel(spec).eval()
    lively(model.backbone)
    before = list(model.backbone.parts)
    runner = Runner(model, CPU, "bf16")
    assert isinstance(runner.model.backbone, JoinedBackbone)
    assert all(isinstance(part, PackedBackbone) for part in runner.model.quick.backbones)
    assert list(model.backbone.parts) == before
    pixels = torch.randint(0, 256, (5, 64, 64, 3), dtype=torch.uint8).numpy()
    embedding = torch.from_numpy(runner.submit(pixels).result().embedding)
    expected = model(torch.from_numpy(pixels).permute(0, 3, 1, 2)).embedding
    assert relative_error(embedding, expected) < 0.03


def test_auto_takes_bfloat16_on_a_cpu_that_has_it_for_models_that_request_it(monkeypatch):
    assert select_precision("auto", CPU) == "fp32"
    for able in (True, False):
        monkeypatch.setattr("scoring.runner.has_bfloat16", lambda able=able: able)
        assert select_precision("auto", CPU, "bf16") == ("bf16" if able else "fp32")
        assert select_precision("auto", CPU, "fp32") == "fp32"
        assert select_precision("fp32", CPU, "bf16") == "fp32"
        assert select_precision("auto", torch.device("cuda"), "fp32") == "bf16"
