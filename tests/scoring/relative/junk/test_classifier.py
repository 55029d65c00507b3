import json

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from scoring.errors import InputError
from scoring.metrics.ranking import auroc
from scoring.relative.junk import classifier as junk_classifier
from scoring.relative.junk.classifier import LEAST_IMAGES, PENALTY, _logistic, train
from scoring.relative.junk.features import JunkInputs, Scale, columns_read, features_of
from scoring.relative.junk.heldout import held_out, nearness, tail_share
from scoring.relative.junk.stored import from_json, rounded, to_json
from scoring.relative.junk.threshold import flagged_most, tail_bound, threshold_of

WIDTH = 16
KINDS = ("dark", "noise", "flat")


def images(n, seed=0, centre=0.0, spread=1.0):
    """Images of a dataset: quality columns with some spread, embeddings around a common direction."""
    draw = np.random.default_rng(seed)
    columns = {
        "quality_brightness": draw.normal(0.5, 0.1, n),
        "quality_contrast": np.exp(draw.normal(-1.5 + centre, 0.3 * spread, n)),
        "quality_sharpness": draw.normal(0.6, 0.1, n),
        "unc_junk": 1 / (1 + np.exp(-draw.normal(-3, 1, n))),
        "kappa_visimsiam": np.exp(draw.normal(6, 0.2, n)),
    }
    return JunkInputs(columns, draw.normal(size=(n, WIDTH)) + 2)


def damaged(n, seed=1, kinds=KINDS):
    """Corrupted copies: low contrast or brightness, or high sharpness, and embeddings in another place a kind."""
    draw = np.random.default_rng(seed)
    seen, named = images(n, seed), [kinds[at % len(kinds)] for at in range(n)]
    columns = {name: values.copy() for name, values in seen.columns.items()}
    place = np.random.default_rng(99).normal(size=(len(KINDS), WIDTH)) * 2
    vectors = np.stack([place[KINDS.index(kind)] for kind in named]) + 0.3 * draw.normal(size=(n, WIDTH))
    for row, kind in enumerate(named):
        columns["quality_brightness"][row] *= 0.1 if kind == "dark" else 1
        columns["quality_contrast"][row] *= 1 if kind == "noise" else 0.05
        columns["quality_sharpness"][row] += 0.8 if kind == "noise" else 0
        columns["unc_junk"][row] = 0.97
    return JunkInputs(columns, vectors), named


def joined(*parts):
    names = parts[0].columns
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in names}
    return JunkInputs(columns, np.concatenate([part.embedding for part in parts]))


def trained(dataset, seed=1):
    copies, kinds = damaged(300, seed)
    return train(dataset, copies, np.arange(300) % 100, kinds)


def test_a_clean_dataset_is_hardly_flagged_and_corrupted_copies_are_found():
    classifier = trained(images(500))
    assert (classifier.log_odds > 0).mean() <= 0.01
    assert classifier.held_out.applies
    assert classifier.held_out.auroc.value > 0.999
    assert classifier.held_out.detected.value > 0.97
    assert set(classifier.held_out.by_kind) == set(KINDS)
    assert classifier.held_out.flagged == pytest.approx((classifier.log_odds > 0).mean())


@pytest.mark.parametrize("share", [0.02, 0.1, 0.3])
def test_junk_that_is_there_already_is_found_though_it_comes_in_crowds(share):
    n_junk = round(400 * share / (1 - share))
    junk, _ = damaged(n_junk, seed=7)
    dataset = joined(images(400), junk)
    classifier = trained(dataset)
    is_junk = np.arange(400 + n_junk) >= 400
    assert auroc(classifier.log_odds, is_junk) > 0.99
    assert (classifier.log_odds[is_junk] > 0).mean() > 0.95
    assert (classifier.log_odds[~is_junk] > 0).mean() <= 0.01


def test_a_kind_that_no_corruption_resembles_is_found_by_what_it_shares_with_them():
    copies, kinds = damaged(300, kinds=("dark", "flat"))
    junk, _ = damaged(20, seed=7, kinds=("noise",))
    trained = train(joined(images(400), junk), copies, np.arange(300) % 100, kinds)
    assert auroc(trained.log_odds, np.arange(420) >= 400) > 0.8


def test_the_score_does_not_apply_to_a_dataset_that_looks_like_its_corrupted_copies():
    copies = images(300, seed=3)
    trained = train(images(400), copies, np.arange(300) % 100, ["dark"] * 300)
    assert not trained.held_out.applies
    assert "AUROC" in trained.held_out.problem


def test_a_new_image_is_judged_about_as_one_of_the_dataset():
    dataset = images(500)
    classifier = trained(dataset)
    again = classifier.classifier.log_odds(dataset)
    assert np.corrcoef(again, classifier.log_odds)[0, 1] > 0.95
    new, _ = damaged(60, seed=12)
    assert (classifier.classifier.probability(new) > 0.5).mean() > 0.95
    assert (classifier.classifier.probability(images(300, seed=13)) > 0.5).mean() <= 0.02
    p = classifier.classifier.probability(new)
    assert p == pytest.approx(1 / (1 + np.exp(-classifier.classifier.log_odds(new))), abs=1e-6)


