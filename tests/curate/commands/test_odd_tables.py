"""Every command on odd tables: keys and columns of any type, nulls, NaN, no row and one row, a column twice.

Each ends in a result or in one line. A few are drawn with every run, all of them with `-m slow`.
"""

import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from typer.testing import CliRunner

from curate.cli import app

WIDTH = 8
SIZES = (0, 1, 12)


def repeated(value, kind):
    return lambda n: pa.array([value] * n, kind)


def vectors(dtype, width=WIDTH, *, null=False):
    def make(n):
        rows = np.random.default_rng(0).normal(size=(n, width))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True) if width else 1
        mask = pa.array([null and row == 0 for row in range(n)], pa.bool_())
        return pa.FixedSizeListArray.from_arrays(pa.array(rows.astype(dtype).ravel()), width, mask=mask)

    return make


def texts(kind):
    return lambda n: pa.array([f"k{row}" for row in range(n)], kind)


KEYS = {
    "text": texts(pa.string()),
    "large": texts(pa.large_string()),
    "view": texts(pa.string_view()),
    "dictionary": lambda n: texts(pa.string())(n).dictionary_encode(),
    "some null": lambda n: pa.array([None if row == 0 else f"k{row}" for row in range(n)], pa.string()),
    "null": repeated(None, pa.string()),
    "no type": lambda n: pa.nulls(n),
    "binary": lambda n: pa.array([b"\xff%d" % row for row in range(n)], pa.binary()),
    "list": lambda n: pa.array([[row] for row in range(n)], pa.list_(pa.int64())),
    "struct": lambda n: pa.array([{"a": row} for row in range(n)], pa.struct([("a", pa.int64())])),
    "whole": lambda n: pa.array(range(n), pa.int64()),
    "unsigned": lambda n: pa.array([2**64 - 1 - row for row in range(n)], pa.uint64()),
    "float": lambda n: pa.array([row + 0.5 for row in range(n)], pa.float64()),
    "NaN": repeated(float("nan"), pa.float64()),
    "truth": lambda n: pa.array([row % 2 == 0 for row in range(n)], pa.bool_()),
    "time": lambda n: pa.array(range(n), pa.timestamp("us")),
    "the same": repeated("same", pa.string()),
    "empty": repeated("", pa.string()),
    "NUL": lambda n: pa.array([f"k\0{row}" for row in range(n)], pa.string()),
}
VALUES = {
    "null": lambda n: pa.nulls(n),
    "null text": repeated(None, pa.string()),
    "NaN": repeated(float("nan"), pa.float64()),
    "infinite": repeated(float("inf"), pa.float64()),
    "half": lambda n: pa.array(np.ones(n, np.float16)),
    "whole": repeated(1, pa.int64()),
    "unsigned": repeated(2**64 - 1, pa.uint64()),
    "decimal": lambda n: pa.array([1] * n, pa.int32()).cast(pa.decimal128(20, 2)),
    "truth": repeated(True, pa.bool_()),
    "text": repeated("x", pa.string()),
    "dictionary": lambda n: pa.array(["x"] * n, pa.string()).dictionary_encode(),
    "binary": repeated(b"\xff", pa.binary()),
    "time": repeated(1, pa.timestamp("us")),
    "list": repeated([1.0], pa.list_(pa.float64())),
    "lists": lambda n: pa.array([[0.1] * (1 + row % 2) for row in range(n)], pa.list_(pa.float32())),
    "no numbers": repeated([], pa.list_(pa.float32())),
    "struct": repeated({"a": 1}, pa.struct([("a", pa.int64())])),
    "map": repeated([("a", 1)], pa.map_(pa.string(), pa.int64())),
    "float32": vectors(np.float32),
    "a null vector": vectors(np.float16, null=True),
    "zero": lambda n: pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(n * WIDTH, np.float16)), WIDTH),
    "one number": vectors(np.float16, 1),
}
COLUMNS = ("embedding", "label", "kappa_x", "uri", "status", "width", "phash", "sha256", "n_bytes")
LINES = {  # command -> its lines; {t} is the odd table, {g} a good one
    "info": ["{t}"],
    "fit": ["{t} -o o.safetensors"],
    "filter": ["{t} --keep-top 50% -o o.parquet", "{g} --without-keys {t} -o o.parquet"],
    "issues": ["{t} -o o.parquet"],
    "dedup": ["{t} -o o.parquet", "{g} --against {t} -o o.parquet"],
    "labels": ["{t} --label label -o o.parquet", "{g} --labelled {t} -o o.parquet"],
    "merge": ["{t} {g} -o o.parquet", "{g} {t} --prefix -o o.parquet"],
    "review": ["plan {t} --max-bad-rate 20% -o o.audit.csv"],
    "calibrate": ["{t} --bad width>3 -o o.json"],
    "select": ["{t} -b 2 -o o.parquet", "{g} --labelled {t} -b 1 -o o.parquet", "{g} --exclude {t} -b 1 -o o.parquet"],
    "balance": ["{t} --per label -o o.parquet"],
    "split": ["{t} --train 50% --test 50% -o o.parquet"],
    "round": ["init o {t} --batch 2", "simulate {t} --label label --budget 2,3 --seeds 1"],
    "sheet": ["{t} -o o.png"],
    "retrieve": ["{t} k1 -o o.csv", "{g} {t} -o o.csv"],
    "report": ["{t} -o o.html"],
    "plot": ["{t} histogram -o o.svg"],
    "evaluate": ["{t} --label label", "{g} --label label --subset {t}"],
    "compare": ["{t} {g}", "{g} {t}"],
    "verify": ["{t}"],
    "explain": ["{t} k1"],
    "diff": ["{t} {g}", "{g} {t}"],
    "export": [
        *(f"{{t}} --to {to} -o o" for to in ("imagefolder", "huggingface", "yolo", "folder", "webdataset", "fiftyone")),
        *(f"{{t}} --to {to} -o o.{end}" for to, end in (("csv", "csv"), ("coco", "json"), ("jsonl", "jsonl"))),
        "{t} --to label-studio -o o.json",
        "{t} --to paths -o o.txt",
        "{g} --to coco --classes {t} -o o.json",
    ],
}
# these score or serve
NO_TABLE = {"score", "clean", "run", "cache", "train", "doctor", "models", "selftest"}
EVERY = [(command, line) for command, lines in LINES.items() for line in lines]


