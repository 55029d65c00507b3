"""A rule that is added by one class and one line is a rule everywhere."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

ROOT = Path(__file__).parents[4]
SCRIPT = Path(__file__).parent / "every_nth.py"
EVERY_LINE = """
import runpy, sys
import every_nth
every_nth.add()
from curate.cli import main
sys.stderr = sys.stdout
*lines, page = sys.argv[1:]
for line in lines:
    sys.argv[1:] = line.split()
    try:
        main()
    except SystemExit:
        print("END")
print(runpy.run_path(page)["rules"]())
"""


def python(*line, folder):
    paths = os.pathsep.join([str(ROOT), str(SCRIPT.parent)])
    env = os.environ | {"PYTHONPATH": paths}
    return subprocess.run([sys.executable, *map(str, line)], capture_output=True, text=True, cwd=folder, env=env)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rule")
    columns = {"key": [f"{row:02d}" for row in range(10)], "kappa_visimsiam": np.arange(10.0)}
    pl.DataFrame(columns).write_parquet(folder / "s.parquet")
    result = python("-m", "every_nth", "filter", "s.parquet", "--every-nth", 3, "-o", "k.parquet", folder=folder)
    assert result.returncode == 0, result.stderr
    assert "one of 3 rows is taken" in result.stderr
    return folder


def test_the_command_keeps_its_rows_and_decisions_say_why(folder):
    assert pl.read_parquet(folder / "k.parquet")["key"].to_list() == ["00", "03", "06", "09"]
    decisions = pl.read_parquet(folder / "k.decisions.parquet")
    assert decisions.filter(key="01").select("reason", "rule").row(0) == ("row 1 is left out", "--every-nth 3")


def test_the_other_commands_and_the_documentation_know_it(folder):
    said_by_line = {
        "verify k.parquet": "identical",
        "explain k.parquet 04": "row 4 is left out",
        "filter --help": "--every-nth N",
        "report s.parquet k.receipt.json --points 0 -o r.html": "r.html",
    }
    result = python("-c", EVERY_LINE, *said_by_line, ROOT / "docs" / "generate.py", folder=folder)
    *texts, rules = (result.stdout + result.stderr).split("END\n")
    for (line, said), text in zip(said_by_line.items(), texts, strict=True):
        assert said in text, line
    assert "| `--every-nth N` | Keep every N-th row. |" in rules
    assert "--every-nth 3" in (folder / "r.html").read_text()
