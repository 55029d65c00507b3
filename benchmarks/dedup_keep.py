"""Which is kept of an image and its edited copy, saved at quality 90: by `--keep` of `curate dedup`, or by a score.

    python benchmarks/dedup_keep.py [--data DATA] [--rows 120] [--seed 0]

Every edit of `scoring.edits` on photographs of Caltech-101 drawn at random. Printed is the share of photographs of
which the original comes first.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from named_data import add_data, open_data

import curate
from curate.policies.dedup.grouping.keep import DEFAULT, keep_order, parse_keep
from curate.policies.dedup.request import DedupRequest
from curate.tables.keys import key_ranks
from curate.tables.rows import read_rows
from curate.tables.table import open_table
from scoring.edits import EDITS, edited, shrunk
from scoring.images import decode_rgb

ORIGINAL = "original"
ORDERS = {
    "the default": DEFAULT,
    "kappa_visimsiam": "max:kappa_visimsiam",
    "kappa_mcinfonce": "max:kappa_mcinfonce",
    "unc_losspred": "min:unc_losspred",
}


def write_images(images: list[bytes], folder: Path) -> None:
    """Write each image, and each edit of it, as FOLDER/EDIT/NUMBER.EXT."""
    for name in (ORIGINAL, *EDITS):
        (folder / name).mkdir(parents=True)
    for number, data in enumerate(images):
        (folder / ORIGINAL / f"{number:04}.jpg").write_bytes(data)
        photo, _ = shrunk(decode_rgb(data))
        for name, edit in EDITS.items():
            (folder / name / f"{number:04}.{edit.format.lower()}").write_bytes(edited(name, photo, number))


def shares(scores: Path) -> dict[str, dict[str, float]]:
    """Return edit -> order -> share of images of which the original comes first."""
    table = open_table(scores)
    keys = [key.split("/") for key in table.read(["key"])["key"].to_pylist()]
    preferred: dict[str, dict[str, float]] = {name: {} for name in EDITS}
    for order, text in ORDERS.items():
        criteria = parse_keep(text, table, label=None)
        rows = read_rows(table, DedupRequest({}, keep=text).needs(criteria))
        place = np.argsort(keep_order(rows, criteria, key_ranks(table)))
        of = {(name, Path(file).stem): place[row] for row, (name, file) in enumerate(keys)}
        for name in EDITS:
            first = [of[ORIGINAL, number] < at for (edit, number), at in of.items() if edit == name]
            preferred[name][order] = float(np.mean(first))
    return preferred


def main() -> None:
    """Write the images, score them, and print a line for each edit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser)
    parser.add_argument("--rows", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    data = open_data(options.data, ("caltech_subset",)).need("caltech_subset")
    images = pq.read_table(data / "caltech_subset.parquet", columns=["image"])["image"].to_pylist()
    drawn = np.random.default_rng(options.seed).permutation(len(images))[: options.rows]
    with tempfile.TemporaryDirectory() as work:
        write_images([images[row] for row in drawn], Path(work) / "images")
        curate.score(Path(work) / "images", Path(work) / "scores.parquet", fit=False)
        preferred = shares(Path(work) / "scores.parquet")
    print(f"{'edit':<14}" + "".join(f"{order:>18}" for order in ORDERS))
    for name, by_order in preferred.items():
        print(f"{name:<14}" + "".join(f"{share:>18.2f}" for share in by_order.values()))


if __name__ == "__main__":
    main()
