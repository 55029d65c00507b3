"""Images lost as copies of others of one template, and true copies found, without and with thumbnails.

    python benchmarks/templates.py [--data DATA] [--images 120] [--copied 20] [--csv CSV] [DOMAIN ...]

Each domain is a dataset: drawn images of one template, or photographs of one set, half of them JPEG and half PNG,
with edited copies of some. `curate dedup` has the threshold 0.95, `curate clean` 0.99.
"""

import argparse
import csv
import hashlib
import io
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from named_data import add_data, open_data
from PIL import Image
from template_sets import CHOSEN_ON, DOMAINS, EDITS, encoded

from curate.cleaning.steps import SURE
from curate.columns import QUALITY, QUALITY_COLUMNS
from curate.policies.dedup.policy import Dedup
from curate.policies.dedup.request import DedupRequest, resolved
from curate.tables.signatures import signature_array, thumbnail_array
from curate.tables.table import Table, open_table
from curate.tables.writer import TableWriter
from scoring.images import Preprocessing, decode

PHOTOGRAPHS = {  # set -> whether thresholds were chosen on it
    "caltech_subset": True,
    "pacs_160": True,
    "steel_200": True,
    "monkeys10_160": False,
    "grocery_160": False,
    "skin_200": False,
    "rsscn7_160": False,
    "plankton60": False,
    "tinyimagenet_val": False,
}
ORIGINAL = "original"
PREPROCESSING = Preprocessing(size=224, resize=256, interpolation="bicubic", mean=(0.5,) * 3, std=(0.5,) * 3)
SEED = 7


def images_of(name: str, data: Path, count: int, copied: int) -> Iterator[tuple[str, bytes]]:
    """Yield keys (``SOURCE/EDIT``) and encoded images of a domain."""
    if name in DOMAINS:
        plain = (DOMAINS[name](SEED, number) for number in range(count))
        originals = [encoded(image, "JPEG" if number % 2 else "PNG", 85) for number, image in enumerate(plain)]
    else:
        column = pq.read_table(data / f"{name}.parquet", columns=["image"]).column(0)
        rows = np.random.default_rng(SEED).permutation(len(column))
        distinct: dict[str, bytes] = {}
        for row in rows.tolist():
            image = column[row].as_py()
            distinct.setdefault(hashlib.sha256(image).hexdigest(), image)
            if len(distinct) == count:
                break
        originals = list(distinct.values())
    for number, original in enumerate(originals):
        yield f"{number:04}/{ORIGINAL}", original
        if number < copied:
            pixels = Image.open(io.BytesIO(original)).convert("RGB")
            for edit, make in EDITS.items():
                yield f"{number:04}/{edit}", make(pixels)


def write_table(path: Path, images: list[tuple[str, bytes]]) -> Table:
    """Write what ``curate score`` stores about images, without scores of a model."""
    made = [decode(data, PREPROCESSING, with_quality=True) for _, data in images]
    columns: dict[str, list | pa.Array] = {"key": [key for key, _ in images]}
    columns |= {name: [getattr(each, name) for each in made] for name in ("status", "sha256", "phash", "format")}
    columns |= {name: pa.array([getattr(each, name) for each in made], pa.int32()) for name in ("width", "height")}
    columns |= {"bytes": [each.n_bytes for each in made], "frames": [each.n_frames for each in made]}
    columns["phash"] = pa.array(columns["phash"], pa.uint64())
    columns["signature"] = signature_array([each.signature for each in made])
    columns["thumbnail"] = thumbnail_array([each.thumbnail for each in made])
    for name in QUALITY_COLUMNS:
        columns[name] = pa.array([getattr(each.quality, name.removeprefix(QUALITY)) for each in made], pa.float32())
    table = pa.table(columns)
    with TableWriter(path, table.schema, {"kind": "scores"}) as writer:
        writer.write(table)
    return open_table(path)


def measured(table: Table, threshold: float, *, confirmed: bool) -> dict[str, float]:
    """Return how many images are lost, and how many copies are found, by one deduplication."""
    finder = {"bytes": None, "signature": threshold} if threshold == SURE else None
    request, _ = resolved(DedupRequest({}), table, finder)
    decided = Dedup(replace(request, confirmed=confirmed)).decide(table)
    keys = table.read(["key"]).column(0).to_pylist()
    words = decided.words(0, pa.array(keys), None, None)
    dropped = np.array([decision == "drop" for decision in words.column("decision").to_pylist()])
    kept_keys = words.column("kept_key").to_pylist()
    owner = [kept if gone else key for key, kept, gone in zip(keys, kept_keys, dropped, strict=True)]
    source, edit = np.array([key.split("/") for key in keys]).T
    wrong = np.array(
        [gone and kept.split("/")[0] != mine for gone, kept, mine in zip(dropped, owner, source, strict=True)]
    )
    lost = set(source) - set(source[~dropped])
    original = {mine: of for mine, of, kind in zip(source, owner, edit, strict=True) if kind == ORIGINAL}
    is_copy = edit != ORIGINAL
    matches = np.array(
        [of == original[mine] and of.split("/")[0] == mine for mine, of in zip(source, owner, strict=True)]
    )
    crops = np.char.startswith(edit, "crop")
    return {
        "sources": len(set(source)),
        "lost": len(lost) / len(set(source)),
        "wrong_drops": int(wrong.sum()),
        "copies": int((is_copy & ~crops).sum()),
        "found": float(matches[is_copy & ~crops].mean()),
        "found_crops": float(matches[is_copy & crops].mean()),
        "to_review": decided.result.to_review,
    }


def domain(task: tuple[str, Path, int, int]) -> list[dict[str, object]]:
    """Return the lines of one domain."""
    name = task[0]
    chosen = name in CHOSEN_ON or PHOTOGRAPHS.get(name, False)
    lines: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        table = write_table(Path(folder) / "scores.parquet", list(images_of(*task)))
        for threshold in (0.95, SURE):
            for confirmed in (False, True):
                figures = measured(table, threshold, confirmed=confirmed)
                rounded = {key: round(value, 4) for key, value in figures.items()}
                setting = {"threshold": threshold, "thumbnails": "with" if confirmed else "without"}
                lines.append({"domain": name, "chosen_on": "yes" if chosen else "no", **setting, **rounded})
    return lines


def main() -> None:
    """Measure each domain and print one line for each setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser)
    parser.add_argument("domains", nargs="*", metavar="DOMAIN", help="drawn domains or sets; default: all")
    parser.add_argument("--images", type=int, default=120)
    parser.add_argument("--copied", type=int, default=20)
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    names = options.domains or [*DOMAINS, *PHOTOGRAPHS]
    if unknown := [name for name in names if name not in {**DOMAINS, **PHOTOGRAPHS}]:
        raise SystemExit(f"error: unknown domain {unknown[0]!r}; choose among {', '.join([*DOMAINS, *PHOTOGRAPHS])}")
    data = open_data(options.data, tuple(PHOTOGRAPHS)).need(*(name for name in names if name in PHOTOGRAPHS))
    lines: list[dict[str, object]] = []
    with ProcessPoolExecutor(2) as pool:
        for made in pool.map(domain, [(name, data, options.images, options.copied) for name in names]):
            for line in made:
                print(*line.values(), sep="\t", flush=True)
            lines += made
    if options.csv is not None:
        with options.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(lines[0]))
            writer.writeheader()
            writer.writerows(lines)


if __name__ == "__main__":
    main()
