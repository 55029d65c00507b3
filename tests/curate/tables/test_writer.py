"""Tables are written whole or not at all, with the same bytes for the same rows."""

import errno
import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_tables import META, SCHEMA, rows, written

from curate.tables import writer as writer_module
from curate.tables.table import open_table
from curate.tables.writer import TableWriter
from scoring.atomic import AtomicFile, commit_together
from scoring.errors import InputError


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_equal_rows_give_equal_bytes_however_they_are_split(tmp_path, monkeypatch):
    monkeypatch.setattr(writer_module, "ROW_GROUP_ROWS", 64)
    table = rows(1000)
    written(tmp_path / "whole.parquet", table)
    with TableWriter(tmp_path / "pieces.parquet", SCHEMA, META) as writer:
        start = 0
        for n in (1, 63, 64, 65, 500, 7, 300):
            writer.write(table.slice(start, n))
            start += n
    assert start == 1000
    assert (tmp_path / "pieces.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert pq.ParquetFile(tmp_path / "whole.parquet").num_row_groups == 16


def test_time_of_many_small_writes_grows_with_their_number_and_not_its_square(tmp_path):
    small = pa.table({f"c{number}": [1.5] for number in range(100)})
    begun = time.process_time()
    with TableWriter(tmp_path / "t.parquet", small.schema, META) as writer:
        for _ in range(500):
            writer.write(small)
    assert time.process_time() - begun < 2


def test_the_writer_records_the_digest_of_its_file(tmp_path):
    with TableWriter(tmp_path / "a.parquet", SCHEMA, META) as writer:
        writer.write(rows(10))
    assert writer.file.sha256 == hashlib.sha256((tmp_path / "a.parquet").read_bytes()).hexdigest()
    assert writer.file.n_bytes == (tmp_path / "a.parquet").stat().st_size


def test_file_metadata_of_others_is_kept_but_not_the_index_of_pandas(tmp_path):
    schema = pa.schema([("key", pa.string())], {b"huggingface": b"{}", b"pandas": b"{}"})
    with TableWriter(tmp_path / "a.parquet", schema, META) as writer:
        writer.write(pa.table([["a"]], schema=schema))
    stored = pq.read_schema(tmp_path / "a.parquet").metadata
    assert b"huggingface" in stored
    assert b"pandas" not in stored


def test_an_existing_file_is_refused_or_replaced_at_the_end_on_request(tmp_path):
    path = written(tmp_path / "a.parquet", rows(3))
    with pytest.raises(InputError, match=r"a\.parquet exists already.*--overwrite"):
        TableWriter(path, SCHEMA, META)
    with TableWriter(path, SCHEMA, META, overwrite=True) as writer:
        writer.write(rows(5))
        assert open_table(path).n_rows == 3  # until the very end
    assert open_table(path).n_rows == 5


def test_an_exception_leaves_nothing_behind_and_the_old_file_as_it_was(tmp_path):
    path = written(tmp_path / "a.parquet", rows(3))
    before = path.read_bytes()
    with pytest.raises(ZeroDivisionError), TableWriter(path, SCHEMA, META, overwrite=True) as writer:
        writer.write(rows(5 // (writer.n_rows or 0)))
    assert path.read_bytes() == before
    assert names_in(tmp_path) == ["a.parquet"]


def test_a_name_taken_while_writing_is_not_replaced(tmp_path):
    path = tmp_path / "a.parquet"
    with pytest.raises(InputError, match="appeared while"), TableWriter(path, SCHEMA, META):
        path.write_text("somebody else's")
    assert path.read_text() == "somebody else's"
    assert names_in(tmp_path) == ["a.parquet"]


def test_rows_of_another_schema_are_a_bug_of_the_caller(tmp_path):
    with (
        pytest.raises(ValueError, match="have the schema"),
        TableWriter(tmp_path / "a.parquet", SCHEMA, META) as writer,
    ):
        writer.write(pa.table({"key": ["a"]}))
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("place", ["file/a.parquet", "folder.parquet"])
def test_a_place_that_cannot_be_written_is_named_in_one_line(tmp_path, place):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.parquet").mkdir()
    with pytest.raises(InputError, match=r"cannot write .*parquet: ") as caught:
        TableWriter(tmp_path / place, SCHEMA, META)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_named(tmp_path):
    (tmp_path / "locked").mkdir(mode=0o555)
    with pytest.raises(InputError, match="permission denied"):
        TableWriter(tmp_path / "locked" / "a.parquet", SCHEMA, META)


class FullDisk:
    """A file that has room for ``room`` bytes."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def __getattr__(self, name):
        return getattr(self.file, name)

    def write(self, data):
        self.room -= len(data)
        if self.room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.file.write(data)


@pytest.mark.parametrize("room", [0, 3, 4, 1000, 4000, 20_000])
def test_a_full_disk_is_one_line_and_leaves_nothing_behind(tmp_path, monkeypatch, room):
    monkeypatch.setattr(writer_module, "ROW_GROUP_ROWS", 100)
    real = os.fdopen
    monkeypatch.setattr("scoring.atomic.os.fdopen", lambda *args: FullDisk(real(*args), room))
    with pytest.raises(InputError, match=r"a\.parquet: the disk is full"):
        written(tmp_path / "a.parquet", rows(2000))
    assert names_in(tmp_path) == []


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_only_whole_files(tmp_path):
    code = (
        "import sys\n"
        "from tests.curate.tables.test_table import rows, written\n"
        "table = rows(3000)\n"
        "print('ready', flush=True)\n"
        "for i in range(10**6):\n    written(f'{sys.argv[1]}/{i}.parquet', table)\n"
    )
    root = Path(__file__).parents[3]
    generator = np.random.default_rng(0)
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        process = subprocess.Popen([sys.executable, "-c", code, str(folder)], cwd=root, stdout=subprocess.PIPE)
        process.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(float(generator.uniform(0.05, 0.4)))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        complete = sorted(folder.glob("[0-9]*.parquet"))
        assert all(open_table(path).read().num_rows == 3000 for path in complete)
        assert len(list(folder.glob(".*.tmp.*"))) <= 1


def test_files_that_belong_together_get_their_names_together(tmp_path):
    files = [AtomicFile(tmp_path / name) for name in ("a", "b", "c")]
    for file in files:
        file.write(b"text")
    (tmp_path / "c").write_text("taken")
    with pytest.raises(InputError, match="appeared"):
        commit_together(files)
    assert names_in(tmp_path) == ["c"]
    files = [AtomicFile(tmp_path / name) for name in ("a", "b")]
    commit_together(files)
    assert names_in(tmp_path) == ["a", "b", "c"]


def test_new_files_have_the_usual_permissions(tmp_path):
    mask = os.umask(0o027)
    try:
        path = written(tmp_path / "a.parquet", rows(1))
    finally:
        os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o640


def test_text_that_comes_as_dictionaries_is_written_as_the_same_text(tmp_path):
    texts = pa.array(["keep", None, "drop", "keep"])
    coded = pa.DictionaryArray.from_arrays(pa.array([0, None, 1, 0], pa.int8()), pa.array(["keep", "drop", "failed"]))
    schema = pa.schema([("key", pa.string()), ("decision", pa.string())])
    for name, column in (("plain", texts), ("coded", coded)):
        with TableWriter(tmp_path / f"{name}.parquet", schema, META) as writer:
            for start in (0, 2):
                writer.write(pa.table({"key": ["a", "b"], "decision": column.slice(start, 2)}))
    plain, coded = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("plain", "coded"))
    assert coded.schema.equals(plain.schema, check_metadata=True)
    assert coded.equals(plain)
