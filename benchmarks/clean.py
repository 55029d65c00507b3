"""What `curate clean` costs next to scoring and deduplicating alone, and what it drops of what was planted.

    python benchmarks/clean.py --data DATA [--work FOLDER] [--set NAME] [--rows N] [--json OUT]

Of each development set up to N clean images are written to a folder, with junk of ten kinds (10 % of the rows), 40
exact copies and 40 copies at half the size and JPEG quality 80. The folder is cleaned by `curate clean`, and scored and
deduplicated by `curate run` in one process. Per set: processor seconds of both, the share of planted copies that is
gone, of planted junk that is dropped, and dropped or listed for review, and the clean images that are dropped, which
FOLDER/SET/dropped.png shows next to what was kept instead.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from harm_sets import CLEAN, SETS, clean_images, data_and_sets, planted
from named_data import add_data
from PIL import Image

from curate.sheets.picture import save_picture
from curate.sheets.tiles import TILE, Tile, contact_sheet
from scoring.images import decode_rgb

COPIES = 40
SHARE = 0.1
ALONE = """folder = "alone"
[score]
source = "images"
[dedup]
"""
DEFAULT_SETS = ("Caltech", "groceries", "monkeys", "photographs", "aerial", "skin")


def write_folder(data: Path, name: str, rows: int, out: Path, *, share: float = SHARE) -> None:
    """Write a set with what is planted in it: KIND.NUMBER[.of.NUMBER].EXTENSION."""
    out.mkdir(parents=True)
    images = clean_images(data, name)
    draw = np.random.default_rng(1)
    images = images.take(np.sort(draw.permutation(len(images.data))[:rows]))
    images = planted(images, share, seed=1)
    for number, (content, kind) in enumerate(zip(images.data, images.kind, strict=True)):
        ending = "png" if content[:4] == b"\x89PNG" else "jpg"
        (out / f"{kind.replace(' ', '-')}.{number:05}.{ending}").write_bytes(content)
    clean = [number for number, kind in enumerate(images.kind) if kind == CLEAN]
    chosen = draw.choice(clean, 2 * COPIES, replace=False).tolist()
    for number in chosen[:COPIES]:
        (out / f"exact.of.{number:05}.jpg").write_bytes(images.data[number])
    for number in chosen[COPIES:]:
        small = Image.fromarray(decode_rgb(images.data[number]))
        small = small.resize((max(1, small.width // 2), max(1, small.height // 2)))
        small.save(out / f"near.of.{number:05}.jpg", quality=80)


def processor_seconds(*line: str, folder: Path) -> float:
    """Run a command in a folder and return the processor seconds it took, of all its threads."""
    before = os.times()
    subprocess.run([sys.executable, "-m", "curate", *line], cwd=folder, check=True, capture_output=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def measure(folder: Path) -> dict[str, Any]:
    """Return what cleaning a folder cost, found, and dropped by mistake."""
    (folder / "alone.toml").write_text(ALONE)
    alone = processor_seconds("run", "alone.toml", "--quiet", folder=folder)
    cost = processor_seconds("clean", "images", "-o", "cleaned", "--quiet", folder=folder)
    keys = pl.read_parquet(folder / "cleaned/steps/score.parquet", columns=["key"])["key"].to_list()
    kept = set(pl.read_parquet(folder / "cleaned/subset.parquet", columns=["key"])["key"])
    listed = set(pl.read_csv(folder / "cleaned/review/findings.csv", infer_schema=False)["key"])
    copies = pl.read_parquet(folder / "cleaned/subset.decisions.parquet").filter(pl.col("decision") == "drop")
    instead = dict(copies.select("key", "kept_key").iter_rows())
    by_kind: dict[str, list[str]] = {}
    for key in keys:
        by_kind.setdefault(key.split(".")[0], []).append(key)
    result: dict[str, Any] = {"rows": len(keys), "seconds": round(cost, 1), "times": round(cost / alone, 3)}
    for kind, some in by_kind.items():
        if kind in ("exact", "near"):
            left = sum(key in kept and _original(key) in {_number(each) for each in kept} for key in some)
            result[kind] = f"{len(some) - left}/{len(some)}"
        elif kind != CLEAN:
            dropped = [key for key in some if key not in kept]
            seen = [key for key in some if key not in kept or key in listed]
            result[kind] = f"{len(dropped)}+{len(seen) - len(dropped)}/{len(some)}"
    gone = [key for key in by_kind[CLEAN] if key not in kept]
    planted_keys = ("exact", "near")
    pairs = [(key, instead.get(key, "")) for key in gone]
    mistakes = [(key, other) for key, other in pairs if not other.startswith(planted_keys)]
    result["clean dropped"] = {
        "unusable": sum(not other for _, other in mistakes),
        "for another clean image": sum(bool(other) for _, other in mistakes),
    }
    _draw(folder, mistakes)
    return result


def _number(key: str) -> str:
    return key.split(".")[1]


def _original(key: str) -> str:
    return key.split(".")[2]


def _draw(folder: Path, pairs: list[tuple[str, str]]) -> None:
    """Draw the clean images that were dropped, each with what was kept instead."""
    tiles = []
    for key, other in pairs[:100]:
        for name, word in ((key, "dropped"), (other, "kept instead")):
            pixels = None
            if name:
                pixels = decode_rgb((folder / "images" / name).read_bytes(), short_side=TILE)
            tiles.append(Tile(pixels, word, name))
    if tiles:
        save_picture(contact_sheet([("clean images that were dropped", tiles)]), folder / "dropped.png", overwrite=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser)
    parser.add_argument("--work", type=Path, default=Path("clean"))
    parser.add_argument("--set", action="append", choices=SETS, dest="sets")
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = {}
    data, sets = data_and_sets(options.data, options.sets, DEFAULT_SETS)
    for name in sets:
        folder = options.work / name
        write_folder(data, name, options.rows, folder / "images")
        results[name] = measure(folder)
        print(f"{name}: {json.dumps(results[name])}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
