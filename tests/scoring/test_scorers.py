"""Scores that need no training: what each is given, what its columns are called, and what is refused."""

import subprocess
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from curate.columns import describe
from scoring.class_heads import ClassifierHeadSpec
from scoring.column import Column
from scoring.errors import InputError
from scoring.heads import KappaHeadSpec
from scoring.images import Preprocessing
from scoring.model import ModelSpec, ScoringModel
from scoring.runner import Runner
from scoring.scorers import FEATURES, LOGITS, SCORERS, WHERE, columns_of, scorers_named

CPU = torch.device("cpu")
HEADS = {"visimsiam": KappaHeadSpec(8, 31.0), "classes": ClassifierHeadSpec(5)}


@dataclass(frozen=True)
class Length:
    """The length of the features."""

    needs = FEATURES
    passes = 0
    columns = {"feature_length": Column("length of the features", "1", "more certain")}  # noqa: RUF012

    def score(self, outputs):
        return {"feature_length": outputs.norm(dim=1)}


@dataclass(frozen=True)
class Entropy(Length):
    """Two columns of the logits."""

    needs = LOGITS
    columns = {  # noqa: RUF012
        "unc_entropy": Column("entropy of the class probabilities", "nats", "less certain"),
        "top_class": Column("the likeliest class"),
    }

    def score(self, outputs):
        chances = outputs.softmax(1)
        return {"unc_entropy": -(chances * chances.log()).sum(1), "top_class": outputs.argmax(1).float()}


@dataclass(frozen=True)
class Spread(Length):
    """How far passes with dropout lie apart."""

    passes: int = 4
    columns = {"unc_spread": Column("spread of passes with dropout", "1", "less certain")}  # noqa: RUF012

    def score(self, outputs):
        return {"unc_spread": outputs.std(0).mean(-1)}


@dataclass(frozen=True)
class Disagreement(Spread):
    """Of the class, over passes with dropout."""

    needs = LOGITS
    columns = {"unc_votes": Column("share of passes for another class than most", "1", "less certain")}  # noqa: RUF012

    def score(self, outputs):
        votes = torch.nn.functional.one_hot(outputs.argmax(-1), outputs.shape[-1]).float().mean(0)
        return {"unc_votes": 1 - votes.amax(1)}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    made = ScoringModel(ModelSpec("resnet10t", {}, HEADS, Preprocessing(size=32, resize=32))).eval()
    made.backbone.global_pool = torch.nn.Sequential(made.backbone.global_pool, torch.nn.Dropout(0.3))
    return made.eval()


@pytest.fixture(scope="module")
def pixels():
    return np.random.default_rng(0).integers(0, 256, (9, 32, 32, 3), dtype=np.uint8)


def test_features_and_logits_are_given_as_the_model_has_them(model, pixels):
    runner = Runner(model, CPU, scorers={"length": Length(), "entropy": Entropy()})
    scores = runner.submit(pixels).result()
    names = ["kappa_visimsiam", "unc_visimsiam", "unc_classes_entropy", "feature_length", "unc_entropy", "top_class"]
    assert list(scores.columns) == list(runner.columns) == names
    with torch.no_grad():
        features = model.features(torch.from_numpy(pixels).permute(0, 3, 1, 2)).double().numpy()
    weight, bias = (value.detach().double().numpy() for value in model.heads["classes"].parameters())
    logits = features @ weight.T + bias
    chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert np.allclose(scores.columns["feature_length"], np.sqrt((features**2).sum(1)), rtol=1e-4)
    assert np.allclose(scores.columns["unc_entropy"], -(chances * np.log(chances)).sum(1), rtol=1e-3)
    assert np.array_equal(scores.columns["top_class"], logits.argmax(1))
    assert all(values.dtype == np.float32 for values in scores.columns.values())


def test_repeated_passes_have_dropout_and_are_the_same_every_time(model, pixels):
    plain = Runner(model, CPU).submit(pixels).result()
    before = torch.random.get_rng_state()
    runner = Runner(model, CPU, scorers={"spread": Spread(), "votes": Disagreement(), "once": Length()})
    first, again = (runner.submit(pixels).result() for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not model.backbone.training
    assert not any(layer.training for layer in model.dropouts())
    assert (first.columns["unc_spread"] > 0).all()
    for name, values in first.columns.items():
        assert np.array_equal(values, again.columns[name])
    for name, values in plain.columns.items():
        assert np.array_equal(values, first.columns[name])
    assert np.array_equal(plain.embedding, first.embedding)
    # the definition: the passes, one after another
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2)
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        model.backbone.global_pool[1].train()
        passes = torch.stack([model.features(images) for _ in range(4)])
        model.backbone.global_pool[1].eval()
        votes = torch.stack([model.heads["classes"](features).argmax(1) for features in passes])
    assert np.allclose(first.columns["unc_spread"], passes.std(0).mean(-1), rtol=1e-4)
    most = [max(np.bincount(votes[:, row]) / 4) for row in range(9)]
    assert np.allclose(first.columns["unc_votes"], 1 - np.array(most))


def test_a_model_without_what_a_scorer_needs_is_refused_before_any_image(model):
    bare = ScoringModel(ModelSpec("resnet10t", {}, {}, Preprocessing(size=32, resize=32)))
    with pytest.raises(InputError, match=r"entropy .*no classifier"):
        Runner(bare, CPU, scorers={"entropy": Entropy()})
    with pytest.raises(InputError, match="dropout, and resnet10t"):
        Runner(bare, CPU, scorers={"spread": Spread()})
    named = replace(model.spec, heads={"entropy": KappaHeadSpec(8)})
    with pytest.raises(InputError, match=r"column unc_entropy.*head"):
        Runner(ScoringModel(replace(named, heads={**named.heads, **HEADS})), CPU, scorers={"entropy": Entropy()})


def test_a_scorer_that_gives_other_columns_than_it_declares_is_its_authors_mistake(model, pixels):
    @dataclass(frozen=True)
    class Short(Length):
        def score(self, outputs):
            return {"feature_length": outputs.norm(dim=1)[1:]}

    with pytest.raises(ValueError, match=r"'feature_length'.*\(9,\)"):
        Runner(model, CPU, scorers={"short": Short()}).submit(pixels)


def test_names_directions_and_meanings_are_what_scorers_declare(monkeypatch):
    assert columns_of(HEADS).keys() == {"kappa_visimsiam", "unc_visimsiam", "unc_classes_entropy"}
    assert describe("kappa_visimsiam").higher == "more certain"
    assert describe("unc_entropie").meaning == "uncertainty of the representation"
    monkeypatch.setitem(WHERE, "entropy", f"{__name__}:Entropy")
    assert describe("unc_entropy") == Column("entropy of the class probabilities", "nats", "less certain")
    assert describe("unc_visimsiam").meaning == "uncertainty of the representation"
    assert describe("top_class").higher == ""
    assert describe("colour").meaning == "the user's own"
    assert set(scorers_named(["entropy"])) == {"entropy"}
    for wrong, hint in (("entropi", "did you mean 'entropy'"), ("kappa", "unknown scorer 'kappa'")):
        with pytest.raises(InputError, match=hint):
            scorers_named([wrong])


def test_every_column_of_an_uncertainty_is_higher_where_an_image_is_less_certain():
    for kind in SCORERS.values():
        for name, column in kind.columns.items():
            assert column.meaning
            assert (column.higher == "less certain") == name.startswith("unc_")


def test_the_table_of_scorers_loads_no_torch():
    code = "import sys, curate.columns as c; c.describe('kappa_a'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
