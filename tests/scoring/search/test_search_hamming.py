"""HammingIndex against all pairs, at every radius."""

import numpy as np
import pytest

from scoring.search.hamming import HammingIndex


def codes(n, *, seed=0, flips=6):
    """Random codes, many of them another one with some bits turned."""
    generator = np.random.default_rng(seed)
    hashes = generator.integers(0, 2**64, size=n, dtype=np.uint64)
    for _ in range(flips):
        copied = generator.random(n) < 0.4
        turned = np.uint64(1) << generator.integers(0, 64, size=n, dtype=np.uint64)
        hashes = np.where(copied, hashes[generator.permutation(n)] ^ turned, hashes)
    return hashes


def difference(first, second):
    return np.array([[(int(a) ^ int(b)).bit_count() for b in second] for a in first])


def as_dict(links):
    return dict(zip(zip(links.query.tolist(), links.row.tolist(), strict=True), links.similarity.tolist(), strict=True))


def expected(queries, rows, radius, among=None):
    bits = difference(queries, rows)
    close = bits <= radius if among is None else (bits <= radius) & among
    return {(int(q), int(r)): float(bits[q, r]) for q, r in zip(*np.nonzero(close), strict=True)}


@pytest.mark.parametrize("radius", range(21))
@pytest.mark.parametrize("in_a_row", [False, True])
def test_every_radius_finds_what_comparing_all_with_all_finds(radius, in_a_row):
    rows = codes(400, flips=radius + 2)
    index = HammingIndex(rows, radius)
    index._in_a_row = in_a_row  # both roads, whatever the index would have chosen
    assert as_dict(index.search(rows[:60])) == expected(rows[:60], rows, radius)


@pytest.mark.parametrize("radius", [0, 1, 2, 3, 5, 8, 20])
def test_two_codes_that_differ_in_exactly_the_radius_are_found_wherever_the_bits_are(radius):
    generator = np.random.default_rng(radius)
    base = generator.integers(0, 2**64, size=300, dtype=np.uint64)
    turned = [sum(1 << int(bit) for bit in generator.choice(64, radius, replace=False)) for _ in base]
    index = HammingIndex(np.concatenate([base, base ^ np.array(turned, np.uint64)]), radius)
    index._in_a_row = False
    codes = as_dict(index.search(base))
    assert all(codes[(place, place + 300)] == radius for place in range(300))


@pytest.mark.parametrize("radius", [0, 3, 10])
def test_first_gives_each_row_its_first_link_and_among_only_those_requested(radius):
    rows = np.concatenate([codes(300), codes(300)])
    queries = rows[::-7]
    among = np.random.default_rng(0).random(600) < 0.5
    index = HammingIndex(rows, radius)
    for some in (None, among):
        everything = expected(queries, rows, radius, some)
        assert as_dict(index.search(queries, some)) == everything
        lowest = {}
        for query, row in sorted(everything):
            lowest.setdefault(row, query)
        assert as_dict(index.search(queries, some, first=True)) == {
            (query, row): everything[query, row] for row, query in lowest.items()
        }


def test_links_are_sorted_and_typed():
    links = HammingIndex(codes(500), 4).search(codes(500))
    assert (np.diff(links.query * 500 + links.row) > 0).all()
    assert (links.query.dtype, links.row.dtype, links.similarity.dtype) == (np.int64, np.int64, np.float32)


def test_a_hundred_thousand_copies_are_one_code():
    rows = codes(120_000, flips=0)
    rows[10_000:110_000] = rows[0]
    rows[115_000] = rows[0] ^ np.uint64(5)
    index = HammingIndex(rows, 3)
    first = index.search(rows, first=True)  # all links would be ten billion
    assert len(first) == 120_000
    group = first.query[first.row >= 10_000][:100_000]
    assert not group.any()
    assert first.query[first.row == 115_000].tolist() == [0]
    assert len(index.search(rows[115_000:115_001])) == 100_002


def test_codes_that_share_a_band_do_not_hide_one_another(monkeypatch):
    monkeypatch.setattr("scoring.search.hamming.LOOKED_UP", 50)
    rows = (np.arange(700, dtype=np.uint64) << np.uint64(32)) | np.uint64(0xABCD)  # three of four bands nearly equal
    index = HammingIndex(rows, 3)
    index._in_a_row = False
    assert as_dict(index.search(rows[::50])) == expected(rows[::50], rows, 3)


def test_a_block_that_does_not_divide_the_codes_changes_nothing(monkeypatch):
    monkeypatch.setattr("scoring.search.hamming.AT_ONCE", 37)
    rows = codes(300)
    index = HammingIndex(rows, 18)
    index._in_a_row = True
    assert as_dict(index.search(rows[:40])) == expected(rows[:40], rows, 18)


def test_all_codes_equal_one_code_and_no_code_are_defined():
    single = np.array([2**64 - 1], np.uint64)
    assert as_dict(HammingIndex(single, 0).search(single)) == {(0, 0): 0.0}
    assert len(HammingIndex(np.repeat(single, 30), 20).search(np.repeat(single, 4))) == 120
    assert not len(HammingIndex(single[:0], 3).search(single))
    assert not len(HammingIndex(single, 3).search(single[:0]))
    assert not len(HammingIndex(single, 3).search(single, np.zeros(1, bool)))


def test_arguments_out_of_range_are_refused():
    rows = codes(5)
    for radius in (-1, 21):
        with pytest.raises(ValueError, match="between 0 and 20"):
            HammingIndex(rows, radius)
    with pytest.raises(ValueError, match=r"codes must be uint64.*int64"):
        HammingIndex(rows.astype(np.int64), 3)
    with pytest.raises(ValueError, match="queries must be uint64"):
        HammingIndex(rows, 3).search(rows.reshape(1, -1))
    with pytest.raises(ValueError, match="among must be bool"):
        HammingIndex(rows, 3).search(rows, np.ones(4, bool))
