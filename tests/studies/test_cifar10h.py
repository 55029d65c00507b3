"""The parts of the CIFAR-10H benchmark: crops, numbers and intervals, checkpoints, folds, and heads that learn."""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file
from scipy import stats

from scoring.errors import InputError

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import cifar10h as benchmark
import cifar10h_features as features
import cifar10h_numbers as numbers

pytestmark = pytest.mark.study


def test_a_crop_of_the_whole_is_the_image():
    images = 255 * torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(features.square_crops(images, np.ones(3), torch.Generator(), 8), images)


def test_a_crop_shows_the_share_of_the_side_that_was_requested():
    ramp = torch.arange(32.0).view(1, 1, 1, 32).expand(400, 3, 32, 32)  # a pixel's value is its column
    crops = features.square_crops(ramp, np.full(400, 0.5), torch.Generator().manual_seed(0), 16)
    first, last = crops[:, 0, 0, 0], crops[:, 0, 0, -1]
    assert torch.equal(last - first, torch.full((400,), 15.0))
    assert set(first.tolist()) == set(range(17))  # every place comes up


def test_spearman_number_is_the_mean_of_scipys_and_its_standard_error():
    rng = np.random.default_rng(0)
    rows, target = np.arange(50, 150), rng.normal(size=100)
    scores = [target + rng.normal(size=100) for _ in range(3)]
    number = numbers.spearman_number([numbers.Replicate(rows, score, target) for score in scores], 200)
    each = [stats.spearmanr(score, target).statistic for score in scores]
    assert number.value == pytest.approx(np.mean(each))
    assert number.error == pytest.approx(stats.sem(each))
    assert number.low < number.value < number.high


def test_the_interval_is_about_images_and_matches_resampled_scipy():
    rng = np.random.default_rng(1)
    target = rng.normal(size=300)
    score = target + 2 * rng.normal(size=300)
    number = numbers.spearman_number([numbers.Replicate(np.arange(300), score, target)], 300)
    again = [stats.spearmanr(score[rows], target[rows]).statistic for rows in rng.integers(0, 300, (1000, 300))]
    assert np.isnan(number.error)
    assert [number.low, number.high] == pytest.approx(np.quantile(again, [0.025, 0.975]), abs=0.03)


def test_retrieval_numbers_are_their_definitions():
    rng = np.random.default_rng(2)
    score, right = rng.permutation(40).astype(float), rng.random(40) < 0.6
    recall, half, area = numbers.retrieval_numbers([numbers.Replicate(np.arange(40), score, right)], 40)
    pairs = [score[i] > score[j] for i in np.flatnonzero(right) for j in np.flatnonzero(~right)]
    assert recall.value == pytest.approx(right.mean())
    assert half.value == pytest.approx(right[score >= 20].mean())
    assert area.value == pytest.approx(np.mean(pairs))


def test_the_best_checkpoint_is_never_one_without_a_score():
    assert benchmark.best([float("nan"), -0.4, float("nan"), -0.3]) == 3


def test_folds_train_choose_and_report_on_different_images_and_report_each_once():
    folds = benchmark.split_folds(2000)
    for parts in folds:
        assert [len(part) for part in parts] == [1200, 400, 400]
        assert sorted(torch.cat(parts).tolist()) == list(range(2000))
    assert sorted(torch.cat([report for _, _, report in folds]).tolist()) == list(range(2000))


def test_reported_images_choose_nothing():
    chosen, tuned = set(range(10_000)[benchmark.CHOOSE]), set(range(25_000)[benchmark.TUNING])
    assert not chosen & (set(range(10_000)[benchmark.REPORT]) | set(range(10_000)[benchmark.REST]))
    assert not (tuned | set(range(25_000)[benchmark.TRAIN])) & set(range(25_000)[benchmark.HELD_OUT])


