"""Connected groups against a plain union-find."""

import numpy as np
import pytest
from made import Matrix, peak_mb, plain_rows, symmetric

from curate.policies.dedup.finders import links
from curate.policies.dedup.finders.searches import NearHash, NearVector
from curate.policies.split import groups as chains
from curate.policies.split.groups import find_chains, join, roots


def components(linked, taking_part):
    """Rows by component, one edge at a time."""
    group = {row: {row} for row in np.flatnonzero(taking_part).tolist()}
    for a, b in np.argwhere(linked).tolist():
        if a in group and b in group and group[a] is not group[b]:
            group[a] |= group[b]
            for row in group[b]:
                group[row] = group[a]
    return group


@pytest.mark.parametrize("seed", range(6))
def test_groups_match_union_find(seed, monkeypatch):
    monkeypatch.setattr(links, "FIRST", 3)
    monkeypatch.setattr(chains, "MANY", 20)
    generator = np.random.default_rng(seed)
    n = 60
    exact, near = symmetric(generator, n, 0.01), symmetric(generator, n, 0.02)
    taking_part = generator.random(n) < 0.9
    lowest = find_chains({"bytes": Matrix(exact), "signature": Matrix(near)}, taking_part)
    expected = components((exact | near) & taking_part & taking_part[:, None], taking_part)
    assert lowest.tolist() == [min(expected.get(row, {row})) for row in range(n)]


def test_hashes_chain_over_more_bits_than_the_radius():
    codes = np.array([0b0, 0b1, 0b11, 0b111, 1 << 40 | 0b111000], np.uint64)
    search = NearHash(plain_rows(phash=codes, has_phash=np.ones(5, bool)), 1)
    assert find_chains({"hash": search}, np.ones(5, bool)).tolist() == [0, 0, 0, 0, 4]


def test_joining_pairs_in_any_order_gives_the_lowest_row_as_root():
    generator = np.random.default_rng(0)
    for _ in range(20):
        linked = symmetric(generator, 40, 0.03)
        a, b = np.nonzero(linked)
        shuffle = generator.permutation(len(a))
        parent = np.arange(40)
        for some in np.array_split(shuffle, 5):
            join(parent, a[some], b[some])
        expected = components(linked, np.ones(40, bool))
        assert roots(parent).tolist() == [min(expected[row]) for row in range(40)]


def test_a_path_of_a_hundred_thousand_rows_is_one_group_quickly():
    n = 100_000
    parent = np.arange(n)
    shuffle = np.random.default_rng(0).permutation(n - 1)
    join(parent, shuffle, shuffle + 1)
    assert (roots(parent) == 0).all()


def test_a_group_of_2_500_copies_is_bounded_in_memory():
    vectors = np.ones((2500, 4), np.float32)
    search = NearVector(vectors, 0.99, "embedding")
    lowest, mb = peak_mb(lambda: find_chains({"embedding": search}, np.ones(2500, bool)))
    assert (lowest == 0).all()
    assert mb < 500
