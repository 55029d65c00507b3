"""docs/quality.md names what the code has."""

from pathlib import Path

from curate.columns import QUALITY_COLUMNS

PAGE = (Path(__file__).parents[2] / "docs" / "quality.md").read_text()


def test_every_measure_has_its_row():
    assert [line.split("`")[1] for line in PAGE.splitlines() if line.startswith("| `quality_")] == list(QUALITY_COLUMNS)
