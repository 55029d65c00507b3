import numpy as np
import pytest
from synthetic import kinds, unit

from scoring.errors import InputError
from scoring.metrics.ranking import auroc
from scoring.relative.columns import AMBIGUOUS
from scoring.relative.fit import fit_dataset
from scoring.relative.learn import check_labels, label_auroc, learn, measured_rows
from scoring.relative.model import laid_out
from scoring.relative.neighbours import near_in
from scoring.relative.propagated import KnownLabels, graph_of, guessed, other_class, prototypes, spread
from scoring.relative.space import centred, mean_of
from scoring.relative.unlike import cluster_centres


def dataset_of(rows):
    return centred(rows, mean_of(rows))


def labels_of(kind, n, seed=0):
    rows = np.sort(np.random.default_rng(seed).permutation(len(kind))[:n])
    return KnownLabels(rows, kind[rows].astype(np.int64), tuple(f"c{k}" for k in range(kind.max() + 1)))


def wrong_of(rows, kind):
    """Whether the nearest other row, after centring, is of another kind; copies count as they may."""
    units = dataset_of(rows).units.astype(np.float64)
    products = units @ units.T
    np.fill_diagonal(products, -2)
    return kind[products.argmax(1)] != kind


def test_labels_spread_as_in_the_iteration():
    rows, kind = kinds(n=60)
    near = near_in(dataset_of(rows))
    weight = np.zeros((60, 60))
    for i in range(60):
        for j, cosine in zip(near.index[i, :10], near.cosine[i, :10], strict=True):
            weight[i, j] += np.exp(10 * max(float(cosine), 0))
    weight = weight + weight.T
    scale = 1 / np.sqrt(weight.sum(1))
    steps = weight * scale[:, None] * scale[None]
    seeds = np.zeros((60, 6))
    seeds[np.arange(0, 60, 7), kind[::7]] = 1
    walked = seeds
    for _ in range(30):
        walked = 0.8 * steps @ walked + 0.2 * seeds
    expected = walked / walked.sum(1, keepdims=True)
    assert spread(graph_of(near), seeds.astype(np.float32)) == pytest.approx(expected, abs=1e-4)


def test_prototypes_guess_by_the_mean_direction_of_a_class():
    rows, kind = kinds(n=90)
    units = dataset_of(rows).units
    some = np.flatnonzero(kind < 5)
    middles = prototypes(units, some, kind[some], 6)
    means = unit(np.stack([units[some][kind[some] == k].astype(np.float64).sum(0) for k in range(5)]))
    assert middles[:5] == pytest.approx(means, abs=1e-5)
    assert not middles[5].any()
    raised = np.exp(20 * units.astype(np.float64) @ means.T)
    assert guessed(units, middles)[:, :5] == pytest.approx(raised / raised.sum(1, keepdims=True), abs=1e-4)
    assert not guessed(units, middles)[:, 5].any()


def test_the_probability_of_two_classes_is_a_pair_of_draws():
    rows, _ = kinds(n=50)
    near = near_in(dataset_of(rows))
    generator = np.random.default_rng(0)
    chances, guess = generator.dirichlet(np.ones(4), (2, 50)).astype(np.float32)
    shares = other_class(near, chances, guess)
    for i in range(50):
        weight = np.exp(10 * np.maximum(near.cosine[i, :10].astype(float), 0))
        of_row = 0.8 * (weight / weight.sum()) @ chances[near.index[i, :10]] + 0.2 * 0.1 * guess[i]
        of_row /= of_row.sum()
        draws = sum(of_row[a] * chances[near.index[i, 0]][b] for a in range(4) for b in range(4) if a != b)
        assert shares[i] == pytest.approx(draws, abs=1e-4)


def test_few_labels_make_the_score_better_on_rows_without_one():
    rows, kind = kinds(n=900, spread=0.8, seed=3)
    labels = labels_of(kind, 120)
    rest = np.setdiff1d(np.arange(900), labels.rows)
    wrong = wrong_of(rows, kind)
    free, propagated = fit_dataset(rows)[1], fit_dataset(rows, labels=labels)[1]
    scores = [auroc(each.columns[AMBIGUOUS][rest], wrong[rest]) for each in (free, propagated)]
    assert scores[1] > scores[0] + 0.02
    assert propagated.learned.better
    assert propagated.learned.gain.value == pytest.approx(
        propagated.learned.auroc.value - propagated.learned.without.value
    )
    assert (propagated.learned.rows, propagated.learned.classes) == (120, 6)


