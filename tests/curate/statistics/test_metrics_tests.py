"""Permutation test, logistic regression, linear classifier, entropy, degradations."""

import io
import itertools

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import sklearn.linear_model
import torch
from PIL import Image

from curate.statistics import calibrators, degradations
from curate.statistics.calibrators import newton_step, newton_terms
from scoring.metrics import classifier, ranking, resampling


def related(seed, n=300, slope=0.7):
    generator = np.random.default_rng(seed)
    x = generator.normal(3, 2, n)
    return x, generator.random(n) < 1 / (1 + np.exp(-slope * (x - 3)))


def test_permutation_p_is_the_share_of_all_orders_that_reach_the_score():
    x, y = np.array([5.0, 1.0, 4.0, 2.0, 3.0]), np.array([1.0, 0.0, 1.0, 0.0, 0.0])
    every = [ranking.auroc(x, np.array(order) > 0) for order in itertools.permutations(y)]
    exact = np.mean(np.array(every) >= ranking.auroc(x, y > 0))
    p = resampling.permutation_test(lambda t: np.array([ranking.auroc(x, t > 0)]), y, repeats=4000)
    assert p[0] == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 4000))
    fast = resampling.permutation_test_linear(ranking.ranks(x), y, repeats=4000)
    assert fast[0] == pytest.approx(p[0], abs=1e-12)


def test_the_product_test_orders_shuffles_as_logistic_coefficients_do():
    x, y = related(0, n=40)
    by_fit = resampling.permutation_test(
        lambda t: np.array([calibrators.logistic_regression(x, t).coefficient]), y, repeats=60
    )
    assert resampling.permutation_test_linear(x, y, repeats=60)[0] == pytest.approx(by_fit[0], abs=1e-12)


def test_unrelated_scores_have_even_p_values_and_related_ones_small():
    generator = np.random.default_rng(0)
    y = generator.random(200) < 0.4
    p = resampling.permutation_test_linear(generator.normal(size=(300, 200)), y, repeats=200)
    assert scipy.stats.kstest(p, "uniform").pvalue > 0.01
    x, y = related(1)
    assert resampling.permutation_test_linear(x, y, repeats=200)[0] == pytest.approx(1 / 201)
    assert np.isnan(resampling.permutation_test_linear(np.zeros(300), y, repeats=5)[0])


def test_logistic_fit_is_the_maximum_likelihood_of_scikit_learn():
    x, y = related(2)
    fit = calibrators.logistic_regression(x, y)
    other = sklearn.linear_model.LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(x[:, None], y)
    assert fit.coefficient == pytest.approx(other.coef_[0, 0], rel=1e-4)
    assert fit.intercept == pytest.approx(other.intercept_[0], rel=1e-4)
    chance = 1 / (1 + np.exp(-fit.intercept - fit.coefficient * x))
    design = np.stack([np.ones_like(x), x], 1)
    covariance = np.linalg.inv(design.T @ (design * (chance * (1 - chance))[:, None]))
    assert fit.error == pytest.approx(np.sqrt(covariance[1, 1]), rel=1e-6)
    assert fit.p == pytest.approx(2 * scipy.stats.norm.sf(fit.coefficient / fit.error), rel=1e-6)


@pytest.mark.parametrize("seed", range(40))
def test_a_score_with_heavy_tails_is_fitted_where_full_newton_steps_would_not_arrive(seed):
    generator = np.random.default_rng(seed)
    x = np.exp(3 * generator.normal(size=200))
    y = (generator.random(200) < 0.97) ^ (x > np.quantile(x, 0.97))
    fit = calibrators.logistic_regression(x, y)
    assert fit.converged
    rest = y - 1 / (1 + np.exp(-fit.intercept - fit.coefficient * x))
    assert rest.sum() == pytest.approx(0, abs=1e-6)  # the equations of the maximum
    assert rest @ (x / x.std()) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("y", [[0, 0, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1]])
def test_a_fit_without_a_finite_answer_is_refused(y):
    fit = calibrators.logistic_regression(np.array([1.0, 2, 3, 4]), np.array(y, bool))
    assert not fit.converged
    assert np.isnan(fit.coefficient)


def test_one_newton_step_is_near_the_fit_of_a_resample():
    x, y = related(3, n=4000)
    fit = calibrators.logistic_regression(x, y)
    terms = newton_terms(x, y, fit)
    generator = np.random.default_rng(0)
    for _ in range(5):
        rows = generator.integers(0, 4000, 4000)
        step = newton_step(fit, np.bincount(rows, minlength=4000) @ terms)
        full = calibrators.logistic_regression(x[rows], y[rows]).coefficient
        assert abs(step - full) < 0.15 * fit.error


