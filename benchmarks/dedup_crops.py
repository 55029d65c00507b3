"""Crops that `curate dedup` lists by default on sets of distinct images, and planted crops that it finds.

    python benchmarks/dedup_crops.py [--data DATA] [--tables FOLDER] [--sheets FOLDER] [--csv CSV] [SET ...]

Of each set, up to 2,000 images are scored with 60 planted crops, cut by 12 % on each side. The table counts the rows
listed without the planted crops, how many of them one reviewer judged to be the same photograph, and the planted crops
in the group of their image. Add sets by `--data NAME=PATH`, such as ones of `benchmarks/domains.py`; ``--sheets`` draws
every listed pair.
"""

import argparse
import csv
import io
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from named_data import add_data, open_data
from PIL import Image

import curate
from curate.policies.dedup.words import REVIEW

SETS = (
    "photos_unlabelled",
    "caltech_subset",
    "monkeys10_160",
    "pacs_160",
    "grocery_160",
    "cifar10_test",
    "tinyimagenet_val",
    "rsscn7_160",
    "steel_200",
    "skin_200",
    "plankton60",
)
MOST, PLANTED, CUT = 2000, 60, 0.12
PLANT = "planted/"
OTHER_IMAGES = {  # listed rows that show another photograph, judged by eye
    "caltech_subset": ("caltech_subset/00255", "caltech_subset/02166")
}
COLUMNS = ("set", "images", "dropped", "listed", "listed, the same", "planted", "found", "found, dropped")


def cropped(data: bytes) -> bytes:
    """Return an image cut by 12 % on each side, as JPEG of quality 90."""
    image = Image.open(io.BytesIO(data))
    image = image.convert("RGB") if image.mode not in ("L", "RGB") else image
    dx, dy = round(CUT * image.width), round(CUT * image.height)
    out = io.BytesIO()
    image.crop((dx, dy, image.width - dx, image.height - dy)).save(out, "JPEG", quality=90)
    return out.getvalue()


def scored(name: str, data: Path, folder: Path) -> tuple[Path, Path]:
    """Return the scored tables of a set: without and with planted crops."""
    source, out, clean = (folder / f"{name}{end}.parquet" for end in (".source", "", ".clean"))
    if not clean.exists():
        column = pq.read_table(data / f"{name}.parquet", columns=["image"]).column(0)
        draw = np.random.default_rng(0)
        rows = np.sort(draw.permutation(len(column))[:MOST])
        images = column.take(pa.array(rows)).to_pylist()
        keys = [f"{name}/{row:05d}" for row in rows.tolist()]
        chosen = draw.permutation(len(rows))[:PLANTED].tolist()
        keys += [PLANT + keys[at] for at in chosen]
        pq.write_table(pa.table({"name": keys, "image": images + [cropped(images[at]) for at in chosen]}), source)
        curate.score(source, out, key="name", device="cpu")
        table = pq.read_table(out)
        pq.write_table(table.filter(pc.invert(pc.starts_with(table["key"], PLANT))), clean)
    return clean, out


def decided(table: Path, folder: Path) -> list[dict]:
    """Return the decisions of the default."""
    result = curate.dedup(table, folder / "unique.parquet", overwrite=True)
    return pq.read_table(result.decisions).to_pylist()


def sheet(pairs: list[dict], images: dict[str, bytes], path: Path) -> None:
    """Draw pairs: the kept image, and the listed one."""
    drawn = Image.new("RGB", (4 * 330, 160 * -(-len(pairs) // 4)), "white")
    for at, pair in enumerate(pairs):
        for side, name in enumerate(("kept_key", "key")):
            image = Image.open(io.BytesIO(images[pair[name]])).convert("RGB")
            image.thumbnail((160, 150))
            drawn.paste(image, (at % 4 * 330 + side * 163, at // 4 * 160))
    drawn.save(path)


def measured(name: str, data: Path, folder: Path, sheets: Path | None) -> tuple[object, ...]:
    """Return a row of the table."""
    clean, planted = scored(name, data, folder)
    rows, others = decided(clean, folder), decided(planted, folder)
    listed = [row for row in rows if row["rule"] == REVIEW and "by crop" in row["reason"]]
    if sheets is not None and listed:
        source = pq.read_table(folder / f"{name}.source.parquet")
        sheet(
            listed,
            dict(zip(*(source[each].to_pylist() for each in ("name", "image")), strict=True)),
            sheets / f"{name}.png",
        )
    same = len(listed) - sum(row["key"] in OTHER_IMAGES.get(name, ()) for row in listed)
    group = {row["key"]: row["group"] for row in others}
    crops = [row for row in others if row["key"].startswith(PLANT)]
    together = [row for row in crops if row["group"] is not None and row["group"] == group[row["key"][len(PLANT) :]]]
    dropped = sum(row["decision"] == "drop" for row in rows)
    gone = sum(row["decision"] == "drop" for row in together)
    return name, len(rows), dropped, len(listed), same, len(crops), len(together), gone


def main() -> None:
    """Print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser)
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"of {', '.join(SETS)}; default: all, or yours")
    parser.add_argument("--tables", type=Path, help="folder that keeps the scored tables for the next run")
    parser.add_argument("--sheets", type=Path, help="folder for a sheet of the listed pairs of each set")
    parser.add_argument("--csv", type=Path, help="file of the table")
    a = parser.parse_args()
    sets = a.sets or SETS
    data = open_data(a.data, SETS, sets=True)
    sets = (*(a.sets or (() if data.added else SETS)), *data.added)
    folder = data.need(*sets)
    for each in (a.tables, a.sheets):
        if each is not None:
            each.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        rows = []
        for name in sets:
            rows.append(measured(name, folder, a.tables or Path(scratch), a.sheets))
            print(*rows[-1], flush=True)
    if a.csv is not None:
        with a.csv.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])


if __name__ == "__main__":
    main()
