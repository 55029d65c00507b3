"""Sides of a table: shares that hold, rows that are kept, and nothing that crosses."""

import json
from collections import Counter
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curate
from curate.policies.split.groups import by_hash, commonest, in_strata, shares_of
from curate.policies.verify import verify
from curate.tables.digests import redrawn
from scoring.errors import InputError

USUAL = {"train": "80%", "val": "10%", "test": "10%"}


def table(path, n=1000, **columns):
    rows = {"key": [f"k{i}" for i in range(n)], "sha256": [f"s{i}" for i in range(n)], **columns}
    pq.write_table(pa.table(rows), path)
    return path


def sides_in(path):
    read = pq.read_table(path)
    return dict(zip(read["key"].to_pylist(), read["split"].to_pylist(), strict=True))


def test_rows_keep_their_side_when_others_come_and_go_and_another_seed_draws_again(tmp_path):
    half, full = table(tmp_path / "half.parquet", 3000), table(tmp_path / "whole.parquet", 6000)
    curate.split(half, tmp_path / "a.parquet", **USUAL)
    result = curate.split(full, tmp_path / "b.parquet", **USUAL)
    curate.split(full, tmp_path / "c.parquet", **USUAL, seed=1)
    first, second, other = (sides_in(tmp_path / f"{name}.parquet") for name in "abc")
    assert all(second[key] == side for key, side in first.items())
    assert 0.5 < np.mean([second[key] == other[key] for key in second]) < 0.8  # by chance 0.66
    for name, share in (("train", 0.8), ("val", 0.1), ("test", 0.1)):
        assert abs(result.sides[name] / 6000 - share) < 4 * (share * (1 - share) / 6000) ** 0.5


def test_shares_hold_to_within_a_row_in_every_stratum_and_over_all_many_small_ones(tmp_path):
    generator = np.random.default_rng(0)
    label = [f"c{i}" for i in np.minimum(generator.zipf(1.4, 5000), 3000)]
    result = curate.split(table(tmp_path / "t.parquet", 5000, label=label), dry_run=True, per=["label"], **USUAL)
    sizes = Counter(label)
    assert set(result.strata) == set(sizes)
    assert min(sizes.values()) == 1
    for name, counts in result.strata.items():
        assert all(abs(n - share * sizes[name]) < 1 for n, share in zip(counts, (0.8, 0.1, 0.1), strict=True))
    many = table(tmp_path / "many.parquet", 10_000, label=np.arange(10_000))
    result = curate.split(many, dry_run=True, per="label", **USUAL)
    assert len(result.strata) == 10_000
    assert abs(result.sides["val"] - 1000) < 4 * 900**0.5


def test_without_a_column_exact_shares_are_rounded_and_few_rows_move_as_the_table_grows(tmp_path):
    result = curate.split(table(tmp_path / "a.parquet", 997), tmp_path / "x.parquet", exact=True, **USUAL)
    assert result.sides == {"train": 798, "val": 99, "test": 100}  # 797.6, 99.7, 99.7
    curate.split(table(tmp_path / "b.parquet", 1100), tmp_path / "y.parquet", exact=True, **USUAL)
    before, after = sides_in(tmp_path / "x.parquet"), sides_in(tmp_path / "y.parquet")
    assert sum(after[key] != side for key, side in before.items()) < 40


def test_groups_and_copies_are_on_one_side_also_where_they_chain(tmp_path):
    generator = np.random.default_rng(1)
    patient = [None if i % 9 == 0 else f"p{value}" for i, value in enumerate(generator.integers(0, 300, 2000))]
    copy = [f"s{value}" for value in generator.integers(0, 6000, 2000)]
    path = table(tmp_path / "t.parquet", 2000, patient=patient, sha256=copy, label=[i % 7 for i in range(2000)])
    for number, how in enumerate(({}, {"exact": True}, {"per": ["label"]})):
        result = curate.split(path, tmp_path / f"{number}.parquet", train="60%", test="40%", group="patient", **how)
        side = sides_in(tmp_path / f"{number}.parquet")
        for values in (patient, copy):
            seen = {}
            for i, value in enumerate(values):
                assert value is None or seen.setdefault(value, side[f"k{i}"]) == side[f"k{i}"]
        assert result.leaks == 0
        assert result.would_leak > 0
        assert result.n_copies == sum(n > 1 for n in Counter(copy).values())
        assert any("without patient" in note for note in result.notes)
        assert verify(result.receipt).identical


def test_what_would_leak_is_what_a_split_that_looks_for_no_copies_leaks(tmp_path):
    copy = [f"s{i // 3}" for i in range(900)]
    path = table(tmp_path / "t.parquet", 900, sha256=copy)
    seeking = curate.split(path, dry_run=True, **USUAL)
    curate.split(path, tmp_path / "a.parquet", duplicates=False, **USUAL)
    side = sides_in(tmp_path / "a.parquet")
    leaks = sum(3 for i in range(0, 900, 3) if len({side[f"k{j}"] for j in (i, i + 1, i + 2)}) > 1)
    assert seeking.would_leak == leaks > 300


