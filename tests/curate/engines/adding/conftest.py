"""A folder of images and its table, which grow."""

import pytest
from growing import FIRST, PLAIN, draw

from curate.engines.score import score


@pytest.fixture
def photos(tmp_path):
    """A folder of images with room between their names."""
    (tmp_path / "photos").mkdir()
    for number in FIRST:
        draw(tmp_path / "photos" / f"{number:02}.png", number)
    return tmp_path / "photos"


@pytest.fixture
def table(photos, tiny_checkpoint, tmp_path):
    score(photos, tmp_path / "s.parquet", model=tiny_checkpoint, **PLAIN)
    return tmp_path / "s.parquet"
