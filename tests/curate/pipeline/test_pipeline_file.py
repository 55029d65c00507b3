"""What a file of steps may say, and what is reported on one that is wrong."""

import shutil
import tomllib
from pathlib import Path

import pytest
from choosing import table
from commandline import run

from curate.pipeline.file import line_of, read_pipeline
from scoring.errors import InputError

GOOD = """# what we train on
folder = "out"

[scores]
run = "dedup"
table = "s.parquet"
finder = ["bytes", "embedding"]
report-only = true
against = "t.parquet"

[best]
run = "filter"
column = "unc_losspred"
keep_top = "50%"
"""


@pytest.fixture
def workdir(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("s", "t"):
        table(tmp_path / f"{name}.parquet", sha256=[f"{name}{i:063x}" for i in range(60)])
    return tmp_path


def write(text):
    Path("curate.toml").write_text(text, "utf-8")
    return "curate.toml"


def test_steps_are_read_in_the_order_of_the_file_with_their_options(workdir):
    pipeline = read_pipeline(write(GOOD))
    assert (pipeline.folder, [(step.name, step.command) for step in pipeline.steps]) == (
        "out",
        [("scores", "dedup"), ("best", "filter")],
    )
    expected = {name: value for name, value in tomllib.loads(GOOD)["best"].items() if name != "run"}
    assert list(pipeline.steps[1].options.items()) == list(expected.items())


def test_a_folder_that_holds_the_file_is_refused_with_the_command_that_runs_it(workdir):
    Path("my out").mkdir()
    shutil.copy(write(GOOD), "my out/curate.toml")
    assert "run curate run 'my out/curate.toml'" in run("run", "my out").stderr


@pytest.mark.parametrize("table", ["", 'table = "scores"\n', 'table = "out/scores.parquet"\n'])
def test_a_dry_run_says_each_step_as_one_would_type_it(workdir, table):
    result = run("run", write(GOOD.replace('run = "filter"\n', f'run = "filter"\n{table}')), "--dry-run")
    assert result.exit_code == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if line.startswith("to do: ")]
    assert lines == [
        "to do: curate dedup s.parquet --finder=bytes --finder=embedding --report-only --against=t.parquet "
        "--out=out/scores.parquet",
        "to do: curate filter out/scores.parquet --column=unc_losspred --keep-top=50% --out=out/best.parquet",
    ]
    assert not (workdir / "out").exists()


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ('run = "filter"', 'run = "fliter"', 12, "did you mean 'filter'"),
        ("keep_top", "kep-top", 14, "did you mean 'keep-top'"),
        ("[best]", "[bad name]", 11, "not TOML"),
        ("[best]", '["bad name"]', 11, "letters, digits"),
        ("[best]", "[pipeline]", 11, "choose another name"),
        ('"50%"', "true", 14, "got True"),
        ("true", '"yes"', 8, "got 'yes'"),
        ('"50%"', "2026-01-01", 14, "text or a number"),
        ('"unc_losspred"', "{a = 1}", 13, "expected one value"),
        ('table = "s.parquet"', "", 4, "no table to read"),
        ('"s.parquet"', '"u.parquet"', 6, "nor a path"),
        ('"s.parquet"', '"best"', 6, "nor a path"),
        ('folder = "out"', 'flder = "out"', 2, "did you mean 'folder'"),
        ('folder = "out"', "folder = 3", 2, "path of a folder"),
        ("report-only = true", "overwrite = true", 8, "cannot be set"),
        ("keep_top", 'out = "out/scores.parquet"\nkeep_top', 11, "as scores does"),
        ("keep_top", 'out = "s3://bucket/best.parquet"\nkeep_top', 14, "a local path"),
        ("[best]", "[[best]]", 1, "outside of any step"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_place(workdir, old, new, line, said):
    assert GOOD.count(old) == 1
    result = run("run", write(GOOD.replace(old, new)))
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert f"line {line}" in result.stderr
    assert said in result.stderr
    assert not (workdir / "out").exists()


def test_a_value_that_the_command_cannot_read_is_reported_before_anything_runs(workdir):
    text = '[first]\nrun = "dedup"\ntable = "s.parquet"\n[last]\nrun = "sheet"\ntop = "many"\n'
    result = run("run", write(text))
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "line 4" in result.stderr
    assert "--top" in result.stderr
    assert not (workdir / "curated").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "1 to 1,000 steps"),
        (b"\xff\xfe", "UTF-8"),
        (b"#" * (1 << 20) + b"\n", "too large"),
        (b"a = " + b"[" * 100_000, "not TOML"),
    ],
)
def test_a_file_that_is_no_pipeline_is_refused(workdir, content, said):
    (workdir / "p.toml").write_bytes(content)
    with pytest.raises(InputError, match=said):
        read_pipeline("p.toml")


def test_values_of_a_hostile_file_are_values_and_never_options(workdir):
    text = '[first]\nrun = "filter"\ntable = "s.parquet"\ncolumn = "--overwrite"\nkeep-top = "50%"\n'
    result = run("run", write(text))
    assert result.exit_code == 1
    assert "'--overwrite'" in result.stderr
    assert list((workdir / "curated").glob("*.parquet")) == []


def test_lines_are_found_where_names_are_quoted_or_in_separate_tables():
    text = "folder='x'\n[a]\nset = {x = 1}\n['b']\n\"run\" = 'select'\n[b.set]\nx = 2\n"
    places = [("a", "set", 3), ("b", None, 4), ("b", "run", 5), ("b", "set", 6), (None, "folder", 1)]
    assert [line_of(text, step, key) for step, key, _ in places] == [line for _, _, line in places]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ('folder = "out"', 'folder = "../out"', 2),
        ("keep_top", 'out = "/elsewhere/best.parquet"\nkeep_top', 14),
        ("keep_top", 'out = "link/best.parquet"\nkeep_top', 14),
        ("report-only = true", 'report-only = true\nsheet = "../pairs.png"', 9),
        ("report-only = true", 'report-only = true\nsheet = "s3://bucket/pairs.png"', 9),
    ],
)
def test_an_output_outside_of_the_folder_of_the_file_takes_an_option(workdir, old, new, line):
    (workdir / "link").symlink_to(workdir.parent)
    result = run("run", write(GOOD.replace(old, new)), "--dry-run")
    assert result.exit_code == 1
    assert f"line {line}:" in result.stderr
    assert "--allow-outside" in result.stderr
    allowed = run("run", "curate.toml", "--dry-run", "--allow-outside")
    assert "--allow-outside" not in allowed.stderr