def test_class_means_of_unanimous_votes_match_labels():
    mu = torch.nn.functional.normalize(torch.randn(30, 4, generator=torch.Generator().manual_seed(0)), dim=1)
    labels = torch.arange(30) % 10
    slow = torch.stack([torch.nn.functional.normalize(mu[labels == c].sum(0), dim=0) for c in range(10)])
    votes = 3 * torch.nn.functional.one_hot(labels, 10).float()
    assert torch.allclose(benchmark.class_means(mu, labels), slow, atol=1e-6)
    assert torch.allclose(benchmark.class_means(mu, votes), slow, atol=1e-6)


def test_ridge_is_least_squares_with_a_penalty_on_all_but_the_offset():
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    y = 5 + x @ torch.tensor([1.0, -2.0, 0.5])
    padded = np.vstack([np.hstack([x.numpy(), np.ones((50, 1))]), np.sqrt(50 * 0.01) * np.eye(3, 4)])
    slow = np.linalg.lstsq(padded, np.append(y.numpy(), np.zeros(3)), rcond=None)[0]
    np.testing.assert_allclose(benchmark.ridge(x, y), slow, rtol=1e-5)


def test_entropies_are_scipys_and_do_not_depend_on_which_class_has_the_votes():
    votes = torch.from_numpy(np.random.default_rng(0).multinomial(51, np.full(10, 0.1), 200)).float()
    shuffled = votes[:, torch.randperm(10, generator=torch.Generator().manual_seed(0))]
    np.testing.assert_allclose(
        features.entropies(votes), stats.entropy(votes.double().numpy(), axis=1), rtol=1e-11, atol=1e-12
    )
    np.testing.assert_array_equal(features.entropies(votes), features.entropies(shuffled))


@pytest.fixture
def made_up(monkeypatch):
    """Features and votes of the right sizes, all random, and a generator."""
    monkeypatch.setattr(numbers, "RESAMPLES", 10)
    rng = np.random.default_rng(0)
    labels = torch.from_numpy(rng.integers(0, 10, 10_000))
    votes = features.Votes(
        torch.from_numpy(rng.multinomial(3, np.full(10, 0.1), 25_000)).float(),
        torch.zeros(25_000, dtype=torch.long),
        torch.zeros(25_000, dtype=torch.long),
        torch.from_numpy(rng.multinomial(51, np.full(10, 0.1), 2_000)).float(),
        labels,
    )
    empty = torch.zeros(1, 0, 1)
    return features.Features(empty, empty[0], empty[0], rng.uniform(0.25, 1, 10_000), 1.0), votes, rng


def reading(rng, crops):
    mu = torch.nn.functional.normalize(torch.from_numpy(rng.normal(size=(10_000, 3))).float(), dim=1)
    return benchmark.Reading(mu, rng.normal(size=10_000), crops, rng.normal(size=2_500))


def test_a_checkpoint_is_chosen_on_the_first_thousand_images_and_measured_on_the_others(made_up):
    known, votes, rng = made_up
    good_on_choice, good_elsewhere = (rng.normal(size=10_000) for _ in range(2))
    good_on_choice[:1000] = known.shares[:1000]
    good_elsewhere[1000:] = known.shares[1000:]
    run = [reading(rng, good_elsewhere), reading(rng, good_on_choice)]
    measured = benchmark.measure([run], known, votes)
    human = stats.entropy(votes.test.double().numpy(), axis=1).round(12)
    expected = stats.spearmanr(-run[1].test[1000:2000], human[1000:]).statistic
    assert measured["entropy"].value == pytest.approx(expected)
    assert measured["crop"].value == pytest.approx(
        stats.spearmanr(good_on_choice[1000:], known.shares[1000:]).statistic
    )
    second = stats.entropy(votes.train[22_500:].double().numpy(), axis=1).round(12)
    assert measured["10N"].value == pytest.approx(stats.spearmanr(-run[1].held_out, second).statistic)
    cosine = run[1].mu @ run[1].mu.T
    right = (votes.test_labels[cosine.fill_diagonal_(-2).argmax(1)] == votes.test_labels)[1000:]
    assert measured["R@1"].value == pytest.approx(float(right.float().mean()), abs=3e-4)


