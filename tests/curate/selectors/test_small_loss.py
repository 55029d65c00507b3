import math
from fractions import Fraction

import numpy as np
import pytest

from curate.selectors.chance import SmallLoss
from curate.selectors.contract import Pool
from scoring.errors import InputError


def pool_of(seed, n=60, classes=4, unknown=0.1, levels=None):
    """Rows of unequal classes; a fifth is labelled, a tenth has no class; ``levels`` makes losses tie."""
    generator = np.random.default_rng([seed, 7])
    labels = np.minimum(generator.geometric(0.4, n) - 1, classes - 1)
    labels[generator.random(n) < unknown] = -1
    loss = generator.exponential(1.0, n).astype(np.float32)
    if levels:
        loss = (loss * levels).round() / np.float32(levels)
    order = generator.permutation(n)
    return Pool(np.sort(order[n // 5 :]), np.sort(order[: n // 5]), labels=labels, holdout_loss=loss)


def trusted_rows(pool, share):
    """The definition, unhurried: of each class, sorted by loss and then row, the first ceil(share * size)."""
    parts = {}
    for label in sorted({int(label) for label in pool.labels[pool.candidates] if label >= 0}):
        mine = [int(row) for row in pool.candidates if pool.labels[row] == label]
        by_loss = sorted(mine, key=lambda row: (float(pool.holdout_loss[row]), row))
        n = math.ceil(Fraction(str(share)) * len(mine))
        parts[label] = (by_loss[:n], by_loss[n:])
    return parts


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("share", "levels"), [(0.5, None), (0.3, 2), (1.0, 1)])
def test_every_pick_is_what_the_rule_allows_at_that_place(seed, share, levels):
    pool = pool_of(seed, levels=levels)
    selection = SmallLoss(share)(pool, len(pool.candidates), seed=seed)
    parts = trusted_rows(pool, share)
    have = {label: int((pool.labels[pool.labelled] == label).sum()) for label in parts}
    left = {label: (set(trusted), list(others)) for label, (trusted, others) in parts.items()}
    for row, was_trusted in zip(selection.rows.tolist(), selection.parts["trusted"].tolist(), strict=True):
        still = [label for label in left if left[label][0] or left[label][1]]
        label = int(pool.labels[row])
        if label < 0:
            assert not still  # rows without a class come last
            assert was_trusted == 0
            continue
        assert have[label] == min(have[each] for each in still)
        trusted, others = left[label]
        assert was_trusted == bool(trusted)
        if trusted:
            trusted.remove(row)
        else:
            assert row == others.pop(0)
        have[label] += 1
    assert len(set(selection.rows.tolist())) == len(pool.candidates)


def test_gains_are_the_probability_of_the_own_label_and_0_without_one():
    pool = pool_of(1)
    selection = SmallLoss()(pool, len(pool.candidates))
    known = pool.labels[selection.rows] >= 0
    assert np.allclose(
        selection.gains[known], [math.exp(-float(pool.holdout_loss[row])) for row in selection.rows[known]]
    )
    assert (selection.gains[~known] == 0).all()
    assert 0 < (~known).sum() < len(known)


def test_trusted_rows_are_drawn_at_random_not_by_loss():
    loss = np.array([0.4, 0.1, 0.3, 0.2, 5.0, 6.0, 7.0, 8.0], np.float32)
    pool = Pool(np.arange(8), labels=np.zeros(8, np.int64), holdout_loss=loss)
    first = [int(SmallLoss()(pool, 1, seed=seed).rows[0]) for seed in range(1200)]
    counts = np.bincount(first, minlength=8)
    assert (counts[4:] == 0).all()
    assert np.abs(counts[:4] - 300).max() < 4 * math.sqrt(1200 * 0.25 * 0.75)


@pytest.mark.parametrize(
    ("share", "size", "n"), [(0.1, 30, 3), (0.1, 31, 4), (0.7, 10, 7), (0.29, 100, 29), (0.5, 1, 1)]
)
def test_the_share_is_rounded_up_and_exact_shares_stay_exact(share, size, n):
    pool = Pool(np.arange(size), labels=np.zeros(size, np.int64), holdout_loss=np.arange(size, dtype=np.float32))
    selection = SmallLoss(share)(pool, size, seed=2)
    assert selection.parts["trusted"].tolist() == [1.0] * n + [0.0] * (size - n)
    assert sorted(selection.rows[:n].tolist()) == list(range(n))
    assert selection.rows[n:].tolist() == list(range(n, size))


def test_rows_whose_labels_were_flipped_are_left_out():
    """A holdout model that is right nine times in ten shows nearly all of four tenths wrong labels."""
    generator = np.random.default_rng(3)
    right = generator.integers(0, 5, 2000)
    wrong = generator.random(2000) < 0.4
    labels = np.where(wrong, (right + generator.integers(1, 5, 2000)) % 5, right)
    said = np.where(generator.random(2000) < 0.9, right, generator.integers(0, 5, 2000))
    loss = np.where(said == labels, 0.3, 3.0).astype(np.float32) + generator.random(2000).astype(np.float32) / 10
    picks = SmallLoss()(Pool(np.arange(2000), labels=labels, holdout_loss=loss), 400).rows
    assert wrong[picks].mean() < 0.05
    assert np.bincount(labels[picks]).tolist() == [80] * 5


def test_what_the_user_should_know_is_reported():
    labels = np.array([0, 0, 0, 0, -1, -1])
    pool = Pool(np.arange(6), labels=labels, holdout_loss=np.arange(6, dtype=np.float32))
    assert SmallLoss()(pool, 2).notes == ()
    assert SmallLoss()(pool, 3).notes == ("1 pick is not among the trusted 0.5 of the class, which is used up",)
    assert SmallLoss()(pool, 6).notes == (
        "2 picks are not among the trusted 0.5 of the class, which is used up",
        "2 picks have no class: all rows with one were picked",
    )
    nothing = Pool(np.arange(6), labels=np.full(6, -1), holdout_loss=np.zeros(6, np.float32))
    assert SmallLoss()(nothing, 4).notes == ("no candidate has a known class, so these are random picks",)


@pytest.mark.parametrize("share", [0.0, -0.5, 1.1, math.nan])
def test_a_share_out_of_range_is_one_line(share):
    with pytest.raises(InputError, match=r"trusted .*got"):
        SmallLoss(share)


def test_losses_below_zero_are_refused_but_for_rounding():
    labels, loss = np.zeros(5, np.int64), np.array([0.2, -1e-6, 0.1, 0.3, 0.4], np.float32)
    assert SmallLoss()(Pool(np.arange(5), labels=labels, holdout_loss=loss), 5).gains.max() == 1.0
    loss[3] = -2.5
    with pytest.raises(InputError, match=r"-2\.5 in row 3"):
        SmallLoss()(Pool(np.arange(5), labels=labels, holdout_loss=loss), 2)
    labels[3] = -1  # a loss without a label is no loss
    assert len(SmallLoss()(Pool(np.arange(5), labels=labels, holdout_loss=loss), 2).rows) == 2
