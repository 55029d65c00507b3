"""Which images are read again because another could have the same pixels."""

import itertools
import tracemalloc
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from made import plain_rows

from curate.policies.dedup.finders import links, pixels
from curate.policies.dedup.finders.links import chunks
from curate.policies.dedup.finders.pixels import CLOSE, candidates


def rows_of(codes, sizes, contents, ok=None):
    """Rows with these hashes, sizes (width, height) and digests of their bytes."""
    width, height = np.array(sizes, np.float64).reshape(-1, 2).T
    rows = plain_rows(
        phash=np.array(codes, np.uint64),
        has_phash=np.ones(len(codes), bool),
        numbers={"width": width, "height": height},
    )
    rows.texts["sha256"] = pa.chunked_array([pa.array(contents, pa.large_string())])
    rows.ok = np.ones(len(codes), bool) if ok is None else ok
    return rows


def by_definition(tables):
    """A row is read again where another has its size, nearly its hash and other bytes."""
    every = []
    for rows in tables:
        facts = zip(
            rows.ok,
            rows.phash.tolist(),
            rows.numbers["width"],
            rows.numbers["height"],
            rows.texts["sha256"].to_pylist(),
            strict=True,
        )
        every += list(facts)

    def could(a, b):
        near = (a[1] ^ b[1]).bit_count() <= CLOSE
        return a[0] and b[0] and a[2:4] == b[2:4] and near and a[4] != b[4]

    return [any(could(a, b) for j, b in enumerate(every) if j != i) for i, a in enumerate(every)]


@pytest.mark.parametrize("fewest", [1, 3, 64])
@pytest.mark.parametrize("seed", range(4))
def test_candidates_are_those_of_the_definition(seed, fewest, monkeypatch):
    monkeypatch.setattr(links, "FIRST", fewest)
    monkeypatch.setattr(pixels, "chunks", partial(chunks, many=5))
    generator = np.random.default_rng(seed)
    base = [int(code) for code in generator.integers(0, 2**63, 8)]
    tables = []
    for n in (40, 25):
        codes = [
            base[generator.integers(8)]
            ^ sum(1 << int(bit) for bit in generator.choice(64, generator.integers(6), False))
            for _ in range(n)
        ]
        sizes = [(4, int(height)) for height in generator.integers(1, 5, n)]
        which = generator.integers(0, 2, n)  # equal bytes have equal hashes and sizes
        contents = [f"{code} {size} {at}" for code, size, at in zip(codes, sizes, which, strict=True)]
        tables.append(rows_of(codes, sizes, contents, generator.random(n) < 0.9))
    expected = by_definition(tables)
    assert 10 < sum(expected) < 60
    assert candidates(tables).tolist() == expected


def test_equal_bytes_alone_are_no_reason_to_read():
    assert candidates([rows_of([5, 5, 5], [(2, 2)] * 3, ["a"] * 3)]).tolist() == [False] * 3
    assert candidates([rows_of([5, 5, 5], [(2, 2)] * 3, ["a", "a", "b"])]).tolist() == [True] * 3
    assert candidates([rows_of([], [], [])]).tolist() == []


def test_hashes_that_are_all_close_to_one_another_cost_no_pair_of_each():
    codes = [sum(1 << bit for bit in bits) for size in range(4) for bits in itertools.combinations(range(40), size)]
    rows = rows_of(codes, [(8, 8)] * len(codes), [f"bytes {code}" for code in codes])
    tracemalloc.start()
    try:
        assert len(codes) > 10_000
        assert candidates([rows]).all()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 200e6
