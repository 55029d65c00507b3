"""Issues by kind: where they begin in clean and in bad heaps, what goes, and what is said."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import run as curate_run
from PIL import Image

import curate
from curate.columns import QUALITY_COLUMNS
from curate.policies.issues.kinds import KINDS, cut_of
from scoring.errors import InputError

N = 400
CLEAN = {
    "brightness": 0.5,
    "shadow": 0.1,
    "highlight": 0.9,
    "contrast": 0.25,
    "entropy": 7.0,
    "sharpness": 0.65,
    "noise": 0.3,
    "colourfulness": 40.0,
    "border": 0.0,
    "blocking": 1.0,
    "jpeg": 90.0,
}
BAD = {
    "dark": ("highlight", 0.1),
    "bright": ("shadow", 0.8),
    "overexposed": ("brightness", 0.97),
    "low-contrast": ("contrast", 0.01),
    "low-information": ("entropy", 1.0),
    "blurry": ("sharpness", 0.1),
    "noisy": ("noise", 12.0),
    "blocky": ("blocking", 2.5),
    "compressed": ("jpeg", 5.0),
    "bordered": ("border", 0.3),
    "grey": ("colourfulness", 0.0),
    "odd-aspect": ("width", 3000),
    "odd-size": ("width", 20_000),
}


def heap(tmp_path, n=N, name="scores", **changed):
    """A clean heap with some spread; ``changed`` is kind -> rows that have it."""
    rng = np.random.default_rng(0)
    columns = {f"quality_{name}": value * rng.normal(1, 0.05, n) for name, value in CLEAN.items()}
    columns["width"], columns["height"] = np.full(n, 320), np.full(n, 240)
    for kind, rows in changed.items():
        measure, value = BAD[kind.replace("_", "-")]
        columns[measure if measure == "width" else f"quality_{measure}"][rows] = value
    table = pa.table(
        {
            "key": pa.array([f"{i:04}" for i in range(n)], pa.string()),
            "status": pa.array(["ok"] * n, pa.string()),
            **{name: pa.array(values, pa.int32() if name in ("width", "height") else pa.float32())
               for name, values in columns.items()},
        }
    )  # fmt: skip
    pq.write_table(table, tmp_path / f"{name}.parquet")
    return tmp_path / f"{name}.parquet"


def test_every_kind_is_of_columns_that_score_writes_and_every_column_has_one():
    used = {name for kind in KINDS.values() for name in kind.columns}
    assert used - {"width", "height"} == set(QUALITY_COLUMNS)
    assert set(BAD) == set(KINDS)


def test_a_clean_heap_has_none(tmp_path):
    result = curate.issues(heap(tmp_path))
    assert result.n_issues == 0
    assert result.kept == N


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_bad", [1, N // 10, N * 6 // 10])
def test_a_bad_picture_is_found_be_it_one_or_more_than_half_of_the_heap(tmp_path, kind, n_bad):
    result = curate.issues(heap(tmp_path, **{kind: slice(n_bad)}))
    found = result.kinds[kind]
    if kind == "odd-size" and n_bad > N / 2:
        assert found["n"] == N - n_bad  # then it is the others that are odd
    elif not KINDS[kind].drops and n_bad > N / 2:
        assert (found["n"], found["common"]) == (0, n_bad)
    else:
        assert found["n"] == n_bad
    assert result.dropped == (found["n"] if KINDS[kind].drops else 0)


@pytest.mark.parametrize("kind", KINDS)
def test_where_a_kind_begins_stays_between_its_bounds_and_follows_the_spread(kind):
    about, rng = KINDS[kind], np.random.default_rng(0)
    low, high = sorted((about.strict, about.loose))
    for centre in (0.01, 1.0, 100.0):
        for spread in (0, 0.1, 10):
            values = (centre + spread * rng.normal(size=999)).astype(np.float32)
            assert low <= cut_of(about, values) <= high
    assert cut_of(about, np.full(5, np.nan, np.float32)) == about.loose


def test_a_cut_is_the_median_less_robust_deviations():
    values = np.random.default_rng(0).normal(0.6, 0.104, 2001).astype(np.float32)
    median = sorted(values.tolist())[1000]
    deviation = sorted(abs(value - median) for value in values.tolist())[1000]
    assert cut_of(KINDS["dark"], values) == pytest.approx(median - 3.5 * 1.4826 * deviation, rel=1e-6)


def test_a_row_has_all_its_kinds_and_harmless_ones_stay_until_asked(tmp_path):
    path = heap(tmp_path, dark=slice(0, 3), blurry=slice(2, 6), grey=slice(5, 9))
    result = curate.issues(path, tmp_path / "clean.parquet")
    assert (result.n_issues, result.dropped, result.kept) == (9, 6, N - 6)
    assert {("dark", "blurry", 1), ("blurry", "grey", 1)} == set(result.overlaps)
    rows = pq.read_table(result.decisions).to_pylist()
    assert [row["kinds"] for row in rows[:10]] == [
        *["dark"] * 2, "dark, blurry", *["blurry"] * 2, "blurry, grey", *["grey"] * 3, None
    ]  # fmt: skip
    assert rows[2]["rule"] == "dark"
    assert "dark: quality_highlight 0.1 is below 0.27" in rows[2]["reason"]
    assert rows[2]["margin"] == pytest.approx(-0.17)
    assert (rows[8]["decision"], rows[8]["rule"]) == ("keep", "grey")
    assert curate.verify(result.receipt).identical
    also = curate.issues(path, tmp_path / "coloured.parquet", also=["grey"])
    assert also.dropped == 9
    assert curate.issues(path, only=["grey"]).dropped == 4
    assert curate.issues(path, without=["blurry"]).dropped == 3


def test_set_says_where_a_kind_begins(tmp_path):
    path = heap(tmp_path, dark=slice(3))
    assert curate.issues(path, set={"dark": 0.05}).kinds["dark"]["n"] == 0
    assert curate.issues(path, set={"dark": "2"}).kinds["dark"]["n"] == N
    done = curate.issues(path, tmp_path / "o.parquet", set={"dark": "0.5"})
    assert curate.verify(done.receipt).identical


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"only": ["drak"]}, "unknown kind of issue 'drak'; did you mean 'dark'"),
        ({"set": {"dark": "low"}}, "--set dark: expected a number, such as 0.1, got 'low'"),
        ({"set": {"dark": "nan"}}, "--set dark: expected a number"),
        ({"without": list(KINDS)}, "leaves no kind"),
        ({"only": ["dark"], "set": {"blurry": 1}}, "blurry is not looked for"),
    ],
)
def test_what_cannot_be_asked_is_said_in_one_line(tmp_path, asked, words):
    with pytest.raises(InputError, match=words):
        curate.issues(heap(tmp_path), **asked)


def test_a_table_without_measures_is_told_to_be_scored_again(tmp_path):
    path = heap(tmp_path)
    bare = pq.read_table(path).select(["key", "status", "width", "height"])
    pq.write_table(bare, tmp_path / "old.parquet")
    with pytest.raises(InputError, match=r"no column .quality_highlight., by which dark is told; score the"):
        curate.issues(tmp_path / "old.parquet")
    assert curate.issues(tmp_path / "old.parquet", only=["odd-size"]).n_issues == 0
    pq.write_table(pq.read_table(path).drop(["quality_jpeg"]), tmp_path / "less.parquet")
    assert curate.issues(tmp_path / "less.parquet").not_looked == ["compressed"]


@pytest.mark.parametrize("n", [0, 1])
def test_no_row_and_one_row(tmp_path, n):
    result = curate.issues(heap(tmp_path, n), tmp_path / "clean.parquet")
    assert (result.n_rows, result.kept) == (n, n)
    assert curate.verify(result.receipt).identical


def test_failed_rows_stay_failed_and_rows_without_a_measure_are_undecided(tmp_path):
    table = pq.read_table(heap(tmp_path, 30))
    empty = pa.array([None] * 10, pa.float32())
    for name in QUALITY_COLUMNS:
        at = table.schema.get_field_index(name)
        column = pa.concat_arrays([empty, *table.column(name).slice(10).chunks])
        table = table.set_column(at, table.schema.field(name), column)
    status = pa.array([*["corrupt"] * 5, *["ok"] * 25])
    table = table.set_column(table.schema.get_field_index("status"), "status", status)
    pq.write_table(table, tmp_path / "some.parquet")
    result = curate.issues(tmp_path / "some.parquet", tmp_path / "clean.parquet")
    assert (result.failed, result.undecided, result.kept) == (5, 5, 20)
    pq.write_table(table.slice(0, 5), tmp_path / "failed.parquet")
    result = curate.issues(tmp_path / "failed.parquet")
    assert (result.n_issues, result.failed) == (0, 5)


def test_the_first_line_says_of_how_many_rows_that_could_be_looked_at(tmp_path):
    path = heap(tmp_path, dark=[3, 4])

    def first(**columns):
        read = pq.read_table(path)
        for name, values in columns.items():
            read = read.set_column(read.column_names.index(name), name, values)
        pq.write_table(read, tmp_path / "other.parquet")
        return curate_run("issues", tmp_path / "other.parquet").stdout.splitlines()[0]

    nan = {name: pa.nulls(N, pa.float32()) for name in pq.read_schema(path).names if name.startswith("quality_")}
    failed = pa.array(["truncated"] * N)
    assert first() == "400 rows: 2 with an issue (0.5%)"
    assert first(status=failed) == "400 rows: none could be looked at: no image was scored"
    assert first(**nan) == "400 rows: none could be looked at: none has measures of quality"
    half = pa.array(["ok"] * 200 + ["truncated"] * 200)
    assert first(status=half) == "400 rows: 2 of 200 that were scored with an issue (1.0%)"


def test_from_photographs_to_a_sheet(tmp_path, tiny_checkpoint):
    rng = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for i in range(12):
        small = Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8))
        picture = small.resize((64, 64), Image.Resampling.NEAREST)
        if i < 2:
            picture = picture.point(lambda value: value // 10)
        picture.save(tmp_path / "photos" / f"{i:02}.png")
    table = tmp_path / "s.parquet"
    curate.score(tmp_path / "photos", table, model=tiny_checkpoint, fit=False)
    done = curate_run("issues", table, "--sheet", tmp_path / "s.png", "--json")
    told = json.loads(done.stdout)
    assert (told["kinds"]["dark"]["n"], told["subset"]) == (2, None)
    assert sorted(each["key"] for each in told["examples"] if each["why"] == "dark") == ["00.png", "01.png"]
    assert Image.open(tmp_path / "s.png").width > 500
    shown = curate_run("issues", table)
    assert "begins at" in shown.stdout
    assert "curate dedup" in shown.stdout
