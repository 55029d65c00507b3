"""A command that a package outside the project adds by an entry point is a command everywhere."""

import polars as pl
import pytest
from other_packages import ROOT, install, python

CODE = '''
from dataclasses import dataclass
from typing import Annotated
from curate.commands.declared import command_of
from curate.commands.printing import NextCommand, Output, show, suggest
from curate.options import fields
from curate.options.option import Option

@dataclass(frozen=True)
class TallyOptions:
    """The options of ``curate tally``."""

    table: fields.Table
    times: Annotated[int, Option("Count this many times.")] = 1

@command_of(TallyOptions)
def run(request: TallyOptions, output: Output) -> NextCommand:
    """Count the rows of a table.

    Example:

        curate tally scores.parquet
    """
    from curate.tables.table import open_table

    show(f"{request.times * open_table(request.table).n_rows} rows")
    return suggest("info", request.table)
'''
GROUP = "curate.commands"
IN_DOCS = "import sys; sys.path.insert(0, sys.argv[1]); import generate; print(generate.commands())"


def curate(*line, folder, packages="site"):
    return python("-m", "curate", *line, folder=folder, packages=packages)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("command")
    install(folder / "site", "acme_tally", "tally = acme_tally", CODE, GROUP)
    pl.DataFrame({"key": ["a", "b", "c"]}).write_parquet(folder / "s.parquet")
    return folder


def test_the_command_is_listed_and_has_help(folder):
    listed = curate("--help", folder=folder)
    assert (listed.returncode, listed.stderr) == (0, "")
    assert any(line.split()[-1:] == ["tally"] for line in listed.stdout.splitlines())
    about = curate("tally", "--help", folder=folder)
    assert "Count the rows of a table." in about.stdout
    assert "Count this many times." in about.stdout
    alone = curate("tally", folder=folder)
    assert (alone.returncode, "Example:" in alone.stdout + alone.stderr) == (2, True)


def test_the_command_runs_and_reports_mistakes_as_all_commands_do(folder):
    assert curate("tally", "s.parquet", "--times", "2", folder=folder).stdout == "6 rows\n"
    refused = curate("tally", "none.parquet", folder=folder)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert refused.stderr.startswith("error: none.parquet")


def test_a_command_without_a_next_command_ends_as_well(tmp_path):
    code = CODE.replace('return suggest("info", request.table)', "return None")
    install(tmp_path / "site", "acme_tally", "tally = acme_tally", code, GROUP)
    pl.DataFrame({"key": ["a"]}).write_parquet(tmp_path / "s.parquet")
    done = curate("tally", "s.parquet", folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 rows\n", "")


def test_the_command_is_in_the_generated_reference(folder):
    done = python("-c", IN_DOCS, ROOT / "docs", folder=folder)
    assert "| `curate tally` | Count the rows of a table. |" in done.stdout.splitlines(), done.stderr


@pytest.mark.parametrize(
    ("entries", "line", "words"),
    [
        ("filter = acme_tally", "--help", ["'filter'", "acme_tally", "already"]),
        ("tally = acme_tally:CODE", "tally s.parquet", ["'tally'", "not", "acme_tally"]),
        ("tally = acme_none", "tally s.parquet", ["'tally'", "acme_none"]),
        ("tally = json", "tally s.parquet", ["'tally'", "not a command", "run"]),
    ],
)
def test_a_command_that_cannot_be_used_is_one_line_and_disturbs_no_other(tmp_path, entries, line, words):
    install(tmp_path / "site", "acme_tally", entries, CODE, GROUP)
    pl.DataFrame({"key": ["a"]}).write_parquet(tmp_path / "s.parquet")
    refused = curate(*line.split(), folder=tmp_path)
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)
    assert all(word in refused.stderr for word in ("error: ", *words))
    assert curate("info", "s.parquet", folder=tmp_path).returncode == 0


def test_two_packages_with_a_command_of_one_name_are_one_line(tmp_path):
    for name in ("acme_one", "acme_two"):
        install(tmp_path / "site", name, f"tally = {name}", CODE, GROUP)
    for line in (["--help"], ["tally", "s.parquet"]):
        refused = curate(*line, folder=tmp_path)
        assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)
        assert all(word in refused.stderr for word in ("acme_one", "acme_two", "'tally'", "remove"))
