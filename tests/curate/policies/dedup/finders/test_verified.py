"""The finder near-duplicate: its evidence restated slowly, its pairs by every road, and what it must not fall for."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

import curate
from curate.policies.dedup.finders.crops import PartOf
from curate.policies.dedup.finders.surroundings import CAREFUL
from curate.policies.dedup.finders.verified import (
    ALIKE,
    FIRST,
    FITTED,
    LEAST_TO_FIT,
    Verified,
    closeness,
    probability_of,
)
from scoring.errors import InputError
from scoring.images.signature import ORIENTATIONS, reorient, signature, views
from tests.curate.policies.dedup.made import cut, embedded, plain_rows, signed, soft_pictures, write_table

MIRRORED = views(mirrored=True)


@pytest.fixture
def dataset():
    """Embeddings and signatures of 60 images, 12 of them copies: cut, mirrored, or as they were."""
    generator = np.random.default_rng(5)
    pictures = soft_pictures(generator, 48, 64)
    codes = generator.normal(0, 1, (48, 96)) + 1.5
    signatures = [signature(cut(generator, each, 1.0)) for each in pictures]
    copies, near = [], []
    for number in range(12):
        kind = number % 3
        seen = cut(generator, pictures[number], 0.85 if kind == 0 else 1.0)
        copies.append(signature(np.ascontiguousarray(seen[:, ::-1]) if kind == 1 else seen))
        near.append(codes[number] + generator.normal(0, 0.2, 96))
    vectors = np.concatenate([codes, near]).astype(np.float32)
    return SimpleNamespace(vectors=vectors, signatures=np.array(signatures + copies), copy_of=np.arange(12))


def rows_of(dataset, order=None):
    at = np.arange(len(dataset.vectors)) if order is None else order
    rows = plain_rows(embedding=dataset.vectors[at], signature=dataset.signatures[at])
    return dataclasses.replace(rows, hashes=plain_rows(len(dataset.vectors)).hashes[at])


def pairs_of(links):
    return {
        (q, r): s for q, r, s in zip(links.query.tolist(), links.row.tolist(), links.similarity.tolist(), strict=True)
    }


def cosine(a, b):
    a, b = a.astype(float), b.astype(float)
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def looks(dataset, i, j):
    """The larger cosine of two signatures, as they are or one mirrored."""
    mirrored = reorient(dataset.signatures[i : i + 1], ORIENTATIONS["mirrored"])[0]
    return max(cosine(dataset.signatures[i], dataset.signatures[j]), cosine(mirrored, dataset.signatures[j]))


def restated(dataset, i, j):
    """The evidence of a pair, one number after another."""
    lengths = np.linalg.norm(dataset.vectors.astype(float), axis=1, keepdims=True)
    unit = dataset.vectors / lengths
    middle = unit - unit.mean(0)

    def crowd(row):
        others = [k for k in range(len(unit)) if k != row and looks(dataset, row, k) < 0.9]
        near = sorted((cosine(middle[row], middle[k]) for k in others), reverse=True)
        return float(np.mean(near[1:15]))

    every = [crowd(row) for row in range(len(unit))]
    most = max(0.3, np.quantile(every, 0.95))
    around = [min(max(each, 0.3), most) for each in (every[i], every[j])]
    return cosine(middle[i], middle[j]), looks(dataset, i, j), max(around), min(around)


def test_the_probability_of_a_pair_is_the_formula(dataset):
    finder = Verified(rows_of(dataset), 0.05, MIRRORED)
    parts = PartOf(dataset.signatures, ALIKE, MIRRORED)
    for i, j in ((0, 48), (1, 49), (2, 50), (20, 30), (5, 6)):
        numbers = restated(dataset, i, j)
        close = [-np.log(1.02 - each) for each in numbers]
        weights = (FIRST.content, FIRST.signature, FIRST.denser, FIRST.sparser)
        odds = sum(w * c for w, c in zip(weights, close, strict=True)) + FIRST.intercept
        if 1 / (1 + np.exp(-odds)) >= LEAST_TO_FIT:
            part = float(parts.measured(np.array([i]), dataset.signatures, np.array([j])).similarity[0])
            weights = (FITTED.content, FITTED.signature, FITTED.denser, FITTED.sparser, FITTED.part)
            odds = max(
                odds,
                sum(w * c for w, c in zip(weights, [*close, -np.log(1.02 - part)], strict=True)) + FITTED.intercept,
            )
        probability = finder.measure(np.array([i, j]), np.array([j, i])).similarity
        assert probability == pytest.approx(1 / (1 + np.exp(-odds)), abs=1e-4)


def test_copies_are_found_and_others_are_not(dataset):
    pairs = pairs_of(Verified(rows_of(dataset), 0.5, MIRRORED).links(np.arange(60), np.ones(60, bool)))
    assert set(pairs) == {pair for i in range(12) for pair in ((i, 48 + i), (48 + i, i))}


def test_a_mirrored_copy_is_likelier_where_mirrors_are_requested_and_is_marked(dataset):
    dataset.vectors[49] = dataset.vectors[[1, 30]].mean(0)  # else both probabilities are 1
    query, row = np.array([1]), np.array([49])
    plain, both = (Verified(rows_of(dataset), 0.5, looks).measure(query, row) for looks in (views(), MIRRORED))
    assert both.similarity[0] > plain.similarity[0]
    assert both.view[0] % 8 == 1


def test_links_hold_every_measured_pair_that_reaches_the_threshold(dataset):
    finder = Verified(rows_of(dataset), 0.3, MIRRORED)
    a, b = np.triu_indices(60, 1)  # 59 others: all are candidates
    measured = finder.measure(a, b).similarity
    expected = {(x, y) for x, y, s in zip(a.tolist(), b.tolist(), measured, strict=True) if s >= np.float32(0.3)}
    pairs = pairs_of(finder.links(np.arange(60), np.ones(60, bool)))
    assert set(pairs) == expected | {(y, x) for x, y in expected}
    assert all(pairs[y, x] == s for (x, y), s in pairs.items())


def test_first_is_the_first_of_links(dataset):
    finder = Verified(rows_of(dataset), 0.3, MIRRORED)
    generator = np.random.default_rng(0)
    queried, among = generator.permutation(60)[:40], generator.random(60) < 0.7
    links = pairs_of(finder.links(queried, among))
    expected = {}
    for row in np.flatnonzero(among).tolist():
        before = queried.tolist()[: queried.tolist().index(row)] if row in queried else queried.tolist()
        query = next((q for q in before if (q, row) in links), None)
        if query is not None:
            expected[query, row] = links[query, row]
    assert pairs_of(finder.first(queried, among)) == expected


def test_the_order_of_the_rows_decides_nothing(dataset):
    order = np.random.default_rng(1).permutation(60)
    plain = pairs_of(Verified(rows_of(dataset), 0.3, MIRRORED).links(np.arange(60), np.ones(60, bool)))
    mixed = pairs_of(Verified(rows_of(dataset, order), 0.3, MIRRORED).links(np.arange(60), np.ones(60, bool)))
    back = {(int(order[q]), int(order[r])): s for (q, r), s in mixed.items()}
    assert set(back) == set(plain)
    assert all(back[pair] == pytest.approx(plain[pair], abs=1e-4) for pair in plain)


def test_rows_of_another_table_find_what_they_are_copies_of(dataset):
    mine = SimpleNamespace(vectors=dataset.vectors[:48], signatures=dataset.signatures[:48])
    other = plain_rows(embedding=dataset.vectors[48:], signature=dataset.signatures[48:])
    finder = Verified(rows_of(mine), 0.5, MIRRORED)
    links = finder.foreign(other, np.ones(48, bool))
    assert {(q, r) for q, r in zip(links.query.tolist(), links.row.tolist(), strict=True)} == {
        (i, i) for i in range(12)
    }
    some = finder.foreign(other, np.arange(48) != 3, np.array([3, 4]))
    assert some.query.tolist() == [4] == some.row.tolist()


def test_embeddings_of_another_width_are_refused(dataset):
    other = plain_rows(embedding=dataset.vectors[:, :7], signature=dataset.signatures)
    with pytest.raises(InputError, match=r"96 numbers .*got 7"):
        Verified(rows_of(dataset), 0.5, MIRRORED).foreign(other, np.ones(60, bool))


def test_a_crowd_of_copies_does_not_hide_itself(dataset):
    many = 30
    dataset.vectors = np.concatenate([dataset.vectors, np.repeat(dataset.vectors[20:21], many, 0)])
    dataset.signatures = np.concatenate([dataset.signatures, np.repeat(dataset.signatures[20:21], many, 0)])
    pairs = pairs_of(Verified(rows_of(dataset), 0.9, MIRRORED).links(np.arange(90), np.ones(90, bool)))
    crowd = [20, *range(60, 90)]
    assert all((q, r) in pairs for q in crowd for r in crowd if q != r)


def test_rows_without_embedding_or_structure_are_like_nothing(dataset):
    dataset.vectors[48], dataset.signatures[49] = 0, 0
    finder = Verified(rows_of(dataset), 0.05, MIRRORED)
    links = finder.links(np.arange(60), np.ones(60, bool))
    assert not {48, 49} & set(links.query.tolist()) | ({48, 49} & set(links.row.tolist()))
    assert finder.measure(np.array([0, 1]), np.array([48, 49])).similarity.tolist() == [0, 0]


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_few_rows_are_compared_carefully(dataset, n):
    few = SimpleNamespace(
        vectors=dataset.vectors[[20, 20, 21, 22, 23][:n]], signatures=dataset.signatures[[20, 20, 21, 22, 23][:n]]
    )
    finder = Verified(
        rows_of(few) if n else plain_rows(0, embedding=dataset.vectors[:0], signature=dataset.signatures[:0]),
        0.9,
        MIRRORED,
    )
    pairs = pairs_of(finder.links(np.arange(n), np.ones(n, bool)))
    assert set(pairs) == ({(0, 1), (1, 0)} if n >= 2 else set())
    if n:
        assert (finder.surroundings.side.crowding == CAREFUL).all()


def test_evidence_for_a_pair_never_lowers_the_probability():
    generator = np.random.default_rng(3)
    numbers = generator.uniform(-0.5, 0.95, (200, 5))
    for weights in (FIRST, FITTED):
        base = weights.log_odds(numbers[:, :4], numbers[:, 4])
        for column, sign in enumerate((1, 1, -1, -1, 1)):
            more = numbers.copy()
            more[:, column] += 0.04
            assert (sign * (weights.log_odds(more[:, :4], more[:, 4]) - base) >= 0).all()


def test_closeness_ends_where_rows_are_equal():
    assert closeness(np.array([1.0, 1.0001])).tolist() == pytest.approx([-np.log(0.02)] * 2)
    assert probability_of(np.array([-800.0, 0.0, 800.0])).tolist() == [0, 0.5, 1]


def test_decisions_state_the_probability_and_the_receipt_verifies(dataset, tmp_path):
    columns = {"embedding": embedded(dataset.vectors.tolist()), "signature": signed(dataset.signatures)}
    table = write_table(tmp_path / "scores.parquet", columns, signature="dct-16 f^0.75")
    result = curate.dedup(table, tmp_path / "out.parquet", "near-duplicate", mirrored=True)
    assert result.kept == 48
    reasons = [each for each in pq.read_table(result.decisions)["reason"].to_pylist() if "the same as" in each]
    assert len(reasons) == 12
    assert all("by near-duplicate (probability 0.9" in each or "(probability 1.0" in each for each in reasons)
    assert any("mirrored" in each for each in reasons)
    assert curate.verify(result.receipt).identical
