"""A batch with keys that are easily broken, and the labels that are in files."""

import io

import numpy as np
import pyarrow as pa
from PIL import Image

KEYS = [
    "cats/a b.jpg",
    "test_1.jpg",  # a word that makes its own split in image folders
    "IMG_1.JPG",
    "img_1.jpg",  # one name with the last where case does not count
    "007",
    "7",
    " both sides ",
    "ünï/çode 猫.png",
    "u\u0308ni/code.png",  # decomposed
    "=SUM(A1:A9).png",
    "'=1",
    "-1.png",
    "@user",
    "a,b;c\td.png",
    'quo"te.png',
    "line\nend\r\n.png",
    "new\u2028line\x85.png",
    "[x]*?.png",
    "../../etc/passwd.jpg",
    "/abs/path.jpg",
    "%2e%2E/a.jpg",
    ".hidden.jpg",
    "con.jpg",
    "C:\\x\\y.jpg",
    "k" * 300 + ".jpg",
    "猫" * 300,
]


def picture(number, kind="PNG"):
    """One small image, its own each colour and width."""
    out = io.BytesIO()
    Image.fromarray(np.full((8, 8 + number, 3), number * 7 % 256, np.uint8)).save(out, kind)
    return out.getvalue()


def batch(folder, keys=KEYS, **columns):
    """A table with a local file for every key; the first gain is infinite, as of a first pick."""
    folder.mkdir(exist_ok=True)
    uris = []
    for number in range(len(keys)):
        path = folder / f"{number:03}.png"
        path.write_bytes(picture(number))
        uris.append(str(path))
    n = len(keys)
    return pa.table(
        {
            "key": keys,
            "uri": uris,
            "rank": list(range(n)),
            "round": [3] * n,
            "gain": [float("inf")] + [-0.5] * (n - 1),
            "kappa_x": pa.array([3.25] * n, pa.float32()),
            "predicted": ["cat"] * n,
            "probability": [0.25] * n,
            "width": pa.array([8 + i for i in range(n)], pa.int32()),
            "height": pa.array([8] * n, pa.int32()),
            "embedding": [[1.0, 0.0]] * n,
            **columns,
        }
    )


def pairs(labels):
    """(key, label) of what can be used, in order."""
    return [(row.key, row.label) for row in labels.rows]


def counts(labels):
    """How many of each kind of problem."""
    return {problem.kind: problem.count for problem in labels.problems}
