"""Settings of whole networks: chosen on upstream classes, traded downstream."""

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import url_tuned

pytestmark = pytest.mark.study


def test_settings_are_chosen_on_upstream_classes_and_trade_downstream():
    drawn = np.random.default_rng(0).random((2, 3, 2))
    low, high = np.tile([0.2, 0.6], (3, 1)), np.tile([0.4, 0.5], (3, 1))
    settings = [url_tuned.Setting("CE", "a", drawn[0], low), url_tuned.Setting("CE", "b", drawn[1], high)]
    assert url_tuned.best(settings, "recall").text == "b"
    assert url_tuned.best(settings, "r_auroc").text == "a"
    (x, y), (z, w) = settings[0].downstream[0], settings[1].downstream[0]
    one = [url_tuned.Setting("CE", "", drawn[:1, 0], low[:1]), url_tuned.Setting("HIB", "", drawn[1:, 0], low[:1])]
    line = url_tuned.over_estimators({each.estimator: [each] for each in one})
    assert line.endswith("+1.000" if (x - z) * (y - w) > 0 else "-1.000")
    flat = drawn.reshape(6, 2)
    assert url_tuned.traded(settings) == pytest.approx(stats.spearmanr(flat[:, 0], flat[:, 1]).statistic)
