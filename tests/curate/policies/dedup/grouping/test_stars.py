"""Star groups against their definition, in any order, in rounds of any size, and where groups are very large."""

import itertools
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made import Matrix, by_definition, cosines, jittered, peak_mb, plain_rows, random_signatures, symmetric

from curate.policies.dedup.finders.searches import NearHash, NearVector, SameText
from curate.policies.dedup.grouping import stars as star_groups
from curate.policies.dedup.grouping.stars import NOBODY, find_stars
from scoring.images.signature import views
from scoring.search.cosine import CosineIndex


def check(order, matrices, open_rows, protected, searches=None, similarities=None):
    linked = np.any(matrices, axis=0) & ~np.eye(len(order), dtype=bool)
    expected = by_definition(order, linked, open_rows, protected)
    searches = searches or {f"finder {i}": Matrix(m) for i, m in enumerate(matrices)}
    stars = find_stars(order, searches, open_rows.copy(), protected)
    assert stars.owner.tolist() == expected.tolist()
    for row in range(len(order)):
        if expected[row] in (NOBODY, row):
            assert stars.finder[row] == -1
            assert np.isnan(stars.similarity[row])
        else:
            first = next(i for i, m in enumerate(matrices) if m[expected[row], row])
            assert stars.finder[row] == first
            if similarities is not None:
                assert stars.similarity[row] == pytest.approx(similarities[first][expected[row], row], abs=1e-6)
    return stars


def protected_first(order, protected):
    return np.concatenate([order[protected[order]], order[~protected[order]]])


@pytest.fixture(params=[(2, 1, 4), (1, 1, 1), (8, 3, 16), (1024, 1024, 65_536)], ids=str)
def rounds(request, monkeypatch):
    """The first round, the rows compared pair by pair, and the largest round."""
    for name, value in zip(("FIRST_ROUND", "FEW", "LARGEST_ROUND"), request.param, strict=True):
        monkeypatch.setattr(star_groups, name, value)
    return request.param


@pytest.mark.parametrize("seed", range(6))
def test_groups_of_random_graphs_match_the_definition_whatever_the_rounds(seed, rounds):
    generator = np.random.default_rng(seed)
    for share in (0.01, 0.1, 0.5, 1.0):
        n = int(generator.integers(1, 40))
        matrices = [symmetric(generator, n, share) for _ in range(3)]
        protected = generator.random(n) < 0.1
        order = protected_first(generator.permutation(n), protected)
        check(order, matrices, generator.random(n) < 0.9, protected)


@pytest.mark.parametrize("share", [0.05, 0.1, 0.15, 0.3])
def test_a_match_in_one_direction_counts_from_the_kept_row(share, rounds):
    generator = np.random.default_rng(0)
    n = 30
    for _ in range(40):
        directed = generator.random((n, n)) < share
        order = generator.permutation(n)
        check(order, [directed], np.ones(n, bool), np.zeros(n, bool))


@settings(max_examples=60, deadline=None)
@given(data=st.data(), n=st.integers(1, 9), few=st.integers(1, 4), first=st.integers(1, 4))
def test_groups_of_any_small_graph_match_the_definition(data, n, few, first):
    edges = data.draw(st.lists(st.sampled_from(list(itertools.product(range(n), range(n)))), max_size=20))
    order = np.array(data.draw(st.permutations(range(n))))
    protected = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    linked = np.zeros((n, n), bool)
    for a, b in edges:
        linked[a, b] = linked[b, a] = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(star_groups, "FEW", few)
        patch.setattr(star_groups, "FIRST_ROUND", first)
        check(protected_first(order, protected), [linked], np.ones(n, bool), protected)


def test_a_chain_in_the_order_of_keeping_is_cut_at_every_second_row(rounds):
    n = 33
    path = np.abs(np.subtract.outer(np.arange(n), np.arange(n))) == 1
    for order in (np.arange(n), np.arange(n)[::-1], np.r_[np.arange(1, n, 2), np.arange(0, n, 2)]):
        check(order, [path], np.ones(n, bool), np.zeros(n, bool))
    stars = find_stars(np.arange(n), {"a": Matrix(path)}, np.ones(n, bool))
    assert np.flatnonzero(stars.owner == np.arange(n)).tolist() == list(range(0, n, 2))


def test_a_row_that_is_like_two_that_stay_goes_to_the_first_of_them():
    linked = np.zeros((4, 4), bool)
    linked[[1, 2], [3, 3]] = linked[[3, 3], [1, 2]] = True
    assert find_stars(np.array([0, 2, 1, 3]), {"a": Matrix(linked)}, np.ones(4, bool)).owner.tolist() == [0, 1, 2, 2]
    assert find_stars(np.array([0, 1, 2, 3]), {"a": Matrix(linked)}, np.ones(4, bool)).owner.tolist() == [0, 1, 2, 1]