def test_random_labels_get_no_weight():
    rows, kind = kinds(n=600, spread=0.6)
    shuffled = np.random.default_rng(1).permutation(kind)
    said = fit_dataset(rows, labels=labels_of(shuffled, 300))[1]
    assert said.learned.auroc.low < 0.5 < said.learned.auroc.high + 0.05
    assert said.learned.inside.value > said.learned.auroc.value  # those it learned from flatter it
    if not said.learned.better:
        free = fit_dataset(rows)[1]
        assert all(np.array_equal(said.columns[name], values) for name, values in free.columns.items())


def test_a_labelled_row_is_judged_by_the_labels_of_others():
    rows, kind = kinds(n=400, spread=0.7)
    dataset = dataset_of(rows)
    on = laid_out(dataset, cluster_centres(dataset.units))
    lesson = learn(on, labels_of(kind, 400))
    assert np.corrcoef(lesson.other, lesson.inside)[0, 1] > 0.5
    assert lesson.inside.mean() < lesson.other.mean()  # with its own label known, everything is more certain


def test_a_row_without_a_label_means_the_same_alone():
    rows, kind = kinds(n=300)
    labels = labels_of(kind, 100)
    fit, said = fit_dataset(rows, labels=labels)
    rest = np.setdiff1d(np.arange(300), labels.rows)[:40]
    assert fit.score(rows[rest]).columns[AMBIGUOUS] == pytest.approx(said.columns[AMBIGUOUS][rest], abs=0.01)


def test_of_a_large_dataset_the_labelled_rows_are_kept_first():
    rows, kind = kinds(n=500)
    labels = labels_of(kind, 60)
    fit, said = fit_dataset(rows, labels=labels, most=150)
    assert len(fit.references) == 150
    assert fit.propagated is None or fit.propagated.probabilities.shape == (150, 6)
    kept = {row.tobytes() for row in fit.references}
    assert all(rows[at].tobytes() in kept for at in labels.rows)
    assert said.columns[AMBIGUOUS].shape == (500,)


def test_what_is_measured_is_the_nearest_labelled_row():
    rows, kind = kinds(n=200, spread=0.8)
    labels = labels_of(kind, 80)
    at, wrong = measured_rows(dataset_of(rows).part, labels)
    assert np.array_equal(at, labels.rows)
    units = dataset_of(rows).units[labels.rows].astype(np.float64)
    products = units @ units.T
    np.fill_diagonal(products, -2)
    assert np.array_equal(wrong, labels.codes[products.argmax(1)] != labels.codes)
    score = np.random.default_rng(0).normal(size=200)
    interval = label_auroc(dataset_of(rows).part, score, labels)
    assert interval.value == pytest.approx(auroc(score[at], wrong))
    assert interval.low < interval.value < interval.high


def test_too_few_labels_or_one_class_have_no_information():
    rows, kind = kinds(n=120)
    assert label_auroc(dataset_of(rows).part, np.zeros(120), labels_of(kind, 49)) is None
    assert label_auroc(dataset_of(rows).part, np.zeros(120), labels_of(kind * 0, 100)) is None


@pytest.mark.parametrize(
    ("n", "classes", "says"), [(0, 3, "50 labelled .*got 0"), (5, 3, "got 5"), (60, 1, "60 of one alone")]
)
def test_labels_without_information_are_refused(n, classes, says):
    codes = np.arange(n) % classes
    with pytest.raises(InputError, match=says):
        check_labels(KnownLabels(np.arange(n), codes, tuple("abc"[:classes])))


def test_too_many_classes_are_refused():
    names = tuple(map(str, range(1001)))
    with pytest.raises(InputError, match="1,000 classes, got 1,001"):
        check_labels(KnownLabels(np.arange(2000), np.arange(2000) % 1001, names))


@pytest.mark.parametrize(("codes", "says"), [("own", "another class"), ("apart", "its own class")])
def test_labels_by_which_nothing_can_be_measured_are_refused(codes, says):
    generator = np.random.default_rng(0)
    side = np.arange(60) % 2
    rows = unit(np.eye(24)[side * 5] + 0.15 * generator.normal(size=(60, 24))).astype(np.float16)
    kind = np.arange(60) if codes == "own" else side
    labels = KnownLabels(np.arange(60), kind.astype(np.int64), tuple(f"c{k}" for k in range(kind.max() + 1)))
    with pytest.raises(InputError, match=f"60 labelled .*{says}"):
        fit_dataset(rows, labels=labels)