def test_a_group_larger_than_a_side_is_reported_with_numbers_and_is_on_the_largest(tmp_path):
    patient = ["big"] * 700 + [f"p{i}" for i in range(300)]
    path = table(tmp_path / "t.parquet", 1000, patient=patient)
    for seed in range(4):
        result = curate.split(path, dry_run=True, group="patient", exact=True, seed=seed, **USUAL)
        assert result.sides == {"train": 800, "val": 100, "test": 100}
        note = next(note for note in result.notes if "cannot be divided" in note)
        assert "700 rows of patient" in note
    assert "add --exact" in curate.split(path, dry_run=True, group="patient", **USUAL).notes[-1]


def test_names_and_the_columns_of_the_table_are_ones_own(tmp_path):
    path = table(tmp_path / "t.parquet", 100, split=["mine"] * 100)
    result = curate.split(path, tmp_path / "o.parquet", train="50%", side=["dev set=25%", "hidden=25%"], exact=True)
    assert result.sides == {"train": 50, "dev set": 25, "hidden": 25}
    assert pq.read_table(result.subset)["source_split"].to_pylist() == ["mine"] * 100
    assert pq.read_table(result.decisions)["split"].to_pylist() == list(sides_in(result.subset).values())
    assert json.loads(result.receipt.read_text())["sides"] == result.sides


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"train": "80%"}, r"got 1; .* --train 80%"),
        ({"train": "80%", "test": "10%"}, "10% is missing"),
        ({"train": 0.8, "val": 0.15, "test": 0.1}, "5% too much"),
        ({"train": "800", "test": "20%"}, "--train .*got 800"),
        ({"train": "80%", "side": ["train=20%"]}, "--side train was given"),
        ({"train": "80%", "side": ["dev"]}, "NAME=SHARE|NAME=VALUE"),
        ({**USUAL, "per": ["labl"]}, "did you mean 'label'"),
        ({**USUAL, "per": ["lists"]}, "column 'lists'"),
        ({**USUAL, "per": ["label"], "group": "label"}, "'label' is given"),
        ({**USUAL, "finder": "bytes", "duplicates": False}, "one of them out"),
        ({**USUAL, "finder": "signature"}, "the column signature"),
        ({**USUAL, "group": "one"}, "30 of 30 rows"),
    ],
)
def test_what_cannot_be_split_is_one_line_and_nothing_is_written(tmp_path, given, words):
    path = table(tmp_path / "t.parquet", 30, label=["a"] * 30, one=["a"] * 30, lists=[[1]] * 30)
    with pytest.raises(InputError, match=words) as error:
        curate.split(path, tmp_path / "o.parquet", **given)
    assert "\n" not in str(error.value)
    assert [each.name for each in tmp_path.iterdir()] == ["t.parquet"]


def test_a_table_without_rows_or_without_columns_for_copies_is_reported(tmp_path):
    with pytest.raises(InputError, match="rows to split"):
        curate.split(table(tmp_path / "t.parquet", 0, sha256=pa.array([], pa.string())), dry_run=True, **USUAL)
    pq.write_table(pa.table({"key": [f"k{i}" for i in range(50)]}), tmp_path / "plain.parquet")
    result = curate.split(tmp_path / "plain.parquet", dry_run=True, **USUAL)
    assert result.leaks is None
    assert any("no column" in note for note in result.notes)


def test_thirds_are_a_whole_and_halves_of_a_percent_are_shares():
    assert shares_of({"a": "33.3%", "b": "33.3%", "c": "33.3%"})["a"] == Fraction(1, 3)
    assert shares_of({"a": "99.5%", "b": "0.005"})["b"] == Fraction(5, 1000)


def test_the_side_of_a_hash_follows_the_cumulative_shares():
    hashes = np.array([0, 2**62, 2**63 - 2**40, 2**63, 2**64 - 1], np.uint64)
    assert by_hash(hashes, [0.25, 0.25, 0.5])[0].tolist() == [0, 1, 1, 2, 2]


def test_groups_alternate_as_long_as_they_have_rows():
    """Restated row by row: a group goes where its middle row lies, in the order of its hash."""
    generator = np.random.default_rng(5)
    sizes = generator.integers(1, 6, 60)
    hashes = generator.integers(0, 2**63, 60).astype(np.uint64)
    sides, place = in_strata(hashes, sizes, np.zeros(60, np.int64), np.array([0.5]), [0.2, 0.5, 0.3])
    at = 0.0
    for group in np.argsort(hashes):
        middle = (at + sizes[group] / 2) / sizes.sum()
        assert sides[group] == (1 if middle < 0.5 else 2 if middle < 0.8 else 0)
        assert place[group] == pytest.approx(middle)
        at += sizes[group]


def test_the_commonest_code_of_a_group_is_found_and_equals_go_to_the_lowest():
    groups, codes = np.array([0, 0, 0, 1, 1, 2]), np.array([4, 2, 2, 3, 1, 0])
    assert commonest(groups, codes).tolist() == [2, 1, 0]


def test_hashes_drawn_again_differ_and_are_spread_evenly():
    drawn = redrawn(np.arange(100_000, dtype=np.uint64), 7, "a")
    assert len(np.unique(drawn)) == 100_000
    assert np.bincount((drawn >> np.uint64(60)).astype(int)).std() < 3 * (100_000 / 16) ** 0.5
    assert not (drawn == redrawn(np.arange(100_000, dtype=np.uint64), 8, "a")).any()
    assert not (drawn == redrawn(np.arange(100_000, dtype=np.uint64), 7, "b")).any()
