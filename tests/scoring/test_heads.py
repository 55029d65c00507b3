import pytest
import torch

from scoring.class_heads import ClassifierHeadSpec, DropoutHeadSpec, EnsembleHeadSpec, HetXLHeadSpec, SNGPHeadSpec
from scoring.errors import InputError
from scoring.heads import (
    GaussiansHeadSpec,
    JunkHeadSpec,
    KappaHeadSpec,
    NormHeadSpec,
    PosteriorHeadSpec,
    PrototypeHeadSpec,
    UncertaintyHeadSpec,
    head_from_json,
    head_to_json,
)
from scoring.images import Preprocessing
from scoring.model import ModelSpec, ScoringModel
from scoring.scorers import HEADS, SCORERS, TRAINED

SPECS = [
    KappaHeadSpec(8, 3.0),
    NormHeadSpec(4, 2.0),
    UncertaintyHeadSpec(8, 3, 0.5),
    ClassifierHeadSpec(3),
    JunkHeadSpec(8, 1),
    PosteriorHeadSpec(8, 32, 4),
    GaussiansHeadSpec(6, 2),
    PrototypeHeadSpec(16, 8, 4, 0.1),
    EnsembleHeadSpec(3, 4),
    DropoutHeadSpec(3, 0.2, 5),
    HetXLHeadSpec(3, 4, 2, 5),
    SNGPHeadSpec(3, 8, 0.5, 2.0, 1.0),
]


@pytest.mark.parametrize("spec", SPECS)
def test_a_head_is_read_as_it_was_written(spec):
    assert head_from_json(head_to_json(spec)) == spec


def test_every_kind_is_tried_here():
    trained = {name for name, kind in SCORERS.items() if kind.needs in TRAINED}
    assert {spec.kind for spec in SPECS} == trained == set(HEADS)


def test_a_record_from_before_there_were_kinds_is_a_kappa_head():
    assert head_from_json({"hidden": 512, "scale": 511.0}) == KappaHeadSpec(512, 511.0)


def test_an_unknown_kind_is_named_with_those_that_exist():
    with pytest.raises(InputError, match="did you mean 'kappa'"):
        head_from_json({"kind": "kapa"})


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        *(("uncertainty", {"hidden": size}) for size in (0, 10**9)),
        *(("uncertainty", {"scale": scale}) for scale in (float("inf"), 1e308, 10**400)),
        ("uncertainty", {"depth": 1000}),
        ("prototypes", {"prototypes": 10**6}),
        ("prototypes", {"hidden": 10**4}),
        ("prototypes", {"bottleneck": 0}),
        ("prototypes", {"temperature": 0.0}),
    ],
)
def test_a_card_with_sizes_out_of_range_is_refused(kind, wrong):
    with pytest.raises(InputError, match=kind):
        head_from_json({"kind": kind, **wrong})


def test_a_head_of_prototypes_gives_the_entropy_of_centred_and_sharpened_cosines():
    torch.manual_seed(0)
    spec = PrototypeHeadSpec(16, 8, 4, 0.1)
    head = spec.build(3)
    head.centre.copy_(torch.randn(16) / 10)
    x = torch.randn(7, 3)
    place = head.cosines.layers(x)
    cosine = torch.stack([torch.cosine_similarity(place, vector, dim=1) for vector in head.cosines.prototypes], 1)
    chances = ((cosine - head.centre).double() / 0.1).softmax(1)
    said = spec.score(head(x))
    assert list(said) == ["unc_dino"]
    assert said["unc_dino"].tolist() == pytest.approx((-chances * chances.log()).sum(1).tolist(), rel=1e-4)
    certain = torch.zeros(1, 16)
    certain[0, 2] = 1e4
    assert spec.score(torch.cat([certain, torch.zeros(1, 16)]))["unc_dino"].tolist() == pytest.approx([0, 2.7725887])


def test_an_uncertainty_head_is_the_published_perceptron():
    torch.manual_seed(0)
    head = UncertaintyHeadSpec(5, 2, 2.0).build(3)
    (w0, b0), (w2, b2), (w4, b4) = ((head.layers[i].weight, head.layers[i].bias) for i in (0, 2, 4))
    x = torch.randn(7, 3)

    def leaky(values):
        return torch.where(values > 0, values, 0.01 * values)

    raw = leaky(leaky(x @ w0.T + b0) @ w2.T + b2) @ w4.T + b4
    assert torch.allclose(head(x), 2 * (torch.log1p(raw.exp())[:, 0] + 1e-6), rtol=1e-5)
    assert (w2.shape, w4.shape) == ((5, 5), (1, 5))


def test_the_kappa_of_a_norm_head_is_the_length_of_its_projection():
    head = NormHeadSpec(4, 2.0).build(3)
    x = torch.randn(7, 3)
    assert torch.allclose(head.project(x), 2 * x @ head.out.weight.T, rtol=1e-5)
    assert torch.allclose(head(x), (head.project(x) ** 2).sum(1).sqrt(), rtol=1e-5)
    assert torch.allclose(head(3 * x), 3 * head(x), rtol=1e-5)


def test_the_column_of_a_head_for_junk_is_the_sigmoid_of_its_last_layer():
    torch.manual_seed(0)
    head = JunkHeadSpec(8, 1).build(3)
    x = torch.randn(50, 3)
    chance_of_junk = torch.sigmoid(head.layers(x).squeeze(1))
    columns = JunkHeadSpec().score(head(x))
    assert list(columns) == ["unc_junk"]
    assert torch.allclose(columns["unc_junk"], chance_of_junk, atol=1e-5)


def test_one_pass_gives_every_head_its_answer_in_its_own_direction():
    heads = {"a": SPECS[0], "b": SPECS[1], "c": SPECS[2]}
    model = ScoringModel(ModelSpec("test_resnet", {}, heads, Preprocessing(size=32, resize=32))).eval()
    pixels = torch.randint(0, 256, (5, 3, 32, 32), dtype=torch.uint8)
    with torch.inference_mode():
        outputs, features = model(pixels), model.features(pixels)
        alone = {name: head(features) for name, head in model.heads.items()}
    assert list(outputs.columns) == ["kappa_a", "unc_a", "kappa_b", "unc_b", "unc_c"]
    for name in ("kappa_a", "kappa_b", "unc_c"):
        assert torch.equal(outputs.columns[name], alone[name[-1]])
    for name in ("a", "b"):
        assert torch.equal(outputs.columns[f"unc_{name}"], 1 / alone[name])
