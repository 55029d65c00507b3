import json
import math

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import load_file, save_file
from two_backbones import (
    CARD,
    LARGE,
    NAME,
    WIDTH,
    images,
    install,
    joined,
    make_model,
    make_package,
    own_weights,
    parts,
)

from scoring import checkpoint
from scoring.cards import PartSpec, part_from_json, read_header
from scoring.checkpoint import load_model, save_checkpoint
from scoring.errors import InputError
from scoring.heads import KappaHeadSpec
from scoring.images import Preprocessing
from scoring.joined_backbone import JoinedBackbone, require_parts
from scoring.model import ModelSpec, ScoringModel, side_by_side
from trainers.start import backbone_digest

MIDDLE = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packages")
    with pytest.MonkeyPatch.context() as patch:
        state = make_package(folder)
        install(folder, patch)
        yield folder, state


@pytest.fixture(scope="module")
def model(place):
    return make_model()


@pytest.fixture(scope="module")
def projected(place):
    return make_model(projection=12)


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "two.safetensors"
    save_checkpoint(path, model, CARD)
    return path


def pooled_slowly(pixels, state):
    """What the two networks pool of images, one at a time, by timm alone; the small square by means in numpy."""
    large, small = timm.create_model(NAME, num_classes=0), timm.create_model(NAME, num_classes=0)
    large.load_state_dict({name: value for name, value in state.items() if not name.startswith("fc.")})
    small.load_state_dict(own_weights())
    rows = []
    for picture in pixels.numpy().astype(np.float64):
        means = sum(picture[:, y::2, x::2] for y in (0, 1) for x in (0, 1)) / 4
        row = []
        for net, seen, part in ((large, picture, parts()[0]), (small, means, parts()[1])):
            ready = np.stack([(seen[c] / 255 - part.mean[c]) / part.std[c] for c in range(3)])
            with torch.inference_mode():
                row.append(net.eval()(torch.from_numpy(ready).float()[None])[0].numpy())
        rows.append(row)
    return rows


def test_features_are_each_networks_own_less_the_centre_over_the_scale(model, place):
    pixels = images(3)
    with torch.inference_mode():
        computed = model.features(pixels)
    trunks = model.backbone
    assert computed.dtype == torch.float32
    for got, (large, small) in zip(computed.numpy(), pooled_slowly(pixels, place[1]), strict=True):
        centre = trunks.centre.numpy()
        expected = [
            (large - centre[:WIDTH]) / float(trunks.scale[0]),
            (small - centre[WIDTH:]) / float(trunks.scale[1]),
        ]
        np.testing.assert_allclose(got, np.concatenate(expected), atol=2e-3)


@pytest.mark.slow
def test_centre_and_scale_are_mean_and_root_mean_square_over_the_images_joined_on(model, place):
    pooled = pooled_slowly(images(24, 1), place[1])
    for at, cut in enumerate((slice(0, WIDTH), slice(WIDTH, 2 * WIDTH))):
        values = np.stack([row[at] for row in pooled]).astype(np.float64)
        np.testing.assert_allclose(model.backbone.centre[cut].numpy(), values.mean(0), rtol=1e-3, atol=1e-4)
        spread = math.sqrt(((values - values.mean(0)) ** 2).mean())
        assert float(model.backbone.scale[at]) == pytest.approx(spread, rel=2e-3)


def test_the_cosine_of_two_embeddings_is_the_mean_of_the_parts_cosines_by_their_shares(model):
    with torch.inference_mode():
        features, embedding = model.features(images(5)).double().numpy(), model(images(5)).embedding.double().numpy()

    def cosines(rows):
        return np.array([[a @ b / math.sqrt((a @ a) * (b @ b)) for a in rows] for b in rows])

    centre, scale = model.backbone.centre.double().numpy(), model.backbone.scale.double().numpy()
    pooled = features * scale.repeat(WIDTH) + centre  # the centre is put back
    expected = 0.7 * cosines(pooled[:, :WIDTH]) + 0.3 * cosines(pooled[:, WIDTH:])
    np.testing.assert_allclose(embedding @ embedding.T, expected, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(embedding, axis=1), 1, atol=1e-6)


