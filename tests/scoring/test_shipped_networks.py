"""The shipped models' backbones are timm's, layer by layer and bit by bit."""

import pytest
import timm
import torch

from scoring.backbones import create_backbone, pads_same, published_shapes, stored_backbone
from scoring.cards import shipped_models
from scoring.checkpoint import load_model
from scoring.shipped_networks import NETWORKS, same_padding


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("size", [33, 64, 97, 128])
def test_features_equal_timm_with_the_same_weights(name, size):
    generator = torch.Generator().manual_seed(size)
    ours, reference = NETWORKS[name](), timm.create_model(name, num_classes=0)
    for value in reference.state_dict().values():
        if value.is_floating_point():
            value.copy_(0.05 + 0.2 * torch.rand(value.shape, generator=generator))
    ours.load_state_dict(reference.state_dict())
    pictures = torch.randn(2, 3, size, size, generator=generator)
    for training in (False, True):
        expected = reference.train(training)(pictures)
        assert torch.equal(ours.train(training)(pictures), expected)
        assert expected.shape == (2, ours.num_features)


@pytest.mark.parametrize("name", NETWORKS)
def test_weights_have_the_names_shapes_and_order_of_timm(name):
    reference = {key: value.shape for key, value in timm.create_model(name).state_dict().items()}
    assert list(published_shapes(name).items()) == list(reference.items())


@pytest.mark.parametrize(("name", "options"), [("resnet18", {}), ("resnet10t", {"in_chans": 1})])
def test_every_other_network_is_of_timm(name, options):
    backbone = stored_backbone(name, options)
    assert type(backbone) is type(create_backbone(name, options=options))
    assert type(backbone).__module__.startswith("timm.")


@pytest.mark.parametrize("name", shipped_models())
def test_shipped_models_need_no_timm(name):
    model, _ = load_model(name)
    assert {type(module).__module__.partition(".")[0] for module in model.modules()} <= {"torch", "scoring"}


@pytest.mark.parametrize(("size", "kernel", "stride", "dilation"), [(128, 3, 2, 1), (7, 5, 2, 1), (9, 3, 3, 2)])
def test_padding_equals_timm(size, kernel, stride, dilation):
    assert same_padding(size, kernel, stride, dilation) == timm.layers.get_same_padding(size, kernel, stride, dilation)


def test_padding_by_size_is_seen_in_both():
    ours = NETWORKS["tf_efficientnet_lite0"]().conv_stem
    reference = timm.create_model("tf_efficientnet_lite0").conv_stem
    assert pads_same(ours)
    assert pads_same(reference)
    assert not pads_same(torch.nn.Conv2d(3, 3, 3))