def clusters(n=400, d=12, classes=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, d, generator=generator)
    labels = torch.arange(n) % classes
    rows = centres[labels] + 1.5 * torch.randn(n, d, generator=generator)
    return torch.nn.functional.normalize(rows, dim=1), labels


@pytest.mark.parametrize("c", [0.1, 1.0, 20.0])
def test_linear_classifier_agrees_with_scikit_learn(c):
    rows, labels = clusters()
    fit = classifier.fit_linear(rows, labels, 4, c=c)
    centred = (rows - rows.mean(0)).double()
    scaled = (centred / centred.square().sum(1).mean().sqrt()).numpy()
    other = sklearn.linear_model.LogisticRegression(C=c, tol=1e-9, max_iter=5000).fit(scaled, labels.numpy())
    assert np.abs(fit.logits(rows).softmax(1).numpy() - other.predict_proba(scaled)).max() < 2e-3


def test_a_class_without_rows_is_never_predicted():
    rows, labels = clusters(classes=2)
    assert set(classifier.fit_linear(rows, labels * 2, 4).logits(rows).argmax(1).tolist()) == {0, 2}


def test_cross_validation_predicts_each_row_from_the_other_folds():
    rows, labels = clusters()
    scores = classifier.cross_validate(rows, labels, folds=4, seed=3)
    fold = classifier.spread_folds(labels, 4, seed=3)
    for number in range(4):
        inside = fold == number
        fit = classifier.fit_linear(rows[~inside], labels[~inside], 4)
        share = fit.logits(rows[inside]).double().softmax(1)
        assert torch.equal(scores.label[inside], share.argmax(1))
        assert scores.entropy[inside.numpy()] == pytest.approx(scipy.stats.entropy(share.numpy(), axis=1), abs=1e-9)


def test_folds_hold_every_class_evenly_and_duplicates_together():
    labels = torch.arange(103) % 5
    fold = classifier.spread_folds(labels, 4, seed=0)
    counts = torch.stack([torch.bincount(fold[labels == c], minlength=4) for c in range(5)])
    assert int((counts.amax(1) - counts.amin(1)).max()) <= 1
    groups = torch.arange(103) // 2
    together = classifier.spread_folds(labels, 4, seed=0, groups=groups)
    assert torch.equal(together[0:102:2], together[1:103:2])


def test_labels_of_noise_are_predicted_at_chance():
    rows, _ = clusters(n=1000)
    labels = torch.randint(4, (1000,), generator=torch.Generator().manual_seed(1))
    assert abs((classifier.cross_validate(rows, labels).label == labels).double().mean() - 0.25) < 0.06


def test_more_folds_than_rows_is_refused():
    with pytest.raises(ValueError, match="2 and 3, got 4"):
        classifier.cross_validate(torch.eye(3), torch.tensor([0, 1, 2]), folds=4)


def test_entropy_equals_scipy_and_nothing_for_no_votes():
    votes = np.random.default_rng(0).integers(0, 5, (50, 4)) + np.eye(50, 4)
    assert ranking.entropy(votes) == pytest.approx(scipy.stats.entropy(votes, axis=1))
    assert np.isnan(ranking.entropy(np.zeros((1, 3)))[0])


def test_rank_average_is_the_mean_of_ranks():
    a, b = np.array([3.0, 1.0, 2.0]), np.array([30.0, 10.0, 10.0])
    expected = (scipy.stats.rankdata(a) + scipy.stats.rankdata(b)) / 6
    assert ranking.rank_average(np.stack([a, b])) == pytest.approx(expected)


IMAGES = 255 * torch.rand(6, 3, 40, 40, generator=torch.Generator().manual_seed(0))
CHANGES = {**degradations.WORSE, **degradations.AUGMENTATIONS}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_keeps_shape_and_range_and_depends_on_its_seed_alone(name):
    before = IMAGES.clone()
    once = CHANGES[name](IMAGES, torch.Generator().manual_seed(1))
    again = CHANGES[name](IMAGES, torch.Generator().manual_seed(1))
    assert once.shape == IMAGES.shape
    assert torch.equal(once, again)
    assert torch.equal(IMAGES, before)
    assert 0 <= once.min() < once.max() <= 255
    assert not torch.equal(once, IMAGES)


def test_strengths_are_those_stated():
    grey = torch.full((400, 3, 32, 32), 128.0)
    noise = degradations.noise(grey, torch.Generator().manual_seed(0)) - grey
    assert noise.std() == pytest.approx(25, rel=0.01)
    box = degradations.grey_box(torch.zeros(50, 3, 32, 32), torch.Generator().manual_seed(0))
    assert ((box == 127.5).double().mean((1, 2, 3)) == 0.25).all()
    point = torch.zeros(1, 3, 101, 101)
    point[..., 50, 50] = 1
    spread = degradations.blur(point, torch.Generator())[0, 0].sum(0)
    at = torch.arange(101) - 50.0
    assert ((spread * at**2).sum() / spread.sum()).sqrt() == pytest.approx(3.03, rel=0.01)


