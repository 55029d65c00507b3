"""Copies of one image: found by bytes and by looks, counted once in a fit, said in one line."""

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from curate.tables.copies import Copies
from curate.tables.dataset import read_dataset
from curate.tables.table import open_table


def scene(seed, side=64):
    small = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((side, side), Image.Resampling.BICUBIC)


def saved(image, **options):
    out = io.BytesIO()
    image.save(out, **options)
    return out.getvalue()


@pytest.fixture(scope="module")
def dataset(tiny_checkpoint, tmp_path_factory):
    import curate

    folder = tmp_path_factory.mktemp("copies")
    images = [saved(scene(seed), format="PNG") for seed in range(20)]
    images += [images[3], images[3], saved(scene(4), format="JPEG", quality=90), saved(scene(5, 60), format="PNG")]
    noise = np.random.default_rng(9).normal(0, 60, (64, 64, 3))
    images.append(saved(Image.fromarray((np.asarray(scene(6)) + noise).clip(0, 255).astype(np.uint8)), format="PNG"))
    flat = [saved(Image.new("RGB", (64, 64), (value,) * 3), format="PNG") for value in (10, 240)]
    rows = [{"key": f"{row:02}", "image": data} for row, data in enumerate([*images, *flat])]
    pq.write_table(pa.Table.from_pylist(rows), folder / "images.parquet")
    curate.score(folder / "images.parquet", folder / "s.parquet", model=tiny_checkpoint, fit=False)
    return read_dataset(open_table(folder / "s.parquet"))


def test_equal_bytes_and_signatures_are_one_image_but_not_noisy_or_flat_ones(dataset):
    assert dataset.n_copies()["copies"].to_pylist() == [1, 1, 1, 3, 2, 2, *[1] * 14, 3, 3, 2, 2, 1, 1, 1]
    assert len(dataset) == len(dataset.embeddings) == len(dataset.copies.unique) == 23


def test_all_rows_of_a_group_inherit_its_value(dataset):
    values = dataset.in_table({"unc_local": np.arange(23, dtype=np.float32)})["unc_local"].to_pylist()
    assert values[20:24] == [values[3], values[3], values[4], values[5]]
    assert sorted({*values}) == list(range(23))


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ([0, 1, 2, 3], ()),
        ([0, 0, 2, 2, 2, 5], ("5 of 6", "2 images", "has 3")),
        ([0, 0, 0], ("3 of 3", "1 image;", "has 3")),
        ([0, 0, *range(2, 300)], ()),  # under a hundredth of the rows: nothing to report
    ],
)
def test_the_note_counts_copies(first, words):
    text = Copies.of(np.array(first)).words()
    assert bool(text) == bool(words)
    assert all(word in text for word in words)