def test_a_projection_keeps_the_directions_that_explain_most_a_quarter_whitened(model, projected):
    pixels = images(24, 1)  # those it was joined on
    with torch.inference_mode():
        full, short = model(pixels).embedding.double().numpy(), projected(pixels).embedding.double().numpy()
    assert short.shape == (24, 12)
    assert projected.embedding_width == 12
    np.testing.assert_allclose(np.linalg.norm(short, axis=1), 1, atol=1e-6)
    values = np.linalg.eigvalsh(full.T @ full / 24)[::-1][:12]
    kept = full @ projected.backbone.projection.double().numpy().T
    np.testing.assert_allclose((kept**2).mean(0), values**0.75, rtol=0.02)


def test_a_model_with_heads_can_be_projected_later(model, projected):
    with torch.inference_mode():
        later = joined.projected(with_a_head(model), model.features(images(24, 1)), 12)
        expected, shorter = with_a_head(model)(images(4)), later(images(4))
        assert torch.equal(shorter.columns["kappa_visimsiam"], expected.columns["kappa_visimsiam"])
        ours, reference = shorter.embedding, projected(images(4)).embedding
    np.testing.assert_allclose(ours @ ours.T, reference @ reference.T, atol=5e-3)  # directions may be turned around


def test_one_backbone_and_too_few_images_are_not_projected(model):
    with pytest.raises(InputError, match=r"several backbones.*resnet10t"):
        joined.projected(load_model("trio")[0], torch.zeros(5, 512), 4)
    with pytest.raises(InputError, match=r"12 images .*got 5"):
        joined.projected(model, torch.zeros(5, 2 * WIDTH), 12)


def test_a_checkpoint_holds_no_tensor_of_a_packaged_backbone_and_gives_back_the_same_model(model, projected, tmp_path):
    for each in (model, projected):
        path = tmp_path / "m.safetensors"
        save_checkpoint(path, each, CARD)
        names = load_file(path)
        assert not any(name.startswith("backbone.parts.0.") for name in names)
        assert any(name.startswith("backbone.parts.1.") for name in names)
        loaded, card = load_model(path)
        assert loaded.spec == each.spec
        assert card["backbone"]["name"] == "test_resnet+test_resnet"
        assert card["backbone"]["width"] == 2 * WIDTH
        with torch.inference_mode():
            assert torch.equal(loaded(images(3)).embedding, each(images(3)).embedding)


def with_a_head(model):
    spec = side_by_side(model.spec.parts, model.spec.preprocessing)
    torch.manual_seed(3)
    heads = {"visimsiam": KappaHeadSpec(8, 31.0)}
    return ScoringModel(ModelSpec(**{**vars(spec), "heads": heads}), backbone=model.backbone).eval()


def test_a_head_reads_the_features_of_both(model):
    with_head = with_a_head(model)
    with torch.inference_mode():
        outputs = with_head(images(4))
        expected = with_head.heads["visimsiam"](model.features(images(4)))
    assert torch.equal(outputs.columns["kappa_visimsiam"], expected)


def test_features_are_float32_under_low_precision_and_near_full_precision(model):
    def pooled(features):
        pieces = features.split(WIDTH, dim=1)
        return (
            torch.cat([piece * model.backbone.scale[at] for at, piece in enumerate(pieces)], 1) + model.backbone.centre
        )

    with torch.inference_mode():
        full = model.features(images(4))
        with torch.autocast("cpu", torch.bfloat16):
            low = model.features(images(4))
    assert low.dtype == torch.float32
    assert torch.allclose(pooled(low), pooled(full), rtol=0.05, atol=0.02)
    assert not torch.equal(low, full)


def test_a_backbone_that_left_its_package_is_not_saved_under_its_name(place, tmp_path):
    model = make_model()
    with torch.no_grad():
        model.backbone.parts[0].conv1[0].weight.add_(1)
    with pytest.raises(ValueError, match=r"conv1\.0\.weight"):
        save_checkpoint(tmp_path / "m.safetensors", model, CARD)
    assert not (tmp_path / "m.safetensors").exists()