def test_the_checkpoint_by_votes_is_chosen_on_the_first_thousand_votes_alone(made_up):
    known, votes, rng = made_up
    human = stats.entropy(votes.test.double().numpy(), axis=1).round(12)
    run = [reading(rng, rng.normal(size=10_000)) for _ in range(2)]
    run[0].test[1000:2000] = -human[1000:]
    run[1].test[:1000] = -human[:1000]
    expected = stats.spearmanr(-run[1].test[1000:2000], human[1000:]).statistic
    assert benchmark.measure([run], known, votes)["by votes"].value == pytest.approx(expected)


def test_a_fold_reports_its_own_images_alone(made_up):
    known, votes, rng = made_up
    human = stats.entropy(votes.test.double().numpy(), axis=1).round(12)
    folds = benchmark.split_folds(2_000)
    runs = [[reading(rng, rng.normal(size=10_000))] for _ in folds]
    for run, (_, _, report) in zip(runs, folds, strict=True):
        run[0].test[report] = -human[report]  # right about these, and about no others
    assert benchmark.measure_folds(runs, known, votes)["entropy"].value == pytest.approx(1.0)


def ambiguous(n=600):
    """Features that point at one class or half way between two, and three votes that agree or do not."""
    generator = torch.Generator().manual_seed(0)
    first = torch.randint(10, (n,), generator=generator)
    split = torch.arange(n) % 2 == 1
    second = torch.where(split, (first + 1) % 10, first)
    votes = torch.nn.functional.one_hot(first, 10) * 2.0 + torch.nn.functional.one_hot(second, 10)
    direction = torch.eye(10, 24)
    x = direction[first] + direction[second] + 0.1 * torch.randn(n, 24, generator=generator)
    return x / x.square().mean().sqrt(), votes, split


@pytest.mark.parametrize("case", ["MCInfoNCE", "HIB", "ELK"])
def test_kappa_is_lower_where_votes_disagree(case):
    x, votes, split = ambiguous()
    config = benchmark.recipe(case, seed=0, steps=150, batch_size=128)
    *_, (method, head) = benchmark.train(config, x[:400].unsqueeze(0), votes[:400])
    _, kappa = benchmark.read(method, head, x[400:])
    assert stats.spearmanr(kappa, split[400:]).statistic < -0.3


def test_a_run_gives_five_checkpoints_and_the_same_seed_the_same_ones():
    x, votes, _ = ambiguous(100)
    config = benchmark.recipe("InfoNCE", seed=3, steps=20, batch_size=32)
    runs = [
        [benchmark.read(method, head, x)[1] for method, head in benchmark.train(config, x.unsqueeze(0), votes)]
        for _ in range(2)
    ]
    assert len(runs[0]) == 5
    np.testing.assert_array_equal(runs[0], runs[1])


def test_the_certainty_of_infonce_is_the_length_before_normalisation():
    x, votes, _ = ambiguous(60)
    config = benchmark.recipe("InfoNCE", seed=0, steps=10, batch_size=32)
    *_, (method, head) = benchmark.train(config, x.unsqueeze(0), votes)
    mu, length = benchmark.read(method, head, x)
    with torch.no_grad():
        projected = method.projector(x)
    np.testing.assert_allclose(length, (projected**2).sum(1).sqrt(), rtol=1e-6)
    assert torch.allclose(mu * torch.tensor(length, dtype=torch.float32)[:, None], projected, atol=1e-5)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"cifar10n_train\.parquet.*--data"):
        features.read_votes(tmp_path)


def test_rows_in_another_order_are_refused(tmp_path):
    path = tmp_path / "some.parquet"
    pq.write_table(pa.table({"id": [1, 0], "label": [3, 4]}), path)
    with pytest.raises(InputError, match=r"in order .*some\.parquet"):
        features._columns(path, 2)


def test_features_of_another_backbone_are_refused(tmp_path):
    save_file({"train": torch.zeros(1, 1, 1)}, tmp_path / "trained.safetensors", metadata={"trunk": "other"})
    with pytest.raises(InputError, match=r"trained\.safetensors .*other.*remove it"):
        features.open_features(tmp_path, tmp_path, "trained", n_crops=1)
