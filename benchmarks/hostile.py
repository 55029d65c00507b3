"""Thousands of broken images through the decoder: statuses, the slowest, and the memory of both sides.

    python benchmarks/hostile.py                       10,000 mutations of JPEG, PNG and WebP, 2,000 of other formats
    python benchmarks/hostile.py --parquet FILE        and the images of a table (column `bytes`)
    python benchmarks/hostile.py --n 100000 --seed 1   more, and others

Mutations are made from the photographs of examples/ by a seeded generator: bits flipped, bytes set, ends cut off,
pieces taken out, repeated, or put in from another file of the format, and numbers of headers set to extremes. Of half
of the PNGs the checksums are made right again, so that what is broken gets past them.

The process that decodes is this one, with as many threads as it has cores; had a decoder crashed in it, there would be
no table. What runs apart from it is limited as `curate score` limits it.
"""

import argparse
import collections
import concurrent.futures
import io
import os
import random
import resource
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from scoring.images import STATUSES, DecodedImage, Preprocessing, decode
from scoring.images.supervised import CHILDREN

PHOTOS = Path(__file__).resolve().parents[1] / "examples" / "photos"
PLAIN = ("jpeg", "png", "webp")
OTHERS = ("gif", "tiff", "bmp", "avif", "heif", "mpo", "ico", "ppm")
EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
P = Preprocessing(size=64, resize=64)
OPTIONS: dict[str, list[dict[str, object]]] = {
    "jpeg": [{}, {"progressive": True}, {"quality": 30, "subsampling": 2}, {"restart_marker_rows": 1}],
    "png": [{}, {"compress_level": 1}, {"dpi": (72, 72)}],
    "webp": [{}, {"lossless": True}, {"quality": 20}],
    "gif": [{}, {"interlace": 0}],
    "tiff": [{"compression": name} for name in (None, "tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg")],
}
MODES: dict[str, tuple[str, ...]] = {
    "jpeg": ("RGB", "L", "CMYK"),
    "png": ("RGB", "RGBA", "P", "1", "LA", "I;16"),
    "webp": ("RGB", "RGBA"),
    "tiff": ("RGB", "L", "CMYK"),
}


def originals(name: str) -> list[bytes]:
    """Whole files of a format, of a few kilobytes each, in its modes and options."""
    files = []
    for number, path in enumerate(sorted(PHOTOS.glob("*.jpg"))):
        picture = Image.open(path).convert("RGB")
        picture.thumbnail((160, 120))
        mode = MODES.get(name, ("RGB",))[number % len(MODES.get(name, ("RGB",)))]
        options = OPTIONS.get(name, [{}])[number % len(OPTIONS.get(name, [{}]))]
        exif = Image.Exif()
        exif[0x0112] = 1 + number % 8
        more: dict[str, object] = {"exif": exif} if name in PLAIN and number % 2 else {}
        if name in ("gif", "mpo") or (name == "webp" and number % 4 == 3):
            more |= {"save_all": True, "append_images": [picture.rotate(90)]}
        stream = io.BytesIO()
        try:
            picture.convert(mode).save(stream, name.upper(), **options, **more)
        except OSError:  # a mode that this compression has no place for
            picture.save(stream, name.upper())
        files.append(stream.getvalue())
    return files


