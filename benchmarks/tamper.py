"""Is every changed byte of a run found? Flip bits of what a chain of steps read and wrote, and verify each time.

    python benchmarks/tamper.py                        # every byte of a small run
    python benchmarks/tamper.py --flips 10000 --rows 2000 --width 32

A run is a table of scores and images, deduplicated and filtered, with its receipts. A flip changes one
bit, chosen by the seed, of one file; `curate.verify` of the last subset, with chain and pixels, has to say
that something differs, or refuse. The file is then put back. Prints what was flipped and found by file, and every flip
that was not found; exit 1 if there is one.
"""

import argparse
import hashlib
import json
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import curate
from curate.tables.table import embedding_field
from scoring.errors import InputError

IMAGE_BYTES = 40


def make_run(folder: Path, rows: int, width: int) -> Path:
    """Write images, scores, and two steps with receipts; return the last subset."""
    generator = np.random.default_rng(0)
    (folder / "images").mkdir()
    paths = [folder / "images" / f"{n:06}.png" for n in range(rows)]
    for path in paths:
        path.write_bytes(generator.bytes(IMAGE_BYTES))
    vectors = generator.normal(size=(rows, width))
    vectors[1::4] = vectors[::4][: len(vectors[1::4])]
    field = embedding_field(width)
    columns = {
        "key": [path.name for path in paths],
        "uri": [str(path) for path in paths],
        "sha256": [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths],
        "status": ["ok"] * rows,
        "kappa_made_up": generator.normal(size=rows).astype(np.float32),
        field.name: pa.FixedSizeListArray.from_arrays(pa.array(vectors.astype(np.float16).ravel()), type=field.type),
    }
    noted = {"curate": json.dumps({"kind": "scores", "model": {"method": "made_up", "digest": "0" * 64}})}
    pq.write_table(pa.table(columns).replace_schema_metadata(noted), folder / "scores.parquet")
    curate.dedup(folder / "scores.parquet", folder / "unique.parquet", "embedding")
    curate.filter(folder / "unique.parquet", folder / "kept.parquet", keep_top="50%", column="kappa_made_up")
    return folder / "kept.parquet"


def is_detected(kept: Path) -> bool:
    """Whether a verification says that something is not as it was; a crash says nothing, and is printed."""
    try:
        proof = curate.verify(kept, chain=True, pixels="all")
    except InputError:
        return True
    except Exception:
        traceback.print_exc()
        return False
    return not proof.identical


def places(files: Sequence[Path], flips: int | None, seed: int) -> Iterator[tuple[Path, int, int]]:
    """Yield file, byte and bit: every byte of all files, or some drawn from all bytes."""
    generator = np.random.default_rng(seed)
    sizes = [path.stat().st_size for path in files]
    total = sum(sizes)
    drawn = np.arange(total) if flips is None else generator.integers(0, total, flips)
    ends = np.cumsum(sizes)
    which = np.searchsorted(ends, drawn, side="right")
    bits = generator.integers(0, 8, len(drawn))
    for at, number, bit in zip(drawn, which, bits, strict=True):
        yield files[number], int(at - ends[number] + sizes[number]), int(bit)


def flipped(path: Path, at: int, bit: int) -> None:
    """Change one bit of a file where it lies."""
    with path.open("r+b") as file:
        file.seek(at)
        old = file.read(1)[0]
        file.seek(at)
        file.write(bytes([old ^ 1 << bit]))


def main(typed: Sequence[str] | None = None) -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=12)
    parser.add_argument("--width", type=int, default=4, help="of the embeddings")
    parser.add_argument("--flips", type=int, help="drawn at random; by default every byte once")
    parser.add_argument("--every", type=int, default=1, help="of every byte, only each so-manieth")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(typed)
    begun, tried, missed = time.perf_counter(), Counter[str](), list[str]()
    with TemporaryDirectory() as name:
        folder = Path(name).resolve()
        kept = make_run(folder, options.rows, options.width)
        if is_detected(kept):
            raise SystemExit("the run does not verify before anything was changed; expected it to")
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        for number, (path, at, bit) in enumerate(places(files, options.flips, options.seed)):
            if number % options.every:
                continue
            flipped(path, at, bit)
            tried["images" if path.suffix == ".png" else path.name] += 1
            if not is_detected(kept):
                missed.append(f"{path.name}: bit {bit} of byte {at}")
            flipped(path, at, bit)
        if is_detected(kept):
            raise SystemExit("the run does not verify after all was put back; expected it to")
    for what, n in sorted(tried.items()):
        print(f"{what}: {n:,} flips")
    print("\n".join(missed))
    print(f"{tried.total() - len(missed):,} of {tried.total():,} found, {time.perf_counter() - begun:.0f} s")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
