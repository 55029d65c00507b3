"""The help of every command is a document, and the exit codes are what it says."""

import os
import re
import shutil
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from curate import cli
from curate.cli import app

GROUP = typer.main.get_command(app)
COMMANDS = list(GROUP.commands)
# What a command calls first, its own arguments, and a mistake.
CALLS = {
    "score": ("curate.engines.score.run_score", ["photos", "-o", "s.parquet"], ["none", "-o", "s.parquet"]),
    "clean": ("curate.cleaning.run.open_manifest", ["photos", "-o", "c"], ["none", "-o", "c"]),
    "fit": (
        "curate.fitting.fit.open_table",
        ["s.parquet", "-o", "m.safetensors"],
        ["none.parquet", "--apply", "t.parquet"],
    ),
    "merge": (
        "curate.fitting.merge.open_table",
        ["a.parquet", "b.parquet", "-o", "c.parquet"],
        ["none.parquet", "b.parquet", "-o", "c.parquet"],
    ),
    "filter": ("curate.policies.filter.policy.open_table", ["s.parquet", "--min", "1"], ["none.parquet", "--min", "1"]),
    "issues": ("curate.policies.issues.policy.open_table", ["s.parquet"], ["none.parquet"]),
    "dedup": ("curate.policies.dedup.policy.open_table", ["s.parquet", "--dry-run"], ["none.parquet", "--dry-run"]),
    "select": (
        "curate.policies.select.policy.open_table",
        ["s.parquet", "-b", "1", "--dry-run"],
        ["none.parquet", "-b", "1"],
    ),
    "balance": (
        "curate.policies.balance.policy.open_table",
        ["s.parquet", "--per", "label", "--dry-run"],
        ["none.parquet", "--per", "label"],
    ),
    "split": (
        "curate.policies.split.policy.open_table",
        ["s.parquet", "--train", "80%", "--test", "20%", "--dry-run"],
        ["none.parquet", "--train", "80%", "--test", "20%"],
    ),
    "labels": (
        "curate.policies.labels.policy.open_table",
        ["s.parquet", "--label", "x"],
        ["none.parquet", "--label", "x"],
    ),
    "calibrate": (
        "curate.calibration.fit.open_table",
        ["s.parquet", "--bad", "x > 1"],
        ["none.parquet", "--bad", "x > 1"],
    ),
    "round": ("curate.rounds.status.run_round_status", ["status", "r"], ["status", "none"]),
    "run": ("curate.pipeline.run.read_pipeline", ["curate.toml"], ["none.toml"]),
    "info": ("curate.training.info.describe_file", ["s.parquet"], ["none.parquet"]),
    "verify": ("curate.lineage.verify.run_verify", ["k.receipt.json"], ["none.receipt.json"]),
    "explain": ("curate.lineage.explain.run_explain", ["k.parquet", "a.jpg"], ["none.parquet", "a.jpg"]),
    "diff": ("curate.lineage.diff.run_diff", ["k.parquet", "l.parquet"], ["none.parquet", "other.parquet"]),
    "evaluate": ("curate.evaluation.run.open_table", ["s.parquet", "--label", "x"], ["none.parquet", "--label", "x"]),
    "compare": (
        "curate.evaluation.comparison.run.open_table",
        ["s.parquet", "t.parquet"],
        ["none.parquet", "other.parquet"],
    ),
    "selftest": ("curate.selftests.run.run_selftest", ["s.parquet"], ["none.parquet"]),
    "retrieve": ("curate.retrieval.run.open_table", ["s.parquet", "key"], ["none.parquet", "key"]),
    "report": ("curate.reporting.write.open_table", ["s.parquet", "-o", "r.html"], ["none.parquet", "-o", "r.html"]),
    "review": ("curate.reviewing.serve.open_table", ["s.parquet"], ["none.parquet"]),
    "sheet": ("curate.sheets.contact.open_table", ["s.parquet", "-o", "s.png"], ["none.parquet", "-o", "s.png"]),
    "plot": (
        "curate.reporting.plots.request.open_table",
        ["s.parquet", "histogram", "-o", "h.svg"],
        ["none.parquet", "histogram", "-o", "h.svg"],
    ),
    "doctor": ("curate.diagnosis.run.examine", ["--seconds", "0"], ["none"]),
    "models": ("scoring.cards.shipped_models", [], ["none.safetensors"]),
    "cache": ("scoring.runner.select_device", ["d", "-o", "f"], ["none", "-o", "f"]),
    "export": (
        "curate.exporting.subset.run_export",
        ["s.parquet", "--to", "csv", "-o", "s.csv"],
        ["none.parquet", "--to", "csv", "-o", "s.csv"],
    ),
    "train": ("scoring.runner.select_device", ["simsiam", "d", "-o", "m.safetensors"], ["no", "d", "-o", "m"]),
}


