"""Choosing from a pool: exact budgets, groups, gates, the least distance, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from choosing import vectors_of

from curate.policies.select.plan import choose, part_of, water_fill
from curate.policies.select.request import SelectRequest
from curate.selectors.contract import Pool
from curate.selectors.herding import MaxHerding
from curate.selectors.ranked import Discounted, Margin, gate
from curate.selectors.table import SELECTORS
from curate.tables.rows import Codes
from scoring.errors import InputError


def pool_of(n=90, n_labelled=6, seed=0):
    generator = np.random.default_rng(seed)
    vectors, _ = vectors_of(n, seed=seed)
    chances = generator.dirichlet(np.ones(3), n).astype(np.float32)
    order = generator.permutation(n)
    return Pool(
        candidates=np.sort(order[n_labelled:]),
        labelled=np.sort(order[:n_labelled]),
        vectors=vectors,
        probabilities=chances,
        quality=generator.random(n).astype(np.float32),
    )


def groups_of(pool, sizes):
    """Candidates in groups of these sizes, labelled rows in the first."""
    codes = np.zeros(pool.n_rows, np.int32)
    codes[pool.candidates] = np.repeat(np.arange(len(sizes)), sizes)
    return Codes(codes, [f"g{i}" for i in range(len(sizes))])


def test_without_groups_and_quality_the_choice_is_the_strategys():
    pool = pool_of()
    chosen = choose(pool, SelectRequest("herding", "12"))
    assert chosen.rows.tolist() == MaxHerding()(pool, 12).rows.tolist()
    assert chosen.budget == 12


def test_a_share_is_of_the_candidates_rounded_down():
    assert len(choose(pool_of(), SelectRequest("random", "10%")).rows) == 8  # of 84
    assert len(choose(pool_of(), SelectRequest("random", "1.0")).rows) == 84


@pytest.mark.parametrize("strategy", ["random", "auto", "margin", "k-center"])
def test_balanced_shares_are_filled_like_water(strategy):
    pool = pool_of()
    groups = groups_of(pool, [3, 60, 20, 1])
    chosen = choose(pool, SelectRequest(strategy, "30", balance="group"), groups)
    got = np.bincount(groups.codes[chosen.rows], minlength=4)
    order = [list(chosen.quotas).index(name) for name in groups.names]
    assert got.tolist() == [list(chosen.quotas.values())[place] for place in order]
    assert sorted(got.tolist()) == sorted(water_fill([3, 60, 20, 1], 30)) == [1, 3, 13, 13]
    assert len(set(chosen.rows.tolist())) == 30
    assert any("2 of 4 groups" in note for note in chosen.notes)


def test_per_group_each_gives_the_budget_or_all_it_has():
    pool = pool_of()
    groups = groups_of(pool, [3, 60, 21])
    chosen = choose(pool, SelectRequest("auto", "5", per="group"), groups)
    assert np.bincount(groups.codes[chosen.rows]).tolist() == [3, 5, 5]
    assert any("all are picked: g0" in note for note in chosen.notes)
    shared = choose(pool, SelectRequest("auto", "10%", per="group"), groups)
    assert np.bincount(groups.codes[shared.rows], minlength=3).tolist() == [0, 6, 2]


def test_a_smaller_balanced_budget_is_the_start_of_a_larger_one():
    pool = pool_of()
    groups = groups_of(pool, [10, 50, 24])
    large = choose(pool, SelectRequest("herding", "40", balance="group"), groups).rows
    for budget in (1, 7, 20):
        small = choose(pool, SelectRequest("herding", str(budget), balance="group"), groups).rows
        assert small.tolist() == large[:budget].tolist()


def test_a_group_is_picked_as_if_there_were_no_other_candidates():
    pool = pool_of()
    groups = groups_of(pool, [40, 44])
    chosen = choose(pool, SelectRequest("herding", "5", per="group"), groups)
    for code in (0, 1):
        in_group = pool.candidates[groups.codes[pool.candidates] == code]
        alone = MaxHerding()(replace(pool, candidates=in_group), 5).rows
        assert chosen.rows[groups.codes[chosen.rows] == code].tolist() == alone.tolist()


def test_with_many_groups_and_labels_each_group_sees_its_own_labelled_rows(monkeypatch):
    monkeypatch.setattr("curate.policies.select.plan.MEETINGS", 11)  # 2 groups, 6 labelled rows
    pool = pool_of()
    groups = groups_of(pool, [40, 44])
    chosen = choose(pool, SelectRequest("herding", "5", per="group"), groups)
    for code in (0, 1):
        in_group, known = (rows[groups.codes[rows] == code] for rows in (pool.candidates, pool.labelled))
        alone = MaxHerding()(replace(pool, candidates=in_group, labelled=known), 5).rows
        assert chosen.rows[groups.codes[chosen.rows] == code].tolist() == alone.tolist()
    assert (
        chosen.notes[0] == "6 labelled rows and 2 groups: each group keeps its distance only from its own labelled rows"
    )


def test_part_of_a_pool_keeps_its_rows_together():
    pool = pool_of()
    part, rows = part_of(pool, pool.candidates[5:9], pool.labelled)
    assert rows[part.candidates].tolist() == pool.candidates[5:9].tolist()
    assert rows[part.labelled].tolist() == pool.labelled.tolist()
    assert np.array_equal(part.vectors, pool.vectors[rows])


def test_the_gate_leaves_out_the_worst_and_does_not_weigh_the_rest():
    pool = pool_of()
    chosen = choose(pool, SelectRequest("auto", "20", gate=0.5))
    passed = gate(pool, 0.5)
    assert chosen.rows.tolist() == choose(replace(passed, quality=None), SelectRequest("auto", "20")).rows.tolist()
    assert set(chosen.gated.tolist()) == set(pool.candidates.tolist()) - set(passed.candidates.tolist())


def test_the_discount_ranks_by_the_product_or_weighs():
    pool = pool_of()
    ranked = choose(pool, SelectRequest("margin", "10", discount=True))
    assert ranked.rows.tolist() == Discounted(Margin())(pool, 10).rows.tolist()
    weighed = choose(pool, SelectRequest("auto", "10", discount=True)).rows.tolist()
    assert weighed == SELECTORS["auto"]()(pool, 10).rows.tolist()
    assert weighed != choose(pool, SelectRequest("auto", "10")).rows.tolist()


def test_the_noise_guard_is_a_gate_and_the_discount_where_there_is_one():
    pool = pool_of()
    guarded = choose(pool, SelectRequest("margin", "10", noise_guard=True)).rows
    assert guarded.tolist() == Discounted(Margin())(gate(pool, 0.2), 10).rows.tolist()
    far = choose(pool, SelectRequest("k-center", "10", noise_guard=True))
    assert "k-center has no discount" in str(far.notes)
    assert set(far.rows.tolist()) <= set(gate(pool, 0.2).candidates.tolist())


def test_a_least_distance_stops_at_the_first_pick_that_is_too_near():
    pool = pool_of()
    complete = choose(pool, SelectRequest("k-center", "40"))
    stopped = choose(pool, SelectRequest("k-center", "40", min_distance=0.6))
    n = len(stopped.rows)
    assert 0 < n < 40
    assert stopped.budget == 40
    assert stopped.rows.tolist() == complete.rows[:n].tolist()
    assert stopped.stopped < 0.6 <= stopped.gains[n - 1]  # k-center's gain is that very distance
    assert complete.gains[n] == pytest.approx(stopped.stopped, abs=1e-5)
    assert f"stopped after {n} of 40" in stopped.notes[-1]


def test_nothing_is_written_to_the_pool():
    pool = pool_of()
    for array in (pool.vectors, pool.probabilities, pool.quality, pool.candidates, pool.labelled):
        array.flags.writeable = False
    chosen = choose(pool, SelectRequest("auto", "5", noise_guard=True, balance="group"), groups_of(pool, [40, 44]))
    assert len(chosen.rows) == 5  # and no array refused to be written to


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (SelectRequest(budget="85"), "84 rows .*got 85"),
        (SelectRequest(budget="1%", strategy="random"), "got 0"),
        (SelectRequest("k-center", "3", discount=True), "got k-center; use --gate"),
        (SelectRequest("random", "80", gate=0.5), "got 80; .*gate"),
        (SelectRequest("pick-me", "3"), "unknown strategy 'pick-me'"),
        (SelectRequest("auto", "3", {"bandwith": 1}), "did you mean 'bandwidth'"),
        (SelectRequest("auto", "3", {"bandwidth": "wide"}), "got 'wide'"),
        (SelectRequest("auto", "3", {"bandwidth": "-1"}), "bandwidth must be"),
        (SelectRequest("k-center", "3", {"unit": "maybe"}), "got 'maybe'"),
        (SelectRequest("random", "3", {"x": 1}), "no parameter 'x'"),
    ],
)
def test_what_cannot_be_chosen_is_one_line(plan, said):
    pool = pool_of()
    if plan.budget == "1%":
        pool = replace(pool, candidates=pool.candidates[:20])
    with pytest.raises(InputError, match=said):
        choose(pool, plan)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"budget": "0"}, "--budget .*got 0"),
        ({"budget": "-3"}, "--budget takes"),
        ({"budget": "1.5"}, "--budget takes"),
        ({"gate": 1.0}, r"gate .*got 1"),
        ({"gate": float("nan")}, "got nan"),
        ({"min_distance": 0.0}, "got 0"),
        ({"min_distance": 2.5}, "got 2.5"),
        ({"min_distance": float("nan")}, "got nan"),
        ({"seed": -1}, "--seed .*got -1"),
    ],
)
def test_a_plan_out_of_range_is_one_line(given, said):
    with pytest.raises(InputError, match=said):
        SelectRequest(**given)


def test_a_plan_with_shares_and_no_groups_is_the_callers_bug():
    with pytest.raises(ValueError, match="needs groups"):
        choose(pool_of(), SelectRequest(per="group"))


def test_settings_are_read_as_their_types():
    plan = SelectRequest("herding", "3", {"bandwidth": "0.7", "references": "7"})
    assert (plan.selector().bandwidth, plan.selector().references) == (0.7, 7)
    assert SelectRequest("k-center", "3", {"unit": "false"}).selector().unit is False
    assert SelectRequest("stratified", "3", {"shares": "equal"}).selector().shares == "equal"
