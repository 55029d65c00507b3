"""Connected groups against a plain union-find."""

import numpy as np
import pytest
from made import Matrix, plain_rows, symmetric
from test_stars import peak_mb

from curate.policies.dedup.finders import links
from curate.policies.dedup.finders.searches import NearHash, NearVector
from curate.policies.dedup.grouping import chains
from curate.policies.dedup.grouping.chains import find_chains, join, roots

THRESHOLDS = {"bytes": 1.0, "signature": 0.5}


def components(linked, taking_part):
    """Rows by component, one edge at a time."""
    group = {row: {row} for row in np.flatnonzero(taking_part).tolist()}
    for a, b in np.argwhere(linked).tolist():
        if a in group and b in group and group[a] is not group[b]:
            group[a] |= group[b]
            for row in group[b]:
                group[row] = group[a]
    return group


class Graded(Matrix):
    def measure(self, query, row):
        links = self.links(np.zeros(0, np.int64), np.zeros(len(self.linked), bool))
        return type(links)(query, row, self.similarity[query, row], np.zeros(len(row), np.int8))


@pytest.mark.parametrize("seed", range(6))
def test_groups_match_union_find_and_the_first_in_order_stays(seed, monkeypatch):
    monkeypatch.setattr(links, "FIRST", 3)
    monkeypatch.setattr(chains, "MANY", 20)
    generator = np.random.default_rng(seed)
    n = 60
    exact, near = symmetric(generator, n, 0.01), symmetric(generator, n, 0.02)
    taking_part = generator.random(n) < 0.9
    order = generator.permutation(n)
    place = np.argsort(order)
    similarity = np.where(near, 0.8, 0.3).astype(np.float32)
    searches = {"bytes": Graded(exact), "signature": Graded(near, similarity)}
    stars = find_chains(order, searches, THRESHOLDS, taking_part)
    expected = components((exact | near) & taking_part & taking_part[:, None], taking_part)
    for row in range(n):
        if not taking_part[row]:
            assert stars.owner[row] == -1
            continue
        first = min(expected[row], key=lambda each: place[each])
        assert stars.owner[row] == first
        if first == row:
            assert stars.finder[row] == -1
        elif exact[first, row]:
            assert (stars.finder[row], stars.similarity[row]) == (0, 1)
        else:
            assert stars.finder[row] == 1
            assert stars.similarity[row] == pytest.approx(0.8 if near[first, row] else 0.3)


def test_the_far_end_of_a_chain_says_how_little_it_has_in_common():
    angle = np.deg2rad([0, 10, 20, 30])
    vectors = np.stack([np.cos(angle), np.sin(angle)], 1).astype(np.float32)
    search = NearVector(vectors, float(np.cos(np.deg2rad(11))), "embedding")
    stars = find_chains(np.arange(4), {"embedding": search}, {"embedding": 0.98}, np.ones(4, bool))
    assert stars.owner.tolist() == [0, 0, 0, 0]
    assert stars.similarity[1:].tolist() == pytest.approx(np.cos(angle[1:]).tolist(), abs=1e-6)


def test_hashes_chain_over_more_bits_than_the_radius():
    codes = np.array([0b0, 0b1, 0b11, 0b111, 1 << 40 | 0b111000], np.uint64)
    search = NearHash(plain_rows(phash=codes, has_phash=np.ones(5, bool)), 1)
    stars = find_chains(np.array([3, 0, 1, 2, 4]), {"hash": search}, {"hash": 1.0}, np.ones(5, bool))
    assert stars.owner.tolist() == [3, 3, 3, 3, 4]
    assert stars.similarity[:3].tolist() == [3, 2, 1]


def test_protected_rows_stay_in_a_chain():
    linked = np.ones((4, 4), bool)
    protected = np.array([False, True, True, False])
    stars = find_chains(np.array([1, 2, 0, 3]), {"bytes": Graded(linked)}, THRESHOLDS, np.ones(4, bool), protected)
    assert stars.owner.tolist() == [1, 1, 2, 1]


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
    stars, mb = peak_mb(
        lambda: find_chains(np.arange(2500), {"embedding": search}, {"embedding": 0.99}, np.ones(2500, bool))
    )
    assert (stars.owner == 0).all()
    assert mb < 500