def run(*args, **kwargs):
    return CliRunner().invoke(app, [str(arg) for arg in args], **kwargs)


def interrupt(*args, **kwargs):
    raise KeyboardInterrupt


def test_every_command_is_covered_here():
    assert sorted(CALLS) == sorted(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_an_imperative_line_then_examples_then_options_with_help(name):
    result = run(name, "--help")
    assert result.exit_code == 0
    text = GROUP.commands[name].help
    first, blank = text.splitlines()[:2]
    assert re.match(r"[A-Z][a-z]+ ", first)
    assert first.endswith((".", ")."))
    assert not blank
    assert re.search(rf"\n  Example:\n\n      curate {name}\b", result.output)
    for param in GROUP.commands[name].params:
        assert getattr(param, "help", None), f"{name} {param.name} has no help"
    assert not re.search(r"<\w+", result.output), "a type of Python's"


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_list_of_commands_cuts_no_sentence_and_fits_a_screen_of_80_columns(columns):
    words = [sys.executable, "-m", "curate", "--help"]  # the list as it is shown before the options are imported
    settings = os.environ | {"COLUMNS": str(columns)}
    usage, *lines = subprocess.run(words, env=settings, capture_output=True, text=True, check=True).stdout.splitlines()
    firsts = {name: GROUP.commands[name].help.splitlines()[0] for name in COMMANDS}
    assert all(re.match(r"[A-Z][a-z]+ ", first) and len(first) <= 72 for first in firsts.values())
    assert not [line for line in lines if "..." in line]
    assert {word.strip(",") for line in lines for word in line.split()} >= set(COMMANDS)
    brief = {name for name, heading in cli.COMMANDS if heading in cli.BRIEF}
    shown = " ".join(" ".join(lines).split())
    assert not [name for name in COMMANDS if name not in brief and f" {name} {firsts[name]}" not in shown]
    if columns >= 80:
        assert len([usage, *lines]) <= 40
        assert {" ".join(line.split()) for line in lines} >= {f"{n} {firsts[n]}" for n in COMMANDS if n not in brief}


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("models", "doctor")])
def test_a_command_without_arguments_shows_its_help(name):
    result = run(name)
    assert "Example:" in result.output
    assert result.exit_code == 2


@pytest.mark.parametrize("name", COMMANDS)
def test_a_mistake_is_one_line_and_exit_1_and_an_interrupt_exit_130(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(name, *CALLS[name][2])
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(CALLS[name][0], interrupt)  # what is imported while the patch holds would keep it: now all is
    result = run(name, *CALLS[name][1])
    assert result.exit_code == 130
    assert result.stderr == "interrupted; repeat the command to resume\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_bad_usage_is_exit_2_and_names_the_option(name):
    result = run(name, *CALLS[name][1], "--no-such-option")
    assert result.exit_code == 2
    assert "--no-such-option" in result.output


def test_every_command_from_score_to_export_exits_0(tmp_path, monkeypatch, tiny_checkpoint):
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    for i in range(4):
        Image.new("RGB", (40, 40), (60 * i, 0, 99)).save(f"photos/{i}.png")
    shutil.copy(tiny_checkpoint, "m.safetensors")
    for line in (
        "score photos -o s.parquet --model m.safetensors --device cpu",
        "filter s.parquet --keep-top 2 -o k.parquet",
        "info k.parquet",
        "verify k.receipt.json",
        "sheet s.parquet -o s.png",
        "models m.safetensors",
    ):
        result = run(*line.split(), catch_exceptions=False)  # a bug shows its traceback, and not an empty output
        assert result.exit_code == 0, f"{line}: {result.output}"
    with Image.open("s.png") as sheet:
        assert sheet.width > 1000