def table(n, folder):
    return pa.table(
        {
            "key": KEYS["text"](n),
            "uri": pa.array([str(folder / f"{row % 3}.png") for row in range(n)], pa.string()),
            "status": repeated("ok", pa.string())(n),
            "sha256": pa.array([f"{row:064x}" for row in range(n)], pa.string()),
            "phash": pa.array(range(n), pa.uint64()),
            "width": repeated(16, pa.int32())(n),
            "height": repeated(16, pa.int32())(n),
            "n_bytes": repeated(100, pa.int64())(n),
            "kappa_x": pa.array(range(n), pa.float32()),
            "label": pa.array(["ab"[row % 2] for row in range(n)], pa.string()),
            "embedding": vectors(np.float16)(n),
        }
    )


def bad_table(n, folder, *, key="text", column=None, values=None, twice=None):
    """A table that is odd in its keys, in a column, or by having a column twice."""
    made = table(n, folder)
    made = made.set_column(0, "key", KEYS[key](n))
    if column is not None:
        at = made.column_names.index(column)
        made = made.remove_column(at) if values is None else made.set_column(at, column, VALUES[values](n))
    return made if twice is None else made.append_column(twice, made[made.column_names.index(twice)])


def ends_well(command, line, made, folder):
    """Run a command; it succeeds, or says one line."""
    pq.write_table(made, folder / "t.parquet")
    for path in folder.glob("o*"):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    result = CliRunner().invoke(app, [command, *line.format(t="t.parquet", g="g.parquet").split()])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise AssertionError(f"curate {command} {line}") from result.exception
    assert result.exit_code in (0, 1, 2, 3), (command, line, result.exit_code)
    if result.exit_code == 1:
        errors = [each for each in result.stderr.splitlines() if each.startswith("error: ")]
        assert len(errors) == 1 or command in ("verify", "diff"), (command, line, result.stderr)


@pytest.fixture
def workdir(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 255, (16, 16, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    pq.write_table(table(12, tmp_path), tmp_path / "g.parquet")
    return tmp_path


def test_every_command_that_takes_a_table_is_here():
    names = set(typer.main.get_command(app).commands)
    assert names - NO_TABLE == set(LINES)


@st.composite
def drawn(draw):
    how = draw(st.sampled_from(["key", "column", "gone", "twice"]))
    column = draw(st.sampled_from(COLUMNS))
    return {
        "n": draw(st.sampled_from(SIZES)),
        **({"key": draw(st.sampled_from(sorted(KEYS)))} if how == "key" else {}),
        **({"column": column, "values": draw(st.sampled_from(sorted(VALUES)))} if how == "column" else {}),
        **({"column": column} if how == "gone" else {}),
        **({"twice": column} if how == "twice" else {}),
    }


@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
@given(made=drawn(), which=st.sampled_from([typed for typed in EVERY if typed[0] not in ("fit", "report", "round")]))
def test_a_command_ends_in_a_result_or_in_one_line(workdir, made, which):
    command, line = which
    ends_well(command, line, bad_table(folder=workdir, **made), workdir)


@pytest.mark.parametrize("key", ["some null", "binary", "list"])
@pytest.mark.parametrize("which", [("sheet", "{t} -o o.png"), ("retrieve", "{t} k1 -o o.csv")])
def test_missing_keys_are_named_by_sheet_and_retrieve(workdir, which, key):
    pq.write_table(bad_table(12, workdir, key=key), "t.parquet")
    result = CliRunner().invoke(app, [which[0], *which[1].format(t="t.parquet").split()])
    assert result.exit_code == 1
    assert "key" in result.stderr
    assert "t.parquet" in result.stderr
    assert result.stderr.count("\n") == 1
    if key == "some null":
        assert "row 0 " in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("which", EVERY, ids=lambda which: " ".join(which))
def test_all_odd_tables_end_in_a_result_or_in_one_line(workdir, n, which):
    kinds = [{"key": key} for key in KEYS]
    kinds += [{"column": column, "values": values} for column in COLUMNS for values in (None, *VALUES)]
    kinds += [{"twice": column} for column in ("key", *COLUMNS)]
    for kind in kinds:
        try:
            ends_well(*which, bad_table(n, workdir, **kind), workdir)
        except AssertionError as error:
            raise AssertionError(f"{kind}") from error
