"""Mutated files and what reads them: ``python tests/fuzz/mutated.py SEED FIRST COUNT FOLDER`` runs some of them.

A file is valid, of one of the writers below, until a few bytes are changed. Each use of it ends in a result or in one
of the project's named errors, within seconds and a bounded memory, and accounts for every row. Problems are printed
as JSON lines, the number of a case before it is run: what kills the process, such as a fault in Arrow, is known by it.
"""

import contextlib
import faulthandler
import io
import json
import random
import resource
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from curate.fitting.fit import fit
from curate.lineage.verify import verify
from curate.manifest.contract import ReadError, SourceOptions
from curate.manifest.sources import open_manifest
from curate.policies.dedup.policy import dedup
from curate.policies.filter.policy import filter as filter_rows
from curate.policies.labels.policy import labels
from curate.policies.select.policy import select
from curate.tables.writer import TableWriter
from curate.training.info import info
from scoring.errors import InputError

N = 72
LABELLED = 60  # of them, in a file of labels
SECONDS = 5.0  # of processor time for one use
HANG = 60  # seconds of one case on a busy machine, after which its process is ended
MOST_GROWTH = 1 << 30  # bytes
NASTY = (b"\0", b"\xff", b'"', b",", b"\n", b"\r", b"'", b"-", b"[", b"{", b"\xef\xbb\xbf", b"\xff\xfe", b"9" * 400)
LIMITS = (0, 1, -1, 2**7, 2**15, 2**31 - 1, -(2**31), 2**32, 2**40, 2**62)


