"""The duplicate radius from kappa, against the kernel of the distributions, quadrature and its own proofs."""

import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.integrate
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made import plain_rows

import curate
from curate.policies.dedup.finders.distributions import NearDistribution
from curate.policies.dedup.finders.elk import HIGHEST_KAPPA, Radius, cosine_bounds, log_kernel
from scoring.distributions import vmf
from scoring.errors import InputError

DIMS = [2, 3, 16, 512, 2048]
KAPPAS = [1.0, 3.7, 40.0, 500.0, 1000.0, 2e4, 1e6]


def slow_kernel(cosine, a, b, dim):
    """l(1,2) - (l(1,1) + l(2,2)) / 2 of each pair, from vectors with that cosine and their expected likelihoods."""
    cosine, a, b = (torch.as_tensor(x, dtype=torch.float64) for x in np.broadcast_arrays(cosine, a, b))
    first, second = torch.zeros(2, len(cosine), dim, dtype=torch.float64)
    first[:, 0] = 1
    second[:, 0], second[:, 1] = cosine, (1 - cosine.square()).clamp(min=0).sqrt()
    of_each = vmf.log_expected_likelihood(first, a, first, a) + vmf.log_expected_likelihood(second, b, second, b)
    return (vmf.log_expected_likelihood(first, a, second, b) - of_each / 2).numpy()


def slow_bounds(a, b, threshold, median, dim):
    """The smallest cosine that is enough, by bisection of the definition; 2 where none is."""
    limit = slow_kernel([threshold], median, median, dim)
    low, high = np.full(len(a), -1.0), np.full(len(a), 1.0)
    for _ in range(40):
        middle = (low + high) / 2
        enough = slow_kernel(middle, a, b, dim) >= limit
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.where(slow_kernel(np.ones(len(a)), a, b, dim) < limit, 2, high)


def bounds_of(radius, a, b):
    """The smallest cosine that is enough for rows of a table."""
    a, b = radius.clipped(a), radius.clipped(b)
    return cosine_bounds(a, b, radius.threshold, median=radius.median, dim=radius.dim)


@pytest.mark.parametrize("dim", DIMS)
def test_kernel_is_the_normalised_expected_likelihood(dim):
    cosine, a, b = (x.ravel() for x in np.meshgrid([-1.0, -0.3, 0.0, 0.9, 0.999, 1.0], KAPPAS, KAPPAS))
    kernel, expected = log_kernel(cosine, a, b, dim), slow_kernel(cosine, a, b, dim)
    assert (np.abs(kernel - expected) <= 1e-9 * np.abs(expected) + 1e-12 * np.maximum(a, b)).all()


@pytest.mark.parametrize(("a", "b", "cosine"), [(2.0, 2.0, 0.5), (1.0, 6.0, 0.9), (4.0, 0.5, -0.4), (8.0, 8.0, 0.99)])
def test_kernel_is_the_integral_of_the_product_of_densities_in_three_dimensions(a, b, cosine):
    sine = math.sqrt(1 - cosine**2)

    def integral(first, second, c, s):
        """Integrate over the sphere: z = (cos t, sin t cos f, sin t sin f), means (1, 0, 0) and (c, s, 0)."""

        def density(f, t):
            along = c * math.cos(t) + s * math.sin(t) * math.cos(f)
            shared = first / (4 * math.pi * math.sinh(first)) * second / (4 * math.pi * math.sinh(second))
            return shared * math.exp(first * math.cos(t) + second * along) * math.sin(t)

        return scipy.integrate.dblquad(density, 0, math.pi, 0, 2 * math.pi, epsabs=1e-11, epsrel=1e-10)[0]

    of_each = math.log(integral(a, a, 1, 0)) + math.log(integral(b, b, 1, 0))
    expected = math.log(integral(a, b, cosine, sine)) - of_each / 2
    assert log_kernel(np.array([cosine]), np.array([a]), np.array([b]), 3)[0] == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("dim", DIMS)
