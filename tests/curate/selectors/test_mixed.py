from dataclasses import replace

import numpy as np
import pytest
from coverage_pools import small_pool

from curate.selectors.mixed import Mixed
from curate.selectors.table import SELECTORS
from scoring.errors import InputError


def with_chances(seed):
    pool, _ = small_pool(seed)
    chances = np.random.default_rng(seed).dirichlet([0.5] * 4, len(pool.vectors)).astype(np.float32)
    return replace(pool, probabilities=chances)


@pytest.mark.parametrize("coverage", ["k-means", "herding", "k-center", "facility-location"])
def test_it_covers_the_rows_that_the_score_ranks_first(coverage):
    pool = with_chances(0)
    found = Mixed(score="entropy", coverage=coverage, factor=3)(pool, 10, seed=4)
    chances = pool.probabilities[pool.candidates].astype(np.float64)
    doubt = -(chances * np.log(np.maximum(chances, 1e-300))).sum(1)
    shortlist = np.sort(pool.candidates[np.argsort(-doubt, kind="stable")[:30]])
    assert np.array_equal(found.rows, SELECTORS[coverage]()(replace(pool, candidates=shortlist), 10, seed=4).rows)
    at = {int(row): value for row, value in zip(pool.candidates, doubt, strict=True)}
    assert found.parts["score"] == pytest.approx([at[int(row)] for row in found.rows], abs=1e-5)
    assert found.notes[0] == f"{coverage} among the 30 candidates that entropy ranks first"


def test_a_factor_that_takes_in_everything_is_the_coverage_alone():
    pool = with_chances(1)
    found = Mixed(score="margin", coverage="herding", factor=1000)(pool, 20)
    assert np.array_equal(found.rows, SELECTORS["herding"]()(pool, 20).rows)


def test_it_needs_what_its_parts_need():
    assert Mixed().needs == ("probabilities", "vectors")
    assert Mixed(score="score", coverage="random").needs == ("uncertainty",)


def test_unknown_parts_and_itself_are_refused():
    with pytest.raises(InputError, match="unknown strategy 'margins'; did you mean 'margin'"):
        Mixed(score="margins")
    with pytest.raises(InputError, match="made of two others, got 'mixed'"):
        Mixed(coverage="mixed")
    with pytest.raises(InputError, match=r"factor must be at least 1.* got 0.5"):
        Mixed(factor=0.5)
