"""How many duplicates each finder finds and invents, compared with `imagededup` on the same bytes.

    python benchmarks/dedup_quality.py [--data DATA] [--imagededup-python VENV/bin/python] [--rows 50000]

Sets that annotators have judged: Caltech-101 (2,663 images; 156 pairs are the same, 100 of them mirrored; 514 uncertain
pairs count neither way, all others are different), the same with the mirrored pairs left out, for finders that do not
look for them, and 29 photographs and edits whose names report what belongs together (73 pairs; 8 more rows are broken,
no images, or of formats that are not read). For every finder: recall at a precision, and precision and recall at its
own threshold, with 95 % intervals from a bootstrap over images; then what `curate dedup` does: pairs in one group.

`imagededup` runs in its own Python: its pHash as it is, and its CNN search with this project's embeddings. With
it, speed is measured too: all pairs of --rows vectors and hashes, one core each.
"""

import argparse
import csv
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from dedup_curves import PRECISIONS, Measured, Pairs, Truth, measure
from dedup_speed import other_python, speed
from named_data import add_data, open_data

import curate
from curate.policies.dedup.finders.table import FINDERS
from curate.policies.dedup.words import REVIEW
from curate.tables.needs import Needs
from curate.tables.rows import Rows, read_rows
from curate.tables.table import open_table
from scoring.images import DecodeError, decode_rgb, perceptual_hash
from scoring.images.geometry import resize
from scoring.images.signature import views
from scoring.search.hamming import HammingIndex

FLOOR = {
    "hash": 16.0,
    "signature": 0.6,
    "crop": 0.94,
    "embedding": 0.85,
    "near-duplicate": 0.05,
}  # what is looked at for curves; far below any use
REPRESENTATIONS = frozenset({"sha256", "phash", "signature", "embedding"})
PHOTOGRAPH = re.compile(r"ukbench(\d+)")
ALSO = {"alpha_channel_image.png": "00120"}  # seen: the photograph 00120 with an alpha channel
AS_RUN: dict[str, dict] = {
    "bytes": {"finder": "bytes"},
    "default": {},
    "default --mirrored": {"mirrored": True},
    "default --mirrored --cropped": {"mirrored": True, "cropped": True},
    "near-duplicate --mirrored": {"finder": ["bytes", "near-duplicate"], "mirrored": True},
}

FILES = ("near_dup_small", "caltech_subset", "caltech_subset_pairs")


@dataclass(frozen=True)
class Judged:
    """Images with verdicts of annotators: encoded images, keys, and which are the same; ``file`` is scored."""

    name: str
    file: str
    images: list[bytes]
    keys: list[str]
    truth: Truth


def caltech(data: Path) -> Iterator[Judged]:
    """Yield the Caltech images with the pairs in ``caltech_subset_pairs.csv``: all, and without the mirrored ones."""
    table = pq.read_table(data / "caltech_subset.parquet", columns=["file", "image"])
    keys = table["file"].to_pylist()
    row_of = {key: row for row, key in enumerate(keys)}
    listed: dict[str, list[list[int]]] = {"same": [], "flip": [], "uncertain": []}
    with (data / "caltech_subset_pairs.csv").open(newline="") as file:
        for pair in csv.DictReader(file):
            kind = pair["orient"] if pair["kind"] == "near_dup" else "uncertain"
            listed[kind].append(sorted((row_of[pair["a"]], row_of[pair["b"]])))
    same, flipped, uncertain = (np.array(pairs).reshape(-1, 2) for pairs in listed.values())
    truth = Truth(len(keys), np.concatenate([same, flipped]), uncertain)
    upright = Truth(len(keys), same, np.concatenate([flipped, uncertain]))
    images = table["image"].to_pylist()
    yield Judged("Caltech", "caltech", images, keys, truth)
    yield Judged("Caltech, mirrored pairs left out", "caltech", images, keys, upright)