def test_kernel_is_zero_for_equals_and_below_zero_for_all_others(dim):
    a, b = (x.ravel() for x in np.meshgrid(KAPPAS, KAPPAS))
    equal = log_kernel(np.ones(len(a)), a, a, dim)
    others = log_kernel(np.full(len(a), 0.9), a, b, dim)
    assert (equal == 0).all()
    assert (others < 0).all()


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("threshold", [0.3, 0.98])
def test_bounds_match_bisection_of_the_definition(dim, threshold):
    generator = np.random.default_rng(dim)
    for median in (5.0, 1000.0):
        a = median * np.exp(generator.normal(0, 0.4, 5))
        b = a * np.exp(generator.normal(0, 0.2, 5))
        bounds = cosine_bounds(a, b, threshold, median=median, dim=dim)
        expected = slow_bounds(a, b, threshold, median, dim)
        assert ((bounds > 1) == (expected == 2)).all()
        assert bounds[bounds <= 1] == pytest.approx(expected[bounds <= 1], abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    st.floats(0, 6),
    st.floats(-0.5, 0.5),
    st.floats(0, 6),
    st.sampled_from(DIMS),
    st.sampled_from([-0.5, 0.0, 0.5, 0.9, 0.99, 1.0]),
)
def test_bounds_invert_the_kernel_for_kappas_from_1_to_a_million(log_a, log_ratio, log_median, dim, threshold):
    a = np.array([10**log_a])
    b = np.clip(a * 10**log_ratio, 1, 1e6)
    median = 10**log_median
    bound = cosine_bounds(a, b, threshold, median=median, dim=dim)
    again = cosine_bounds(b, a, threshold, median=median, dim=dim)
    assert bound[0] == pytest.approx(again[0], abs=1e-12)  # symmetric
    limit = log_kernel(np.array([threshold]), np.array([median]), np.array([median]), dim)[0]
    step, near = 1e-8, 1e-9 * abs(limit)
    if bound[0] < 1 - 1e-7:  # what is a little above is enough
        assert log_kernel(bound + step, a, b, dim)[0] >= limit - near
    if -1 + step < bound[0] < 1 - 1e-7:  # what is a little below is not
        assert log_kernel(bound - step, a, b, dim)[0] <= limit + near
    if bound[0] == -1:
        assert log_kernel(bound, a, b, dim)[0] >= limit - near


@pytest.mark.parametrize("dim", DIMS)
def test_two_rows_of_the_median_kappa_have_the_threshold(dim):
    for median in KAPPAS:
        for threshold in (-0.5, 0.5, 0.95, 0.999, 1.0):
            bounds = cosine_bounds(np.array([median]), np.array([median]), threshold, median=median, dim=dim)
            assert bounds[0] == pytest.approx(threshold, abs=1e-12)


def test_uncertain_pairs_may_be_further_apart_and_certain_ones_have_to_be_closer():
    kappas = np.geomspace(10, 1e5, 60)
    bounds = cosine_bounds(kappas, kappas, 0.95, median=1000.0, dim=512)
    assert (np.diff(bounds[bounds > -1]) > 0).all()
    assert bounds[kappas < 1000].max() < 0.95 < bounds[kappas > 1000].min()


def test_a_certain_and_an_uncertain_row_need_more_than_either_alone_until_no_cosine_is_enough():
    shares = np.geomspace(1, 4, 30)
    bounds = cosine_bounds(1000 * np.sqrt(shares), 1000 / np.sqrt(shares), 0.98, median=1000.0, dim=512)
    assert (np.diff(bounds) > 0).all()
    assert bounds[0] == pytest.approx(0.98)
    assert bounds[-1] > 1
    assert log_kernel(np.array([1.0]), np.array([2000.0]), np.array([500.0]), 512)[0] < -10  # at cosine 1


def test_far_above_the_dimension_the_radius_is_an_angle_over_the_square_root_of_kappa():
    bounds = cosine_bounds(np.array([1e5]), np.array([1e5]), 0.999, median=1e4, dim=3)
    assert math.acos(bounds[0]) == pytest.approx(math.acos(0.999) / math.sqrt(10), rel=1e-3)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.floats(0, 5), min_size=1, max_size=20), st.sampled_from(DIMS), st.sampled_from([0.0, 0.5, 0.9, 0.99, 1])
)
def test_loosest_is_below_every_bound_of_the_table(logs, dim, threshold):
    kappas = 10 ** np.array(logs)
    radius = Radius.of(kappas, threshold, dim)
    a, b = (x.ravel() for x in np.meshgrid(kappas, kappas))
    bounds = bounds_of(radius, a, b)
    assert radius.loosest <= bounds.min() + 1e-12
    assert radius.loosest == pytest.approx(bounds.min(), abs=1e-12)  # and one pair has it


@pytest.mark.parametrize("threshold", [0.5, 0.9, 0.98])
def test_a_few_rows_of_no_certainty_do_not_open_the_search_to_everything(threshold):
    kappas = np.r_[np.zeros(3), np.full(100, 1000.0)]
    radius = Radius.of(kappas, threshold, 512)
    assert radius.n_low == 3
    assert math.acos(radius.loosest) == pytest.approx(2 * math.acos(threshold), rel=1e-6)
    assert 250 < radius.floor < 500
    assert bounds_of(radius, np.zeros(1), np.zeros(1))[0] == pytest.approx(radius.loosest)
    assert any("3 rows" in line for line in radius.notes)


def test_rows_of_one_kappa_are_compared_by_cosine():
    radius = Radius.of(np.full(7, 123.0), 0.9, 64)
    cosine = np.linspace(-1, 1, 9)
    same = np.full(9, 123.0)
    assert radius.loosest == pytest.approx(0.9)
    assert radius.similarity(cosine, same, same) == pytest.approx(cosine, abs=1e-9)
    assert (radius.n_low, radius.n_high) == (0, 0)


