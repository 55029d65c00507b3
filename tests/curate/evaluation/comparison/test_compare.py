"""``curate compare`` on tables whose difference is known."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import run
from PIL import Image

import curate
from scoring.errors import InputError

QUICK = {"repeats": 99, "clusters": 4, "top": 3}
FLAGS = ["--repeats", 99]
MODEL = {"model": {"digest": "a" * 64, "method": "visimsiam"}}


def table(path, *, n=120, seed=0, shift=0.0, metadata=MODEL, first=0, **columns):
    """A scored table whose rows lie around one direction, of which ``shift`` moves them away."""
    generator = np.random.default_rng([seed, n])
    rows = generator.normal(size=(n, 6)).astype(np.float32) * 0.3
    rows[:, 0] += 1
    rows[:, 1] += shift
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    keys = [f"{seed}-{first + i}" for i in range(n)]
    values = {
        "key": keys,
        "sha256": [f"bytes of {key}" for key in keys],
        "status": ["ok"] * n,
        "width": (generator.integers(50, 90, n) + 20 * shift).astype(np.int32),
        "label": generator.integers(0, 3, n),
        "embedding": pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 6),
        **columns,
    }
    values = {name: value for name, value in values.items() if value is not None}
    about = {b"curate": json.dumps(metadata).encode()}
    pq.write_table(pa.table(values).replace_schema_metadata(about), path)
    return path


@pytest.fixture
def pair(tmp_path):
    """Two tables of the same kind, of other rows."""
    return table(tmp_path / "train.parquet", seed=1), table(tmp_path / "production.parquet", seed=2, n=90)


@pytest.fixture
def moved(tmp_path):
    """Two tables that differ."""
    return table(tmp_path / "a.parquet", seed=1), table(tmp_path / "b.parquet", seed=2, n=90, shift=1.0)


def by_name(comparison):
    return {each.name: each for each in comparison.columns}


def test_tables_of_the_same_kind_are_not_separated(pair):
    comparison = curate.compare(*pair, **QUICK, fail_above=0.6)
    assert comparison.embedding.auroc.low < 0.5 < comparison.embedding.auroc.high
    assert comparison.embedding.p > 0.05
    assert comparison.embedding.mmd_p > 0.05
    assert all(each.adjusted_p > 0.05 for each in [*comparison.columns, *comparison.clusters])
    assert not comparison.failed


def test_a_shift_is_found_in_columns_embeddings_and_clusters(moved):
    comparison = curate.compare(*moved, **QUICK, fail_above=0.6)
    assert comparison.failed
    assert comparison.embedding.auroc.value > 0.9
    assert comparison.embedding.p == comparison.embedding.mmd_p == 0.01
    width = by_name(comparison)["width"]
    assert width.adjusted_p <= 0.05
    assert width.standardised > 1
    assert width.means[1] - width.means[0] == pytest.approx(20, abs=5)
    assert by_name(comparison)["label"].adjusted_p > 0.05
    assert any(each.adjusted_p <= 0.05 for each in comparison.clusters)
    assert [len(each) for each in comparison.distinctive] == [3, 3]
    assert all(row.key.startswith("1-") for row in comparison.distinctive[0])
    assert all(row.key.startswith("2-") for row in comparison.distinctive[1])


def test_a_cluster_that_one_side_lacks_is_named_with_its_rows(tmp_path):
    generator = np.random.default_rng(4)
    rows = generator.normal(size=(150, 6)).astype(np.float32) * 0.1
    rows[np.arange(150), np.arange(150) % 3] += 1
    lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 6)
    full = table(tmp_path / "whole.parquet", n=150, seed=1, embedding=lists)
    part = pq.read_table(full).filter(pa.array(np.arange(150) % 3 != 1))
    pq.write_table(part, tmp_path / "part.parquet")
    comparison = curate.compare(full, tmp_path / "part.parquet", repeats=199, clusters=6)
    lacking = [each for each in comparison.clusters if each.lacking]
    assert lacking == comparison.clusters[: len(lacking)]
    assert sum(each.rows[0] for each in lacking) == 50
    for each in lacking:
        assert each.lacking == "second"
        assert each.rows[1] == 0
        assert each.second.high < each.first.low
        assert {int(row.key.split("-")[1]) % 3 for row in each.examples[0]} == {1}
        assert each.examples[1] == ()


def test_a_random_part_is_no_different_and_one_chosen_by_content_is(tmp_path):
    full = table(tmp_path / "whole.parquet", n=200)
    rows = pq.read_table(full)
    pq.write_table(rows.filter(pa.array(np.random.default_rng(5).random(200) < 0.7)), tmp_path / "random.parquet")
    x = np.stack(rows["embedding"].to_numpy())[:, 1]
    pq.write_table(rows.filter(pa.array(x < np.quantile(x, 0.7))), tmp_path / "chosen.parquet")
    drawn = curate.compare(full, tmp_path / "random.parquet", **QUICK)
    assert drawn.embedding.p > 0.05
    assert drawn.embedding.shared == drawn.embedding.rows[1]
    assert not any(each.adjusted_p <= 0.05 for each in [*drawn.columns, *drawn.clusters])
    chosen = curate.compare(full, tmp_path / "chosen.parquet", **QUICK)
    assert chosen.embedding.p == 0.01
    assert len(chosen.distinctive[0]) == 3
    assert chosen.distinctive[1] == ()  # no row is in the part alone


def test_a_table_and_its_copy_are_the_same(pair, tmp_path):
    (tmp_path / "copy.parquet").write_bytes(pair[0].read_bytes())
    comparison = curate.compare(pair[0], tmp_path / "copy.parquet", **QUICK, fail_above=0.5)
    assert (comparison.embedding.auroc.value, comparison.embedding.p, comparison.embedding.mmd_p) == (0.5, 1.0, 1.0)
    assert {each.distance for each in comparison.columns} == {0.0}
    assert not comparison.failed


def test_the_order_of_rows_changes_no_number(moved, tmp_path):
    before = curate.compare(*moved, **QUICK).to_json()
    for path in moved:
        rows = pq.read_table(path)
        pq.write_table(rows.take(np.random.default_rng(0).permutation(len(rows))), path)
    after = curate.compare(*moved, **QUICK).to_json()
    for now, then in zip(
        [*after["columns"], after["embedding"]], [*before["columns"], before["embedding"]], strict=True
    ):
        for name in ("distance", "p", "adjusted_p", "shared", "mmd_p"):
            assert now.get(name) == then.get(name), name  # of the means the last digit differs
    assert [[row["key"] for row in side] for side in after["distinctive"]] == [
        [row["key"] for row in side] for side in before["distinctive"]
    ]


def test_a_sample_is_drawn_by_keys_and_reported(moved):
    comparison = curate.compare(*moved, **QUICK, sample=50)
    assert comparison.rows == (120, 90)
    assert comparison.sampled == (50, 50)
    assert "50 of them compared" in run("compare", *moved, *FLAGS, "--sample", 50).stdout


def test_keys_that_are_missing_or_occur_twice_are_reported(tmp_path, pair):
    assert curate.compare(*pair, **QUICK).notes == []
    keys = [None, None, *(f"k{i // 2}" for i in range(40)), *(f"x{i}" for i in range(78))]
    twice = table(tmp_path / "twice.parquet", key=pa.array(keys))
    for kind in (pa.string(), pa.dictionary(pa.int32(), pa.string())):
        keyless = table(tmp_path / "odd.parquet", key=pa.array(keys).cast(kind))
        assert curate.compare(pair[0], keyless, **QUICK).notes == [
            f"{keyless}: 2 of 120 rows compared without a key",
            f"{keyless}: 20 of 120 rows compared with a key that is not unique",
        ]
    none = table(tmp_path / "none.parquet", key=None)
    finished = run("compare", none, twice, *FLAGS).stdout
    assert f"note: {none} has no column 'key': its rows are sampled, and identified, by their numbers" in finished
    repeated = table(tmp_path / "repeated.parquet", n=400, key=[f"k{i // 4}" for i in range(400)])
    (note,) = curate.compare(pair[0], repeated, **QUICK, sample=40).notes
    assert note == f"{repeated}: 30 of 40 rows compared with a key that is not unique"


def test_columns_of_one_side_are_named_and_the_rest_is_compared(tmp_path):
    a = table(tmp_path / "a.parquet", seed=1, camera=["x"] * 120)
    b = table(tmp_path / "b.parquet", seed=2, width=None)
    comparison = curate.compare(a, b, **QUICK)
    assert comparison.only_in == (["width", "camera"], [])
    assert set(by_name(comparison)) == {"status", "label"}
    assert "a: width, camera" in run("compare", a, b, *FLAGS).stdout


def test_numbers_of_clusters_are_names_which_another_fit_has_for_others(tmp_path):
    a = table(tmp_path / "a.parquet", seed=1, cluster=[i % 3 for i in range(120)])
    b = table(tmp_path / "b.parquet", seed=2, cluster=[4 + i % 3 for i in range(120)])
    assert "cluster" not in by_name(curate.compare(a, b, **QUICK))
    assert by_name(curate.compare(a, b, column=["cluster"], **QUICK))["cluster"].kind == "values"


def test_missing_values_are_a_separate_difference(tmp_path):
    values = np.random.default_rng(0).normal(size=120)
    a = table(tmp_path / "a.parquet", seed=1, light=values)
    half = pa.array(values, mask=np.arange(120) % 2 == 0)
    b = table(tmp_path / "b.parquet", seed=2, light=half)
    light = by_name(curate.compare(a, b, **QUICK))["light"]
    assert light.missing == (0.0, 0.5)
    assert light.adjusted_p <= 0.1
    assert light.distance < 0.2  # the values that are there are alike


def test_columns_of_every_type_are_compared_or_left_out_with_a_reason(tmp_path):
    n = 120
    columns = {
        "half": pa.array(np.linspace(0, 1, n).astype(np.float16)),
        "big": pa.array([1e308, float("inf")] * 60),
        "day": pa.array(np.arange(n), pa.int32()).cast(pa.date32()),
        "flag": pa.array([True, False] * 60),
        "word": pa.array(["a", None] * 60).dictionary_encode(),
        "name": [f"n{i}" for i in range(n)],
        "list": [[1]] * n,
        "mtime": np.arange(n),
        "none": pa.array([None] * n, pa.float32()),
        "untyped": pa.nulls(n),
        "odd\x1b[2J": pa.array([1.5] * n),
    }
    a = table(tmp_path / "a.parquet", seed=1, mixed=np.arange(n), **columns)
    b = table(tmp_path / "b.parquet", seed=2, mixed=["x"] * n, **columns)
    comparison = curate.compare(a, b, **QUICK)
    assert {"half", "big", "day", "flag", "word", "odd\x1b[2J"} <= set(by_name(comparison))
    assert "mtime" not in by_name(comparison)
    assert by_name(comparison)["word"].missing == (0.5, 0.5)
    assert by_name(comparison)["untyped"].missing == (1, 1)
    assert set(comparison.left_out) == {"name", "list", "none", "mixed"}
    assert "in one table and" in comparison.left_out["mixed"]
    json.dumps(comparison.to_json(), allow_nan=False)
    shown = run("compare", a, b, *FLAGS)
    assert shown.exit_code == 0
    assert "\x1b" not in shown.output


def test_values_that_moved_most_are_named(tmp_path):
    a = table(tmp_path / "a.parquet", seed=1, light=["day"] * 60 + ["night"] * 60)
    b = table(tmp_path / "b.parquet", seed=2, light=["day"] * 108 + ["night"] * 12)
    light = by_name(curate.compare(a, b, **QUICK))["light"]
    assert light.distance == pytest.approx(0.4)
    assert {(each.value, each.first, each.second) for each in light.moved} == {("day", 0.5, 0.9), ("night", 0.5, 0.1)}


def test_embeddings_of_two_models_are_refused_by_name_but_columns_can_be_compared(tmp_path, pair):
    other = table(tmp_path / "other.parquet", seed=3, metadata={"model": {"digest": "b" * 64, "method": "dino"}})
    with pytest.raises(InputError, match=r"train\.parquet \(visimsiam, a{12}\).*\(dino, b{12}\).*--column"):
        curate.compare(pair[0], other, **QUICK)
    comparison = curate.compare(pair[0], other, column="width", **QUICK)
    assert list(by_name(comparison)) == ["width"]
    assert comparison.embedding is None


def test_tables_without_embeddings_are_compared_by_columns_and_cannot_be_gated(tmp_path, pair):
    bare = table(tmp_path / "bare.parquet", seed=3, embedding=None)
    comparison = curate.compare(pair[0], bare, **QUICK)
    assert "no embedding column" in comparison.without_embedding
    assert comparison.columns
    with pytest.raises(InputError, match="--fail-above"):
        curate.compare(pair[0], bare, **QUICK, fail_above=0.6)


def test_rows_that_failed_are_a_shift_of_the_status_and_do_not_affect_embeddings(tmp_path, pair):
    n = 120
    bad = table(tmp_path / "bad.parquet", seed=3, status=["ok"] * 60 + ["corrupt"] * 60)
    comparison = curate.compare(pair[0], bad, **QUICK)
    assert by_name(comparison)["status"].adjusted_p <= 0.05
    assert comparison.embedding.rows == (n, 60)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: table(path, n=0), "20 rows"),
        (lambda path: table(path, n=7), "got 7"),
        (lambda path: path.write_bytes(b"no table"), "not a Parquet file"),
    ],
)
def test_a_table_that_is_empty_small_or_none_is_one_line(tmp_path, pair, make, words):
    make(tmp_path / "odd.parquet")
    for order in ((pair[0], tmp_path / "odd.parquet"), (tmp_path / "odd.parquet", pair[0])):
        result = run("compare", *order)
        assert result.exit_code == 1
        assert words in result.stderr
        assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "value"), [("--fail-above", 1.0), ("--fail-above", 0.2), ("--sample", 3), ("--repeats", 0)]
)
def test_settings_out_of_range_are_one_line(pair, option, value):
    result = run("compare", *pair, option, value)
    assert result.exit_code == 1
    assert option in result.stderr


def test_the_same_table_twice_is_refused(pair):
    with pytest.raises(InputError, match="twice"):
        curate.compare(pair[0], pair[0])


def test_the_gate_exits_3_and_everything_is_written(moved, tmp_path):
    out = tmp_path / "report.json"
    result = run("compare", *moved, *FLAGS, "--fail-above", 0.6, "--json", "--out", out)
    assert result.exit_code == 3
    record = json.loads(result.stdout)
    assert record == json.loads(out.read_text())
    assert record["failed"] is True
    assert record["embedding"]["auroc"]["value"] > 0.9
    assert run("compare", *moved, *FLAGS, "--out", out).exit_code == 1  # it is there already
    shown = run("compare", *moved, *FLAGS, "--fail-above", 0.6)
    assert shown.exit_code == 3
    assert "--fail-above 0.6: failed" in shown.stdout


def test_the_gate_passes_what_is_above_by_chance(pair):
    result = run("compare", *pair, *FLAGS, "--fail-above", 0.5)
    assert result.exit_code == 0
    assert "passed" in result.stdout


def test_a_sheet_shows_both_sides(tmp_path, folder, full_table):
    rows = pq.read_table(full_table)
    other = tmp_path / "other.parquet"
    keep = np.array(rows["status"]) == "ok"
    pq.write_table(rows.filter(pa.array(keep)).slice(0, 25), other)
    sheet = tmp_path / "sheet.png"
    result = run("compare", full_table, other, "--repeats", 19, "--sheet", sheet)
    assert result.exit_code == 0, result.output
    with Image.open(sheet) as picture:
        assert picture.width > 1000
    assert run("compare", full_table, other, "--sheet", sheet).exit_code == 1
