"""A small table of images in files, one of which is a crop of another with another label."""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from scoring.images.signature import signature

WHOLE, CROP, N = "whole.png", "crop.png", 24


def write_cropped(folder):
    """Write images of soft blobs, and their table ``scores.parquet``; the last image is a part of the first."""
    draw = np.random.default_rng(0)
    coarse = draw.integers(0, 256, (N - 1, 9, 9, 3), dtype=np.uint8)
    images = [Image.fromarray(each).resize((96, 96), Image.Resampling.BICUBIC) for each in coarse]
    images.append(images[0].crop((6, 6, 88, 88)))
    keys = [WHOLE, *(f"{row:02}.png" for row in range(1, N - 1)), CROP]
    for key, image in zip(keys, images, strict=True):
        image.save(folder / key)
    vectors = draw.normal(size=(N, 16))
    vectors[-1] = vectors[0] + 0.05
    signatures = [signature(np.asarray(each.resize((32, 32), Image.Resampling.BILINEAR))) for each in images]
    table = pa.table(
        {
            "key": keys,
            "uri": [str(folder / key) for key in keys],
            "sha256": [hashlib.sha256((folder / key).read_bytes()).hexdigest() for key in keys],
            "status": ["ok"] * N,
            "label": ["cat"] * (N - 1) + ["dog"],
            "rank": [1.0] * (N - 1) + [0.0],
            "signature": pa.array([each.tobytes() for each in signatures], pa.binary(len(signatures[0]))),
            "embedding": pa.array(list(vectors.astype(np.float32)), pa.list_(pa.float32(), 16)),
        }
    )
    pq.write_table(table, folder / "scores.parquet")
    return folder / "scores.parquet"