def edited(data: Path) -> Judged:
    """Return the photographs and their edits; two with one number in their names are the same."""
    table = pq.read_table(data / "near_dup_small.parquet", columns=["name", "bytes", "pillow_outcome"])
    keys = table["name"].to_pylist()
    readable = [outcome == "ok" for outcome in table["pillow_outcome"].to_pylist()]
    numbers = [PHOTOGRAPH.search(key) for key in keys]
    group = [
        ALSO.get(key.split("/")[-1]) or (number[1] if number else key)
        for key, number in zip(keys, numbers, strict=True)
    ]
    n = len(keys)
    same = [(a, b) for a in range(n) for b in range(a + 1, n) if group[a] == group[b] and readable[a] and readable[b]]
    return Judged(
        "edits", "edits", table["bytes"].to_pylist(), keys, Truth(n, np.array(same), np.zeros((0, 2), np.int64))
    )


def scored(judged: Judged, folder: Path) -> Path:
    """Score a set with the shipped model, and return the table."""
    source, out = folder / f"{judged.file}.source.parquet", folder / f"{judged.file}.parquet"
    if not out.exists():
        pq.write_table(pa.table({"name": judged.keys, "image": judged.images}), source)
        curate.score(source, out, key="name", device="cpu")
    return out


def rows_of(path: Path, keys: list[str]) -> Rows:
    """Return the scored rows, in the order of the keys."""
    table = open_table(path)
    if pq.read_table(path, columns=["key"])["key"].to_pylist() != keys:
        raise ValueError(f"{path} has other rows, or in another order")
    return read_rows(table, Needs(representations=REPRESENTATIONS))


def pairs_by(name: str, rows: Rows, *, mirrored: bool = False) -> Pairs:
    """Return the pairs that a finder sees at the floor, by the search that ``curate dedup`` runs."""
    search = FINDERS[name].build(rows, FLOOR.get(name, 1.0), views(mirrored=mirrored))
    links = search.links(np.flatnonzero(rows.ok), rows.ok)
    return Pairs.of(links.query, links.row, links.similarity if search.higher else -links.similarity)


def mirrored_hashes(judged: Judged, rows: Rows) -> Pairs:
    """Return pairs by the bits between the hash of one and the other's or its mirror image."""
    readable = np.flatnonzero(rows.ok)
    pictures = [resize(decode_rgb(judged.images[row]), 32, 32, "bilinear") for row in readable]
    mirrors = np.array([perceptual_hash(np.ascontiguousarray(picture[:, ::-1])) for picture in pictures], np.uint64)
    index = HammingIndex(rows.phash[readable], int(FLOOR["hash"]))
    parts = [index.search(codes) for codes in (rows.phash[readable], mirrors)]
    query, row, bits = (np.concatenate([getattr(p, name) for p in parts]) for name in ("query", "row", "similarity"))
    return Pairs.of(readable[query], readable[row], -bits)


def _or_none(call: Callable[[], str]) -> str | None:
    try:
        return call()
    except DecodeError:
        return None


def finders(judged: Judged, rows: Rows) -> Iterator[tuple[str, Pairs, float]]:
    """Yield (name, pairs, threshold) of every way to find pairs; the threshold is of the pairs' score."""
    names = ("hash", "signature", "crop", "embedding")
    bits, cosine, part, content = (FINDERS[name].threshold or 0.0 for name in names)
    yield "bytes", pairs_by("bytes", rows), 1.0
    yield "hash", pairs_by("hash", rows), -bits
    yield "hash, mirrored", mirrored_hashes(judged, rows), -bits
    for name, mirrored in (("", False), (", mirrored", True)):
        yield f"signature{name}", pairs_by("signature", rows, mirrored=mirrored), cosine
    yield "crop, mirrored", pairs_by("crop", rows, mirrored=True), part
    yield "embedding", pairs_by("embedding", rows), content
    near = FINDERS["near-duplicate"].threshold or 0.0
    yield "near-duplicate, mirrored", pairs_by("near-duplicate", rows, mirrored=True), near


