"""What policies write to an object store: a server of S3, with faults in front of it."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from commandline import run

from curate.manifest import store_path, store_set
from curate.manifest.store_path import StorePath
from curate.policies.filter.policy import filter as filter_rows
from curate.tables.table import open_table
from curate.tables.writer import TableWriter
from scoring.errors import InputError

COMMANDS = {  # of each, what it is called with, and the option that names what it writes
    "filter": (["filter", "TABLE", "--keep-top", "50%"], "-o"),
    "dedup": (["dedup", "TABLE", "--against", "OTHER"], "-o"),
    "select": (["select", "TABLE", "-b", "5", "--labelled", "KEYS", "--exclude", "KEYS"], "-o"),
    "issues": (["issues", "TABLE"], "-o"),
    "split": (["split", "TABLE", "--train", "80%", "--test", "20%"], "-o"),
    "balance": (["balance", "TABLE"], "-o"),
    "labels": (["labels", "TABLE", "--label", "label"], "-o"),
    "fit": (["fit", "TABLE"], "--apply"),
    "calibrate": (["calibrate", "TABLE", "--bad", "width < 60"], "--apply"),
}


SELDOM = ("select", "calibrate", "issues", "split", "balance", "labels", "fit")  # which go the same way


class Killed(BaseException):
    """What the tests end a process with."""


@pytest.fixture(scope="session")
def labelled(full_table, tmp_path_factory):
    """The rows of a small run three times over, with two classes."""
    opened = open_table(full_table)
    rows = opened.read()
    schema = pa.schema([*opened.schema, pa.field("label", pa.string())], opened.file_metadata)
    path = tmp_path_factory.mktemp("labelled") / "s.parquet"
    with TableWriter(
        path, schema, {name: value for name, value in opened.metadata.items() if name != "columns"}
    ) as table:
        for number in range(3):
            keys = pa.array([f"{number}/{key}" for key in rows.column("key").to_pylist()])
            classes = pa.array(np.where(np.arange(len(rows)) % 3 > 0, "a", "b"))
            columns = [keys if name == "key" else rows.column(name) for name in opened.schema.names]
            table.write(pa.Table.from_arrays([*columns, classes], schema=schema.remove_metadata()))
    return path


@pytest.fixture
def out(s3, tmp_path, monkeypatch):
    """The URL of a subset in a bucket; what passes through this machine is in the test's own folder."""
    (tmp_path / "tmp").mkdir(mode=0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.chdir(tmp_path)
    return f"{s3}/run/k.parquet"


def objects(s3, prefix="run/"):
    return {name.removeprefix(prefix): s3.get(name) for name in s3.names(prefix)}


def local(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def nothing_is_left(s3, tmp_path):
    assert [name for name in s3.names() if "/." in name] == []
    assert [path for path in (tmp_path / "tmp").rglob("*") if path.is_file()] == []
    assert s3.client.list_multipart_uploads(Bucket=s3.name).get("Uploads", []) == []
    assert not list(tmp_path.glob("s3*"))


def ended(*arguments, code=0):
    result = run(*arguments)
    assert result.exit_code == code, (result.stderr, result.exception)
    return " ".join((result.stderr if code else result.stdout).split())


def one_line(*arguments):
    """What a command says that refuses."""
    result = run(*arguments)
    assert result.exit_code == 1, (result.stderr, result.exception)
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SELDOM)) for name in COMMANDS])
def test_what_is_written_to_a_store_has_the_bytes_of_what_is_written_here(
    name, full_table, labelled, s3, out, tmp_path
):
    s3.put("tables/other.parquet", full_table.read_bytes())
    s3.put("tables/keys.csv", b"key,label\n0/03.png,a\n0/04.png,b\n")
    words = {"TABLE": str(labelled), "OTHER": f"{s3}/tables/other.parquet", "KEYS": f"{s3}/tables/keys.csv"}
    line, option = COMMANDS[name]
    line = [words.get(word, word) for word in line]
    (tmp_path / "here").mkdir()
    ended(*line, option, str(tmp_path / "here/k.parquet"))
    ended(*line, option, out)
    assert objects(s3) == local(tmp_path / "here")
    nothing_is_left(s3, tmp_path)
    if name != "fit":
        assert set(objects(s3)) >= {"k.parquet", "k.receipt.json"}
        assert ended("verify", f"{s3}/run/k.receipt.json").startswith("identical")
    assert "exists already; choose another name, or replace it with --overwrite" in one_line(*line, option, out)
    assert objects(s3) == local(tmp_path / "here")
    nothing_is_left(s3, tmp_path)


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
        monkeypatch.setattr(store_set, "shutil", SimpleNamespace(rmtree=self.rmtree))

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
def test_wherever_a_replacement_is_killed_no_receipt_is_beside_files_of_another_run(
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
    with store_set.StoreSet([StorePath(out)], overwrite=False):
        (tmp_path / "other").mkdir(mode=0o700)
        with monkeypatch.context() as patch:
            patch.setattr(
                tempfile, "tempdir", str(tmp_path / "other")
            )  # another machine, as far as a lock can determine
            assert "k.parquet.work is being written by process" in one_line(
                "filter", full_table, "--keep-top", "50%", "-o", out
            )
        assert f"{out} is being written by process" in one_line("filter", full_table, "--keep-top", "50%", "-o", out)
    assert s3.names() == []
    filter_rows(full_table, out, keep_top="50%")
    nothing_is_left(s3, tmp_path)


def test_whoever_was_taken_over_puts_nothing_more_and_takes_nothing_back(full_table, s3, out, tmp_path, monkeypatch):
    slow = store_set.StoreSet([StorePath(out)], overwrite=False)
    slow.__enter__()
    s3.put("run/.k.parquet.work/lock-000002.json", b"{}")  # of another process, which found this one silent
    with pytest.raises(InputError, match="was taken over by process"):
        slow.commit([SimpleNamespace(seal=lambda: None, path=StorePath(out), n_bytes=1, sha256="")])
    s3.put("run/k.parquet", b"of the other")
    with pytest.raises(InputError, match="was taken over by process"):
        slow.__exit__(None, None, None)
    assert s3.get("run/k.parquet") == b"of the other"
    assert "run/.k.parquet.work/lock-000002.json" in s3.names()


@pytest.mark.parametrize("name", ["k.parquet", "k.decisions.parquet", "k.receipt.json", "lock-000001.json"])
def test_a_store_that_denies_is_one_line_and_nothing_is_half_there(full_table, s3, out, tmp_path, name):
    s3.faults.add(f"/{name}" if "lock" in name else f"run/{name}", 403, method="PUT")
    said = one_line("filter", full_table, "--keep-top", "50%", "-o", out)
    assert f"{name}: the other end denies access" in said
    assert "check what the credentials may do" in said
    assert s3.names() == []
    s3.faults.clear()
    filter_rows(full_table, out, keep_top="50%")
    nothing_is_left(s3, tmp_path)


def test_credentials_that_expire_leave_what_the_next_run_takes_back(full_table, s3, out, tmp_path):
    s3.faults.add("run/k.decisions", "expired", method="PUT")
    s3.faults.add("run/", "expired", method="DELETE")
    said = one_line("filter", full_table, "--keep-top", "50%", "-o", out)
    assert "cannot write" in said
    assert "no longer valid (ExpiredToken); renew them and repeat" in said
    assert "run/k.parquet" in s3.names()
    assert "run/k.receipt.json" not in s3.names()
    s3.faults.clear()
    filter_rows(full_table, out, keep_top="50%")
    assert set(objects(s3)) == {"k.parquet", "k.decisions.parquet", "k.receipt.json"}
    nothing_is_left(s3, tmp_path)


def test_throttling_passes_and_an_answer_that_is_lost_is_no_stranger(full_table, s3, out, tmp_path):
    (tmp_path / "here").mkdir()
    filter_rows(full_table, tmp_path / "here/k.parquet", keep_top="50%")
    for method in ("PUT", "GET", "HEAD"):
        s3.faults.add("k.parquet", 503, times=1, method=method)
    lost = []

    def put_and_reset(handler):
        s3.put("run/k.decisions.parquet", (tmp_path / "here/k.decisions.parquet").read_bytes())
        lost.append(handler.path)
        handler.fail(503, "SlowDown")

    s3.faults.add("run/k.decisions.parquet", put_and_reset, times=1, method="PUT")
    filter_rows(full_table, out, keep_top="50%")
    assert lost
    assert objects(s3) == local(tmp_path / "here")
    nothing_is_left(s3, tmp_path)


def test_what_appears_meanwhile_is_not_replaced_and_stays_alone(full_table, s3, out, tmp_path):
    def appear(handler):
        s3.put("run/k.decisions.parquet", b"somebody's")
        handler.fail(412, "PreconditionFailed")

    s3.faults.add("run/k.decisions.parquet", appear, times=1, method="PUT")
    assert "appeared while it was being written" in one_line("filter", full_table, "--keep-top", "50%", "-o", out)
    assert objects(s3) == {"k.decisions.parquet": b"somebody's"}
    before = len(s3.faults.requests)
    assert "k.decisions.parquet exists already" in one_line("filter", full_table, "--keep-top", "50%", "-o", out)
    assert not any(request.startswith("PUT") for request in s3.faults.requests[before:])


def test_a_receipt_of_somebody_else_keeps_nothing_of_ours(full_table, s3, out, tmp_path):
    def appear(handler):
        s3.put("run/k.receipt.json", b"somebody's")
        handler.fail(412, "PreconditionFailed")

    s3.faults.add("run/k.receipt.json", appear, times=1, method="PUT")
    assert "appeared while it was being written" in one_line("filter", full_table, "--keep-top", "50%", "-o", out)
    assert objects(s3) == {"k.receipt.json": b"somebody's"}
    nothing_is_left(s3, tmp_path)


def cut_off(whole, s3, out):
    """Leave what a run leaves that dies after its first file."""
    s3.faults.add("run/k.decisions", "expired", method="PUT")
    s3.faults.add("run/", "expired", method="DELETE")
    one_line("filter", whole, "--keep-top", "50%", "-o", out)
    s3.faults.clear()
    assert {"run/k.parquet", "run/.k.parquet.work/files.json"} <= set(s3.names())


def test_a_replacement_that_fails_before_it_puts_anything_hides_no_remains(full_table, s3, out, tmp_path):
    cut_off(full_table, s3, out)
    with pytest.raises(KeyError), store_set.StoreSet([StorePath(out)], overwrite=True):
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


def test_what_a_store_lacks_is_one_line(full_table, s3, out, monkeypatch):
    line = ["filter", full_table, "--keep-top", "50%", "-o"]
    for lacking in ([*line, "s3://no-such-bucket-here/k.parquet"], ["info", "s3://no-such-bucket-here/k.parquet"]):
        said = one_line(*lacking)
        assert "there is no bucket 'no-such-bucket-here'; check the name, or create it" in said
        assert "cannot write" not in said
    assert "the subset is a Parquet file" in one_line(*line, f"{s3}/k.csv")
    s3.put("run/.k.parquet.work/run.json", b"{}")
    assert "is of a scoring run towards" in one_line(*line, out)
    assert s3.names() == ["run/.k.parquet.work/run.json"]
    assert "keeps arrays next to what is written" in one_line("dedup", str(full_table), "--engine", "ray", "-o", out)

    def create(self, data):
        self.put(data)
        return True

    monkeypatch.setattr(StorePath, "create", create)
    assert "the store has no conditional writes (If-None-Match)" in one_line(*line, f"{s3}/other/k.parquet")
    assert s3.names("other/") == []


@pytest.mark.parametrize(("name", "kind"), [("fit", "f.safetensors"), ("calibrate", "c.json")])
def test_what_is_fitted_here_and_its_table_in_a_store_are_refused_together_and_made_by_two_commands(
    name, kind, labelled, tiny_checkpoint, s3, out, tmp_path
):
    line = [str(labelled) if word == "TABLE" else word for word in COMMANDS[name][0]]
    model = ["--model", str(tiny_checkpoint)] if name == "fit" else []
    said = one_line(*line, "-o", kind, "--apply", out)
    assert f"got {kind} and {out}; leave out --apply" in said
    assert [path.name for path in tmp_path.iterdir()] == ["tmp"]
    assert s3.names() == []
    ended(*line, *model, "-o", kind)
    then = said.strip().partition("afterwards run curate ")[2].split()
    assert then == [name, str(labelled), "--fitted", kind, "--apply", out]
    ended(*then)
    ended(*then[:-1], "k.parquet")
    assert s3.get("run/k.parquet") == (tmp_path / "k.parquet").read_bytes()
    nothing_is_left(s3, tmp_path)


def test_an_input_is_not_written_over_under_another_name_of_its_scheme(full_table, s3, out):
    s3.put("run/k.parquet", full_table.read_bytes())
    said = one_line("filter", out.replace("s3://", "s3a://"), "--keep-top", "50%", "-o", out, "--overwrite")
    assert "which is never changed" in said
    assert objects(s3) == {"k.parquet": full_table.read_bytes()}


def test_unfinished_uploads_of_these_names_are_aborted_and_no_others(full_table, s3, out):
    for key in ("run/k.decisions.parquet", "run/k.other"):
        s3.client.create_multipart_upload(Bucket=s3.name, Key=key)
    filter_rows(full_table, out, keep_top="50%")
    left = s3.client.list_multipart_uploads(Bucket=s3.name)["Uploads"]
    assert [each["Key"] for each in left] == ["run/k.other"]


@pytest.mark.slow
def test_receipts_of_a_store_are_verified_chained_explained_and_compared(full_table, s3, out, tmp_path):
    s3.put("run/s.parquet", full_table.read_bytes())
    ended("filter", f"{s3}/run/s.parquet", "--keep-top", "50%", "-o", out)
    ended("dedup", out, "-o", f"{s3}/run/u.parquet")
    ended("filter", f"{s3}/run/s.parquet", "--keep-top", "40%", "-o", f"{s3}/run/l.parquet")
    assert "different" not in ended("verify", f"{s3}/run/u.parquet", "--chain")
    key = filter_rows(full_table, keep_top="50%", dry_run=True).examples[0]["key"]
    assert f"{key}: dropped by step 1, filter" in ended("explain", f"{s3}/run/u.receipt.json", key)
    assert "step wrote" in ended("explain", f"{s3}/run/s.parquet", key)
    result = run("diff", out, f"{s3}/run/l.parquet")
    assert result.exit_code == 1
    assert "> only in this one" not in result.stdout
    assert "50%" in result.stdout
    assert '"receipt"' in ended("info", f"{s3}/run/k.receipt.json", "--json")
    s3.put("run/k.parquet", s3.get("run/l.parquet"))
    result = run("verify", out)
    assert result.exit_code == 1
    assert "k.parquet" in result.stdout
    nothing_is_left(s3, tmp_path)


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