def test_protected_rows_are_kept_although_they_are_the_same():
    everything = np.ones((5, 5), bool)
    protected = np.array([False, True, False, True, False])
    stars = check(np.array([1, 3, 0, 2, 4]), [everything], np.ones(5, bool), protected)
    assert stars.owner.tolist() == [1, 1, 1, 3, 1]


def test_no_rows_and_one_row():
    none = find_stars(np.zeros(0, np.int64), {"a": Matrix(np.zeros((0, 0), bool))}, np.zeros(0, bool))
    assert len(none.owner) == 0
    single = find_stars(np.zeros(1, np.int64), {"a": Matrix(np.ones((1, 1), bool))}, np.ones(1, bool))
    assert single.owner.tolist() == [0]


def test_rows_that_take_no_part_have_no_owner_and_are_nobodys():
    stars = find_stars(np.arange(3), {"a": Matrix(np.ones((3, 3), bool))}, np.array([False, True, True]))
    assert stars.owner.tolist() == [NOBODY, 1, 1]


# real finders


@pytest.mark.parametrize("seed", range(3))
def test_several_finders_on_rows_match_the_definition(seed, rounds):
    generator = np.random.default_rng(seed)
    n = 90
    home = generator.integers(0, 25, n)
    vectors = (generator.normal(size=(25, 8))[home] + generator.normal(0, 0.25, (n, 8))).astype(np.float32)
    vectors[generator.random(n) < 0.1] = 0
    codes = generator.integers(0, 4, n).astype(np.uint64) << generator.integers(0, 60, n).astype(np.uint64)
    texts = [None if i % 9 == 0 else f"t{generator.integers(0, 30)}" for i in range(n)]
    rows = plain_rows(n=n, phash=codes, has_phash=generator.random(n) < 0.8, embedding=vectors)
    rows.texts["sha256"] = pa.chunked_array([texts[:40], texts[40:]], pa.large_string())
    equal = np.array([[a is not None and a == b for a in texts] for b in texts])
    bits = np.array([[(a ^ b).bit_count() for a in codes.tolist()] for b in codes.tolist()], np.float32)
    near = (bits <= 1) & rows.has_phash & rows.has_phash[:, None]
    cosine = cosines(vectors)
    finders = {
        "bytes": SameText(rows.texts["sha256"]),
        "hash": NearHash(rows, 1),
        "embedding": NearVector(vectors, 0.9, "embedding"),
    }
    likeness = [equal.astype(np.float32), bits, cosine]
    everybody, nobody = np.ones(n, bool), np.zeros(n, bool)
    check(generator.permutation(n), [equal, near, cosine >= 0.9], everybody, nobody, finders, likeness)


@pytest.mark.parametrize("seed", range(2))
def test_views_of_signatures_match_the_definition(seed, rounds):
    generator = np.random.default_rng(seed)
    looks = views(mirrored=True, rotated=True)
    base = random_signatures(generator, 12)
    parts = [jittered(generator, base[i % 12], 1, 4.0) for i in range(50)]
    signatures = np.concatenate([looks[i % 8].apply(part) for i, part in enumerate(parts)])
    views_of = np.stack([cosines(np.concatenate([look.apply(signatures), signatures]))[:50, 50:] for look in looks])
    best = views_of.max(0)
    search = {"signature": NearVector(signatures, 0.97, "signature", looks)}
    order = generator.permutation(50)
    stars = check(order, [best >= 0.97], np.ones(50, bool), np.zeros(50, bool), search, [best])
    gone = np.flatnonzero(stars.finder >= 0)
    assert len(gone) == 50 - 12
    assert stars.view[gone].tolist() == [int(views_of[:, stars.owner[row], row].argmax()) for row in gone]