def mutated(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """A file broken in one to three ways; ``other`` is one of the same format."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        kind = rng.choice(("flip", "set", "cut", "out", "again", "splice", "header", "length"))
        at = rng.randrange(4, max(5, len(out)))
        run = rng.choice((1, 2, 4, 16, 64, 1024))
        if kind == "flip":
            for _ in range(rng.choice((1, 4, 32))):
                out[rng.randrange(4, len(out))] ^= 1 << rng.randrange(8)
        elif kind == "set":
            out[at : at + run] = rng.randbytes(len(out[at : at + run]))
        elif kind == "cut":
            del out[at:]
        elif kind == "out":
            del out[at : at + run]
        elif kind == "again":
            out[at:at] = out[at : at + run] * rng.choice((1, 2, 100))
        elif kind == "splice":
            start = rng.randrange(len(other))
            out[at : at + run] = other[start : start + run]
        else:  # a number of two or four bytes, in either order, near the beginning or anywhere
            place = rng.randrange(4, min(len(out), 600)) if kind == "header" else at
            code = rng.choice(("<H", ">H", "<I", ">I"))
            value = rng.choice(EXTREMES) & (0xFFFF if code[1] == "H" else 0xFFFFFFFF)
            out[place : place + struct.calcsize(code)] = struct.pack(code, value)
        if len(out) < 8:
            break
    return bytes(out)


def checksums_righted(data: bytes) -> bytes:
    """A PNG whose chunks, as far as they can be followed, have right checksums."""
    out, at = bytearray(data), 8
    while at + 12 <= len(out):
        end = at + 12 + struct.unpack_from(">I", out, at)[0]
        if end > len(out):
            break
        struct.pack_into(">I", out, end - 4, zlib.crc32(out[at + 4 : end - 4]))
        at = end
    return bytes(out)


def mutations(names: tuple[str, ...], n: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Yield n broken files of some formats in turn, with the name of the format."""
    rng = random.Random(seed)
    files = {name: originals(name) for name in names}
    for number in range(n):
        name = names[number % len(names)]
        data = mutated(rng.choice(files[name]), rng.choice(files[name]), rng)
        yield name, checksums_righted(data) if name == "png" and rng.random() < 0.5 else data


def timed(case: tuple[str, bytes]) -> tuple[str, DecodedImage, float]:
    name, data = case
    began = time.perf_counter()
    outcome = decode(data, P, with_quality=True)
    return name, outcome, time.perf_counter() - began


def report(title: str, cases: list[tuple[str, bytes]], threads: int) -> None:
    """Decode all and print what became of them."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    slowest, seconds = "", 0.0
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        for name, outcome, took in pool.map(timed, cases):
            if outcome.status not in STATUSES or (outcome.pixels is None) != (outcome.status != "ok"):
                raise SystemExit(f"{name}: a wrong outcome, {outcome}")
            counts[name][outcome.status] += 1
            if took > seconds:
                slowest, seconds = f"{name}, {outcome.status}: {outcome.error}", took
    statuses = [status for status in STATUSES if any(status in counted for counted in counts.values())]
    print(f"\n{title}: {len(cases):,} files, {sum(map(sum, (c.values() for c in counts.values()))):,} outcomes")
    print("".join(f"{word:>13}" for word in ("", *statuses)))
    for name, counted in counts.items():
        print(f"{name:>13}" + "".join(f"{counted[status]:>13,}" for status in statuses))
    print(f"slowest: {seconds:.2f} s by the clock ({slowest})")


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def peak_of(pid: int) -> float:
    """Of another process; what `getrusage` reports for children begins with what their parent had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=10_000, help="mutations of JPEG, PNG and WebP; a fifth of others")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parquet", type=Path, help="table with encoded images in the column `bytes`")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    decode(originals("png")[0], P, with_quality=True)  # loads torch
    before = peak()
    if arguments.parquet:
        import pyarrow.parquet as pq

        rows = pq.read_table(arguments.parquet, columns=["bytes"])["bytes"].to_pylist()
        report(arguments.parquet.name, [("all", data) for data in rows], arguments.threads)
    report("plain formats", list(mutations(PLAIN, arguments.n, arguments.seed)), arguments.threads)
    import pillow_heif

    pillow_heif.register_heif_opener()
    report("other formats", list(mutations(OTHERS, arguments.n // 5, arguments.seed)), arguments.threads)
    ours, decoders = peak(), max(map(peak_of, CHILDREN.pids()), default=0.0)
    print(
        f"\nmost memory: {ours:,.0f} MB ({ours - before:,.0f} above the start), of a decoder apart {decoders:,.0f} MB"
    )


if __name__ == "__main__":
    main()