def test_missing_values_are_taken_as_such():
    dataset = images(300)
    dataset.columns["quality_sharpness"][::3] = np.nan
    classifier = trained(dataset)
    assert np.isfinite(classifier.log_odds).all()
    assert (classifier.log_odds > 0).mean() <= 0.02


def test_without_columns_the_embedding_decides():
    copies, kinds = damaged(300)
    trained = train(
        JunkInputs({}, images(300).embedding), JunkInputs({}, copies.embedding), np.arange(300) % 100, kinds
    )
    assert trained.held_out.auroc.value > 0.99
    assert trained.classifier.names == ()


def test_a_few_images_are_refused():
    copies, kinds = damaged(90)
    with pytest.raises(InputError, match=f"{LEAST_IMAGES} .*got {LEAST_IMAGES - 1}"):
        train(images(LEAST_IMAGES - 1), copies, np.arange(90) % 40, kinds)


def test_a_classifier_is_read_as_it_was_written():
    classifier = rounded(trained(images(200)).classifier)
    record = json.loads(json.dumps(to_json(classifier)))
    read = from_json(record)
    new = images(50, seed=5)
    assert (read.log_odds(new) == classifier.log_odds(new)).all()
    assert len(json.dumps(record)) < 40_000


@pytest.mark.parametrize(
    "change",
    [
        {"version": 99},
        {"columns": ["quality_jpeg"]},
        {"columns": ["quality_brightness"]},
        {"threshold": float("nan")},
        {"missing": [True]},
        {"mean": {"shape": [3], "float32": "AAAA"}},
        {"intercept": {"shape": [10**9], "float32": ""}},
        {"spread": None},
    ],
)
def test_what_is_no_classifier_is_refused(change):
    record = to_json(trained(images(200)).classifier) | change
    with pytest.raises((KeyError, TypeError, ValueError)):
        from_json(record)


def test_embeddings_of_another_width_are_refused():
    classifier = trained(images(200)).classifier
    with pytest.raises(ValueError, match=f"{WIDTH} numbers, got 3"):
        classifier.log_odds(JunkInputs(images(5).columns, np.ones((5, 3))))


def test_of_a_kappa_and_its_uncertainty_one_is_read():
    names = ["kappa_mcinfonce", "unc_mcinfonce", "unc_losspred", "quality_border", "key"]
    assert columns_read(names) == ("kappa_mcinfonce", "unc_losspred")


def test_features_are_scaled_by_the_median_and_the_spread_of_both():
    plain = features_of({"quality_brightness": np.array([0.2, 0.4, 0.6])}, ["quality_brightness"])
    other = features_of({"quality_brightness": np.array([np.nan, 1.0])}, ["quality_brightness"])
    scale = Scale.of(plain, other)
    spread = np.std([0.2, 0.4, 0.6, 1.0]) + 1e-6
    assert scale.scaled(other) == pytest.approx(np.array([[0, 0, 1], [0.6 / spread, 0.6 / spread, 0]]))


def test_the_tail_is_measured_in_the_bulk_of_the_dataset():
    draw = np.random.default_rng(0)
    clean = draw.normal(-5, 1.5, 4000)
    bound = tail_bound(clean, 4.2)
    assert bound == pytest.approx(-5 + 4.2 * 0.8416 * 1.5, abs=0.15)
    mixed = np.concatenate([clean, np.full(400, 8.0)])
    assert tail_bound(mixed, 4.2) - bound < 2 < np.quantile(mixed, 0.995) - bound


def test_the_threshold_leaves_most_copies_above_and_no_unexplained_crowd():
    draw = np.random.default_rng(0)
    copies = draw.normal(7, 1.5, 900)
    clean = draw.normal(-5, 1, 2000)
    assert threshold_of(clean, copies, np.ones(2000, bool)) == 0.0
    tail = np.concatenate([clean, np.linspace(0.5, 4, 40)])  # 2 % of tail without junk
    raised = threshold_of(tail, copies, tail < 0)
    assert 0 < raised <= np.quantile(copies, 0.1)
    assert (tail > raised).mean() <= 0.001
    junk = np.concatenate([tail, draw.normal(7, 1.5, 300)])  # with junk that explains them
    assert flagged_most(junk, copies, 0.0) == 0.0


def test_held_out_measures_match_the_definition():
    images_, copies = np.array([-3.0, -1.0, 0.5, -2.0]), np.array([1.0, 2.0, -0.5, 3.0])
    measured = held_out(images_, copies, ["a", "b", "a", "b"])
    assert measured.detected.value == 0.75
    assert measured.by_kind == {"a": 0.5, "b": 1.0}
    assert measured.flagged == 0.25
    assert measured.auroc.value == pytest.approx(1.0)  # of the three images that are not flagged
    assert measured.to_json()["applies"] == measured.applies


