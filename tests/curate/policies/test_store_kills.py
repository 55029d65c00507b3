"""What is left in an object store by runs that were killed, or that meet another: a server of S3."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from types import SimpleNamespace

import pytest
from stored import ended, local, nothing_is_left, objects, one_line

from curate.manifest import file_set, store_path
from curate.manifest.store_path import StorePath
from curate.policies.filter.policy import filter as filter_rows
from scoring.errors import InputError


class Killed(BaseException):
    """What the tests end a process with."""


class Dying:
    """Lets a number of calls of a store through, and none after it, as where a process is killed."""

    def __init__(self, monkeypatch, calls=None):
        self.calls, self.n = calls, 0
        real = store_path.store_errors

        def counted(place, what):
            self.n += 1
            if self.calls is not None and self.n > self.calls:
                raise Killed
            return real(place, what)

        monkeypatch.setattr(store_path, "store_errors", counted)
        monkeypatch.setattr(file_set, "shutil", SimpleNamespace(rmtree=self.rmtree))

    def rmtree(self, folder, **_):
        if self.calls is not None and self.n > self.calls:
            raise Killed


def killed_after(calls, monkeypatch, work):
    """Run something whose process dies after a number of calls; return how many it made, where it did not die."""
    with monkeypatch.context() as patch:
        dying = Dying(patch, calls)
        try:
            work()
        except Killed:
            return None
        return dying.n


def every_kill(monkeypatch, work, first, step, check):
    """Let a run die after each ``step``-th call; repeat it, and check what then is there."""
    calls = first
    while killed_after(calls, monkeypatch, work) is None:
        check(calls)
        calls += step
    return calls


@pytest.mark.parametrize(
    ("first", "step"), [(17, 9), *(pytest.param(at, 4, marks=pytest.mark.slow) for at in range(4))]
)
def test_wherever_a_run_is_killed_the_same_command_ends_as_if_nothing_had_been(
    full_table, s3, out, tmp_path, monkeypatch, first, step
):
    (tmp_path / "here").mkdir()
    filter_rows(full_table, tmp_path / "here/k.parquet", keep_top="50%")
    expected, seen = local(tmp_path / "here"), set()

    def check(calls):
        stored = objects(s3)
        named = {name for name in stored if not name.startswith(".")}
        seen.add(len(named))
        assert "k.receipt.json" not in stored or named == set(expected), calls
        assert all(stored[name] == expected[name] for name in named)
        if "k.receipt.json" in stored:
            with pytest.raises(InputError, match="exists already"):
                filter_rows(full_table, out, keep_top="50%")
        else:
            filter_rows(full_table, out, keep_top="50%")
        assert objects(s3) == expected, calls
        nothing_is_left(s3, tmp_path)
        s3.client.delete_objects(Bucket=s3.name, Delete={"Objects": [{"Key": name} for name in s3.names()]})

    calls = every_kill(monkeypatch, lambda: filter_rows(full_table, out, keep_top="50%"), first, step, check)
    assert calls > 20
    assert len(seen) > 1


@pytest.mark.parametrize(
    ("first", "step"), [(12, 11), *(pytest.param(at, 4, marks=pytest.mark.slow) for at in range(4))]
)
def test_wherever_a_replacement_is_killed_no_receipt_is_next_to_files_of_another_run(
    full_table, s3, out, tmp_path, monkeypatch, first, step
):
    for place, share in (("old", "30%"), ("new", "50%")):
        (tmp_path / place).mkdir()
        filter_rows(full_table, tmp_path / place / "k.parquet", keep_top=share)
    old, new = local(tmp_path / "old"), local(tmp_path / "new")

    def start():
        filter_rows(full_table, out, keep_top="30%", overwrite=True)

    def check(calls):
        stored = {name: data for name, data in objects(s3).items() if not name.startswith(".")}
        assert "k.receipt.json" not in stored or stored in (old, new), calls
        filter_rows(full_table, out, keep_top="50%", overwrite=True)
        assert objects(s3) == new
        nothing_is_left(s3, tmp_path)
        start()

    start()
    every_kill(monkeypatch, lambda: filter_rows(full_table, out, keep_top="50%", overwrite=True), first, step, check)
    assert objects(s3) == new


def test_of_two_that_write_one_output_one_is_refused(full_table, s3, out, tmp_path, monkeypatch):
    with file_set.StoreSet([StorePath(out)], overwrite=False):
        (tmp_path / "other").mkdir(mode=0o700)
        with monkeypatch.context() as patch:
            patch.setattr(
                tempfile, "tempdir", str(tmp_path / "other")
            )  # another machine, as far as a lock can determine
            assert "k.parquet.work is being" in one_line("filter", full_table, "--keep-top", "50%", "-o", out)
        assert f"{out} is being written by process" in one_line("filter", full_table, "--keep-top", "50%", "-o", out)
    assert s3.names() == []
    filter_rows(full_table, out, keep_top="50%")
    nothing_is_left(s3, tmp_path)


def test_a_process_that_was_taken_over_writes_nothing_more_and_removes_nothing(
    full_table, s3, out, tmp_path, monkeypatch
):
    slow = file_set.StoreSet([StorePath(out)], overwrite=False)
    slow.__enter__()
    s3.put("run/.k.parquet.work/lock-000002.json", b"{}")  # of another process, which found this one silent
    with pytest.raises(InputError, match="was taken over"):
        slow.commit([SimpleNamespace(seal=lambda: None, path=StorePath(out), n_bytes=1, sha256="")])
    s3.put("run/k.parquet", b"of the other")
    with pytest.raises(InputError, match="was taken over"):
        slow.__exit__(None, None, None)
    assert s3.get("run/k.parquet") == b"of the other"
    assert "run/.k.parquet.work/lock-000002.json" in s3.names()


def cut_off(whole, s3, out):
    """Leave what a run leaves that dies after its first file."""
    s3.faults.add("run/k.decisions", "expired", method="PUT")
    s3.faults.add("run/", "expired", method="DELETE")
    one_line("filter", whole, "--keep-top", "50%", "-o", out)
    s3.faults.clear()
    assert {"run/k.parquet", "run/.k.parquet.work/files.json"} <= set(s3.names())


def test_a_replacement_that_fails_before_it_puts_anything_hides_no_remains(full_table, s3, out, tmp_path):
    cut_off(full_table, s3, out)
    with pytest.raises(KeyError), file_set.StoreSet([StorePath(out)], overwrite=True):
        raise KeyError("of the work")
    assert s3.names() == []
    filter_rows(full_table, out, keep_top="50%")
    nothing_is_left(s3, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        b"not json",
        b"[]",
        b'{"files":{}}',
        b'{"files":{"k.parquet":[1]},"last":"k.parquet"}',
        b'{"files":{"k.parquet":[1,"a"]},"last":"k.receipt.json"}',
        b'{"files":{"../k.parquet":[1,"a"]},"last":"../k.parquet"}',
    ],
)
def test_a_damaged_note_is_one_line_that_names_it_and_nothing_is_removed(text, full_table, s3, out):
    cut_off(full_table, s3, out)
    s3.put("run/.k.parquet.work/files.json", text)
    for more in ([], ["--overwrite"]):
        said = one_line("filter", full_table, "--keep-top", "50%", "-o", out, *more)
        assert f"{s3}/run/.k.parquet.work/files.json is damaged" in said
        assert "remove it" in said
        assert {"run/k.parquet", "run/.k.parquet.work/files.json"} <= set(s3.names())


def test_unfinished_uploads_of_these_names_are_aborted_and_no_others(full_table, s3, out):
    for key in ("run/k.decisions.parquet", "run/k.other"):
        s3.client.create_multipart_upload(Bucket=s3.name, Key=key)
    filter_rows(full_table, out, keep_top="50%")
    left = s3.client.list_multipart_uploads(Bucket=s3.name)["Uploads"]
    assert [each["Key"] for each in left] == ["run/k.other"]


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_sends_is_followed_at_once(full_table, s3, out, tmp_path):
    s3.faults.add("run/k.decisions.parquet", "hang", times=1, method="PUT")
    line = [sys.executable, "-m", "curate", "filter", str(full_table), "--keep-top", "50%", "-o", out]
    process = subprocess.Popen(line, env={**os.environ, "TMPDIR": str(tmp_path / "tmp")})
    deadline = time.monotonic() + 60
    while "run/k.parquet" not in s3.names():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    s3.faults.clear()
    assert ended("verify", out, code=1).startswith("error: s3://")
    filter_rows(full_table, out, keep_top="50%")
    assert ended("verify", out).startswith("identical")
    nothing_is_left(s3, tmp_path)
