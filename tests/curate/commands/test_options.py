"""Options over all commands: one name, one thing; and reports on stdout, notes on stderr."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

from curate import cli
from curate.cli import app
from curate.commands import rounds
from curate.options.texts import MEANS

ROOT = Path(__file__).parents[3]
GROUP = typer.main.get_command(app)
COMMANDS = {
    **{name: command for name, command in GROUP.commands.items() if name != "round"},
    **{f"round {name}": command for name, command in GROUP.commands["round"].commands.items()},
}
# A command that writes and has no --overwrite, and why.
NEVER_REPLACES = {
    "cache": "adds epochs to a cache, and refuses another one's",
    "round init": "needs a new or empty folder",
    "round next": "nothing in a folder of rounds is ever replaced",
    "round import": "nothing in a folder of rounds is ever replaced",
}
REPORTS = {"doctor", "info", "models", "round status", "verify", "explain"}  # what was requested is all they print
OLD = {"--labels", "--holdout-labels", "--no-overwrite", "--no-hidden", "--no-label-from-folder"}


def options_of(command):
    return {
        name: param for param in command.params for name in [*param.opts, *param.secondary_opts] if name[:2] == "--"
    }


@pytest.fixture(scope="module")
def by_name():
    parameters = defaultdict(dict)
    for command, made in COMMANDS.items():
        for name, param in options_of(made).items():
            parameters[name][command] = param
    return parameters


# --source is --root, too, but for verify, where --root names the folders of receipts and tables that moved.
OWN_ROOT = {"--source": "verify"}


def test_an_option_of_two_commands_says_the_same_in_both(by_name):
    shared = {name: users for name, users in by_name.items() if len(users) > 1}
    assert len(shared) > 30
    unshared = {name: sorted(users) for name, users in shared.items() if name not in MEANS}
    different = {
        name: users for name, users in unshared.items() if len({shared[name][each].help for each in users}) > 1
    }
    assert different == {}, "give it one text in curate/commands/options.py"
    for name in shared.keys() & MEANS.keys():
        for command, param in shared[name].items():
            assert param.help.startswith(MEANS[param.opts[0]]), (command, name, param.help)
        same = {each: param for each, param in shared[name].items() if param.opts[0] == name}
        kinds = {(param.is_flag, tuple(param.opts)) for each, param in same.items() if each != OWN_ROOT.get(name)}
        assert len(kinds) == 1, (name, kinds)


def test_every_shared_text_is_used(by_name):
    assert sorted(MEANS.keys() - by_name.keys()) == []


def test_every_command_that_prints_a_result_has_json(by_name):
    assert by_name["--json"].keys() == COMMANDS.keys()


def test_every_command_that_writes_has_overwrite_or_never_replaces(by_name):
    writes = by_name["--out"].keys() | {"round init", "round next", "round import"}
    assert writes - by_name["--overwrite"].keys() == NEVER_REPLACES.keys()
    assert not NEVER_REPLACES.keys() & by_name["--overwrite"].keys()


def test_every_command_that_prints_more_than_its_report_has_quiet(by_name):
    assert COMMANDS.keys() - by_name["--quiet"].keys() == REPORTS


def test_every_policy_can_be_tried_without_writing(by_name):
    assert by_name["--dry-run"].keys() >= {"filter", "dedup", "split", "select"}


def test_labels_have_one_name_in_every_command(by_name):
    assert by_name["--label"].keys() >= {
        "dedup",
        "labels",
        "select",
        "evaluate",
        "train",
        "cache",
        "round init",
        "round simulate",
    }
    assert by_name["--labelled"].keys() >= {"select", "evaluate", "round init"}
    assert not OLD & by_name.keys()


def test_help_groups_the_commands_in_the_order_of_work():
    text = CliRunner().invoke(app, ["--help"]).output
    headings = ["Start here:", "Choose images:", "More, each with its --help:"]
    listed: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line in headings:
            listed[line] = []
        elif listed and line[:2] == "  " and line[2] != " ":
            listed[list(listed)[-1]].append(line.split()[0])
    assert list(listed) == headings
    assert listed["Start here:"] == [
        "clean",
        "score",
        "issues",
        "dedup",
        "labels",
        "review",
        "split",
        "report",
        "export",
    ]
    assert {"filter", "select", "round"} <= set(listed["Choose images:"])
    assert any("info, sheet" in line for line in text.splitlines())
    assert any(line.split()[-3:] == ["train,", "cache,", "models"] for line in text.splitlines())
    assert {word.strip(",") for word in text.split()} >= set(GROUP.commands)
    assert "\x1b" not in text
    listed_only = cli.command_line([name for name, *_ in cli.COMMANDS], listed=True)
    assert CliRunner().invoke(listed_only, ["--help"]).output == text


def test_all_commands_of_rounds_are_examined():
    assert {f"round {name}" for name in rounds.COMMANDS} <= COMMANDS.keys()


@pytest.fixture
def scores(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pq.write_table(
        pa.table(
            {
                "key": [f"k{i}" for i in range(40)],
                "kappa_a": [float(i) for i in range(40)],
                "a_long_name_of_a_column_that_a_narrow_terminal_would_break": ["x" * 90] * 40,
            }
        ),
        "scores.parquet",
    )
    return tmp_path


REPORTED = {
    "info scores.parquet": "kappa_a",
    "models": "trio",
    "models trio": "backbone",
    "verify kept.receipt.json": "identical",
    "filter scores.parquet --min 5 --dry-run": "would drop",
    "dedup scores.parquet --finder bytes --dry-run": "rows in",
}


@pytest.mark.parametrize("line", [line for line in REPORTED if "dedup" not in line])
def test_a_report_that_was_requested_is_on_stdout(scores, line):
    run = CliRunner().invoke
    assert run(app, ["filter", "scores.parquet", "--min", "5", "-o", "kept.parquet"]).exit_code == 0
    result = run(app, line.split())
    assert result.exit_code == 0, result.output
    assert REPORTED[line] in result.stdout
    assert REPORTED[line] not in result.stderr


def test_a_quiet_policy_prints_nothing(scores):
    result = CliRunner().invoke(app, ["filter", "scores.parquet", "--min", "5", "-o", "kept.parquet", "--quiet"])
    assert (result.exit_code, result.output) == (0, "")
    assert json.loads(Path("kept.receipt.json").read_text())["counts"]["n_rows"] == 40


def test_a_report_in_a_file_is_not_broken_at_a_width_and_has_no_colours(scores):
    code = "import sys; from curate.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "info", str(scores / "scores.parquet")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": ""},
    )
    assert any(
        "a_long_name_of_a_column_that_a_narrow_terminal_would_break" in line and "string" in line
        for line in done.stdout.splitlines()
    )
    assert "\x1b" not in done.stdout
    assert all(line == line.rstrip() for line in done.stdout.splitlines())
    assert done.stderr == ""
