"""A heap of images, and the table of an undisturbed run over it."""

import numpy as np
import pytest
from PIL import Image
from runs import SMALL

from curate.engines.score import score


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Thirty images, of which two are the same, one is broken and one is text."""
    path = tmp_path_factory.mktemp("heap") / "photos"
    path.mkdir()
    generator = np.random.default_rng(0)
    for i in range(28):
        size = generator.integers(32, 90, 2)
        small = generator.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        Image.fromarray(small).resize(tuple(size.tolist())).save(path / f"{i:02}.png")
    (path / "05.png").write_bytes((path / "03.png").read_bytes())
    (path / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 and no more")
    (path / "text.png").write_text("hello")
    return path


@pytest.fixture(scope="session")
def whole(folder, tiny_checkpoint, tmp_path_factory):
    """The table of an undisturbed run."""
    out = tmp_path_factory.mktemp("whole") / "scores.parquet"
    score(folder, out, model=tiny_checkpoint, settings=SMALL)
    return out
