"""Rows of several fits in one table: noticed from what the parts note, and from how many rows a fit had."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from curate.cli import app
from curate.tables.provenance import fitted_apart
from curate.tables.table import open_table


def write(path, n, fit, *, first=0, column="unc_fitted"):
    table = pa.table(
        {
            "key": [f"k{row}" for row in range(first, first + n)],
            column: pa.array([row / n for row in range(n)], pa.float32()),
        }
    )
    noted = {} if fit is None else {"curate": json.dumps({"kind": "scores", "fit": fit})}
    pq.write_table(table.replace_schema_metadata(noted), path)
    return path


def test_parts_of_two_fits_are_noticed_and_parts_of_one_are_not(tmp_path):
    for name, digests in (("apart", "ab"), ("together", "aa")):
        folder = tmp_path / name
        folder.mkdir()
        for number, digest in enumerate(digests):
            place = folder / f"part-{number:06}.parquet"
            write(place, 20, {"rows": 40, "digest": digest}, first=20 * number)
        warnings = fitted_apart(open_table(folder), ["key", "unc_fitted"])
        assert ["and unc_fitted is relative" in each for each in warnings] == [True] * (name == "apart")


def test_more_rows_than_the_fit_had_are_rows_of_another(tmp_path):
    both = open_table(write(tmp_path / "both.parquet", 40, {"rows": 20}))
    assert "40 rows" in fitted_apart(both, ["unc_local", "unc_fitted"][1:])[0]
    assert fitted_apart(open_table(write(tmp_path / "one.parquet", 20, {"rows": 20})), ["unc_fitted"]) == []
    subset = open_table(write(tmp_path / "subset.parquet", 10, {"rows": 20}))
    assert fitted_apart(subset, ["unc_fitted"]) == []


@pytest.mark.parametrize("fit", [None, {"rows": 20, "base": "a model applied to other rows"}, "odd", {"rows": "odd"}])
def test_a_table_without_that_record_is_left_alone(tmp_path, fit):
    assert fitted_apart(open_table(write(tmp_path / "s.parquet", 40, fit)), ["unc_fitted"]) == []


def test_columns_that_compare_nothing_are_left_alone(tmp_path):
    table = open_table(write(tmp_path / "s.parquet", 40, {"rows": 20}, column="unc_visimsiam"))
    assert fitted_apart(table, ["key", "unc_visimsiam"]) == []


@pytest.mark.parametrize(
    "command",
    [
        ["filter", "--keep-top", "50%", "--column", "unc_fitted"],
        ["filter", "--where", "unc_fitted < 0.5"],
        ["select", "--strategy", "score", "--score", "unc_fitted", "-b", "3"],
    ],
)
def test_commands_that_rank_by_the_column_warn(tmp_path, command):
    table = write(tmp_path / "both.parquet", 40, {"rows": 20})
    done = CliRunner().invoke(app, [command[0], str(table), *command[1:], "--dry-run"])
    assert done.exit_code == 0, done.output
    assert "fitted separately" in done.output
    table = write(tmp_path / "one.parquet", 20, {"rows": 20})
    assert (
        "fitted separately" not in CliRunner().invoke(app, [command[0], str(table), *command[1:], "--dry-run"]).output
    )