def test_similarity_reaches_the_threshold_exactly_where_the_cosine_reaches_the_bound():
    generator = np.random.default_rng(3)
    kappas = 10 ** generator.normal(3, 0.2, 2000)
    radius = Radius.of(kappas, 0.95, 512)
    a, b = kappas, generator.permutation(kappas)
    cosine = generator.uniform(0.8, 1, 2000)
    bounds = bounds_of(radius, a, b)
    clear = np.abs(cosine - bounds) > 1e-9
    reached = radius.similarity(cosine, a, b) >= 0.95
    assert (reached == (cosine >= bounds))[clear].all()
    assert 100 < reached.sum() < 1900


def test_similarity_grows_with_the_cosine():
    radius = Radius.of(np.array([400.0, 1000.0, 3000.0]), 0.95, 128)
    cosine = np.linspace(0.5, 1, 50)
    similarity = radius.similarity(cosine, np.full(50, 400.0), np.full(50, 600.0))
    assert (np.diff(similarity) > 0).all()
    assert similarity.max() < 1


def test_threshold_one_asks_for_equal_directions_and_equal_kappas():
    bounds = cosine_bounds(np.array([10.0, 10.0]), np.array([10.0, 11.0]), 1.0, median=500.0, dim=512)
    assert bounds[0] == pytest.approx(1, abs=1e-12)
    assert bounds[1] > 1


def test_no_pairs_give_no_bounds():
    assert cosine_bounds(np.zeros(0), np.zeros(0), 0.9, median=1.0, dim=8).shape == (0,)
    assert log_kernel(np.zeros(0), np.zeros(0), np.zeros(0), 8).shape == (0,)


def test_blocks_of_pairs_give_the_same_as_pairs_alone():
    generator = np.random.default_rng(0)
    a, b = 10 ** generator.uniform(2, 4, (2, 70_000))
    all_bounds = cosine_bounds(a, b[::-1], 0.9, median=1000.0, dim=512)
    some = generator.integers(0, len(a), 50)
    alone = [cosine_bounds(a[i : i + 1], b[::-1][i : i + 1], 0.9, median=1000.0, dim=512)[0] for i in some]
    assert all_bounds[some] == pytest.approx(alone, abs=1e-10)


def test_float32_and_kappas_above_the_highest_are_taken():
    radius = Radius.of(np.array([1e3, 1e3, 1e9], np.float32), 0.9, 512)
    assert radius.n_high == 1
    assert bounds_of(radius, np.float32([1e9]), np.float32([1e9]))[0] == pytest.approx(
        bounds_of(radius, np.array([HIGHEST_KAPPA]), np.array([HIGHEST_KAPPA]))[0]
    )


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1.0])
def test_a_kappa_that_is_none_is_named_with_its_column(wrong):
    with pytest.raises(InputError, match=r"finite kappa >= 0 in every row of 'kappa_x', got 1 of 3 rows"):
        Radius.of(np.array([1.0, wrong, 2.0]), 0.9, 16, name="kappa_x")


def test_a_table_without_any_certainty_is_refused():
    with pytest.raises(InputError, match="median above 0 in 'kappa_x'"):
        Radius.of(np.zeros(5), 0.9, 16, name="kappa_x")
    with pytest.raises(InputError, match="got 0 of 0 rows"):
        Radius.of(np.zeros(0), 0.9, 16)


def test_what_is_out_of_range_is_the_callers_mistake():
    for threshold in (-1.0, 1.1, math.nan):
        with pytest.raises(ValueError, match="threshold must be a cosine"):
            Radius.of(np.ones(2), threshold, 16)
    with pytest.raises(ValueError, match="dim >= 2"):
        Radius.of(np.ones(2), 0.9, 1)
    with pytest.raises(ValueError, match="every kappa"):
        cosine_bounds(np.array([0.0]), np.array([1.0]), 0.9, median=1.0, dim=4)


def test_embeddings_of_one_number_are_refused_in_one_line():
    rows = plain_rows(embedding=np.ones((3, 1), np.float32), numbers={"kappa_a": np.full(3, 5.0)})
    with pytest.raises(InputError, match="needs embeddings of 2 numbers or more, got 1"):
        NearDistribution(rows, 0.95, "kappa_a")


def test_several_kappas_of_which_none_is_the_models_are_to_be_chosen_with_kappa(tmp_path):
    columns = {
        "key": ["a", "b"],
        "embedding": pa.FixedSizeListArray.from_arrays(pa.array([1.0, 0, 0, 1], pa.float32()), 2),
    }
    columns |= {name: pa.array([5.0, 6.0], pa.float32()) for name in ("kappa_a", "kappa_b")}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    with pytest.raises(InputError, match=r"--kappa.*kappa_a, kappa_b") as error:
        curate.dedup(tmp_path / "t.parquet", dry_run=True, similarity="elk")
    assert "--column" not in str(error.value)
    assert curate.dedup(tmp_path / "t.parquet", dry_run=True, similarity="elk", kappa="kappa_b").kept == 2
