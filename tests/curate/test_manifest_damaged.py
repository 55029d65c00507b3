"""Damaged sources of every kind: one line to the user or failed rows, and nothing else."""

import io
import json
import os
import random
import tarfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.manifest import ReadError, open_manifest
from scoring.errors import InputError


def parquet():
    images = [{"bytes": b"%d" % row * 9 if row % 3 else None, "path": f"{row}.jpg"} for row in range(60)]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    file = io.BytesIO()
    keys = [f"k{row}" for row in range(60)]
    pq.write_table(pa.table({"image": pa.array(images, kind), "key": keys}), file, row_group_size=20)
    return file.getvalue()


def tar():
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for row in range(8):
            for name, data in (("é" * 60 + f"{row}.jpg", b"x" * 600), (f"{row}.json", b'{"a": 1}')):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


def table():
    return ("path,label\n" + "".join(f'{row}.jpg,"l {row}"\n' for row in range(20))).encode()


def lines():
    return "".join(json.dumps({"path": f"{row}.jpg", "box": {"x": [1, 2]}}) + "\n" for row in range(20)).encode()


def damage(data, rng):
    """Change some bytes (those near the end more often), cut the file off, or put bytes in."""
    data, kind = bytearray(data), rng.random()
    if kind < 0.6:
        for _ in range(rng.randint(1, 6)):
            near_end = max(0, len(data) - 1 - rng.randrange(900))
            at = rng.choice([rng.randrange(len(data)), near_end])
            data[at] = rng.choice([rng.randrange(256), 0, 255, ord("7")])
    elif kind < 0.8:
        del data[rng.randrange(len(data)) :]
    else:
        at = rng.randrange(len(data))
        data[at:at] = rng.randbytes(rng.randint(1, 700))
    return bytes(data)


@pytest.mark.parametrize(
    ("suffix", "whole"),
    [("parquet", parquet()), ("tar", tar()), ("csv", table()), ("jsonl", lines()), ("txt", table())],
)
def test_damage_gives_one_line_or_failed_rows(tmp_path, suffix, whole):
    rng = random.Random(suffix)
    path = tmp_path / f"source.{suffix}"
    opened = refused = 0
    for _ in range(120):
        path.write_bytes(damage(whole, rng))
        try:
            manifest = open_manifest(path)
            readers = list(manifest.readers(0, manifest.n_rows))
            assert len(readers) == manifest.n_rows
            for read in readers:
                try:
                    assert isinstance(read(), bytes)
                except ReadError as error:
                    assert error.status in ("missing", "io_error", "too_large")
            assert manifest.rows(0, manifest.n_rows).num_rows == manifest.n_rows
            opened += 1
        except InputError as error:
            assert "\n" not in str(error)
            refused += 1
    assert opened + refused == 120
    assert refused > 0
    assert os.listdir(tmp_path) == [path.name]  # noqa: PTH208
