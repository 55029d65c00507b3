"""CosineIndex against all pairs in float64, and what a hostile table does to it."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scoring.metrics.proportions import wilson
from scoring.search import scan as scanning
from scoring.search.cosine import CosineIndex
from scoring.search.links import Recall, rounded
from scoring.search.rows import unit_rows
from scoring.search.scan import lowest_product, margin

DTYPES = [np.float16, np.float32, np.int8]


def table(n, *, width=24, seed=0, dtype=np.float32, spread=0.3, groups=None):
    """Rows around some directions, of different lengths."""
    generator = np.random.default_rng(seed)
    middle = generator.standard_normal((groups or max(n // 8, 1), width))
    rows = middle[generator.integers(len(middle), size=n)] + spread * generator.standard_normal((n, width))
    rows *= generator.uniform(0.5, 2, (n, 1))
    return np.clip(rows * 20, -127, 127).astype(np.int8) if dtype == np.int8 else rows.astype(dtype)


def cosines(queries, rows):
    """All cosines in float64, with -inf where a row has no length."""
    queries, rows = queries.astype(float), rows.astype(float)
    lengths = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(rows, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(lengths > 0, queries @ rows.T / lengths, -np.inf)


def expected(queries, rows, threshold, among=None):
    close = cosines(queries, rows) >= threshold
    return set(zip(*np.nonzero(close if among is None else close & among), strict=True))


def pairs(links):
    return set(zip(links.query.tolist(), links.row.tolist(), strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("threshold", [0.01, 0.5, 0.9, 0.99])
def test_an_exact_search_finds_what_comparing_all_with_all_in_float64_finds(dtype, threshold):
    rows, queries = table(301, dtype=dtype), table(57, dtype=dtype)
    links = CosineIndex(rows, threshold).search(queries)
    assert pairs(links) == expected(queries, rows, threshold)
    assert np.allclose(links.similarity, cosines(queries, rows)[links.query, links.row], atol=1e-7)
    assert (links.query.dtype, links.row.dtype, links.similarity.dtype) == (np.int64, np.int64, np.float32)


def test_links_are_sorted_by_query_and_row_and_none_comes_twice():
    links = CosineIndex(table(700), 0.8, exact_rows=1).search(table(200))
    keys = links.query * 1000 + links.row
    assert len(keys) > 200
    assert (np.diff(keys) > 0).all()


def test_blocks_that_do_not_divide_the_rows_change_nothing(monkeypatch):
    rows = table(103)
    links = CosineIndex(rows, 0.7).search(rows)
    monkeypatch.setattr("scoring.search.layout.CPU_BLOCK", (7, 10))
    monkeypatch.setattr("scoring.search.layout.BLOCK", 9)
    monkeypatch.setattr("scoring.search.rows.BLOCK", 8)
    monkeypatch.setattr("scoring.search.cosine.AT_ONCE", 11)
    monkeypatch.setattr(scanning, "AT_ONCE", 5)
    parts = CosineIndex(rows, 0.7).search(rows)
    assert pairs(parts) == pairs(links) == expected(rows, rows, 0.7)
    first = CosineIndex(rows, 0.7).search(rows, first=True)
    assert pairs(first) == first_only(links)


def first_only(links):
    lowest = {}
    for query, row in sorted(pairs(links)):
        lowest.setdefault(row, query)
    return {(query, row) for row, query in lowest.items()}


@pytest.mark.parametrize("exact_rows", [1, 50_000])
@pytest.mark.parametrize("threshold", [0.6, 0.9])
def test_first_gives_each_row_the_first_of_its_links(exact_rows, threshold):
    rows = table(2500, groups=40)
    among = np.random.default_rng(1).random(2500) < 0.6
    index = CosineIndex(rows, threshold, exact_rows=exact_rows)
    for some in (None, among):
        everything, first = index.search(rows[:300], some), index.search(rows[:300], some, first=True)
        assert pairs(first) == first_only(everything)
        true = cosines(rows[:300], rows)[first.query, first.row]
        assert np.allclose(first.similarity, true, atol=1e-7)


@pytest.mark.parametrize("exact_rows", [1, 50_000])
def test_only_rows_among_those_requested_are_found(exact_rows):
    rows = table(1500)
    among = np.random.default_rng(3).random(1500) < 0.3
    index = CosineIndex(rows, 0.8, exact_rows=exact_rows)
    some = index.search(rows[:100], among)
    assert pairs(some) == {pair for pair in pairs(index.search(rows[:100])) if among[pair[1]]}
    assert len(some)
    assert not len(index.search(rows[:100], np.zeros(1500, bool)))


@pytest.mark.parametrize("dtype", [DTYPES[0], *(pytest.param(each, marks=pytest.mark.slow) for each in DTYPES[1:])])
def test_clusters_report_no_false_pair_and_the_recall_that_is_measured_holds(dtype):
    rows = table(6000, width=48, dtype=dtype, groups=600)
    index = CosineIndex(rows, 0.85, exact_rows=1000)
    true, links = expected(rows, rows, 0.85), pairs(index.search(rows))
    assert links <= true
    share = (len(links) - 6000) / (len(true) - 6000)
    assert not index.recall.exact
    assert index.recall.n_pairs > 1000
    assert index.recall.low <= share <= index.recall.high
    assert share > 0.99
    assert 2 <= index.probes <= 12


def test_every_row_finds_itself_and_its_equals_even_where_there_are_no_clusters():
    rows = np.random.default_rng(0).standard_normal((20_000, 32)).astype(np.float16)
    rows[10_000:10_500] = rows[:500]
    links = CosineIndex(rows, 0.9999, exact_rows=100).search(rows)
    assert pairs(links) >= {(row, row) for row in range(20_000)} | {(row, row + 10_000) for row in range(500)}


def test_an_index_that_cannot_reach_its_aim_reports_its_true_recall():
    rows = np.random.default_rng(0).standard_normal((5000, 64)).astype(np.float32)  # no clusters at all
    index = CosineIndex(rows, 0.3, exact_rows=100, recall=0.5)
    true, links = expected(rows, rows, 0.3), pairs(index.search(rows))
    share = (len(links) - 5000) / (len(true) - 5000)
    assert links <= true
    assert share < 0.99
    assert abs(index.recall.estimate - share) < 0.03


def test_a_sample_without_pairs_reports_no_recall():
    index = CosineIndex(np.random.default_rng(0).standard_normal((2000, 64)).astype(np.float16), 0.99, exact_rows=10)
    assert index.recall.n_pairs == 0
    assert np.isnan(index.recall.estimate)
    assert (index.recall.low, index.recall.high, index.recall.exact) == (0.0, 1.0, False)


def test_an_exact_index_loses_nothing_and_reports_it():
    assert CosineIndex(table(50), 0.9).recall == Recall(1.0, 1.0, 1.0, 0, exact=True)


def test_clusters_do_not_depend_on_the_place_of_a_row_where_an_order_is_given():
    rows = table(4000, groups=900)
    keys = np.random.default_rng(1).permutation(len(rows))  # of each row: its rank by a hash of its key
    shuffle = np.random.default_rng(2).permutation(len(rows))
    plain = CosineIndex(rows, 0.9, exact_rows=0, order=np.argsort(keys))
    mixed = CosineIndex(rows[shuffle], 0.9, exact_rows=0, order=np.argsort(keys[shuffle]))
    links, again = plain.search(rows), mixed.search(rows[shuffle])
    assert len(links) > 4000
    named = {(shuffle[a], shuffle[b]) for a, b in zip(again.query, again.row, strict=True)}
    assert set(zip(links.query.tolist(), links.row.tolist(), strict=True)) == named
    assert mixed.recall == plain.recall
    unordered = CosineIndex(rows[shuffle], 0.9, exact_rows=0).recall
    assert unordered != plain.recall  # other rows are drawn where the place decides


def test_equal_seeds_give_equal_results_and_the_rows_are_not_touched():
    rows = table(3000)
    before = rows.copy()
    first, second = (CosineIndex(rows, 0.8, exact_rows=10, seed=5) for _ in range(2))
    assert first.recall == second.recall
    assert first.probes == second.probes
    ours, reference = first.search(rows), second.search(rows)
    assert np.array_equal(ours.row, reference.row)
    assert np.array_equal(ours.similarity, reference.similarity)
    assert np.array_equal(rows, before)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("exact_rows", [1, 50_000])
def test_rows_equal_in_direction_are_found_at_threshold_one(dtype, exact_rows):
    rows = table(1200, dtype=dtype, spread=1)
    rows[5] = rows[900] = rows[17]
    matches = pairs(CosineIndex(rows, 1.0, exact_rows=exact_rows).search(rows))
    assert {(5, 17), (17, 5), (5, 900), (900, 17)} <= matches
    assert all((row, row) in matches for row in range(1200))
    assert all(
        np.allclose(*(rows[list(pair)] / np.linalg.norm(rows[list(pair)].astype(float), axis=1)[:, None]))
        for pair in matches
    )


def test_a_cosine_equal_to_the_threshold_counts_and_is_never_reported_below_it():
    rows = np.array([[1, 0], [3, 4], [4, 3], [0, 7]], np.int8)  # 0.6 and 0.8 to the first
    links = CosineIndex(rows, 0.6).search(rows[:1])
    assert links.row.tolist() == [0, 1, 2]
    assert (links.similarity.astype(float) >= 0.6).all()
    assert CosineIndex(rows, 0.6000001).search(rows[:1]).row.tolist() == [0, 2]


def test_rows_of_length_zero_are_like_nothing():
    rows = table(1300)
    rows[[0, 7, 1299]] = 0
    for exact_rows in (10, 50_000):
        links = CosineIndex(rows, 0.5, exact_rows=exact_rows).search(rows)
        assert not {0, 7, 1299} & set(links.row.tolist())
        assert not {0, 7, 1299} & set(links.query.tolist())
        assert len(set(links.query.tolist())) == 1297
    for n in (3, 2000):
        assert not len(
            CosineIndex(np.zeros((n, 4), np.float16), 0.5, exact_rows=10).search(np.zeros((n, 4), np.float16))
        )


def test_one_row_and_no_row_and_no_query_are_defined():
    single = table(1)
    assert pairs(CosineIndex(single, 0.9).search(single)) == {(0, 0)}
    assert not len(CosineIndex(single[:0], 0.9).search(single))
    assert not len(CosineIndex(single, 0.9).search(single[:0]))
    assert not len(CosineIndex(single, 0.9, exact_rows=0).search(-single))


def test_opposite_rows_are_far_apart():
    rows = table(20, groups=1, spread=0.01)
    assert not len(CosineIndex(rows, 0.01).search(-rows))


@pytest.mark.parametrize("exact_rows", [100, 50_000])
def test_twenty_thousand_copies_cost_no_more_than_their_links(exact_rows):
    rows = table(22_000, width=32, dtype=np.float16, spread=1)
    rows[1000:21_000] = rows[0]
    index = CosineIndex(rows, 0.99, exact_rows=exact_rows)
    links = index.search(rows[:20])
    assert {(0, row) for row in range(1000, 21_000)} <= pairs(links)
    first = index.search(rows[:20_000], first=True)  # all links of these would be 380 million
    assert len(first) <= 22_000
    assert set(first.row[first.query == 0].tolist()) >= {0, *range(1000, 21_000)}


def test_rows_that_are_all_equal_are_one_group():
    rows = np.repeat(table(1, width=8), 5000, axis=0)
    index = CosineIndex(rows, 0.999, exact_rows=100)
    assert index.recall.estimate == 1.0
    assert index.recall.n_pairs > 0
    assert len(index.search(rows[:3])) == 15_000
    first = index.search(rows, first=True)
    assert np.array_equal(first.row, np.arange(5000))
    assert not first.query.any()


def test_a_memory_map_is_searched_in_place(tmp_path):
    rows = table(1500, dtype=np.float16)
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    for exact_rows in (10, 50_000):
        ours = CosineIndex(mapped, 0.8, exact_rows=exact_rows).search(mapped[:50])
        reference = CosineIndex(rows, 0.8, exact_rows=exact_rows).search(rows[:50])
        assert pairs(ours) == pairs(reference)


def test_very_long_and_very_short_rows_keep_their_directions():
    rows = table(40).astype(np.float32)
    scaled = rows * np.float32(10.0) ** np.linspace(-30, 30, 40, dtype=np.float32)[:, None]
    assert pairs(CosineIndex(scaled, 0.7).search(scaled)) == expected(rows, rows, 0.7)


values = st.floats(-1, 1, width=32).map(lambda x: 0.0 if abs(x) < 1e-6 else x)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 40).flatmap(lambda d: st.tuples(*[st.lists(values, min_size=d, max_size=d)] * 2)))
def test_a_product_of_rounded_rows_is_never_further_from_the_cosine_than_the_margin(both):
    first, second = (np.array([row], np.float32) for row in both)
    ours, reference = unit_rows(first), unit_rows(second)
    if ours.squares[0] and reference.squares[0]:
        allowed = margin(float(ours.residual[0]), float(reference.residual[0]), first.shape[1])
        product = float((ours.units.float() @ reference.units.float().T).item())
        assert abs(product - cosines(first, second)[0, 0]) <= allowed
        assert max(ours.residual[0], reference.residual[0]) <= 2.0**-8


@settings(max_examples=200, deadline=None)
@given(st.floats(0.05, 1), st.floats(0, 0.01), st.floats(0, 0.5))
def test_what_is_not_below_the_bound_is_not_below_it_when_both_are_rounded(threshold, allowed, above):
    bound = threshold - allowed
    seen = torch.tensor(bound + above, dtype=torch.float32)
    if float(seen) >= bound:
        assert float(seen.bfloat16()) >= lowest_product(threshold, allowed, torch.device("cpu"))


def test_products_of_bfloat16_rows_are_summed_in_float32_on_this_machine():
    width = 4096  # summed in bfloat16, ones would stop at 256
    ones = torch.ones(3, width, dtype=torch.bfloat16)
    assert (ones @ ones.T == width).all()
    mixed = torch.randn(64, width, generator=torch.Generator().manual_seed(0)).bfloat16()
    true = mixed.double() @ mixed.double().T
    assert ((mixed @ mixed.T).double() - true).abs().max() <= true.abs().max() * 2.0**-8


def test_the_links_of_one_row_do_not_count_as_independent_trials():
    single_row = Recall.of_sample(np.array([900]), np.array([1000]))
    many_rows = Recall.of_sample(np.full(1000, 0) + (np.arange(1000) < 900), np.ones(1000, np.int64))
    assert single_row.estimate == many_rows.estimate == 0.9
    assert (single_row.low, single_row.high) == pytest.approx(wilson(0.9, 1)[1:])
    assert (many_rows.low, many_rows.high) == pytest.approx(wilson(900, 1000)[1:])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("exact_rows", [10, 50_000])
def test_a_value_that_is_no_number_is_named_by_its_row(bad, exact_rows):
    rows = table(1400)
    rows[1234, 3] = bad
    with pytest.raises(ValueError, match=r"finite.*row 1234"):
        CosineIndex(rows, 0.9, exact_rows=exact_rows)
    with pytest.raises(ValueError, match=r"finite.*row 4"):
        CosineIndex(table(50), 0.9).search(rows[1230:1240])


def test_arguments_out_of_range_are_refused():
    rows = table(10)
    for threshold in (0, -0.5, 1.01, np.nan):
        with pytest.raises(ValueError, match="threshold"):
            CosineIndex(rows, threshold)
    with pytest.raises(ValueError, match=r"float16, float32 or int8.*float64"):
        CosineIndex(rows.astype(float), 0.9)
    with pytest.raises(ValueError, match="width 24"):
        CosineIndex(rows, 0.9).search(rows[:, :5])
    with pytest.raises(ValueError, match="queries must be float32"):
        CosineIndex(rows, 0.9).search(rows.astype(np.float16))
    with pytest.raises(ValueError, match="among must be"):
        CosineIndex(rows, 0.9).search(rows, np.ones(9, bool))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("exact_rows", [1000, 50_000])
def test_a_gpu_finds_what_the_processor_finds(exact_rows):
    rows = table(6000, dtype=np.float16, width=64)
    ours = CosineIndex(rows, 0.9, exact_rows=exact_rows, device="cuda").search(rows)
    assert pairs(ours) <= expected(rows, rows, 0.9)
    if exact_rows > 6000:
        assert pairs(ours) == expected(rows, rows, 0.9)


@pytest.mark.parametrize("threshold", [0.95, 0.9, 0.985, 0.5, 1.0, 0.99999999])
def test_a_similarity_that_reaches_the_threshold_still_does_when_it_is_rounded(threshold):
    just = np.array([threshold, np.nextafter(threshold, 2), min(threshold + 1e-9, 1.0), 1.0])
    kept = rounded(just, threshold)
    assert kept.dtype == np.float32
    assert (kept.astype(np.float64) >= threshold).all()
    assert np.abs(kept - just).max() < 1.2e-7
    assert kept[-1] == 1


@pytest.mark.parametrize("exact_rows", [10_000, 100], ids=["all", "lists"])
@pytest.mark.parametrize("first", [False, True])
def test_rows_of_the_index_find_what_the_same_vectors_find(monkeypatch, exact_rows, first):
    monkeypatch.setattr("scoring.search.cosine.AT_ONCE", 250)
    generator = np.random.default_rng(5)
    vectors = table(1200)
    vectors[[3, 700]] = 0
    index = CosineIndex(vectors, 0.8, exact_rows=exact_rows, sample=64)
    among = generator.random(1200) < 0.6
    for rows in (generator.permutation(1200)[:500], np.arange(1200), np.array([3, 700]), np.zeros(0, np.int64)):
        links = index.search(vectors[rows], among, first=first)
        searched = index.search_rows(rows, among, first=first)
        assert np.array_equal(searched.query, links.query)
        assert np.array_equal(searched.row, links.row)
        assert searched.similarity == pytest.approx(links.similarity, abs=1e-7)
    assert len(links) == 0
    assert len(index.search_rows(np.arange(1200), among, first=first)) > 500


def test_a_table_written_in_parts_is_the_table(monkeypatch):
    vectors = table(9000, width=8)
    undivided = CosineIndex(vectors, 0.99, exact_rows=100, sample=64)
    monkeypatch.setattr("scoring.search.layout.WRITTEN", 2 * 8 * 4500)
    monkeypatch.setattr("scoring.arrays.IN_MEMORY", 100)
    parts = CosineIndex(vectors, 0.99, exact_rows=100, sample=64)
    first, other = (index.search_rows(np.arange(9000)) for index in (undivided, parts))
    assert len(first) > 9000
    assert all(np.array_equal(getattr(first, name), getattr(other, name)) for name in ("query", "row", "similarity"))


def test_a_crowd_counts_once_in_the_sample_and_leaves_time_for_other_rows(monkeypatch):
    monkeypatch.setattr("scoring.search.cosine.CROWD", 100)
    monkeypatch.setattr("scoring.search.cosine.ENOUGH", 3000)
    rows = table(2000, spread=0.2)
    rows[:1000] = rows[0]
    index = CosineIndex(rows, 0.9, exact_rows=100, sample=600)
    n_pairs = len(index.search_rows(np.arange(1000, 2000))) - 1000
    assert index.recall.n_pairs > 999 + 0.05 * n_pairs  # the crowd by one row that reports, and many more in addition
    links, true = index.search_rows(np.arange(2000)), expected(rows[1000:], rows, 0.9)
    assert len(pairs(links)) > 0.98 * (1000**2 + len(true))