def test_nearness_is_the_ratio_of_mean_distances_to_the_nearest():
    draw = np.random.default_rng(0)
    rows, copies, source = draw.normal(size=(40, 3)), draw.normal(0.5, 1, (50, 3)), np.arange(50) % 25
    flagged = np.arange(40) % 4 == 0  # 10 of 40: of 30 others 3 are compared, and of 50 copies 5
    expected = []
    for row in np.flatnonzero(flagged):
        to_copies = sorted(np.linalg.norm(rows[row] - each) for each in copies[source != row])
        to_others = sorted(np.linalg.norm(rows[row] - each) for each in rows[~flagged])
        expected.append(np.mean(to_copies[:5]) / np.mean(to_others[:3]))
    assert nearness(rows, copies, source, flagged) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("n", "near", "applies"),
    [
        (300, [0.5] * 9 + [0.9] * 3, True),  # a quarter
        (300, [0.5] * 8 + [0.9] * 4, False),
        (300, [0.5] * 8 + [0.9] * 4 + [1.3] * 10, False),
        (300, [0.5] * 2 + [1.3] * 10, True),  # 2 of 12 are left, and no harm
        (100, [0.9] * 2, True),
        (500, [0.9] * 4, True),  # below 1 %
        (400, [0.5] * 100 + [0.9] * 20, True),  # 5 % of the images, among much junk
        (400, [0.5] * 100 + [0.9] * 21, False),
        (400, [0.5] * 100 + [0.9] * 20 + [1.3] * 5, True),
    ],
)
def test_a_score_that_flags_what_is_like_the_dataset_does_not_apply(n, near, applies):
    near = np.array(near)
    odds = np.full(n, -5.0)
    odds[: len(near)] = np.where(near > 1.2, 0, 1)
    measured = held_out(odds, np.full(90, 5.0), ["dark"] * 90, near)
    assert measured.applies == applies
    assert ("style" in measured.problem) != applies
    assert measured.undecided == pytest.approx((near > 1.2).mean() * len(near) / n)


def test_doubt_by_the_features_alone_counts_as_well():
    odds = np.where(np.arange(300) < 12, 1.0, -5.0)
    alike = np.full(12, 0.5)
    for doubtful, applies in ((3, True), (4, False)):
        in_features = np.where(np.arange(12) < doubtful, 0.9, 0.5)
        measured = held_out(odds, np.full(90, 5.0), ["dark"] * 90, alike, in_features)
        assert measured.applies == applies
        assert measured.doubtful == pytest.approx(doubtful / 300)


def test_junk_farther_from_all_corrupted_copies_than_from_images_is_undecided(monkeypatch):
    junk, _ = damaged(20, seed=7)
    dataset = joined(images(400), junk)
    flagged = trained(dataset).log_odds > 0
    assert flagged[400:].all()
    monkeypatch.setattr(junk_classifier, "UNDECIDED", 0.0)
    left = trained(dataset)
    assert (left.log_odds[flagged] == 0).all()
    assert left.held_out.flagged == 0
    few = trained(joined(images(150), junk))  # too few to compare with
    assert (few.log_odds[150:] > 0).mean() > 0.9
    assert few.held_out.undecided == 0


def exponential(n, scale):
    """The quantiles of an exponential distribution that starts at -8."""
    return -8 - scale * np.log1p(-(np.arange(n) + 0.5) / n)


@pytest.mark.parametrize("scale", [1.0, 2.0, 4.0])
def test_false_alarms_are_foreseen_by_the_exponential_tail(scale):
    draw = np.random.default_rng(0)
    junk = np.full(30_000, 6.0)
    clean = np.concatenate([exponential(100_000, scale), junk])
    expected = np.exp(-8 / scale) / 1.3
    assert 0.7 * expected < tail_share(clean) < expected
    samples = draw.choice(clean, (200, 300))
    assert np.mean([tail_share(sample) > expected for sample in samples]) <= 0.15  # a lower bound, of 95 % at best


@pytest.mark.parametrize(("scale", "applies"), [(1.5, True), (2.5, False)])
def test_a_score_does_not_apply_if_the_tail_of_the_images_reaches_the_threshold(scale, applies):
    odds = np.concatenate([exponential(600, scale), np.full(200, 6.0)])  # 0.5 or 4 % of the clean images are above
    measured = held_out(odds, np.full(90, 6.0), ["dark"] * 90)
    assert measured.applies == applies
    assert ("gap" in measured.problem) != applies
    assert held_out(odds[odds < 0], np.full(90, 6.0), ["dark"] * 90).applies  # nothing is flagged


def test_newton_ends_where_scikit_learn_does():
    generator = np.random.default_rng(0)
    corrupted = np.arange(400) >= 300
    rows = generator.normal(size=(400, 5)) + corrupted[:, None] * np.array([2.0, 0, -1, 0.3, 0])
    weight = np.where(corrupted, 0.5 / 100, 0.5 / 300)
    reference = LogisticRegression(C=1 / PENALTY, tol=1e-10, max_iter=10_000)
    reference.fit(rows, corrupted, sample_weight=weight)
    ours = _logistic(rows, corrupted)
    assert ours == pytest.approx([*reference.coef_[0], *reference.intercept_], abs=1e-5)