def image(number: int) -> bytes:
    """Return a small JPEG."""
    stream = io.BytesIO()
    pixels = np.random.default_rng(number).integers(0, 255, (12, 16, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(stream, "jpeg")
    return stream.getvalue()


IMAGES = [image(number) for number in range(N)]


def scored() -> pa.Table:
    """Return a table like one of `curate score`."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(N, 8)).astype(np.float32)
    vectors[5] = vectors[4]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return pa.table(
        {
            "key": [f"k{i}" for i in range(N)],
            "uri": [f"file:///none/{i}.jpg" for i in range(N)],
            "status": ["ok"] * (N - 1) + ["corrupt"],
            "sha256": [f"{i // 2 if i < 8 else i:064x}" for i in range(N)],
            "label": [None if i == 3 else "cat" if i % 2 else "dog" for i in range(N)],
            "width": pa.array(range(N), pa.int32()),
            "unc_a": pa.array([None if i == 7 else float(i) for i in range(N)], pa.float32()),
            "embedding": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 8),
        }
    )


def parquet(table: pa.Table, **options: Any) -> bytes:
    """Return a table as Parquet by pyarrow."""
    stream = io.BytesIO()
    pq.write_table(table, stream, **options)
    return stream.getvalue()


def by_polars(table: pa.Table) -> bytes:
    """Return a table as Parquet by polars."""
    stream = io.BytesIO()
    pl.from_arrow(table).write_parquet(stream)
    return stream.getvalue()


def by_pandas(table: pa.Table) -> bytes:
    """Return a table as Parquet by pandas, with its index."""
    import pandas as pd

    stream = io.BytesIO()
    frame = pd.DataFrame(table.drop(["embedding"]).to_pydict()).set_index("key", drop=False)
    frame.index.name = "row"
    frame.to_parquet(stream)
    return stream.getvalue()


def of_ours(table: pa.Table, folder: Path) -> bytes:
    """Return a table as `curate score` writes it."""
    path = folder / "ours.parquet"
    with TableWriter(path, table.schema, {"kind": "scores", "model": {"digest": "x"}}, overwrite=True) as writer:
        writer.write(table)
    return path.read_bytes()


def tar_of(kind: int) -> bytes:
    """Return images and their members in a tar file of one of the formats."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=kind) as archive:
        for number in range(8):
            sides = {"jpg": IMAGES[number], "cls": b"3", "json": b'{"n": %d, "t": "x"}' % number}
            for suffix, data in sides.items():
                info_ = tarfile.TarInfo(f"{'d' * (110 if number == 2 else 2)}/{number:04}.{suffix}")
                info_.size = len(data)
                archive.addfile(info_, io.BytesIO(data))
    return stream.getvalue()


def seeds(folder: Path) -> dict[str, tuple[str, str, bytes]]:
    """Return name -> kind of use, suffix, and the bytes of a valid file."""
    table = scored()
    pictures = pa.table(
        {
            "image": [{"bytes": data, "path": f"{number}.jpg"} for number, data in enumerate(IMAGES)],
            "label": pa.array(["cat", "dog"] * (N // 2)).dictionary_encode(),
        }
    )
    listed = [f"{'cat' if i % 2 else 'dog'}/{i}.jpg" for i in range(N)]
    plain = "key,label\n" + "".join(f"k{i},{'cat' if i % 2 else 'dog'}\n" for i in range(LABELLED))
    quoted = "key;label\r\n" + "".join(f'"k{i}";"a ""b"" {i % 2}"\r\n' for i in range(LABELLED))
    lines = "".join(
        json.dumps({"key": f"k{i}", "label": "cat" if i % 2 else "dog", "n": i}) + "\n" for i in range(LABELLED)
    )
    return {
        "ours": ("table", ".parquet", of_ours(table, folder)),
        "plain": ("table", ".parquet", parquet(table, compression="none", use_dictionary=False)),
        "snappy": ("table", ".parquet", parquet(table, compression="snappy", row_group_size=7)),
        "zstd": ("table", ".parquet", parquet(table, compression="zstd", data_page_version="2.0")),
        "polars": ("table", ".parquet", by_polars(table)),
        "pandas": ("table", ".parquet", by_pandas(table)),
        "bytes": ("source", ".parquet", parquet(pictures, compression="none", row_group_size=9)),
        "large": ("source", ".parquet", parquet(pictures.cast(_large(pictures.schema)), compression="gzip")),
        "csv": ("source", ".csv", ("path,label\n" + "".join(f"{name},x\n" for name in listed)).encode()),
        "excel": ("source", ".csv", ("path;label\r\n" + "".join(f"{name};x\r\n" for name in listed)).encode("utf-16")),
        "jsonl": ("source", ".jsonl", "".join(json.dumps({"path": name, "n": 1}) + "\n" for name in listed).encode()),
        "txt": ("source", ".txt", "\n".join(listed).encode("utf-8-sig")),
        "ustar": ("source", ".tar", tar_of(tarfile.USTAR_FORMAT)),
        "pax": ("source", ".tar", tar_of(tarfile.PAX_FORMAT)),
        "gnu": ("source", ".tar", tar_of(tarfile.GNU_FORMAT)),
        "labels": ("labels", ".csv", plain.encode()),
        "semicolons": ("labels", ".csv", quoted.encode("utf-8-sig")),
        "tabs": ("labels", ".tsv", plain.replace(",", "\t").encode("utf-16")),
        "lines": ("labels", ".jsonl", lines.encode()),
        "known": ("labels", ".parquet", parquet(table.select(["key", "label"]).slice(8, LABELLED))),
        "subset": ("receipt", ".parquet", b""),
        "decisions": ("receipt", ".parquet", b""),
        "receipt": ("receipt", ".json", b""),
    }


def _large(schema: pa.Schema) -> pa.Schema:
    inner = pa.struct([("bytes", pa.large_binary()), ("path", pa.large_string())])
    return pa.schema([("image", inner), *[field for field in schema if field.name != "image"]])


def mutate(content: bytes, rng: random.Random, suffix: str) -> bytes:
    """Return bytes with one to four changes, at places and of kinds that break readers."""
    out = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        near_end = suffix == ".parquet" and rng.random() < 0.5  # the footer
        at = max(0, len(out) - rng.randrange(1, min(3000, len(out)) + 1)) if near_end else rng.randrange(len(out) + 1)
        run = rng.choice((1, 1, 2, 4, 8, 100, 512))
        out = _changed(out, at, run, rng, suffix)
        if not out:
            break
    return bytes(out)


def _changed(out: bytearray, at: int, run: int, rng: random.Random, suffix: str) -> bytearray:
    kind = rng.randrange(12)
    if kind == 0 and at < len(out):
        out[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del out[at:]
    elif kind == 2:
        out[at:at] = rng.randbytes(run)
    elif kind == 3:
        out[at:at] = out[at : at + run] * rng.choice((1, 3, 200))
    elif kind == 4:
        out[at : at + run] = bytes(reversed(out[at : at + run]))
    elif kind == 5:
        out[at : at + 1] = rng.choice(NASTY)
    elif kind == 6:
        out[at : at + run] = rng.randbytes(len(out[at : at + run]))
    elif kind == 7:
        width = rng.choice((1, 2, 4, 8))
        out[at : at + width] = (rng.choice(LIMITS) % 256**width).to_bytes(width, rng.choice(("little", "big")))
    elif kind == 8:
        del out[at : at + run]
    elif kind == 9 and suffix not in (".parquet", ".tar"):
        out = bytearray(
            out.decode("utf-8", "replace").encode(rng.choice(("utf-16", "utf-16-be", "utf-32", "cp1252")), "replace")
        )
    elif kind == 10 and suffix not in (".parquet", ".tar"):
        first = out.split(b"\n")[0] + b"\n"
        out[at:at] = rng.choice((first, b"x" * 300_000, b"\n\n\n", b"9" * 5000, b"\r"))
    else:
        out[at : at + run] = bytes(len(out[at : at + run]))
    return out


class Lost(Exception):
    """Rows that no outcome accounts for."""


def use_source(path: Path, folder: Path) -> None:
    """Open a source, and read its rows and what they hold."""
    manifest = open_manifest(str(path), SourceOptions())
    rows = manifest.rows(0, manifest.n_rows)
    rows.validate(full=True)
    if rows.num_rows != manifest.n_rows:
        raise Lost(f"{rows.num_rows} rows of {manifest.n_rows}")
    n_read = 0
    for read in manifest.readers(0, manifest.n_rows):
        n_read += 1
        try:
            read()
        except ReadError:
            continue
    if n_read != manifest.n_rows:
        raise Lost(f"{n_read} readers of {manifest.n_rows}")


def balanced(result: Any, path: Path) -> None:
    """Compare rows in with rows accounted for, and with what Arrow counts."""
    total = result.kept + result.dropped + result.undecided + result.failed
    if total != result.n_rows or pq.ParquetFile(path).metadata.num_rows != result.n_rows:
        raise Lost(f"{total} of {result.n_rows} rows, {pq.ParquetFile(path).metadata.num_rows} by Arrow")


def fit_labelled(path: Path, folder: Path) -> None:
    """Fit with labels; a fifth of the files do."""
    fit(folder / "valid.parquet", apply=folder / "fitted.parquet", labelled=path, label="label", overwrite=True)


USES: dict[str, list[Callable[[Path, Path], Any]]] = {
    "source": [use_source],
    "table": [
        use_source,
        lambda path, folder: balanced(filter_rows(path, keep_top="50%", column="unc_a", dry_run=True), path),
        lambda path, folder: balanced(filter_rows(path, folder / "o.parquet", where="width > 5", overwrite=True), path),
        lambda path, folder: balanced(dedup(path, finder="bytes", dry_run=True), path),
        lambda path, folder: balanced(dedup(path, finder="embedding", dry_run=True), path),
        lambda path, folder: balanced(select(path, strategy="random", budget=3, dry_run=True), path),
        lambda path, folder: labels(path, label="label"),
        lambda path, folder: info(path),
    ],
    "labels": [
        lambda path, folder: balanced(
            select(folder / "valid.parquet", strategy="random", budget=1, labelled=path, dry_run=True),
            folder / "valid.parquet",
        ),
        fit_labelled,
        lambda path, folder: labels(folder / "valid.parquet", labelled=path, label="label"),
    ],
}


def receipts(folder: Path, name: str, rng: random.Random) -> None:
    """Change one file of a set that verifies: it verifies no more."""
    files = {"subset": "s.parquet", "decisions": "s.decisions.parquet", "receipt": "s.receipt.json"}
    place = folder / "set" / files[name]
    content = place.read_bytes()
    changed = mutate(content, rng, place.suffix)
    place.write_bytes(changed)
    with contextlib.suppress(InputError):
        info(place)
    try:
        proof = verify(folder / "set" / files["receipt"])
        if proof.identical and changed != content and name != "receipt":
            raise Lost(f"a changed {name} verifies")
    except InputError:
        pass
    finally:
        place.write_bytes(content)


def problems(
    number: int, seed: int, files: dict[str, tuple[str, str, bytes]], folder: Path
) -> Iterator[dict[str, Any]]:
    """Yield what went wrong in one case."""
    rng = random.Random(f"{seed} {number}")
    name = list(files)[number % len(files)]
    kind, suffix, content = files[name]
    path = folder / f"m{suffix}"
    uses: list[Callable[[Path, Path], Any]] = USES.get(kind, [lambda path, folder: receipts(folder, name, rng)])
    if kind != "receipt":
        path.write_bytes(mutate(content, rng, suffix))
    for place, use in enumerate(uses):
        if use is fit_labelled and rng.random() > 0.2:
            continue
        began, before = time.thread_time(), peak()
        try:
            use(path, folder)
        except InputError as error:
            if "\n" in str(error) or not str(error):
                yield {"case": number, "of": name, "use": place, "error": f"not one line: {str(error)[:300]!r}"}
        except BaseException as error:
            import traceback

            where = traceback.extract_tb(error.__traceback__)
            at = next(
                (
                    f"{frame.filename}:{frame.lineno}"
                    for frame in reversed(where)
                    if "site-packages" not in frame.filename
                ),
                "",
            )
            yield {
                "case": number,
                "of": name,
                "use": place,
                "error": f"{type(error).__name__}: {str(error)[:300]}",
                "at": at,
            }
        if time.thread_time() - began > SECONDS:
            yield {"case": number, "of": name, "use": place, "error": f"{time.thread_time() - began:.1f} s"}
        if peak() - before > MOST_GROWTH:
            yield {"case": number, "of": name, "use": place, "error": f"{(peak() - before) / 1e9:.1f} GB"}


def peak() -> int:
    """Return the most memory that the process has held, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Run some cases."""
    seed, first, count = map(int, sys.argv[1:4])
    folder = Path(sys.argv[4])
    (folder / "set").mkdir(parents=True, exist_ok=True)
    files = seeds(folder)
    (folder / "valid.parquet").write_bytes(files["ours"][2])
    filter_rows(folder / "valid.parquet", folder / "set" / "s.parquet", keep_top="50%", column="unc_a", overwrite=True)
    for number in range(first, first + count):
        print(json.dumps({"begins": number}), flush=True)
        faulthandler.dump_traceback_later(HANG, exit=True)
        for problem in problems(number, seed, files, folder):
            print(json.dumps(problem), flush=True)
    faulthandler.cancel_dump_traceback_later()
    print(json.dumps({"done": count}), flush=True)


if __name__ == "__main__":
    main()
