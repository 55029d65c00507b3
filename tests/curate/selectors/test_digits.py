"""Learning curves on the digits that scikit-learn ships, against the table they were published with.

Protocol: 1,297 rows to pick from and 500 to test on, split once; features centred and scaled to a mean length of 4,
multinomial logistic regression with C = 1; selectors look at rows of length 1; budgets are rounds.
"""

import numpy as np
import pytest
from replayed import digits

from curate.rounds.simulation.replay import lift, replay
from curate.selectors.table import SELECTORS

pytestmark = pytest.mark.study

BUDGETS = (10, 20, 40, 60, 80, 100, 150, 200)
SEEDS = range(20)
PUBLISHED_SEEDS = 10
PUBLISHED = {  # accuracy in percent at each budget
    "random": (44.4, 60.2, 74.7, 83.6, 86.8, 89.6, 92.1, 93.1),
    "margin": (44.4, 63.1, 78.9, 87.2, 90.2, 92.6, 95.4, 96.7),
    "entropy": (44.4, 51.4, 63.1, 70.6, 80.3, 83.9, 89.0, 92.7),
}


@pytest.fixture(scope="module")
def curves():
    data = digits()
    return {name: replay(data, SELECTORS[name](), budgets=BUDGETS, seeds=SEEDS) for name in PUBLISHED}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_curve_is_reproduced_within_two_standard_errors(curves, name):
    ours = curves[name]
    spread = ours.error * np.sqrt(len(SEEDS))  # of one seed
    error = spread * np.sqrt(1 / len(SEEDS) + 1 / PUBLISHED_SEEDS)  # of the difference of two means
    away = (100 * ours.mean - PUBLISHED[name]) / (100 * error)
    assert np.abs(away).max() < 2, f"{name}: {(100 * ours.mean).round(1)}, {away.round(1)} standard errors away"


def test_every_strategy_that_needs_probabilities_begins_with_the_same_random_rows(curves):
    for name in PUBLISHED:
        assert np.array_equal(curves[name].picks[:, :10], curves["random"].picks[:, :10])


def test_margin_beats_random_late_and_entropy_loses_to_it_early(curves):
    against = lift(curves["margin"], curves["random"])
    assert against.area > 0
    assert against.p < 0.001
    assert against.saved[-1] > 0.3
    assert lift(curves["entropy"], curves["random"]).difference[2] < -0.05


def test_the_ceiling_is_the_published_one():
    data = digits()
    everything = replay(data, SELECTORS["random"](), budgets=[len(data.labels)], seeds=[0])
    assert everything.accuracy[0, 0] == pytest.approx(0.98, abs=0.0021)
