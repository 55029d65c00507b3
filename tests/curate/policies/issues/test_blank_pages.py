"""A page with a faint shape is not blank, and one with nothing on it is, whatever its shade, noise and file format."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageDraw

import curate
from scoring.images import Preprocessing, decode
from scoring.images.quality import MEASURES


def page(draw, ground, noise, grey):
    """A page of one shade with normal noise, equal in all colours or not."""
    return np.full((90, 120, 3), float(ground)) + draw.normal(0, noise, (90, 120, 1 if grey else 3))


def pages(draw):
    """Pages of one shade, with noise or single specks: nothing is on them."""
    for ground in (255, 254, 128, 4, 0):
        for noise in (0, 0.5, 1, 2):
            yield from (page(draw, ground, noise, grey) for grey in (True, False))
    specked = np.full((90, 120, 3), 250.0)
    specked[draw.integers(0, 90, 12), draw.integers(0, 120, 12)] -= 40
    yield specked


def faint_shapes(draw):
    """Threads, rings and filled shapes that stand out by 12 to 25 of 255 grey levels."""
    for shape in ("line", "ellipse", "arc"):
        for step in (12, 18, 25):
            for noise in (0, 0.5):
                mask = Image.new("L", (120, 90))
                pen = ImageDraw.Draw(mask)
                if shape == "line":
                    pen.line([(30, 20), (70, 60), (90, 70)], fill=255, width=2)
                elif shape == "arc":
                    pen.arc([30, 20, 70, 60], 0, 300, fill=255, width=2)
                else:
                    pen.ellipse([50, 30, 60, 45], fill=255)
                yield page(draw, 250, noise, True) - np.asarray(mask)[..., None] / 255 * step


@pytest.mark.parametrize("file", ["png", "jpeg"])
@pytest.mark.parametrize("drawn", [pages, faint_shapes])
def test_a_faint_shape_is_no_blank_page(tmp_path, drawn, file):
    images = [image.round().clip(0, 255).astype(np.uint8) for image in drawn(np.random.default_rng(0))]
    rows: dict[str, list] = {f"quality_{name}": [] for name in MEASURES}
    for image in images:
        Image.fromarray(image).save(tmp_path / "image", file)
        quality = decode((tmp_path / "image").read_bytes(), Preprocessing(), with_quality=True).quality
        for name in MEASURES:
            rows[f"quality_{name}"].append(getattr(quality, name))
    columns = {name: pa.array(values, pa.float32()) for name, values in rows.items()}
    keys = {"key": [f"{row:03}" for row in range(len(images))], "status": ["ok"] * len(images)}
    pq.write_table(pa.table({**keys, **columns}), tmp_path / "drawn.parquet")
    assert max(rows["quality_contrast"]) < 0.014
    faint = sum(value < 0.01 for value in rows["quality_contrast"])
    result = curate.issues(tmp_path / "drawn.parquet", force=["low-contrast"])
    smeared = int(file == "jpeg")  # the specks, which JPEG spreads to blots
    blank = result.kinds["blank"]
    assert blank["n"] + blank.get("off", 0) == (faint - smeared if drawn is pages else 0)
    assert result.kinds["low-contrast"]["n"] == len(images)