def as_run(path: Path, keys: list[str], folder: Path) -> Iterator[tuple[str, Pairs, float]]:
    """Yield what whole runs of ``curate dedup`` put into one group, without crops that are only listed for review."""
    for name, options in AS_RUN.items():
        result = curate.dedup(path, folder / "subset.parquet", overwrite=True, **options)
        rows = pq.read_table(result.decisions, columns=["key", "group", "rule", "reason"]).to_pylist()
        listed = {row["key"] for row in rows if row["rule"] == REVIEW and "by crop" in row["reason"]}
        group_of = {row["key"]: None if row["key"] in listed else row["group"] for row in rows}
        groups = np.array([-1 if group_of[key] is None else group_of[key] for key in keys])
        yield f"curate dedup, {name}", Pairs.within(groups), 1.0


def imagededup(python: str, judged: Judged, rows: Rows, folder: Path) -> Iterator[tuple[str, Pairs, float]]:
    """Yield what the other package finds: pHash on the same bytes, and its search of cosines on the embeddings."""
    images = folder / f"{judged.file}.images"
    images.mkdir(exist_ok=True)
    for row, data in enumerate(judged.images):
        (images / f"{row}.jpg").write_bytes(data)  # it uses the name, then by the bytes
    readable = np.flatnonzero(rows.ok)
    arrays = {"folder": str(images), "rows": readable, "embedding": rows.embedding[readable].astype(np.float32)}
    results = other_python(python, arrays, folder)
    phash, cnn = results["phash"], results["cnn"]
    pairs = Pairs.of(phash[:, 0].astype(int), phash[:, 1].astype(int), -phash[:, 2])
    for radius in (10, 4, 0):
        yield f"imagededup pHash {radius}", pairs, -float(radius)
    content = Pairs.of(cnn[:, 0].astype(int), cnn[:, 1].astype(int), cnn[:, 2])
    for threshold in (0.9, FINDERS["embedding"].threshold or 0.0):
        yield f"imagededup CNN {threshold:g}", content, threshold


def show(name: str, measured: Measured, threshold: float) -> None:
    """Print one row of the table."""
    curve = tuple(f"recall at {least:g}" for least in PRECISIONS)
    recalls = " " * 81 if name.startswith("curate dedup") else measured.line(curve)  # one point, and no curve
    print(
        f"{name:<42}{recalls}  {measured.line(('precision', 'recall'))}  {abs(threshold):g} ({measured.n:,})",
        flush=True,
    )


def quality(judged: Judged, folder: Path, python: str | None) -> None:
    """Print the table of one set."""
    path = scored(judged, folder)
    rows = rows_of(path, judged.keys)
    print(
        f"\n{judged.name}: {judged.truth.n:,} rows, {int(rows.ok.sum()):,} readable, "
        f"{len(judged.truth.same)} pairs the same"
    )
    heads = [f"recall at precision {least:g}" for least in PRECISIONS] + ["precision at its threshold", "recall there"]
    print(f"{'':<42}" + "  ".join(f"{head:<26}" for head in heads) + "  threshold (pairs)")
    for name, pairs, threshold in finders(judged, rows):
        show(name, measure(pairs, judged.truth, threshold), threshold)
    for name, pairs, threshold in as_run(path, judged.keys, folder):
        show(name, measure(pairs, judged.truth, threshold), threshold)
    if python:
        for name, pairs, threshold in imagededup(python, judged, rows, folder):
            show(name, measure(pairs, judged.truth, threshold), threshold)


def main() -> None:
    """Print every table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser)
    parser.add_argument("--imagededup-python", help="a Python that can import imagededup")
    parser.add_argument("--rows", type=int, default=50_000, help="of the speed measurement; 0 leaves it out")
    parser.add_argument("--tables", type=Path, help="folder that keeps the scored tables for the next run")
    a = parser.parse_args()
    torch.set_num_threads(1)
    data = open_data(a.data, FILES).need(*FILES)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if a.tables is not None:
            a.tables.mkdir(parents=True, exist_ok=True)
        for judged in (edited(data), *caltech(data)):
            quality(judged, folder if a.tables is None else a.tables, a.imagededup_python)
        if a.imagededup_python and a.rows:
            speed(a.rows, a.imagededup_python, folder)


if __name__ == "__main__":
    main()
