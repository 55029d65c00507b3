"""Scores that are written to Google's store: a server that speaks its protocol, with faults in front of it."""

import os
import signal
import subprocess
import sys
import tempfile
import time

import pytest
from runs import SMALL, run_again

from curate.engines import output
from curate.engines.score import score
from curate.engines.store_work import WorkStore
from curate.manifest import store_lock
from curate.manifest.failures import CredentialsError
from curate.manifest.store_lock import StoreLock
from curate.manifest.store_path import StorePath
from curate.tables.table import open_table
from scoring.errors import InputError

EXPIRED = b'{"error": {"code": 401, "message": "Invalid Credentials"}}'


def answer(status, text):
    def do(handler):
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(text)))
        handler.end_headers()
        handler.wfile.write(text)

    return do


@pytest.fixture
def out(gs, tmp_path, monkeypatch):
    """The URL of a table in a bucket; what passes through this machine is in the test's own folder."""
    (tmp_path / "tmp").mkdir(mode=0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return f"{gs}/run/s.parquet"


def test_a_table_and_a_folder_of_parts_have_the_bytes_of_local_ones(
    folder, full_table, tiny_checkpoint, gs, out, tmp_path
):
    result = run_again(folder, out, tiny_checkpoint)
    assert gs.get("run/s.parquet") == full_table.read_bytes()
    assert (str(result.path), gs.names()) == (out, ["run/s.parquet"])
    assert [path for path in (tmp_path / "tmp").rglob("*") if path.is_file()] == []
    said = []
    assert run_again(folder, out, tiny_checkpoint, announce=said.append).resumed == 30
    assert any("complete already" in text for text in said)
    with pytest.raises(InputError, match="another batch-size: 4"):
        score(folder, out, model=tiny_checkpoint, **SMALL | {"batch_size": 8})
    score(folder, out, model=tiny_checkpoint, **SMALL | {"batch_size": 8}, overwrite=True)
    assert open_table(out).metadata["settings"]["batch-size"] == 8

    local = tmp_path / "parts"
    run_again(folder, local, tiny_checkpoint)
    run_again(folder, f"gcs://{gs.name}/parts", tiny_checkpoint)
    names = sorted(path.name for path in local.glob("part-*"))
    assert gs.names("parts") == [*(f"parts/{name}" for name in names), "parts/run.json"]
    assert all(gs.get(f"parts/{name}") == (local / name).read_bytes() for name in names)
    assert open_table(f"{gs}/parts").read().equals(open_table(local).read())
    assert gs.names() == [*gs.names("parts"), "run/s.parquet"]


@pytest.mark.parametrize("elsewhere", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_run_cut_off_goes_on_here_and_on_another_machine(
    folder, full_table, tiny_checkpoint, gs, out, tmp_path, monkeypatch, elsewhere
):
    commits, real = [], WorkStore.commit

    class Cut(Exception):
        pass

    def commit(self, line):
        if len(commits) == 2:
            raise Cut
        commits.append(line)
        real(self, line)

    with monkeypatch.context() as patch:
        patch.setattr(WorkStore, "commit", commit)
        with pytest.raises(Cut):
            run_again(folder, out, tiny_checkpoint)
    assert "run/s.parquet" not in gs.names()
    temporary = tmp_path / ("other" if elsewhere else "tmp")
    temporary.mkdir(exist_ok=True, mode=0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    assert run_again(folder, out, tiny_checkpoint).resumed == 16
    assert (gs.get("run/s.parquet"), gs.names()) == (full_table.read_bytes(), ["run/s.parquet"])


@pytest.fixture
def two(gs, tmp_path):
    """A folder of a bucket, and two of this machine: two machines, as far as a lock can determine."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    return StorePath(f"{gs}/run/.s.work"), tmp_path / "one", tmp_path / "two"


def test_a_lock_is_held_by_one_released_and_taken_over_when_it_expires(two, gs, monkeypatch):
    place, held, other = two
    with StoreLock(place, held) as first:
        assert gs.faults.count("ifGenerationMatch=0", "POST") >= 2  # the second try, which has to fail
        with pytest.raises(InputError, match="is being written"), StoreLock(place, other):
            pass
        first.check()
    with StoreLock(place, other) as second:
        second.check()
    monkeypatch.setattr(store_lock, "BEAT", 60)
    monkeypatch.setattr(store_lock, "EXPIRY", 0.1)
    dead = StoreLock(place, held)
    dead.__enter__()
    time.sleep(0.2)
    with StoreLock(place, other) as second:
        second.check()
        with pytest.raises(InputError, match="was taken over"):
            dead.check()
    dead.end()


def test_of_many_who_follow_a_dead_holder_one_does(two, monkeypatch):
    place, held, _ = two
    dead = StoreLock(place, held)
    dead.__enter__()
    dead.end()
    refused = 0
    with monkeypatch.context() as patch:  # all of them look before any of them creates the next lock
        patch.setattr(StoreLock, "_last", lambda self: 1)
        for lock in [StoreLock(place, held) for _ in range(4)]:
            try:
                lock.__enter__()
            except InputError:
                refused += 1
            else:
                lock.end()
    assert refused == 3


def test_a_write_whose_answer_is_lost_is_no_other_writer(gs, tmp_path):
    """The server has the object, its answer does not come, and the driver's second try finds the name taken."""
    local = tmp_path / "t.parquet"
    for size in (1000, 6 << 20):
        local.write_bytes(os.urandom(size))
        place = StorePath(f"{gs}/run/{size}")
        gs.put(f"run/{size}", local.read_bytes())
        assert place.upload(local, overwrite=False)[0] == size
        gs.put(f"run/{size}", b"of somebody else")
        with pytest.raises(InputError, match="appeared while"):
            place.upload(local, overwrite=False)
        place.upload(local, overwrite=True)
        assert gs.get(f"run/{size}") == local.read_bytes()


SLOW = pytest.mark.slow


@pytest.mark.parametrize("fault", [503, "cut", pytest.param(429, marks=SLOW), pytest.param("reset", marks=SLOW)])
def test_a_fault_that_passes_is_not_seen_in_the_table(folder, full_table, tiny_checkpoint, gs, out, fault):
    for method in ("POST", "GET", "DELETE"):
        for part in ("part-000001", "upload/", "s.parquet"):
            gs.faults.add(part, fault, times=2, method=method)
    run_again(folder, out, tiny_checkpoint)
    assert (gs.get("run/s.parquet"), gs.names()) == (full_table.read_bytes(), ["run/s.parquet"])
    assert gs.faults.count("part-000001", "GET") >= 3  # two that failed


def test_what_the_store_refuses_is_one_line_before_any_image_is_read(folder, tiny_checkpoint, gs, out):
    def refused(reason, url=out, kind=InputError):
        with pytest.raises(kind, match=reason) as caught:
            run_again(folder, url, tiny_checkpoint)
        assert "\n" not in str(caught.value)
        gs.faults.clear()

    refused("there is no bucket 'no-such-bucket-here'", "gs://no-such-bucket-here/s.parquet")
    refused("expected a name below a bucket", "gs://bucket")
    gs.faults.add("", 403, method="POST")
    refused(r"cannot write .*lock-000001.json: the server denies access \(HTTP status 403\); check the permissions")
    gs.faults.add("", 403)
    refused(r"cannot list .*: the server denies access \(HTTP status 403\)")
    gs.faults.add("", 503)
    refused(r"cannot list .*: fetching failed: HTTP status 503")
    assert gs.names() == []
    gs.faults.add("", answer(401, EXPIRED))
    refused(r"no longer valid \(HTTP status 401\); renew them and repeat", kind=CredentialsError)


def test_a_bucket_that_may_only_be_listed_is_a_bucket(folder, tiny_checkpoint, gs, out):
    """As with the role of an object admin, and nothing in the bucket yet."""
    gs.faults.rules.append(lambda method, path: 403 if path.split("?")[0].endswith(f"/b/{gs.name}") else None)
    run_again(folder, out, tiny_checkpoint, limit=4)
    assert gs.names() == ["run/s.parquet"]


def test_credentials_that_expire_in_the_middle_stop_the_run_and_it_goes_on(folder, tiny_checkpoint, gs, out):
    for path in folder.iterdir():
        gs.put(f"heap/{path.name}", path.read_bytes())
    gs.faults.add("heap%2F20.png", answer(401, EXPIRED))
    with pytest.raises(CredentialsError, match=r"status 401\); renew"):
        score(f"{gs}/heap", out, model=tiny_checkpoint, **SMALL, connections=1)
    gs.faults.clear()
    result = score(f"{gs}/heap", out, model=tiny_checkpoint, **SMALL)
    assert result.resumed == 16
    assert result.statuses["ok"] == 28


@pytest.mark.slow
def test_a_process_that_is_killed_is_followed_at_once_and_ends_with_the_same_bytes(
    folder, full_table, tiny_checkpoint, gs, out, tmp_path
):
    command = [sys.executable, "-m", "curate", "score", str(folder), "-o", out, "--model", str(tiny_checkpoint)]
    command += ["--batch-size", "4", "--shard-size", "8", "--device", "cpu"]
    environment = {"TMPDIR": str(tmp_path / "tmp"), "FSSPEC_GS_TOKEN": "anon"}
    seen = []

    def rule(method, path):  # notes are put in the body's name: the third upload of one waits
        seen.append(path)
        return "hang" if method == "POST" and sum(name.count("done-") for name in gs.names()) >= 2 else None

    gs.faults.rules.append(rule)
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})
    deadline = time.monotonic() + 120
    while sum("done-" in name for name in gs.names()) < 2:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    with pytest.raises(InputError, match=f"written by process {process.pid}"):
        run_again(folder, out, tiny_checkpoint)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    gs.faults.clear()
    assert run_again(folder, out, tiny_checkpoint).resumed >= 16
    assert gs.get("run/s.parquet") == full_table.read_bytes()
    assert gs.names() == ["run/s.parquet"]


def test_a_part_that_is_not_what_was_noted_is_scored_again(folder, full_table, tiny_checkpoint, gs, out, monkeypatch):
    def cut(*_, **__):
        raise KeyError

    with monkeypatch.context() as patch:
        patch.setattr(output, "write_joined", cut)
        with pytest.raises(KeyError):
            run_again(folder, out, tiny_checkpoint)
    gs.put("run/.s.parquet.work/part-000001.parquet", gs.get("run/.s.parquet.work/part-000001.parquet"))  # a generation
    assert run_again(folder, out, tiny_checkpoint).resumed == 22
    assert gs.get("run/s.parquet") == full_table.read_bytes()