def test_the_order_of_the_rows_in_the_file_changes_nothing(rounds):
    generator = np.random.default_rng(0)
    n = 120
    signatures = np.concatenate([jittered(generator, each, 4, 12.0) for each in random_signatures(generator, n // 4)])
    ties = plain_rows(n=n).hashes
    owners = []
    for _ in range(3):
        shuffle = generator.permutation(n)
        order = np.argsort(ties[shuffle])
        search = {"signature": NearVector(signatures[shuffle], 0.93, "signature")}
        stars = find_stars(order, search, np.ones(n, bool))
        owners.append({int(ties[shuffle[row]]): int(ties[shuffle[stars.owner[row]]]) for row in range(n)})
    assert owners[0] == owners[1] == owners[2]
    assert len(set(owners[0].values())) < n


# large groups


class Counted:
    """A search that counts the pairs that it gives."""

    def __init__(self, search):
        self.search, self.pairs, self.largest = search, 0, 0
        self.higher = search.higher

    def _count(self, links):
        self.pairs += len(links)
        self.largest = max(self.largest, len(links))
        return links

    def links(self, rows, among):
        return self._count(self.search.links(rows, among))

    def first(self, rows, among):
        return self._count(self.search.first(rows, among))


def test_a_group_of_100_000_equal_files_costs_few_links_and_little_memory():
    n = 100_000
    texts = pa.chunked_array([np.repeat("same", n)], pa.large_string())
    search = Counted(SameText(texts))
    stars, mb = peak_mb(lambda: find_stars(np.arange(n)[::-1].copy(), {"bytes": search}, np.ones(n, bool)))
    assert (stars.owner == n - 1).all()
    assert search.pairs < 1024**2 + 2 * n
    assert mb < 150


@pytest.mark.parametrize("together", [False, True], ids=["spread over the order", "one after another"])
def test_a_group_of_20_000_near_copies_is_bounded_wherever_it_stands(together):
    generator = np.random.default_rng(0)
    n, n_same = 24_000, 20_000
    copies = jittered(generator, random_signatures(generator, 1)[0], n_same, 1.0)
    signatures = np.concatenate([random_signatures(generator, n - n_same), copies])
    order = np.arange(n) if together else generator.permutation(n)
    search = Counted(NearVector(signatures, 0.95, "signature"))
    stars, mb = peak_mb(lambda: find_stars(order, {"signature": search}, np.ones(n, bool)))
    first = order[order >= n - n_same][0]
    assert (stars.owner[n - n_same :] == first).all()
    assert (stars.owner[: n - n_same] == np.arange(n - n_same)).all()
    assert search.largest <= 1024**2
    assert search.pairs < 2 * 1024**2 + 4 * n
    assert mb < 250


def test_many_dense_groups_that_stand_one_after_another_match_the_definition():
    generator = np.random.default_rng(0)
    base = random_signatures(generator, 5)
    signatures = np.concatenate([jittered(generator, signature, 900, 1.0) for signature in base])
    search = Counted(NearVector(signatures, 0.95, "signature"))
    stars = find_stars(np.arange(4500), {"signature": search}, np.ones(4500, bool))
    assert stars.owner.tolist() == [row // 900 * 900 for row in range(4500)]


def test_rows_on_a_line_are_settled_as_in_the_definition_also_in_large_rounds(monkeypatch):
    monkeypatch.setattr(star_groups, "FIRST_ROUND", 4096)
    monkeypatch.setattr(star_groups, "FEW", 16)
    angle = np.arange(4000) * 0.001
    vectors = np.stack([np.cos(angle), np.sin(angle)], 1).astype(np.float32)
    reach = 25.5  # steps
    search = {"embedding": NearVector(vectors, float(np.cos(reach * 0.001)), "embedding")}
    stars = find_stars(np.arange(4000), search, np.ones(4000, bool))
    assert stars.owner.tolist() == [row // 26 * 26 for row in range(4000)]


def test_beyond_the_exact_range_nothing_is_wrong_and_little_is_missed(monkeypatch):
    monkeypatch.setattr("scoring.search.cosine.CosineIndex", partial(CosineIndex, exact_rows=1000))
    generator = np.random.default_rng(0)
    home = np.r_[np.zeros(3000, int), generator.integers(1, 2500, 5000)]
    signatures = jittered(generator, random_signatures(generator, 2500)[home], 8000, 6.0)
    search = NearVector(signatures, 0.95, "signature")
    order = generator.permutation(8000)
    place = np.argsort(order)
    stars = find_stars(order, {"signature": search}, np.ones(8000, bool))
    gone = np.flatnonzero(stars.finder == 0)
    owners = stars.owner[gone]
    cosine = np.array([cosines(signatures[[a, b]])[0, 1] for a, b in zip(gone[::20], owners[::20], strict=True)])
    assert not search.recall.exact
    assert (cosine >= 0.95).all()
    assert (stars.owner[owners] == owners).all()
    assert (place[owners] < place[gone]).all()
    assert (home[gone] == home[owners]).all()
    n_missed = 8000 - len(gone) - len(np.unique(home))
    assert 0 <= n_missed < 0.01 * len(gone)
