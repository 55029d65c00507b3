import socket

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file

from scoring import backbones
from scoring.cards import find_checkpoint
from scoring.checkpoint import load_model
from scoring.errors import InputError
from scoring.images import Preprocessing
from scoring.model_names import with_weights
from scoring.published import load_published
from trainers.start import find_start

NAME = "resnet10t.c3_in1k"


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    torch.manual_seed(3)
    path = tmp_path_factory.mktemp("weights") / "net.safetensors"
    save_file(timm.create_model(NAME).state_dict(), path)
    return path


def test_a_state_dict_gives_the_embeddings_of_timms_model_with_its_own_preprocessing(weights):
    model, card = load_published(f"timm:{NAME}@{weights}")
    assert model.spec.preprocessing == Preprocessing(176, 201, "bicubic", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert model.spec.heads == {}
    net = timm.create_model(NAME)
    net.load_state_dict(load_file(weights))
    pixels = torch.randint(0, 256, (2, 3, 176, 176), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    with torch.inference_mode():
        tokens = net.eval().forward_features((pixels / 255 - mean) / std)
        pooled = tokens.mean((2, 3))
        outputs = model(pixels)
    assert torch.allclose(outputs.embedding, pooled / pooled.norm(dim=1, keepdim=True), atol=1e-5)
    assert outputs.columns == {}
    assert card["backbone"] == {"name": NAME, "options": {}, "width": 512}


def test_the_digest_covers_the_weights_wherever_they_are(weights, tmp_path):
    state = load_file(weights)
    save_file(dict(reversed(state.items())), tmp_path / "again.safetensors")
    state["conv1.0.weight"] = state["conv1.0.weight"] + 1
    save_file(state, tmp_path / "other.safetensors")
    digests = [load_model(f"timm:{NAME}@{path}")[1]["digest"] for path in (weights, tmp_path / "again.safetensors")]
    assert digests[0] == digests[1]
    assert load_model(f"timm:{NAME}@{tmp_path / 'other.safetensors'}")[1]["digest"] != digests[0]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("timm:resnet18@{weights}", "the weights of 'resnet18"),
        ("timm:resnet18@{weights}.absent.safetensors", "weights, got none"),
        ("timm:resnet18@{weights}.pth", r"in a \.safetensors file"),
        ("timm:resnet18@", r"in a \.safetensors file"),
        ("timm:resnet81@{weights}", r"no model 'resnet81'.*close names"),
        ("timm:resnet10t.nope@{weights}", r"no weights 'resnet10t.nope'"),
    ],
)
def test_what_does_not_fit_is_one_line(weights, name, words):
    with pytest.raises(InputError, match=words) as caught:
        load_model(name.format(weights=weights))
    assert "\n" not in str(caught.value)


def test_a_file_of_weights_goes_with_a_model_of_timms_alone(weights):
    assert with_weights("trio", None) == "trio"
    assert with_weights("timm:resnet18", weights) == f"timm:resnet18@{weights}"
    for name in ("trio", "timm:resnet18@other.safetensors"):
        with pytest.raises(InputError, match="model of timm's"):
            with_weights(name, weights)
    with pytest.raises(InputError, match="got timm:resnet18"):
        find_checkpoint("timm:resnet18")


def test_without_a_network_it_fails_at_once_after_one_request(monkeypatch):
    calls = []

    def deaf(*args, **named):
        calls.append(args)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", deaf)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *args: None)
    with pytest.raises(InputError, match=r"'resnet10t\.c3_in1k' could .*timm:NAME@") as e:
        load_model(f"timm:{NAME}")
    assert "\n" not in str(e.value)
    assert len(calls) == 1


def test_published_weights_that_were_fetched_before_need_no_network(weights, monkeypatch):
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *args: str(weights))
    monkeypatch.setattr(backbones, "urlopen", lambda *args, **named: pytest.fail("requested the network"))
    model, card = load_model(f"timm:{NAME}")
    assert card["digest"] == load_model(f"timm:{NAME}@{weights}")[1]["digest"]
    assert card["data_licence"] == "apache-2.0"
    assert not model.training


def test_a_cache_or_a_head_can_start_from_a_file_of_weights(weights):
    start = find_start(f"timm:{NAME}@{weights}")
    assert start.backbone == NAME
    assert start.model.spec.heads == {}
    assert start.about["digest"] == load_model(f"timm:{NAME}@{weights}")[1]["digest"]
