"""The benchmark that changes bytes of a run finds each of them."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import tamper

pytestmark = pytest.mark.study


def test_every_changed_byte_that_is_drawn_is_found(capsys):
    assert tamper.main(["--flips", "30", "--rows", "8", "--seed", "3"]) == 0
    assert "30 of 30 found" in capsys.readouterr().out


def test_places_are_every_byte_once(tmp_path):
    for name, size in (("a", 3), ("b", 2)):
        (tmp_path / name).write_bytes(bytes(size))
    files = [tmp_path / "a", tmp_path / "b"]
    assert [(path.name, at) for path, at, _ in tamper.places(files, None, 0)] == [
        ("a", 0),
        ("a", 1),
        ("a", 2),
        ("b", 0),
        ("b", 1),
    ]
    drawn = list(tamper.places(files, 500, 0))
    assert {(path.name, at) for path, at, _ in drawn} == {(p.name, at) for p, at, _ in tamper.places(files, None, 0)}


def test_a_change_that_is_not_found_is_reported(monkeypatch, capsys):
    calls = iter([False] + [False, True] * 3 + [False])
    monkeypatch.setattr(tamper, "is_detected", lambda kept: next(calls))
    assert tamper.main(["--flips", "6", "--rows", "4"]) == 1
    assert "3 of 6 found" in capsys.readouterr().out
