from statistics import NormalDist

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
import sklearn.neighbors
import torch

from scoring.metrics import neighbours, ranking


def unit(n, d, seed):
    return torch.nn.functional.normalize(torch.randn(n, d, generator=torch.Generator().manual_seed(seed)), dim=1)


def test_nearest_matches_scikit_learn_over_several_blocks():
    references, queries = unit(700, 8, 0), unit(2100, 8, 1)
    _, index = neighbours.nearest(queries, references, 5)
    search = sklearn.neighbors.NearestNeighbors(n_neighbors=5, metric="cosine", algorithm="brute").fit(
        references.numpy()
    )
    assert (index.numpy() == search.kneighbors(queries.numpy(), return_distance=False)).mean() > 0.9999


def test_a_row_is_no_neighbour_of_itself_but_its_duplicate_is():
    rows = torch.cat([unit(5, 4, 0), unit(5, 4, 0)])
    _, index = neighbours.nearest(rows, rows, 1, same=True)
    assert index[:, 0].tolist() == [5, 6, 7, 8, 9, 0, 1, 2, 3, 4]


def test_knn_vote_is_the_weighted_sum_of_its_definition():
    references, queries = unit(60, 6, 2), unit(20, 6, 3)
    labels = torch.arange(60) % 4
    got = neighbours.knn_predict(queries, references, labels, k=7, temperature=0.2)
    for row, query in enumerate(queries.double()):
        cosine = references.double() @ query
        top = cosine.argsort(descending=True)[:7]
        votes = [sum(np.exp(cosine[i].item() / 0.2) for i in top if labels[i] == c) for c in range(4)]
        assert got[row].item() == int(np.argmax(votes))


@pytest.mark.parametrize("seed", range(3))
def test_auroc_and_spearman_agree_with_other_libraries_on_ties(seed):
    generator = np.random.default_rng(seed)
    score = generator.integers(0, 20, 500) / 7
    target = generator.random(500) < 0.3
    other = generator.integers(0, 5, 500)
    assert ranking.auroc(score, target) == pytest.approx(sklearn.metrics.roc_auc_score(target, score), abs=1e-12)
    assert ranking.spearman(score, other) == pytest.approx(scipy.stats.spearmanr(score, other).statistic, abs=1e-12)


def test_auroc_of_scores_far_outside_the_unit_interval_has_no_false_ties():
    score = [98.0950, 98.4612, 98.1145, 98.1506, 97.6037, 98.9425, 99.2644, 99.5014]
    score += [99.7280, 99.6595, 99.6931, 99.4667, 99.9623, 99.8949, 99.8768]
    assert ranking.auroc(np.array(score), np.array([False] + [True] * 14)) == pytest.approx(0.9285714286)


def test_r_auroc_matches_the_worked_example():
    i = torch.arange(1, 25, dtype=torch.float64)
    x = torch.nn.functional.normalize(torch.sin(i).reshape(4, 6), dim=1)
    y = torch.nn.functional.normalize(torch.cos(0.5 * i).reshape(4, 6), dim=1)
    embedding, labels = torch.cat([x, y]), torch.tensor([0, 1] * 4)
    unc = np.array([0.1, 0.9, 0.3, 0.3, 0.8, 0.2, 0.5, 0.4])
    assert neighbours.nearest(embedding, embedding, 1, same=True)[1][:, 0].tolist() == [1, 2, 1, 2, 6, 7, 4, 5]
    assert neighbours.recall_at_1(embedding, labels).mean() == 0.5
    assert ranking.r_auroc(-unc, embedding, labels) == pytest.approx(0.375)


def test_one_sided_targets_have_no_auroc():
    assert np.isnan(ranking.auroc(np.arange(3.0), np.ones(3, bool)))


def test_more_neighbours_than_rows_is_refused():
    with pytest.raises(ValueError, match="4, got 5"):
        neighbours.nearest(unit(5, 3, 0), unit(5, 3, 0), 5, same=True)


def test_the_interval_of_an_auroc_has_a_width_where_every_row_is_ranked_right():
    z2 = NormalDist().inv_cdf(0.975) ** 2  # bounds solve (1 - t)^2 = z^2 t (1 - t)
    assert ranking.auroc_interval(1.0, 1, 1) == pytest.approx((1, 1 / (1 + z2), 1), abs=1e-6)
    assert ranking.auroc_interval(0.0, 1, 1) == pytest.approx((0, 0, z2 / (1 + z2)), abs=1e-6)


@pytest.mark.parametrize(("area", "true", "false"), [(0.9, 10, 600), (0.5, 50, 7), (0.999, 40, 40)])
def test_the_bounds_of_an_auroc_are_the_deviations_of_the_level_away(area, true, false):
    """With the deviation at the bound after Hanley and McNeil, and the mean number of rows in place of both."""
    n = (true + false) / 2
    for bound in ranking.auroc_interval(area, true, false)[1:]:
        variance = bound * (1 - bound) + (n - 1) * (bound / (2 - bound) - bound**2)
        variance += (n - 1) * (2 * bound**2 / (1 + bound) - bound**2)
        assert abs(area - bound) == pytest.approx(NormalDist().inv_cdf(0.975) * np.sqrt(variance / (true * false)))
