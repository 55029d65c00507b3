import numpy as np
import pytest

from curate.selectors.chance import Random, StratifiedRandom
from curate.selectors.contract import Pool
from scoring.errors import InputError


def pool_with(classes, candidates=None, labelled=(), labels=None):
    certain = np.eye(max(classes) + 1, dtype=np.float32)[classes]
    return Pool(
        np.arange(len(classes)) if candidates is None else np.asarray(candidates),
        np.asarray(labelled, np.int64),
        probabilities=certain,
        labels=None if labels is None else np.asarray(labels),
    )


def test_every_candidate_is_picked_first_equally_often():
    pool = Pool(np.array([2, 3, 5, 7]))
    first = [int(Random()(pool, 1, seed=seed).rows[0]) for seed in range(2000)]
    counts = [first.count(row) for row in (2, 3, 5, 7)]
    assert sum(counts) == 2000
    assert max(abs(count - 500) for count in counts) < 4 * np.sqrt(2000 * 0.25 * 0.75)


def test_proportional_turns_give_each_class_its_share_of_every_start_of_the_picks():
    classes = np.repeat([0, 1, 2], [60, 30, 10])
    picks = StratifiedRandom()(pool_with(classes), 100, seed=1).rows
    for k in range(1, 101):
        counts = np.bincount(classes[picks[:k]], minlength=3)
        assert np.abs(counts - k * np.array([0.6, 0.3, 0.1])).max() <= 1


def test_proportional_turns_follow_the_divisor_method_seat_by_seat():
    sizes = np.array([23, 5, 11, 2])
    classes = np.repeat(np.arange(4), sizes)
    picks = StratifiedRandom()(pool_with(classes), 41, seed=2).rows
    seats = np.zeros(4)
    for row in picks:
        claim = (seats + 0.5) / sizes
        claim[seats == sizes] = np.inf
        assert claim[classes[row]] == claim.min()
        seats[classes[row]] += 1


def test_equal_turns_fill_the_class_with_the_fewest_rows_labelled_ones_counted():
    classes = np.repeat([0, 1, 2], [20, 20, 4])
    labels = np.full(44, -1)
    labels[:6] = 0
    pool = pool_with(classes, np.arange(6, 44), np.arange(6), labels)
    picks = StratifiedRandom(shares="equal")(pool, 38, seed=0).rows
    have, left = np.array([6, 0, 0]), np.array([14, 20, 4])
    for row in picks:
        open_classes = np.where(left > 0, have, 99)
        assert open_classes[classes[row]] == open_classes.min()
        have[classes[row]] += 1
        left[classes[row]] -= 1


def test_given_classes_are_used_where_they_are_requested_and_unknown_is_a_class():
    labels = np.array([0] * 10 + [1] * 10 + [-1] * 10)
    pool = Pool(np.arange(30), labels=labels)
    picks = StratifiedRandom(by="given")(pool, 6, seed=4).rows
    assert sorted(labels[picks].tolist()) == [-1, -1, 0, 0, 1, 1]
    assert StratifiedRandom(by="given").needs == ("labels",)
    assert StratifiedRandom().needs == StratifiedRandom.needs == ("probabilities",)


def test_inside_a_class_rows_are_drawn_at_random():
    classes = np.repeat([0, 1], [50, 50])
    picks = {tuple(StratifiedRandom()(pool_with(classes), 4, seed=seed).rows) for seed in range(20)}
    assert len(picks) == 20


def test_parameters_that_do_not_exist_are_named():
    with pytest.raises(InputError, match=r"predicted, given .*'guessed'"):
        StratifiedRandom(by="guessed")


def test_given_classes_that_no_candidate_has_are_reported_to_be_random_picks():
    pool = Pool(np.arange(20), np.array([20, 21]), labels=np.array([-1] * 20 + [0, 1]))
    assert StratifiedRandom(by="given")(pool, 5).notes == ("no candidate has a known class, so these are random picks",)
    known = Pool(np.arange(20), labels=np.array([-1] * 19 + [0]))
    assert StratifiedRandom(by="given")(known, 5).notes == ()
