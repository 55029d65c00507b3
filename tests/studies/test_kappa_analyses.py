"""The analyses of a certainty, against slow restatements."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from scoring.heads import KappaHeadSpec
from scoring.images import Preprocessing
from scoring.metrics.proportions import wilson
from scoring.model import ModelSpec, ScoringModel

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import analysis_measures
from analysis_measures import Eye, Pictures, best_crop, by_view, cosines, few_labels, histogram, probe_of, shown_views

pytestmark = pytest.mark.study


@pytest.fixture(scope="module")
def eye():
    torch.manual_seed(0)
    spec = ModelSpec("resnet10t", {}, {"visimsiam": KappaHeadSpec(16, 1.0)}, Preprocessing(size=32, resize=32))
    return Eye(ScoringModel(spec).eval(), "kappa_visimsiam")


@pytest.fixture(scope="module")
def pictures():
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randint(0, 256, (12, 3, 64, 64), generator=generator, dtype=torch.uint8)
    label = np.arange(12) % 2
    pixels[label == 1, 0] = 255
    return Pictures(pixels, label, 2)


def test_a_histogram_counts_every_row_once_and_its_slope_matches_most_likelihood():
    draw = np.random.default_rng(0)
    certainty = draw.normal(size=900)
    right = draw.random(900) < 1 / (1 + np.exp(-(0.5 + 1.5 * certainty)))
    bins = histogram(certainty, right, bins=8)
    assert bins.right.sum() == right.sum()
    assert bins.wrong.sum() == (~right).sum()
    inside = (certainty >= bins.edges[3]) & (certainty < bins.edges[4])
    assert bins.accuracy[3] == pytest.approx(wilson(int(right[inside].sum()), int(inside.sum())))
    chance = bins.curve(certainty)
    # at the maximum the residuals are orthogonal to 1 and to the certainty
    assert np.array([right - chance, (right - chance) * certainty]).sum(1) == pytest.approx([0, 0], abs=1e-4)
    assert bins.p < 0.01 < histogram(draw.normal(size=900), right).p


def test_the_agreement_of_views_is_the_mean_cosine_over_all_pairs(eye, pictures, monkeypatch):
    seen = []
    look = Eye.look

    def watched(self, *arguments):
        seen.append(look(self, *arguments))
        return seen[-1]

    monkeypatch.setattr(Eye, "look", watched)
    mean_cosine = cosines(eye, pictures, n=3)
    rows = torch.stack([torch.nn.functional.normalize(rows, dim=1) for rows, _ in seen])
    slow = [(rows[a] * rows[b]).sum(1) for a in range(3) for b in range(a)]
    assert mean_cosine == pytest.approx(torch.stack(slow).mean(0).numpy(), abs=1e-5)
    assert (torch.stack(slow) < 0.9999).any()  # the views differ


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_most_certain_crop_is_no_less_certain_than_any_single_one(eye, pictures, sign, monkeypatch):
    probe, seen = probe_of(eye, pictures), []
    look = Eye.look

    def watched(self, *arguments):
        seen.append(look(self, *arguments))
        return seen[-1]

    monkeypatch.setattr(Eye, "look", watched)
    best = best_crop(eye, probe, pictures, sign=sign, n=4)
    crops = np.stack([values for _, values in seen[1:]])
    assert best.best[1] == pytest.approx((sign * (sign * crops).max(0)).mean())
    assert best.random[1] == pytest.approx(crops[0].mean())
    assert best.plain[1] == pytest.approx(seen[0][1].mean())
    taken = torch.stack([rows for rows, _ in seen[1:]])[torch.from_numpy((sign * crops).argmax(0)), torch.arange(12)]
    said = probe.predict(taken.numpy()).argmax(1) == pictures.label
    assert best.best[0] == pytest.approx(said.mean())


def test_views_are_drawn_again_where_they_are_drawn_at_all(eye, pictures):
    right = np.arange(12) < 5
    columns = by_view(eye, pictures, right)
    assert {name: len(by["all"]) for name, by in columns.items()} == {
        "plain": 1,
        "blur": 1,
        "colour jitter": 5,
        "greyscale": 1,
        "random crop": 5,
    }
    assert columns["plain"]["all"][0] == pytest.approx(eye.look(pictures.pixels)[1])
    assert columns["random crop"]["all"].std(0).min() > 0
    assert columns["blur"]["right"].tolist() == columns["blur"]["all"][:, right].tolist()
    assert columns["blur"]["wrong"].shape == (1, 7)


def test_few_labels_query_rows_outside_training_and_the_same_for_every_model(monkeypatch):
    draw = np.random.default_rng(0)
    label = np.arange(200) % 4
    rows = {"good": np.eye(4)[label] + 0.3 * draw.normal(size=(200, 4)), "bad": draw.normal(size=(200, 4))}
    fitted = []
    fit = analysis_measures.fit_linear_probe

    def watched(vectors, labels, n_classes, **options):
        fitted.append((len(labels), sorted(set(labels.tolist()))))
        return fit(vectors, labels, n_classes, **options)

    monkeypatch.setattr(analysis_measures, "fit_linear_probe", watched)
    accuracies = few_labels(rows, label, (0.1, 1.0), draws=2)
    assert [n for n, _ in fitted[::2]] == [n for n, _ in fitted[1::2]]
    assert all(classes == [0, 1, 2, 3] for _, classes in fitted)
    assert fitted[2][0] == 100
    assert accuracies["good"][1.0].mean() > 0.85 > 0.5 > accuracies["bad"][1.0].mean()
    assert accuracies["good"][1.0].shape == (2,)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_views_of_a_sheet_are_the_ends_of_the_same_crops(eye, pictures, sign):
    views = shown_views(eye, pictures, sign=sign, crops=5)
    plain, best, worst = (views[name] for name in ("plain", "most certain crop", "least certain crop"))
    assert torch.equal(plain[0], pictures.pixels.float())
    assert (sign * best[1] >= sign * worst[1]).all()
    for pixels, values in views.values():
        assert pixels.shape == pictures.pixels.shape
        assert eye.look(pixels)[1] == pytest.approx(values, rel=1e-5)  # the column is of the image that is shown
