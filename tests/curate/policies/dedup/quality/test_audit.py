"""Audits: what is drawn, what comes back, and what the answers prove."""

from collections import Counter, defaultdict
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from drawn_pairs import LIMITS, answered, pairs_of

from curate.policies.dedup.finders.links import Links, joined
from curate.policies.dedup.quality.audit import DROPPED, NEAR, allocate, draw_pairs, pair_of_each_row
from curate.policies.dedup.quality.precision import count_answers
from scoring.errors import InputError


def test_weights_add_up_to_the_pairs_of_each_stratum_and_side(many):
    drawn = draw_pairs(many, LIMITS, 200)
    assert len(drawn) == 200
    similarity, finder = many.column("similarity").to_numpy(), np.array(many.column("finder").to_pylist())
    total = Counter()
    for pair in drawn:
        total[pair.stratum.finder, pair.stratum.side] += pair.weight
    assert total["signature", DROPPED] == pytest.approx(
        ((finder == "signature") & (similarity >= np.float32(0.9))).sum()
    )
    assert total["signature", NEAR] == pytest.approx(((finder == "signature") & (similarity < np.float32(0.9))).sum())
    assert total["hash", DROPPED] == pytest.approx(((finder == "hash") & (similarity <= 2)).sum())
    assert total["hash", NEAR] == pytest.approx(((finder == "hash") & (similarity > 2)).sum())


def test_strata_divide_the_pairs_by_similarity_and_ties_stay_together(many):
    drawn = draw_pairs(many, LIMITS, 300)
    ranges = defaultdict(set)
    for pair in drawn:
        name = pair.stratum
        low, high = sorted((name.least, name.most))
        assert low <= pair.similarity <= high
        ranges[name.finder].add((low, high))
    for parts in ranges.values():
        ordered = sorted(parts)
        assert all(before[1] < after[0] for before, after in pairwise(ordered))
    assert len(ranges["signature"]) == 7


def test_pairs_next_to_the_threshold_represent_fewer_others(many):
    weight = {pair.stratum: pair.weight for pair in draw_pairs(many, LIMITS, 300) if pair.stratum.finder == "signature"}
    for side in (DROPPED, NEAR):
        outward = [w for name, w in sorted(weight.items(), key=lambda item: item[0].number) if name.side == side]
        assert outward[0] < outward[-1]


def test_the_same_pairs_are_drawn_whatever_the_order_of_rows_and_of_keys(many):
    generator = np.random.default_rng(1)
    turned = many.take(pa.array(generator.permutation(many.num_rows)))
    turned = turned.rename_columns(["key_b", "key_a", "similarity", "finder"])

    def drawn(table, seed):
        return [frozenset((pair.key_a, pair.key_b)) for pair in draw_pairs(table, LIMITS, 50, seed=seed)]

    assert drawn(many, 0) == drawn(turned, 0)
    assert len(set(drawn(many, 0)) & set(drawn(many, 1))) < 25


def test_every_pair_of_a_stratum_is_as_likely_as_any_other():
    table = pairs_of(np.linspace(0.91, 1, 60))
    times = Counter()
    for seed in range(400):
        times.update(pair.key_a for pair in draw_pairs(table, LIMITS, 15, seed=seed) if pair.stratum.number == 2)
    n = np.array(list(times.values()))
    assert len(n) == 30
    assert n.std() < 3 * np.sqrt(n.mean())


def test_the_first_answers_are_a_sample_of_all_strata(many):
    drawn = draw_pairs(many, LIMITS, 300)
    strata = [str(pair.stratum) for pair in drawn]
    share = [Counter(strata[half])[strata[0]] for half in (slice(0, 150), slice(150, 300))]
    assert min(share) > 0.3 * max(share)


def test_fewer_pairs_than_wanted_are_all_drawn_once():
    drawn = draw_pairs(pairs_of([0.95, 0.91, 0.85]), LIMITS, 200)
    assert sorted(pair.key_a for pair in drawn) == [f"signature/a{i}.jpg" for i in range(3)]
    assert {pair.weight for pair in drawn} == {1.0}


@pytest.mark.parametrize("n", [1, 2, 7, 40, 79, 80, 500])
@pytest.mark.parametrize("sizes", [[10, 10, 20, 40], [80], [1, 1, 78], [3, 77]])
def test_an_allocation_draws_as_many_as_requested_and_no_more_than_there_are(sizes, n):
    counts = allocate(sizes, n)
    assert sum(counts) == min(n, 80)
    assert all(0 <= count <= size for count, size in zip(counts, sizes, strict=True))
    assert n < len(sizes) or min(counts) >= 1


def test_a_threshold_belongs_to_what_was_dropped_in_the_precision_of_the_pairs():
    drawn = draw_pairs(pairs_of(np.array([0.9, 0.95], np.float32)), LIMITS, 2)
    assert {pair.stratum.side for pair in drawn} == {DROPPED}
    assert min(pair.similarity for pair in drawn) == 0.9


def test_no_pairs_at_all_are_refused():
    with pytest.raises(InputError, match="pairs to judge"):
        draw_pairs(pairs_of([0.95]).slice(0, 0), LIMITS, 5)


@pytest.mark.parametrize("higher", [True, False])
def test_one_pair_a_row_is_that_with_the_most_alike_row_before_it(higher):
    generator = np.random.default_rng(0)
    place = generator.permutation(12)
    query, row = (part.ravel() for part in np.meshgrid(np.arange(12), np.arange(12)))
    query, row = query[query != row], row[query != row]
    alike = generator.integers(0, 5, (12, 12))
    similarity = (alike + alike.T)[query, row].astype(np.float32)
    kept = pair_of_each_row(Links(query, row, similarity, np.zeros(len(row), np.int8)), place, higher=higher)
    sign = 1 if higher else -1
    expected = {}
    for i in range(12):
        before = [j for j in range(12) if place[j] < place[i]]
        if before:
            expected[i] = max(before, key=lambda j: (sign * (alike + alike.T)[i, j], -place[j]))
    assert dict(zip(kept.query.tolist(), kept.row.tolist(), strict=True)) == expected
    assert len({frozenset(pair) for pair in expected.items()}) == len(kept)


def test_no_pairs_near_a_threshold_leave_none():
    assert len(pair_of_each_row(joined([]), np.arange(3))) == 0


def test_pairs_below_a_threshold_represent_pairs_that_were_not_searched(many, tmp_path):
    part, everything = (draw_pairs(many, LIMITS, 200, looked_for=share) for share in (0.25, 1.0))
    for side, times in ((DROPPED, 1), (NEAR, 4)):
        sums = [sum(pair.weight for pair in drawn if pair.stratum.side == side) for drawn in (part, everything)]
        assert sums[0] == pytest.approx(times * sums[1], rel=0.01)
    counted = count_answers(answered(part, tmp_path / "x.csv", lambda pair: "y"))
    assert sum(pair.size for pair in counted if pair.name.side == DROPPED) == 3000 + sum(
        many.column("similarity").to_numpy()[3500:] <= 2
    )
