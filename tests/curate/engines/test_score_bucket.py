"""Scores that are written to an object store: a server of S3, with faults in front of it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from runs import SMALL, run_again

from curate.engines import output
from curate.engines.score import score
from curate.engines.store_work import WorkStore
from curate.manifest import store_lock
from curate.manifest.failures import CredentialsError
from curate.manifest.file_set import local_folder
from curate.manifest.store_lock import StoreLock
from curate.manifest.store_path import StorePath
from curate.tables.table import open_table
from scoring.errors import InputError


class Cut(Exception):
    """What the tests kill a run with."""


def cut(*_, **__):
    raise Cut


@pytest.fixture
def out(s3, tmp_path, monkeypatch):
    """The URL of a table in a bucket; what passes through this machine is in the test's own folder."""
    (tmp_path / "tmp").mkdir(mode=0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return f"{s3}/run/s.parquet"


def nothing_is_left(s3, tmp_path, table="run/s.parquet"):
    assert [key for key in s3.names() if not key.startswith(table)] == []
    assert [path for path in (tmp_path / "tmp").rglob("*") if path.is_file()] == []
    assert s3.client.list_multipart_uploads(Bucket=s3.name).get("Uploads", []) == []


def test_a_table_in_a_bucket_has_the_bytes_of_a_local_one(
    folder, full_table, tiny_checkpoint, s3, out, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    result = run_again(folder, out, tiny_checkpoint)
    assert s3.get("run/s.parquet") == full_table.read_bytes()
    assert str(result.path) == out
    assert result.rows == 30
    nothing_is_left(s3, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["tmp"]
    said = []
    again = run_again(folder, out, tiny_checkpoint, announce=said.append)
    assert again.resumed == 30
    assert any("complete already" in text for text in said)
    with pytest.raises(InputError, match="another batch-size: 4"):
        score(folder, out, model=tiny_checkpoint, **SMALL | {"batch_size": 8})
    score(folder, out, model=tiny_checkpoint, **SMALL | {"batch_size": 8}, overwrite=True)
    assert open_table(out).metadata["settings"]["batch-size"] == 8
    nothing_is_left(s3, tmp_path)


def test_a_folder_of_parts_in_a_bucket_has_the_bytes_of_a_local_one(folder, tiny_checkpoint, s3, out, tmp_path):
    local = tmp_path / "parts"
    run_again(folder, local, tiny_checkpoint)
    run_again(folder, f"{s3}/run/parts", tiny_checkpoint)
    names = sorted(path.name for path in local.glob("part-*"))
    assert s3.names() == [*(f"run/parts/{name}" for name in names), "run/parts/run.json"]
    assert all(s3.get(f"run/parts/{name}") == (local / name).read_bytes() for name in names)
    assert open_table(f"{s3}/run/parts").read().equals(open_table(local).read())
    score(folder, f"{s3}/run/parts", model=tiny_checkpoint, **SMALL, limit=9, overwrite=True)
    assert s3.names() == ["run/parts/part-000000.parquet", "run/parts/part-000001.parquet", "run/parts/run.json"]
    nothing_is_left(s3, tmp_path, "run/parts/")


SELDOM = ((0, True), (2, False), (4, False))  # which go the same way


@pytest.mark.parametrize(
    ("after", "elsewhere"),
    [(0, False), (2, True), (4, True), *(pytest.param(*each, marks=pytest.mark.slow) for each in SELDOM)],
)
def test_a_run_cut_off_goes_on_here_and_on_another_machine(
    folder, full_table, tiny_checkpoint, s3, out, tmp_path, monkeypatch, after, elsewhere
):
    commits, real = 0, WorkStore.commit

    def commit(self, line):
        nonlocal commits
        if commits == after:
            raise Cut
        commits += 1
        real(self, line)

    with monkeypatch.context() as patch:
        patch.setattr(WorkStore, "commit", commit)
        patch.setattr(output, "write_joined", cut)
        with pytest.raises(Cut):
            run_again(folder, out, tiny_checkpoint)
    assert "run/s.parquet" not in s3.names()
    temporary = tmp_path / ("other" if elsewhere else "tmp")
    temporary.mkdir(exist_ok=True, mode=0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    result = run_again(folder, out, tiny_checkpoint)
    assert result.resumed == min(30, 8 * after)
    assert s3.get("run/s.parquet") == full_table.read_bytes()
    assert s3.names() == ["run/s.parquet"]


def started(source, out, checkpoint, environment):
    command = [sys.executable, "-m", "curate", "score", str(source), "-o", out, "--model", str(checkpoint)]
    command += ["--batch-size", "4", "--shard-size", "8", "--device", "cpu"]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})


def waits_for(s3, text, times, process=None):
    deadline = time.monotonic() + 120
    while sum(text in key for key in s3.names()) < times:
        assert time.monotonic() < deadline
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.02)


@pytest.mark.slow
def test_a_process_that_is_killed_is_followed_at_once_and_ends_with_the_same_bytes(
    folder, full_table, tiny_checkpoint, s3, out, tmp_path
):
    s3.faults.add("done-000002", "hang", times=1, method="PUT")
    process = started(folder, out, tiny_checkpoint, {"TMPDIR": str(tmp_path / "tmp")})
    waits_for(s3, "done-", 2, process)
    with pytest.raises(InputError, match=f"written by process {process.pid}"):
        run_again(folder, out, tiny_checkpoint)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    s3.faults.clear()
    upload = s3.client.create_multipart_upload(Bucket=s3.name, Key="run/s.parquet")
    s3.client.upload_part(Bucket=s3.name, Key="run/s.parquet", UploadId=upload["UploadId"], PartNumber=1, Body=b"x")
    other = s3.client.create_multipart_upload(Bucket=s3.name, Key="run/s.parquet.other")
    assert run_again(folder, out, tiny_checkpoint).resumed >= 16
    assert s3.get("run/s.parquet") == full_table.read_bytes()
    left = s3.client.list_multipart_uploads(Bucket=s3.name)["Uploads"]
    assert [each["UploadId"] for each in left] == [other["UploadId"]]


@pytest.mark.slow
def test_of_two_processes_on_one_output_one_is_refused(folder, full_table, tiny_checkpoint, s3, out, tmp_path):
    """They share nothing but the bucket, as on two machines, and begin at the same time."""
    places = [tmp_path / name for name in ("one", "two")]
    for place in places:
        place.mkdir(mode=0o700)
    processes = [started(folder, out, tiny_checkpoint, {"TMPDIR": str(place)}) for place in places]
    said = [process.communicate(timeout=240)[1] for process in processes]
    codes = [process.returncode for process in processes]
    assert 0 in codes
    if codes != [0, 0]:  # else the second came when the first was done, and found the table complete
        assert sorted(codes) == [0, 1]
        assert "is being written" in said[codes.index(1)]
    assert s3.get("run/s.parquet") == full_table.read_bytes()
    assert s3.names() == ["run/s.parquet"]


@pytest.fixture
def two(s3, tmp_path):
    """A folder of a bucket, and two of this machine: two machines, as far as a lock can determine."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    return StorePath(f"{s3}/run/.s.work"), tmp_path / "one", tmp_path / "two"


def test_a_lock_is_held_released_and_taken_over_when_it_expires(two, monkeypatch):
    from moto.core.utils import utcnow

    place, held, other = two
    clock = {"seconds": 0.0}  # by which the clock of the store is ahead
    monkeypatch.setattr("moto.s3.models.utcnow", lambda: utcnow() + timedelta(**clock))
    with StoreLock(place, held) as first:
        with pytest.raises(InputError, match="is being written"), StoreLock(place, other):
            pass
        first.check()
    with StoreLock(place, other) as second:
        second.check()
    monkeypatch.setattr(store_lock, "BEAT", 0.05)
    dead = StoreLock(place, held)
    dead.__enter__()
    beat, begun = dead._object("beat"), time.monotonic()
    first = beat.modified()
    clock["seconds"] = store_lock.EXPIRY + 2
    while (beat.modified() - first).total_seconds() < store_lock.EXPIRY:
        assert time.monotonic() < begun + 60
        time.sleep(0.01)
    with pytest.raises(InputError, match="is being written by"), StoreLock(place, other):  # its heart beats
        pass
    dead.end()
    clock["seconds"] += store_lock.EXPIRY / 2
    with pytest.raises(InputError, match="is being written by"), StoreLock(place, other):
        pass
    clock["seconds"] += store_lock.EXPIRY
    with StoreLock(place, other) as second:
        second.check()
        with pytest.raises(InputError, match="was taken over"):
            dead.check()


def test_of_many_who_follow_a_dead_holder_one_does(two, monkeypatch):
    place, held, _ = two
    dead = StoreLock(place, held)
    dead.__enter__()
    dead.end()  # no heartbeat and no release; that it is dead shows from its folder, which only one can hold
    last = StoreLock._last
    with monkeypatch.context() as patch:  # all of them look before any of them creates the next lock
        patch.setattr(StoreLock, "_last", lambda self: 1)
        locks, refused = [StoreLock(place, held) for _ in range(4)], 0
        for lock in locks:
            try:
                lock.__enter__()
            except InputError:
                refused += 1
    assert refused == 3
    assert last(dead) == 2
    locks[0].check()
    locks[0].__exit__()


def test_a_store_without_conditional_writes_is_refused(folder, tiny_checkpoint, s3, out, monkeypatch):
    def create(self, data):
        self.put(data)
        return True

    monkeypatch.setattr(StorePath, "create", create)
    with pytest.raises(InputError, match=r"conditional writes \(If-None-Match\)"):
        run_again(folder, out, tiny_checkpoint)


@pytest.mark.slow
def test_a_damaged_part_or_note_is_scored_again(folder, full_table, tiny_checkpoint, s3, out, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(output, "write_joined", cut)
        with pytest.raises(Cut):
            run_again(folder, out, tiny_checkpoint)
    (tmp_path / "other").mkdir(mode=0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "other"))
    work = "run/.s.parquet.work"
    s3.put(f"{work}/part-000001.parquet", b"other bytes")  # another version
    note = json.loads(s3.get(f"{work}/done-000002.json"))
    s3.put(f"{work}/done-000002.json", json.dumps({**note, "sha256": "0" * 64}).encode())  # not of that part
    s3.client.delete_object(Bucket=s3.name, Key=f"{work}/done-000003.json")
    with pytest.raises(InputError, match=r"part-000002\.parquet was changed"):
        run_again(folder, out, tiny_checkpoint)
    result = run_again(folder, out, tiny_checkpoint)
    assert result.resumed == 22
    assert s3.get("run/s.parquet") == full_table.read_bytes()


def test_credentials_that_expire_in_the_middle_stop_the_run_and_it_goes_on(folder, tiny_checkpoint, s3, out):
    for path in folder.iterdir():
        s3.put(f"heap/{path.name}", path.read_bytes())
    s3.faults.add("heap/20.png", "expired")
    with pytest.raises(CredentialsError, match=r"\(ExpiredToken\); renew"):
        score(f"{s3}/heap", out, model=tiny_checkpoint, **SMALL, connections=1)
    s3.faults.clear()
    s3.faults.add("done-000003", "expired", method="PUT")
    with pytest.raises(CredentialsError, match=r"cannot write .*done-000003.json: .*ExpiredToken"):
        score(f"{s3}/heap", out, model=tiny_checkpoint, **SMALL)
    s3.faults.clear()
    result = score(f"{s3}/heap", out, model=tiny_checkpoint, **SMALL)
    assert result.resumed == 24
    assert result.statuses["ok"] == 28


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("s3://no-such-bucket-here/s.parquet", "'no-such-bucket-here'"),
        ("s3://bucket", "below a bucket"),
        ("https://host/s.parquet", "URL of s3://"),
        ("hf://datasets/a/s.parquet", "URL of s3://"),
        ("s3://bucket/s.csv", "scores are Parquet"),
    ],
)
def test_an_output_that_cannot_be_is_one_line(folder, tiny_checkpoint, s3, out, url, reason, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=reason) as caught:
        run_again(folder, url, tiny_checkpoint)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob("s3*"))


def test_a_store_that_denies_writing_is_one_line_before_any_image_is_read(folder, tiny_checkpoint, s3, out):
    s3.faults.add("lock-", 403, method="PUT")
    with pytest.raises(InputError, match=r"lock-000001\.json: .*403"):
        run_again(folder, out, tiny_checkpoint)


def test_throttling_passes_and_a_source_is_not_overwritten(folder, full_table, tiny_checkpoint, s3, out):
    for method in ("PUT", "GET", "HEAD"):
        s3.faults.add("s.parquet", 503, times=2, method=method)
    run_again(folder, out, tiny_checkpoint)
    assert s3.get("run/s.parquet") == full_table.read_bytes()
    for path in list(folder.iterdir())[:3]:
        s3.put(f"heap/{path.name}", path.read_bytes())
        s3.put(f"deep/er/{path.name}", path.read_bytes())
    before = s3.names()
    for source in ("heap", "deep"):
        for target in (source, ""):
            with pytest.raises(InputError, match=r"is the source|below a bucket"):
                run_again(f"{s3}/{source}", f"{s3}/{target}", tiny_checkpoint, overwrite=True)
    s3.put("other/notes.txt", b"mine")
    s3.put("other/deep/notes.txt", b"mine")
    for overwrite in (False, True):
        with pytest.raises(InputError, match=r"holds more than scores|not a table"):
            run_again(folder, f"{s3}/other", tiny_checkpoint, overwrite=overwrite)
    assert s3.names() == sorted([*before, "other/deep/notes.txt", "other/notes.txt"])


def test_a_large_table_is_sent_in_parts_and_read_in_ranges(s3, out, tmp_path, monkeypatch):
    local = tmp_path / "t.parquet"
    pq.write_table(
        pa.table({"key": [str(i) for i in range(3000)], "x": [os.urandom(5000)] * 3000}),
        local,
        use_dictionary=False,
        compression="none",
    )
    monkeypatch.setattr("s3fs.core.calculate_chunksize", lambda size, **_: 5 << 20)
    place = StorePath(f"{s3}/run/t.parquet")
    place.upload(local, overwrite=False)
    assert s3.faults.count("partNumber", "PUT") >= 2
    assert s3.get("run/t.parquet") == local.read_bytes()
    assert open_table(str(place)).read(["key"]).equals(open_table(local).read(["key"]))
    assert place.upload(local, overwrite=False)[0] == local.stat().st_size  # as after an answer that was lost
    with local.open("ab") as file:
        file.write(b"other")
    with pytest.raises(InputError, match="appeared while"):
        place.upload(local, overwrite=False)


def test_the_folder_of_this_machine_is_private(tmp_path, monkeypatch, out, folder, tiny_checkpoint):
    shared = local_folder(StorePath(out)).parent
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(InputError, match="only you can access"):
        run_again(folder, out, tiny_checkpoint)
    shared.rmdir()
    shared.symlink_to(tmp_path)
    with pytest.raises(InputError, match="only you can access"):
        run_again(folder, out, tiny_checkpoint)
    assert Path(shared).is_symlink()


@pytest.mark.slow
def test_a_table_in_a_bucket_grows_and_a_folder_there_does_not(folder, tiny_checkpoint, s3, out, tmp_path):
    photos = shutil.copytree(folder, tmp_path / "photos")
    away = photos / "07.png"
    away.rename(tmp_path / "away.png")
    first = run_again(photos, out, tiny_checkpoint).rows
    before = {row["key"]: row for row in open_table(out).read().to_pylist()}
    (tmp_path / "away.png").rename(away)
    assert score(photos, out, add=True).rows == first + 1
    after = {row["key"]: row for row in open_table(out).read().to_pylist()}
    assert {key: after[key] for key in before} == before
    assert after["07.png"]["status"] == "ok"
    nothing_is_left(s3, tmp_path)
    run_again(photos, out.removesuffix(".parquet"), tiny_checkpoint)
    with pytest.raises(InputError, match="folder"):
        score(photos, out.removesuffix(".parquet"), add=True)
