"""Damaged sources of every kind: one line to the user or failed rows, and nothing else."""

import io
import json
import os
import random
import tarfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.manifest import footers
from curate.manifest.contract import ReadError
from curate.manifest.sources import open_manifest
from scoring.errors import InputError


@pytest.fixture(scope="module", autouse=True)
def footers_here():
    """Not here but in a process of their own, which some of them abort."""


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


def outcome(read):
    try:
        return type(read())
    except ReadError as error:
        return error.status


def attempt(path):
    """Open and read everything; the set of what came of the rows, or the text of the refusal."""
    try:
        manifest = open_manifest(path)
        outcomes = [outcome(read) for read in manifest.readers(0, manifest.n_rows)]
        if len(outcomes) != manifest.n_rows or manifest.rows(0, manifest.n_rows).num_rows != manifest.n_rows:
            return {"rows lost"}
        return set(outcomes)
    except InputError as error:
        return str(error)


SOURCES = {"parquet": parquet(), "tar": tar(), "csv": table(), "jsonl": lines(), "txt": table()}


@pytest.mark.parametrize("suffix", SOURCES)
def test_damage_gives_one_line_or_failed_rows(tmp_path, suffix):
    rng = random.Random(suffix)
    path = tmp_path / f"source.{suffix}"
    refused = 0
    for _ in range(12 if suffix == "parquet" else 120):
        path.write_bytes(damage(SOURCES[suffix], rng))
        came = attempt(path)
        if isinstance(came, str):
            refused += 1
            assert "\n" not in came
        else:
            assert came <= {bytes, "missing", "io_error", "too_large"}
    assert refused or suffix == "txt"
    assert os.listdir(tmp_path) == [path.name]  # noqa: PTH208


def test_a_parquet_footer_that_would_abort_the_process_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    path.write_bytes(parquet())
    assert isinstance(attempt(path), set)
    monkeypatch.setattr(
        footers, "_CHILD", footers._CHILD.replace("chunk.encodings", "os.abort()").replace("io,", "io, os,")
    )
    assert "its footer contradicts itself" in attempt(path)
    monkeypatch.setattr(footers, "_CHILD", "raise SystemExit(1)")  # no such process: the check is left out
    assert isinstance(attempt(path), set)
