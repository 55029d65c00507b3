import pytest
import torch

from scoring.backbone_options import parse_backbone_options
from scoring.backbones import create_backbone, feature_width
from scoring.checkpoint import load_model, save_checkpoint
from scoring.errors import InputError
from scoring.small_networks import STAGES
from trainers.build import build, small_map
from trainers.config import TrainConfig
from trainers.start import find_start

CARD = {"method": "simsiam", "training": {}, "metrics": {}, "data_licence": "CC0"}


def parameters(network):
    return sum(value.numel() for value in network.parameters())


@pytest.mark.parametrize(
    ("name", "width", "total"),
    # the published totals with a classifier of 10 classes (Kuang Liu's pytorch-cifar), without that
    [("resnet18_cifar", 512, 11_173_962 - 5_130), ("resnet50_cifar", 2048, 23_520_842 - 20_490)],
)
@torch.inference_mode()
def test_cifar_resnets_have_the_published_size_and_end_in_a_map_of_4_by_4(name, width, total):
    network = create_backbone(name).eval()
    assert parameters(network) == total
    assert network.forward_features(torch.zeros(1, 3, 32, 32)).shape == (1, width, 4, 4)
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, width) == (2, feature_width(network))


@pytest.mark.parametrize(("size", "stem"), [(32, 32), (64, 32)])
@torch.inference_mode()
def test_the_encoder_of_simvae_has_the_maps_of_its_table(size, stem):
    network = create_backbone("resnet_simvae", options={"img_size": size}).eval()
    x = network.maxpool(network.conv1(network.pad(torch.zeros(1, 3, size, size))))
    assert x.shape == (1, 16, stem, stem)
    for at, (side, channels) in enumerate([(32, 32), (16, 64), (8, 128), (4, 256)], start=1):
        x = getattr(network, f"layer{at}")(x)
        assert x.shape == (1, channels, side, side)
    assert network(torch.zeros(2, 3, size, size)).shape == (2, 4096) == (2, feature_width(network))
    convolutions, before = 3 * 16 * 16, 16
    for channels, _ in STAGES:
        convolutions += 9 * channels * (before + channels) + before * channels + 6 * channels  # 3 norms of 2 numbers
        before = channels
    assert parameters(network) == convolutions + 32


def test_the_mlp_has_the_widths_of_its_table():
    network = create_backbone("mlp", options={"img_size": 28})
    assert parameters(network) == (3 * 784 + 1) * 500 + 501 * 500 + 501 * 2000
    assert network(torch.zeros(2, 3, 28, 28)).shape == (2, 2000)


VIT = {"img_size": 32, "depth": 1, "class_token": False, "global_pool": "avg"}


@pytest.mark.parametrize(("name", "options"), [("resnet18_cifar", {}), ("mlp", {"img_size": 32}), ("test_vit", VIT)])
@torch.inference_mode()
def test_a_network_with_options_is_stored_and_loads_again_equally(tmp_path, name, options):
    torch.manual_seed(0)
    config = TrainConfig("simclr", name, size=32, batch_size=4, backbone_options=options)
    model, _ = build(config, 0)
    assert options.items() <= model.spec.backbone_options.items()
    save_checkpoint(tmp_path / "m.safetensors", model, CARD)
    again, card = load_model(tmp_path / "m.safetensors")
    assert options.items() <= card["backbone"]["options"].items()
    pixels = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8)
    assert torch.equal(again(pixels).embedding, model.eval()(pixels).embedding)


def test_options_come_with_their_types_and_bounds():
    parsed = parse_backbone_options(
        {"depth": "2", "drop_path_rate": 0.5, "class_token": "false", "dynamic_img_size": True, "global_pool": "avg"}
    )
    assert parsed == {
        "depth": 2, "drop_path_rate": 0.5, "class_token": False, "dynamic_img_size": True, "global_pool": "avg"
    }  # fmt: skip
    for name, value, words in (
        ("checkpoint_path", "/etc/passwd", "not one of"),
        ("depth", "1000000", "depth takes between 1 and 256"),
        ("depth", "2.5", "depth takes"),
        ("class_token", "1", "false, true"),
        ("drop_rate", "NaN", "drop_rate takes"),
    ):
        with pytest.raises(InputError, match=words):
            parse_backbone_options({name: value})


def test_options_are_for_networks_that_are_built(tiny_checkpoint):
    assert find_start("resnet18", settings={"stem_width": 32}).options == {"stem_width": 32}
    with pytest.raises(InputError, match="leave --backbone-set depth out"):
        find_start(str(tiny_checkpoint), settings={"depth": 2})
    with pytest.raises(InputError, match="no option 'depth'"):
        create_backbone("resnet18_cifar", options={"depth": 2})
    with pytest.raises(InputError, match="cannot build 'resnet18'"):
        create_backbone("resnet18", options={"depth": 2})
    with pytest.raises(InputError, match="mlp"):
        find_start("timm:mlp")


def test_a_size_that_leaves_one_value_of_a_map_is_named():
    def note(name, size):
        config = TrainConfig("simclr", name, size=size, batch_size=4)
        return small_map(config, *build(config, 0))

    assert "views of 32 pixels" in note("resnet18", 32)
    assert note("resnet18", 64) is None
    assert note("resnet18_cifar", 32) is None
