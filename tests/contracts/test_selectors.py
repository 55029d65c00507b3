"""What every selector promises, whichever it is: the table decides what is tested."""

import subprocess
import sys
import tracemalloc
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from curate.selectors.contract import HOW_TO_GET, Pool, check
from curate.selectors.table import SELECTORS
from scoring.errors import InputError

ROOT = Path(__file__).parents[2]
C, D = 4, 6


def chances(generator, *shape):
    raised = np.exp(2 * generator.standard_normal(shape))
    return (raised / raised.sum(-1, keepdims=True)).astype(np.float32)


def pool_of(n=83, n_labelled=9, seed=0, vectors=None):
    """A pool with every field, in which a third of the rows is neither labelled nor to be picked."""
    generator = np.random.default_rng(seed)
    if vectors is None:
        vectors = generator.standard_normal((n, D))
        vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    order = generator.permutation(n)
    labelled = np.sort(order[:n_labelled])
    labels = np.full(n, -1)
    labels[labelled] = generator.integers(0, C, n_labelled)
    return Pool(
        candidates=np.sort(order[n_labelled : max(n_labelled + 1, 2 * n // 3)]),
        labelled=labelled,
        vectors=vectors,
        probabilities=chances(generator, n, C),
        labels=labels,
        uncertainty=generator.random(n).astype(np.float32),
        quality=generator.random(n).astype(np.float32),
        holdout_loss=generator.random(n).astype(np.float32),
    )


def arrays_of(pool):
    return {field.name: getattr(pool, field.name) for field in fields(pool)}


def assert_sound(selection, pool, budget):
    assert selection.rows.shape == selection.gains.shape == (budget,)
    assert len(set(selection.rows.tolist())) == budget
    assert set(selection.rows.tolist()) <= set(pool.candidates.tolist()) - set(pool.labelled.tolist())
    assert not np.isnan(selection.gains).any()
    assert all(part.shape == (budget,) for part in selection.parts.values())


@pytest.fixture(params=SELECTORS)
def selector(request):
    return SELECTORS[request.param]()


@pytest.mark.parametrize("budget", [1, 7, 46])
def test_exactly_k_distinct_candidates_come_back_and_none_is_labelled(selector, budget):
    pool = pool_of()
    assert len(pool.candidates) == 46
    assert_sound(selector(pool, budget), pool, budget)


def test_it_works_before_anything_is_labelled_and_without_what_it_does_not_need(selector):
    complete = pool_of(n_labelled=0)
    bare = Pool(complete.candidates, **{need: getattr(complete, need) for need in selector.needs})
    assert_sound(selector(bare, 5), bare, 5)


def test_only_what_it_names_changes_its_picks(selector):
    pool = pool_of()
    named = {*selector.needs, *selector.optional, "candidates", "labelled"}
    bare = Pool(**{name: array for name, array in arrays_of(pool).items() if name in named})
    assert np.array_equal(selector(pool, 12, seed=3).rows, selector(bare, 12, seed=3).rows)


def test_the_same_seed_gives_the_same_picks(selector):
    first, again = selector(pool_of(), 12, seed=3), selector(pool_of(), 12, seed=3)
    assert np.array_equal(first.rows, again.rows)
    assert np.array_equal(first.gains, again.gains)


def test_a_smaller_budget_is_a_prefix_where_that_is_promised(selector):
    if not selector.prefix:
        pytest.skip("not promised: the whole batch is chosen at once")
    pool = pool_of()
    longest = selector(pool, len(pool.candidates), seed=5)
    for budget in (1, 2, 13):
        assert np.array_equal(selector(pool, budget, seed=5).rows, longest.rows[:budget])


def test_picks_do_not_depend_on_the_order_of_the_rows_unless_they_are_drawn(selector):
    pool = pool_of()
    picks = selector(pool, 10).rows
    if any(not np.array_equal(picks, selector(pool, 10, seed=seed).rows) for seed in (1, 2)):
        pytest.skip("drawn by a seed: the caller that makes the pool sorts its rows by key")
    new_to_old = np.random.default_rng(9).permutation(pool.n_rows)
    old_to_new = np.argsort(new_to_old)
    shuffled = {
        name: array[new_to_old] for name, array in arrays_of(pool).items() if name not in ("candidates", "labelled")
    }
    other = Pool(np.sort(old_to_new[pool.candidates]), np.sort(old_to_new[pool.labelled]), **shuffled)
    assert np.array_equal(new_to_old[selector(other, 10).rows], picks)


def test_inputs_are_only_read(selector):
    pool = pool_of()
    before = {name: array.copy() for name, array in arrays_of(pool).items()}
    for array in arrays_of(pool).values():
        array.flags.writeable = False
    selector(pool, 9)
    for name, array in arrays_of(pool).items():
        assert np.array_equal(array, before[name])


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_either_precision_of_the_vectors_will_do(selector, dtype):
    pool = pool_of()
    pool = replace(pool, vectors=pool.vectors.astype(dtype))
    assert_sound(selector(pool, 11), pool, 11)


@pytest.mark.parametrize("kind", ["duplicates", "constant", "zero", "some zero"])
def test_rows_that_cannot_be_distinguished_are_still_picked_once(selector, kind):
    vectors = pool_of().vectors.copy()
    if kind == "zero":
        vectors[:] = 0
    elif kind == "some zero":
        vectors[::3] = 0
    else:
        vectors = vectors[np.arange(len(vectors)) % (5 if kind == "duplicates" else 1)]
    pool = pool_of(vectors=vectors)
    flat = replace(
        pool,
        probabilities=pool.probabilities[np.arange(83) % 2],
        **{name: np.full(83, 0.5, np.float32) for name in ("uncertainty", "quality", "holdout_loss")},
    )
    for budget in (1, 8, len(flat.candidates)):
        assert_sound(selector(flat, budget), flat, budget)


def test_rows_that_are_certain_to_the_last_bit_are_still_picked_once(selector):
    """All gradients, margins and entropies are zero."""
    pool = pool_of()
    sure = np.zeros((83, C), np.float32)
    sure[:, 1] = 1
    pool = replace(pool, probabilities=sure)
    assert_sound(selector(pool, len(pool.candidates)), pool, len(pool.candidates))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_smallest_pools_work(selector, n):
    pool = replace(pool_of(n, 0), candidates=np.arange(n))
    assert_sound(selector(pool, n), pool, n)


@pytest.mark.parametrize("budget", [-1, 0, 47])
def test_a_budget_out_of_range_is_one_line_that_names_both_numbers(selector, budget):
    with pytest.raises(InputError, match=f"46 rows .*got {budget}") as error:
        selector(pool_of(), budget)
    assert "\n" not in str(error.value)


def test_what_is_missing_is_named_with_the_way_to_get_it(selector):
    for need in selector.needs:
        with pytest.raises(InputError, match="this strategy needs") as error:
            selector(replace(pool_of(), **{need: None}), 3)
        assert HOW_TO_GET[need] in str(error.value)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused(selector, bad):
    for need in selector.needs:
        pool = pool_of()
        array = getattr(pool, need)
        if array.dtype.kind != "f":
            continue
        broken = array.copy()
        broken[17] = bad
        with pytest.raises(InputError, match=r"finite.* in row 17"):
            selector(replace(pool, **{need: broken}), 3)


def test_the_table_says_what_each_selector_needs_promises_and_costs():
    for name, kind in SELECTORS.items():
        assert set(kind.needs) | set(kind.optional) <= set(HOW_TO_GET), name
        assert not set(kind.needs) & set(kind.optional), name
        assert isinstance(kind.prefix, bool), name
        assert "O(" in kind.cost or "the score's" in kind.cost, name
        assert kind.__doc__, name
        assert kind() == kind(), name  # parameters are values


def test_memory_grows_with_the_budget_only_where_the_cost_states_it(selector):
    if any(growth in selector.cost.replace(" ", "") for growth in ("O(KN)memory", "O(NK)memory")):
        pytest.skip("the cost states it")
    generator = np.random.default_rng(0)
    pool = replace(pool_of(2000, 0), candidates=np.arange(2000))
    pool = replace(pool, vectors=generator.standard_normal((2000, D)).astype(np.float32))
    pool.vectors[:] /= np.linalg.norm(pool.vectors, axis=1, keepdims=True)

    def peak(budget):
        tracemalloc.start()
        selector(pool, budget)
        reached = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return reached

    peak(2)  # what is loaded and kept at a first call
    assert peak(200) < peak(4) + 3e5  # 2,000 rows x 200 picks would be 0.4 MB in bytes, 1.6 MB in float32


THREADS = """
import sys, numpy as np, torch
torch.set_num_threads(int(sys.argv[1]))
from curate.selectors.contract import Pool
from curate.selectors.table import SELECTORS
g = np.random.default_rng(0)
v = g.standard_normal((3001, 48)).astype("f4")
v /= np.linalg.norm(v, axis=1, keepdims=True)
p = g.dirichlet(np.ones(5), 3001).astype("f4")
d = g.dirichlet(np.ones(5), (3, 3001)).astype("f4")
u = g.random(3001).astype("f4")
pool = Pool(np.arange(100, 3001), np.arange(100), v, p, g.integers(0, 5, 3001), u, u, d, u, u[::-1].copy())
for name, kind in SELECTORS.items():
    print(name, kind()(pool, 40).rows.tolist())
"""


@pytest.mark.slow
def test_the_number_of_threads_changes_no_pick(monkeypatch, capsys):
    environment = {"OMP_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": "3", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", THREADS, "3"], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    monkeypatch.setattr(sys, "argv", ["", str(torch.get_num_threads())])
    exec(THREADS, {})
    assert torch.get_num_threads() != 3
    assert capsys.readouterr().out == done.stdout
    assert done.stdout.count("\n") == len(SELECTORS)


def test_a_pool_that_is_not_one_is_the_callers_bug():
    pool = pool_of()
    both = np.sort(np.append(pool.candidates, pool.labelled[0]))
    with pytest.raises(ValueError, match="labelled already"):
        check(replace(pool, candidates=both), 1)
    with pytest.raises(ValueError, match="ascend without repeats"):
        check(replace(pool, candidates=pool.candidates[::-1]), 1)
    with pytest.raises(ValueError, match="ascend without repeats"):
        check(replace(pool, candidates=np.array([3, 83])), 1)
    with pytest.raises(ValueError, match=r"has 82 rows.* 83"):
        check(replace(pool, quality=pool.quality[:82]), 1)


def test_scores_instead_of_probabilities_are_refused_with_their_sum():
    pool = pool_of()
    broken = pool.probabilities.copy()
    broken[5] = [2.0, 0.5, 0.5, 0.0]
    with pytest.raises(InputError, match=r"sum of 3 .*row 5"):
        check(replace(pool, probabilities=broken), 1)
    broken[5] = [1.5, -0.5, 0.0, 0.0]
    with pytest.raises(InputError, match=r"least of -0\.5.*row 5"):
        check(replace(pool, probabilities=broken), 1)


def test_a_pool_without_candidates_is_refused():
    with pytest.raises(InputError, match=r"the 0 rows.*got 1"):
        check(replace(pool_of(), candidates=np.zeros(0, np.int64)), 1)


def test_the_global_generators_are_neither_read_nor_moved(selector):
    import torch

    picks = []
    for state in (0, 1):
        np.random.seed(state)
        torch.manual_seed(state)
        picks.append(selector(pool_of(), 12, seed=4).rows)
        ahead = np.random.random(), torch.rand(()).item()
        np.random.seed(state)
        torch.manual_seed(state)
        assert ahead == (np.random.random(), torch.rand(()).item())
    assert np.array_equal(*picks)