def test_the_digest_of_the_backbone_covers_the_features_whatever_the_embedding(model, projected):
    assert backbone_digest(model) == backbone_digest(projected)
    other = make_model()
    other.backbone.centre.add_(1)
    assert backbone_digest(other) != backbone_digest(model)


def written(path, target, **backbone):
    """A copy of a checkpoint with other things said of its backbone."""
    header = read_header(path)
    header["backbone"] = {**header["backbone"], **backbone}
    save_file(load_file(path), target, {"curate": json.dumps(header)})
    return target


def changed(path, at=0, **fields):
    records = [dict(record) for record in read_header(path)["backbone"]["parts"]]
    records[at] |= fields
    return records


BAD = {
    "no list": (lambda path: {"parts": NAME}, "expected at most 4 backbones"),
    "one backbone": (lambda path: {"parts": changed(path)[:1]}, "expected 2 to 4 backbones"),
    "many backbones": (lambda path: {"parts": changed(path)[:1] * 5}, "expected at most 4 backbones"),
    "a size that does not divide": (lambda path: {"parts": changed(path, size=48)}, "do not divide the 64"),
    "a huge size": (lambda path: {"parts": changed(path, size=10**9)}, "whole number of pixels"),
    "shares": (lambda path: {"parts": changed(path, share=0.9)}, "add up to 1.2"),
    "a share that is no number": (lambda path: {"parts": changed(path, share="half")}, "cannot be read"),
    "options": (lambda path: {"parts": changed(path, options={"checkpoint_path": "x"})}, "is not one of"),
    "a wide projection": (lambda path: {"projection": 10**12}, "1 to 8192 dimensions"),
    "no projection": (lambda path: {"projection": True}, "1 to 8192 dimensions"),
    "another network": (lambda path: {"parts": changed(path, 1, name="vit_giant_patch14_224")}, "do not fit"),
    "a giant that is packaged": (lambda path: {"parts": changed(path, 0, name="eva_giant_patch14_560")}, r"do not fit"),
    "no such network": (lambda path: {"parts": changed(path, 0, name="nonet")}, "no model 'nonet'"),
    "a field": (lambda path: {"parts": changed(path, colour="red")}, "cannot be read"),
    "an outside file": (
        lambda path: {"parts": changed(path, packaged={**changed(path)[0]["packaged"], "file": "../../etc/passwd"})},
        "is not a path inside a package",
    ),
    "an absolute file": (
        lambda path: {"parts": changed(path, packaged={**changed(path)[0]["packaged"], "file": "/dev/zero"})},
        "is not a path inside a package",
    ),
    "no digest": (lambda path: {"parts": changed(path, packaged={"package": "tiny-weights"})}, "cannot be read"),
}


@pytest.mark.parametrize("name", BAD)
def test_an_impossible_card_is_one_line(saved, tmp_path, monkeypatch, name):
    change, words = BAD[name]
    path = written(saved, tmp_path / "bad.safetensors", **change(saved))
    monkeypatch.setattr(checkpoint, "require_digest", lambda path, header, tensors: None)
    with pytest.raises(InputError, match=words) as caught:
        load_model(path)
    assert "\n" not in str(caught.value)


def test_a_card_that_was_changed_does_not_match_its_digest(saved, tmp_path):
    with pytest.raises(InputError, match="match the digest"):
        load_model(written(saved, tmp_path / "bad.safetensors", parts=changed(saved, share=0.6)))


def test_a_part_reads_back_as_it_was_written(place):
    for part in parts():
        assert part_from_json(json.loads(json.dumps(part.to_json()))) == part


def test_parts_side_by_side_are_checked_before_anything_is_built():
    half = [PartSpec(NAME, 64, 0.5, **MIDDLE), PartSpec(NAME, 32, 0.5, **MIDDLE)]
    require_parts(half, 64, 0)
    with pytest.raises(ValueError, match="do not divide"):
        require_parts(half, 48, 0)
    with pytest.raises(ValueError, match="above 0"):
        PartSpec(NAME, 64, 0.0, **MIDDLE)
    assert JoinedBackbone(half, 64).num_features == 2 * WIDTH
    assert side_by_side(half, Preprocessing(size=64, resize=64)).preprocessing.size == LARGE
