"""Which verdicts on a drawn sample count: those of blocks that were judged whole."""

import numpy as np

from curate.policies.sampled import BLOCK, blocks, n_finished


def test_blocks_hold_48_images_at_most_and_none_twice():
    assert [len(block) for block in blocks(list(range(100)))] == [BLOCK, BLOCK, 4]
    assert list(blocks(["a", "b", "a", "c", "b", "c"])) == [[0, 1], [2, 3, 4], [5]]


def test_what_is_judged_behind_an_unfinished_block_does_not_count():
    judged = [True] * (3 * BLOCK)
    images = list(range(3 * BLOCK))
    assert n_finished(images, judged) == 3 * BLOCK
    judged[BLOCK + 5] = False
    assert n_finished(images, judged) == BLOCK
    judged[0] = False
    assert n_finished(images, judged) == 0


def test_a_reviewer_who_stops_inside_a_block_biases_all_verdicts_and_not_those_that_count():
    """Of a block of labels the pair of the first image is judged first, and where most are right, most often."""
    rng = np.random.default_rng(0)
    common = np.arange(1000) < 700  # seven of ten labels are of a pair of which a tenth is wrong, the others of one
    wrong = np.where(common, np.arange(1000) % 10 == 0, np.arange(1000) % 10 != 0)  # of which nine tenths are
    every, counted = [], []
    for _ in range(4000):
        drawn = rng.permutation(1000)[: 4 * BLOCK]
        whole = BLOCK * rng.integers(1, 3)
        judged = np.arange(len(drawn)) < whole
        block = slice(whole, whole + BLOCK)
        judged[block] = common[drawn[block]] == common[drawn[whole]]  # then the reviewer stops
        every.append(wrong[drawn[judged]].mean())
        counted.append(wrong[drawn[: n_finished(drawn.tolist(), judged.tolist())]].mean())
    error = np.std(counted) / np.sqrt(len(counted))
    assert wrong.mean() == 0.34
    assert abs(np.mean(counted) - wrong.mean()) < 3 * error
    assert abs(np.mean(every) - wrong.mean()) > 10 * error
