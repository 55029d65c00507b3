"""Files with changed bytes, each through all commands that read it, in a process of its own.

``CURATE_MUTATED=10000`` runs that many, ``CURATE_MUTATED_SEED=2`` others.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("mutated.py")
COUNT, SEED = (int(os.environ.get(name, usual)) for name, usual in (("CURATE_MUTATED", 92), ("CURATE_MUTATED_SEED", 1)))


def run(first, count, folder):
    """Return the problems of some cases, and the number of the one that the process died of, or None."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(SEED), str(first), str(count), str(folder)],
        cwd=SCRIPT.parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    problems = [line for line in lines if "case" in line]
    if {"done": count} in lines:
        return problems, None
    begun = [line["begins"] for line in lines if "begins" in line]
    assert begun, done.stderr[-2000:]
    return [*problems, {"case": begun[-1], "error": f"died with {done.returncode}: {done.stderr[-500:]}"}], begun[-1]


@pytest.mark.slow
def test_a_changed_file_is_read_or_refused_in_one_line_in_time_and_no_row_is_lost(tmp_path):
    problems, first = [], 0
    while first < COUNT:
        more, died = run(first, COUNT - first, tmp_path)
        problems += more
        first = COUNT if died is None else died + 1
    assert not problems, "\n".join(map(json.dumps, problems))
