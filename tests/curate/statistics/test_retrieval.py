"""Measures of retrieval and clustering against slow restatements and scikit-learn."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from curate.statistics import retrieval
from curate.statistics.retrieval import (
    adjusted_rand_index,
    average_precision_at_r,
    contingency,
    normalized_mutual_information,
)


def rows(n, classes, seed=0, dim=6):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (n,), generator=generator)
    near = torch.randn(classes, dim, generator=generator)[labels]
    return F.normalize(near + torch.randn(n, dim, generator=generator), dim=1), labels


def ranked(embedding, row):
    """Other rows, the most similar first, of equal ones the lower."""
    cosine = (embedding.double() @ embedding[row].double()).tolist()
    return sorted((at for at in range(len(embedding)) if at != row), key=lambda at: (-cosine[at], at))


def slow_average_precision(embedding, labels, row):
    r = int((labels == labels[row]).sum()) - 1
    if not r:
        return np.nan
    hits = [bool(labels[at] == labels[row]) for at in ranked(embedding, row)[:r]]
    return sum(sum(hits[: k + 1]) / (k + 1) for k in range(r) if hits[k]) / r


@pytest.mark.parametrize("block", [2**24, 100])
@pytest.mark.parametrize("seed", range(3))
def test_average_precision_at_r_is_its_definition_in_any_block(seed, block, monkeypatch):
    monkeypatch.setattr(retrieval, "BLOCK", block)
    embedding, labels = rows(50, 7, seed)
    labels[3] = 99  # alone in its class
    ours = average_precision_at_r(embedding, labels)
    expected = [slow_average_precision(embedding, labels, row) for row in range(50)]
    assert np.isnan(ours[3])
    assert ours == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_equal_rows_come_in_their_order():
    embedding = F.normalize(torch.ones(6, 3), dim=1)
    labels = torch.tensor([0, 1, 0, 1, 0, 1])
    expected = [slow_average_precision(embedding, labels, row) for row in range(6)]
    assert average_precision_at_r(embedding, labels).tolist() == pytest.approx(expected)


def test_perfect_retrieval_is_one_and_the_order_of_rows_does_not_count():
    labels = torch.arange(30) % 5
    assert (average_precision_at_r(torch.eye(5)[labels], labels) == 1).all()
    embedding, labels = rows(60, 5)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(1))
    assert np.allclose(
        average_precision_at_r(embedding[order], labels[order]), average_precision_at_r(embedding, labels)[order]
    )


def test_few_rows_have_their_measures():
    assert average_precision_at_r(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long)).shape == (0,)
    assert np.isnan(average_precision_at_r(torch.ones(1, 3), torch.zeros(1, dtype=torch.long))).all()


@pytest.mark.parametrize(("a", "b"), [(3, 3), (10, 4), (1, 5), (1, 1), (60, 60)])
def test_agreement_of_groupings_equals_scikit_learn(a, b):
    draw = np.random.default_rng(a + b)
    first, second = draw.integers(0, a, 80), draw.integers(-3, b - 3, 80)
    table = contingency(first, second)
    assert normalized_mutual_information(table) == pytest.approx(normalized_mutual_info_score(first, second), abs=1e-12)
    assert normalized_mutual_information(table.T) == pytest.approx(normalized_mutual_information(table), abs=1e-12)
    assert adjusted_rand_index(table) == pytest.approx(adjusted_rand_score(first, second), abs=1e-12)
    same = contingency(first, first)
    assert normalized_mutual_information(same) == pytest.approx(1)
    assert adjusted_rand_index(same) == pytest.approx(1)


@pytest.mark.parametrize(("first", "second"), [([0, 1], [0]), ([], []), ([[0]], [[0]])])
def test_groupings_of_different_rows_are_refused(first, second):
    with pytest.raises(ValueError, match="two groupings"):
        contingency(first, second)