def test_recompression_is_the_jpeg_of_that_quality_that_pillow_writes_and_reads():
    """To some grey levels: two libraries round the cosines and bring the resolution of colour back in two ways."""
    smooth = torch.nn.functional.interpolate(IMAGES[:2], (48, 48), mode="bicubic").clamp(0, 255).round()
    ours = degradations.recompress(smooth, torch.Generator(), 85.0).permute(0, 2, 3, 1).numpy()

    def apart(quality):
        return np.mean(
            [np.abs(_by_pillow(image, quality) - changed).mean() for image, changed in zip(smooth, ours, strict=True)]
        )

    assert apart(15) < 1.5
    assert apart(15) < min(apart(10), apart(20)) / 3


def _by_pillow(image, quality):
    file = io.BytesIO()
    Image.fromarray(image.permute(1, 2, 0).to(torch.uint8).numpy()).save(file, "JPEG", quality=quality, subsampling=2)
    with Image.open(file) as back:
        return np.asarray(back.convert("RGB")).astype(np.float32)


def test_darkness_takes_light_and_rounds_what_is_left():
    bright = torch.tensor([0.0, 1.0, 10.0, 99.0, 255.0]).view(1, 1, 1, 5).expand(1, 3, 4, 5)
    assert degradations.darken(bright, torch.Generator(), 0.7)[0, 0, 0].tolist() == [0, 0, 3, 30, 76]


@pytest.mark.parametrize(
    "kind", sorted(set(degradations.LADDERS) - {"zoom"})
)  # what is seen of a zoom is another place
def test_every_ladder_goes_farther_from_the_image_with_strength(kind):
    ladder = degradations.LADDERS[kind]
    smooth = torch.nn.functional.interpolate(IMAGES, (48, 48), mode="bicubic").clamp(0, 255)
    apart = [
        float((ladder.change(smooth, torch.Generator().manual_seed(0), strength) - smooth).square().mean())
        for strength in ladder.strengths
    ]
    assert all(before < after for before, after in zip([0.0, *apart], apart, strict=False))


def test_a_centre_crop_of_the_whole_is_the_image_and_of_half_its_middle():
    assert torch.equal(degradations.center_crops(IMAGES, torch.ones(6)), IMAGES)
    steps = torch.zeros(1, 3, 40, 40)
    steps[..., 10:30, 10:30] = 200
    assert (degradations.center_crops(steps, torch.tensor([0.5])) - 200).abs().max() < 1e-3


def test_the_laplacian_variance_is_its_definition():
    image = IMAGES[:1]
    gray = image[0].mean(0).double().numpy()
    inside = gray[:-2, 1:-1] + gray[2:, 1:-1] + gray[1:-1, :-2] + gray[1:-1, 2:] - 4 * gray[1:-1, 1:-1]
    assert degradations.laplacian_variance(image).item() == pytest.approx(inside.var(ddof=1), rel=1e-4)
    assert degradations.laplacian_variance(degradations.blur(image, torch.Generator())) < 0.1 * inside.var()


def test_groups_are_dealt_over_the_folds_as_evenly_as_rows_and_none_is_cut():
    labels = torch.tensor([0, 0, 1, 1, 1, 0] * 20)
    groups = torch.arange(120) % 7 * 11  # seven points, many rows each
    fold = classifier.spread_folds(labels, 5, seed=3, groups=groups)
    assert all(len(fold[groups == group].unique()) == 1 for group in groups.unique())
    sizes = torch.bincount(torch.stack([fold[groups == group][0] for group in groups.unique()]), minlength=5)
    assert sorted(sizes.tolist()) == [1, 1, 1, 2, 2]
    alone = classifier.spread_folds(labels, 5, seed=3, groups=torch.arange(120))
    assert torch.equal(alone, classifier.spread_folds(labels, 5, seed=3))


def test_more_folds_than_groups_are_refused():
    rows, labels = torch.eye(4).repeat(5, 1), torch.arange(20) % 2
    with pytest.raises(ValueError, match="2 and 4, got 5"):
        classifier.cross_validate(rows, labels, folds=5, groups=torch.arange(20) % 4)


def test_the_same_votes_for_other_classes_have_the_very_same_entropy():
    votes = np.random.default_rng(0).multinomial(51, [0.6, 0.2, 0.1, 0.05, 0.05], size=200)
    assert np.array_equal(ranking.entropy(votes), ranking.entropy(votes[:, [3, 0, 4, 2, 1]]))
