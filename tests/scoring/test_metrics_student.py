"""Student's t against SciPy, from one degree of freedom to a normal distribution."""

import numpy as np
import pytest
import scipy.stats

from scoring.metrics.student import student_p, student_quantile


@pytest.mark.parametrize("df", [0.7, 1, 2, 4, 8, 30, 1e3, 1e5, 1e7])
def test_chances_and_quantiles_are_those_of_scipy(df):
    law = scipy.stats.t(df)
    for t in (-3.0, -0.2, 0.0, 1e-6, 0.5, 1.96, 5.0, 40.0):
        assert student_p(t, df) == pytest.approx(2 * law.sf(abs(t)), rel=1e-8, abs=1e-300)
    for level in (0.5, 0.9, 0.95, 0.999):
        assert student_quantile(level, df) == pytest.approx(law.ppf((1 + level) / 2), rel=1e-7)


def test_more_degrees_of_freedom_than_can_be_told_apart_are_the_normal_distribution():
    assert student_quantile(0.95, 1e12) == pytest.approx(scipy.stats.norm.ppf(0.975), rel=1e-6)
    assert np.isfinite(student_p(1.0, float("inf")))


@pytest.mark.parametrize("call", [lambda: student_p(1.0, 0), lambda: student_p(1.0, float("nan"))])
def test_degrees_of_freedom_are_above_0(call):
    with pytest.raises(ValueError, match="df must be above 0"):
        call()


@pytest.mark.parametrize("level", [0, 1, -0.5])
def test_a_level_is_a_share(level):
    with pytest.raises(ValueError, match="level must be in"):
        student_quantile(level, 3)
