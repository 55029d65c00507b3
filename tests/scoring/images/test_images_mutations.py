"""Mutated images, by the benchmark itself: every one a row, none that takes long, memory within the stated bounds."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "benchmarks"))

import hostile  # noqa: E402


def test_mutations_are_made_by_their_seed_alone_and_differ_from_what_they_are_of():
    some, again = (list(hostile.mutations(hostile.PLAIN, 60, 3)) for _ in range(2))
    assert some == again
    originals = {name: set(hostile.originals(name)) for name in hostile.PLAIN}
    assert sum(data in originals[name] for name, data in some) <= 3
    assert some != list(hostile.mutations(hostile.PLAIN, 60, 4))


def test_originals_are_sound_and_of_every_mode_and_option():
    for name in hostile.PLAIN:
        outcomes = [hostile.decode(data, hostile.P) for data in hostile.originals(name)]
        assert {outcome.status for outcome in outcomes} == {"ok"}
        assert {outcome.format for outcome in outcomes} == {name}


@pytest.mark.parametrize("n", [500, pytest.param(1500, marks=pytest.mark.slow)])
def test_no_mutation_crashes_hangs_or_grows(n):
    command = [sys.executable, str(ROOT / "benchmarks" / "hostile.py"), "--n", str(n), "--seed", "0"]
    done = subprocess.run([*command, "--threads", "2"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert f"{n:,} files, {n:,} outcomes" in done.stdout
    assert f"{n // 5} files, {n // 5} outcomes" in done.stdout
    assert "crashed" not in done.stdout
    assert "timeout" not in done.stdout
    above, apart = re.search(r"\((\d+) above the start\), of a decoder apart ([\d,]+) MB", done.stdout).groups()
    assert int(above) < 400
    assert int(apart.replace(",", "")) < 700
