"""Issues by kind: where they begin in clean and in bad datasets, what is dropped only by name, and what is reported."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import run as curate_run
from PIL import Image

import curate
from curate.columns import QUALITY_COLUMNS
from curate.policies.issues.kinds import GROUPS, KINDS, UNUSABLE_KINDS, cut_of
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
    "resolution": 0.7,
    "jpeg": 90.0,
    "colours": 500.0,
}
BAD = {  # kind -> what an image of it measures
    "junk": {"p_junk": 0.9},
    "blank": {"quality_contrast": 0.002, "p_junk": 0.9},
    "pure-noise": {"quality_sharpness": 1.4, "quality_resolution": 1.9, "p_junk": 0.97},
    "enlarged": {"quality_sharpness": 0.3, "p_junk": 0.9},
    "placeholder": {"copies": 40, "p_junk": 0.9},
    "unlike-the-rest": {"unlike_group": 2},
    "dark": {"quality_highlight": 0.1, "quality_contrast": 0.08},
    "bright": {"quality_shadow": 0.8, "quality_contrast": 0.09},
    "overexposed": {"quality_brightness": 0.97},
    "low-contrast": {"quality_contrast": 0.01},
    "low-information": {"quality_entropy": 1.0, "quality_contrast": 0.09},
    "blurry": {"quality_sharpness": 0.1},
    "noisy": {"quality_noise": 12.0},
    "blocky": {"quality_blocking": 2.5, "quality_jpeg": 20},
    "compressed": {"quality_jpeg": 5.0},
    "bordered": {"quality_border": 0.3},
    "grey": {"quality_colourfulness": 0.0},
    "tiny": {"height": 30},
    "odd-aspect": {"width": 3000},
    "odd-size": {"width": 20_000},
}
INTEGERS = ("width", "height", "copies", "unlike_group")


def dataset(tmp_path, n=N, name="scores", without=(), **changed):
    """A clean table with some spread; ``changed`` is kind -> rows that have it."""
    rng = np.random.default_rng(0)
    columns = {f"quality_{name}": value * rng.normal(1, 0.05, n) for name, value in CLEAN.items()}
    columns["width"], columns["height"] = np.full(n, 320), np.full(n, 240)
    columns |= {"p_junk": np.full(n, 0.01), "copies": np.ones(n), "unlike_group": np.full(n, -1)}
    for kind, rows in changed.items():
        for measure, value in BAD[kind.replace("_", "-")].items():
            columns[measure][rows] = value
    table = pa.table(
        {
            "key": pa.array([f"{i:04}" for i in range(n)], pa.string()),
            "status": pa.array(["ok"] * n, pa.string()),
            **{
                name: pa.array(values, pa.int32() if name in INTEGERS else pa.float32())
                for name, values in columns.items()
                if name not in without
            },
        }
    )
    pq.write_table(table, tmp_path / f"{name}.parquet")
    return tmp_path / f"{name}.parquet"


def test_every_kind_is_of_columns_that_score_writes_and_every_measure_has_one():
    used = {name for kind in KINDS.values() for name in kind.columns}
    other = {"width", "height", "p_junk", "copies", "unlike_group"}
    assert used == {*QUALITY_COLUMNS, *other} - {
        "quality_colours",
        "quality_resolution",
    }  # few colours are no issue: drawings have them
    assert set(BAD) == set(KINDS)


def test_a_clean_dataset_has_none(tmp_path):
    result = curate.issues(dataset(tmp_path))
    assert result.n_issues == 0
    assert result.kept == N


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_bad", [1, N // 10, N // 10 + 1, N * 6 // 10])
def test_a_bad_image_is_found_but_a_style_of_the_dataset_is_not(tmp_path, kind, n_bad):
    path = dataset(tmp_path, **{kind: slice(n_bad)})
    dark = curate.issues(path).kinds[kind]
    n = N - n_bad if kind == "odd-size" and n_bad > N / 2 else n_bad  # then it is the others that are odd
    if KINDS[kind].style and n > N / 10:
        assert (dark["n"], dark["off"]) == (0, n)
    else:
        assert (dark["n"], "off" in dark) == (n, False)
    forced = curate.issues(path, force=[kind]).kinds[kind]
    assert (forced["n"], "off" in forced) == (n, False)


def test_of_many_faint_images_only_single_colours_are_dropped(tmp_path, monkeypatch):
    """Masks of classes 1 to 5 of 255, next to their photographs."""
    path = dataset(tmp_path, blank=slice(100))
    table = pq.read_table(path)
    contrast = table["quality_contrast"].to_numpy().copy()
    contrast[:4] = 0
    at = table.column_names.index("quality_contrast")
    table = table.set_column(at, "quality_contrast", pa.array(contrast))
    pq.write_table(table.drop_columns(["p_junk"]), path)
    result = curate.issues(path, drop="unusable")
    assert (result.dropped, result.kinds["blank"]["n"], result.kinds["blank"]["off"]) == (4, 4, 96)
    assert curate.issues(path, drop="unusable", force="blank").dropped == 100


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_dropped_only_by_name(tmp_path, kind):
    path, out = dataset(tmp_path, **{kind: slice(20)}), tmp_path / "clean.parquet"
    assert (curate.issues(path).dropped, curate.issues(path, out).kept) == (0, N)
    named = curate.issues(path, out, drop=kind, overwrite=True)
    assert (named.dropped, named.dropped_by) == (20, {kind: 20})
    assert curate.verify(named.receipt).identical
    assert curate.issues(path, drop="all").dropped == 20
    assert curate.issues(path, drop="unusable").dropped == (20 if kind in UNUSABLE_KINDS else 0)
    other = "grey" if kind != "grey" else "dark"
    assert curate.issues(path, drop=f"{other}, {kind}").dropped == 20


@pytest.mark.parametrize(
    ("kind", "measure", "innocent"),
    [
        ("blank", "p_junk", 0.3),  # cells in blue on black
        ("dark", "quality_contrast", 0.2),  # a drawing of thin bright lines
        ("bright", "quality_contrast", 0.2),  # a thing on white
        ("low-information", "quality_contrast", 0.4),  # a drawing, a scan
        ("blocky", "quality_jpeg", 95.0),  # a texture with a period
        ("blocky", "quality_colours", 1.0),  # a drawing whose lines lie on the grid
        ("pure-noise", "p_junk", 0.2),  # sand, a sharp scan
        ("pure-noise", "p_junk", 0.66),  # a tiled wall, knitwear
        ("pure-noise", "quality_colours", 125.0),  # a texture in the colours of a palette
        ("pure-noise", "quality_resolution", 1.0),  # a large page of small text
        ("pure-noise", "quality_resolution", np.nan),  # a large JPEG, reduced while it was decoded
        ("pure-noise", "quality_entropy", 5.2),  # a chess board
        ("pure-noise", "quality_entropy", 3.2),  # fine dashes
        ("noisy", "quality_colours", 200.0),  # dots of a palette
        ("enlarged", "p_junk", 0.2),  # a smooth image
        ("enlarged", "quality_entropy", 1.8),  # a flag, whose clean steps are as coarse
        ("enlarged", "quality_colours", 29.0),  # a button with a gradient
        ("enlarged", "height", 50),  # an icon, which may be the few pixels
        ("placeholder", "p_junk", 0.2),  # a good image with many copies
    ],
)
def test_a_kind_that_needs_a_second_measure_flags_nothing_without_it(tmp_path, kind, measure, innocent, monkeypatch):
    seen = {**BAD[kind], measure: innocent}
    monkeypatch.setitem(BAD, kind, seen)
    assert curate.issues(dataset(tmp_path, **{kind: slice(9)})).kinds[kind]["n"] == 0
    if "p_junk" not in seen:
        suspect = {**seen, "p_junk": 0.2}
        monkeypatch.setitem(BAD, kind, suspect)
        assert curate.issues(dataset(tmp_path, **{kind: slice(9)})).kinds[kind]["n"] == 9


def test_a_saved_grid_is_found_in_a_photograph_that_is_no_jpeg_any_more(tmp_path, monkeypatch):
    for colours, n in ((100.0, 9), (50.0, 0)):  # a photograph after JPEG 5, an icon
        seen = {**BAD["blocky"], "quality_jpeg": np.nan, "quality_colours": colours}
        monkeypatch.setitem(BAD, "blocky", seen)
        assert curate.issues(dataset(tmp_path, blocky=slice(9))).kinds["blocky"]["n"] == n


def test_noise_of_a_small_image_has_few_colours_that_do_not_repeat(tmp_path, monkeypatch):
    monkeypatch.setitem(BAD, "noisy", {**BAD["noisy"], "width": 64, "height": 48, "quality_colours": 172.0})
    assert curate.issues(dataset(tmp_path, noisy=slice(9))).kinds["noisy"]["n"] == 9  # 0.9 of 16 x 12 pixels


def test_unusable_images_are_separated_by_p_junk_and_not_searched_without_it(tmp_path):
    path = dataset(tmp_path, without=["p_junk", "copies", "unlike_group"], blank=slice(2), enlarged=slice(5, 9))
    result = curate.issues(path, drop="unusable")
    assert set(result.not_looked) == {"junk", "pure-noise", "enlarged", "placeholder", GROUPS}
    assert result.dropped == 2
    with pytest.raises(InputError, match=r"p_junk.*enlarged"):
        curate.issues(path, drop="enlarged")


def test_a_group_is_reported_and_dropped_by_its_number(tmp_path):
    path, out = dataset(tmp_path, unlike_the_rest=slice(10, 30)), tmp_path / "clean.parquet"
    result = curate.issues(path)
    assert (result.n_issues, result.n_unlike) == (0, 20)
    assert result.groups == [{"group": 2, "rows": 20, "examples": [10, 11, 12], "dropped": False}]
    assert [each["key"] for each in result.examples if each["why"] == "group 2"] == ["0010", "0011", "0012"]
    dropped = curate.issues(path, out, drop_group=[2])
    assert (dropped.dropped, dropped.dropped_by) == (20, {GROUPS: 20})
    rows = pq.read_table(dropped.decisions).to_pylist()
    assert rows[10]["reason"] == "unlike-the-rest: in group 2"
    assert curate.verify(dropped.receipt).identical
    with pytest.raises(InputError, match=r"--drop-group 7.*\(2\)"):
        curate.issues(path, drop_group=[7])
    with pytest.raises(InputError, match="the table has none"):
        curate.issues(dataset(tmp_path, name="clean"), drop_group=[2])


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


def test_a_row_has_all_its_kinds(tmp_path):
    path = dataset(tmp_path, dark=slice(0, 3), blurry=slice(2, 6), grey=slice(5, 9))
    result = curate.issues(path, tmp_path / "clean.parquet", drop="dark,blurry")
    assert (result.n_issues, result.dropped, result.kept) == (9, 6, N - 6)
    assert {("dark", "blurry", 1), ("blurry", "grey", 1)} == set(result.overlaps)
    rows = pq.read_table(result.decisions).to_pylist()
    assert [row["kinds"] for row in rows[:10]] == [
        *["dark"] * 2,
        "dark, blurry",
        *["blurry"] * 2,
        "blurry, grey",
        *["grey"] * 3,
        None,
    ]
    assert rows[2]["rule"] == "dark"
    assert "dark: quality_highlight 0.1 is below 0.27" in rows[2]["reason"]
    assert rows[2]["margin"] == pytest.approx(-0.17)
    assert (rows[8]["decision"], rows[8]["rule"]) == ("keep", "grey")
    blurry = curate.issues(path, tmp_path / "sharp.parquet", drop="blurry")
    assert [line.split() for line in str(blurry).splitlines()[:4]] == [
        ["kind", "rows"],
        ["dark", "3"],
        ["blurry", "4"],
        ["grey", "4"],
    ]
    both = pq.read_table(blurry.decisions)["reason"][2].as_py()
    assert both.startswith("blurry: ")  # what decided comes first
    assert "; dark: " in both
    assert curate.verify(result.receipt).identical
    assert curate.issues(path, drop="all").dropped == 9
    assert curate.issues(path, only=["grey"], drop="all").dropped == 4
    assert curate.issues(path, without=["blurry"], drop="all").dropped == 7


def test_where_p_junk_does_not_apply_the_reason_that_scoring_noted_is_printed(tmp_path):
    path = dataset(tmp_path)
    table = pq.read_table(path)
    nothing = table.set_column(table.schema.names.index("p_junk"), "p_junk", pa.nulls(N, pa.float32()))
    noted = {"fit": {"junk": {"applies": False, "problem": "too alike"}}}
    pq.write_table(nothing.replace_schema_metadata({b"curate": json.dumps(noted).encode()}), path)
    result = curate.issues(path, drop="junk", force=["junk"])
    assert (result.no_junk, result.dropped, "junk" in result.not_looked) == ("too alike", 0, True)
    assert "junk: too alike" in curate_run("issues", path).stdout
    assert curate.issues(path, without=["junk"]).no_junk == ""


def test_where_every_image_is_flagged_all_can_be_dropped_and_nothing_is_lost(tmp_path):
    path, out = dataset(tmp_path, junk=slice(N)), tmp_path / "none.parquet"
    assert curate.issues(path).n_issues == N
    done = curate.issues(path, out, drop="junk")
    assert (done.kept, done.dropped, pq.read_metadata(out).num_rows) == (0, N, 0)
    assert len(pq.read_table(done.decisions)) == N
    assert curate.verify(done.receipt).identical


def test_set_says_where_a_kind_begins(tmp_path):
    path = dataset(tmp_path, blurry=slice(3))
    assert curate.issues(path, set={"blurry": 0.05}).kinds["blurry"]["n"] == 0
    assert curate.issues(path, set={"blurry": "9"}).kinds["blurry"]["n"] == N  # a style that is requested
    done = curate.issues(path, tmp_path / "o.parquet", set={"blurry": "0.5"})
    assert curate.verify(done.receipt).identical


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"only": ["drak"]}, "did you mean 'dark'"),
        ({"drop": "drak"}, "did you mean 'dark'"),
        ({"drop": " , "}, "--drop: expected"),
        ({"drop": "unusabel"}, "did you mean 'unusable'"),
        ({"force": ["blury"]}, "did you mean 'blurry'"),
        ({"set": {"dark": "low"}}, "got 'low'"),
        ({"set": {"dark": "nan"}}, "--set dark"),
        ({"without": list(KINDS)}, "leaves no kind"),
        ({"only": ["dark"], "set": {"blurry": 1}}, "blurry is excluded"),
    ],
)
def test_an_impossible_request_is_refused_in_one_line(tmp_path, asked, words):
    with pytest.raises(InputError, match=words):
        curate.issues(dataset(tmp_path), **asked)


def test_a_table_without_measures_must_be_scored_again(tmp_path):
    path = dataset(tmp_path)
    bare = pq.read_table(path).select(["key", "status", "width", "height"])
    pq.write_table(bare, tmp_path / "old.parquet")
    with pytest.raises(InputError, match=r"quality_\w+., which \w+"):
        curate.issues(tmp_path / "old.parquet")
    assert curate.issues(tmp_path / "old.parquet", only=["odd-size"]).n_issues == 0
    pq.write_table(pq.read_table(path).drop(["quality_jpeg"]), tmp_path / "less.parquet")
    assert set(curate.issues(tmp_path / "less.parquet").not_looked) == {"compressed"}


@pytest.mark.parametrize("n", [0, 1])
def test_no_row_and_one_row(tmp_path, n):
    result = curate.issues(dataset(tmp_path, n), tmp_path / "clean.parquet")
    assert (result.n_rows, result.kept) == (n, n)
    assert curate.verify(result.receipt).identical


def test_failed_rows_remain_failed_and_rows_without_a_measure_are_undecided(tmp_path):
    table = pq.read_table(dataset(tmp_path, 30))
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


def test_the_first_line_counts_the_examined_rows(tmp_path):
    path = dataset(tmp_path, dark=[3, 4])

    def first(**columns):
        read = pq.read_table(path)
        for name, values in columns.items():
            read = read.set_column(read.column_names.index(name), name, values)
        pq.write_table(read, tmp_path / "other.parquet")
        return curate_run("issues", tmp_path / "other.parquet").stdout.splitlines()[0]

    nan = {name: pa.nulls(N, pa.float32()) for name in pq.read_schema(path).names if name.startswith("quality_")}
    failed = pa.array(["truncated"] * N)
    assert first() == "400 rows: 2 with an issue (0.5%)"
    assert first(status=failed) == "400 rows: none could be checked: no image was scored"
    assert first(**nan) == "400 rows: none could be checked: none has quality columns"
    half = pa.array(["ok"] * 200 + ["truncated"] * 200)
    assert first(status=half) == "400 rows: 2 of 200 that were scored with an issue (1.0%)"
    path = dataset(tmp_path, dark=[3], unlike_the_rest=slice(10, 30))
    assert first() == "400 rows: 1 with an issue (0.2%), 20 in groups unlike the rest"


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
    report = json.loads(done.stdout)
    assert (report["kinds"]["dark"]["n"], report["subset"]) == (2, None)
    assert sorted(each["key"] for each in report["examples"] if each["why"] == "dark") == ["00.png", "01.png"]
    assert Image.open(tmp_path / "s.png").width > 500
    shown = curate_run("issues", table)
    assert "begins at" in shown.stdout
    assert "--drop KIND" in shown.stdout
    previewed = curate_run("issues", table, "--drop", "dark").stdout
    assert previewed.splitlines()[-1].startswith("kept 10, dropped 2; nothing was written: add --out")
