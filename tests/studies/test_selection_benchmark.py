"""The benchmark of the selectors runs, with one budget for all, and says which entries were cut off."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.study

ROOT = Path(__file__).parents[2]


def run(*options):
    command = [sys.executable, str(ROOT / "benchmarks" / "selection.py"), *options]
    environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_every_entry_has_the_requested_budget_and_reports_its_cost():
    done = run("--rows", "2000", "--budget", "70", "--only", "k-center,margin,k-means")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()[1:] if not line.startswith(" ")]
    assert [line[:3] for line in lines] == [[name, "2,000", "70"] for name in ("k-center", "k-means", "margin")]
    for _, _, picks, seconds, busy, each, peak in lines:
        assert float(each) > 0
        assert abs(float(each) * int(picks) / 1000 - float(seconds)) < 0.01
        assert float(busy) >= 0
        assert float(peak.replace(",", "")) > 20  # an interpreter with NumPy and the rows


def test_an_entry_that_takes_too_long_is_killed_and_its_row_marked():
    done = run("--rows", "500", "--limit", "0.01", "--only", "margin")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].split("-  ")[1] == "cut off after 0.01 s, with the reading of the rows"


def test_entries_and_budgets_that_there_are_not_are_refused_before_rows_are_made():
    assert "no entry 'k-centre'" in run("--only", "k-centre").stderr
    assert "--budget must be between 1 and the 400 rows" in run("--rows", "400", "--budget", "500").stderr
