"""What policies write to an object store: a server of S3, with faults in front of it."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from commandline import run
from stored import ended, local, nothing_is_left, objects, one_line

from curate.manifest.store_path import StorePath
from curate.policies.filter.policy import filter as filter_rows
from curate.tables.table import open_table
from curate.tables.writer import TableWriter

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


@pytest.fixture(scope="session")
def labelled(full_table, tmp_path_factory):
    """The rows of a small run three times over, of other images each time, with two classes."""
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
            looks = [None if bits is None else bits ^ number * 0x00FFFFFF for bits in rows.column("phash").to_pylist()]
            changed = {
                "key": keys,
                "phash": pa.array(looks, rows.column("phash").type),
                "sha256": pc.utf8_replace_slice(rows.column("sha256"), 0, 1, str(number)),
            }
            columns = [changed.get(name, rows.column(name)) for name in opened.schema.names]
            table.write(pa.Table.from_arrays([*columns, classes], schema=schema.remove_metadata()))
    return path


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
    assert "with --overwrite" in one_line(*line, option, out)
    assert objects(s3) == local(tmp_path / "here")
    nothing_is_left(s3, tmp_path)


@pytest.mark.parametrize("name", ["k.parquet", "k.decisions.parquet", "k.receipt.json", "lock-000001.json"])
def test_a_store_that_denies_is_one_line_and_nothing_is_half_there(full_table, s3, out, tmp_path, name):
    s3.faults.add(f"/{name}" if "lock" in name else f"run/{name}", 403, method="PUT")
    said = one_line("filter", full_table, "--keep-top", "50%", "-o", out)
    assert f"{name}: the server denies access" in said
    assert "check the permissions" in said
    assert s3.names() == []
    s3.faults.clear()
    filter_rows(full_table, out, keep_top="50%")
    nothing_is_left(s3, tmp_path)


def test_credentials_that_expire_leave_what_the_next_run_takes_back(full_table, s3, out, tmp_path):
    s3.faults.add("run/k.decisions", "expired", method="PUT")
    s3.faults.add("run/", "expired", method="DELETE")
    said = one_line("filter", full_table, "--keep-top", "50%", "-o", out)
    assert "cannot write" in said
    assert "(ExpiredToken); renew" in said
    assert "run/k.parquet" in s3.names()
    assert "run/k.receipt.json" not in s3.names()
    s3.faults.clear()
    filter_rows(full_table, out, keep_top="50%")
    assert set(objects(s3)) == {"k.parquet", "k.decisions.parquet", "k.receipt.json"}
    nothing_is_left(s3, tmp_path)


def test_throttling_passes_and_a_lost_answer_is_recognised_as_ours(full_table, s3, out, tmp_path):
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
    assert "appeared while" in one_line("filter", full_table, "--keep-top", "50%", "-o", out)
    assert objects(s3) == {"k.decisions.parquet": b"somebody's"}
    before = len(s3.faults.requests)
    assert "k.decisions.parquet exists already" in one_line("filter", full_table, "--keep-top", "50%", "-o", out)
    assert not any(request.startswith("PUT") for request in s3.faults.requests[before:])


def test_a_foreign_receipt_keeps_nothing_of_ours(full_table, s3, out, tmp_path):
    def appear(handler):
        s3.put("run/k.receipt.json", b"somebody's")
        handler.fail(412, "PreconditionFailed")

    s3.faults.add("run/k.receipt.json", appear, times=1, method="PUT")
    assert "appeared while" in one_line("filter", full_table, "--keep-top", "50%", "-o", out)
    assert objects(s3) == {"k.receipt.json": b"somebody's"}
    nothing_is_left(s3, tmp_path)


def test_what_a_store_lacks_is_one_line(full_table, s3, out, monkeypatch):
    line = ["filter", full_table, "--keep-top", "50%", "-o"]
    for lacking in ([*line, "s3://no-such-bucket-here/k.parquet"], ["info", "s3://no-such-bucket-here/k.parquet"]):
        said = one_line(*lacking)
        assert "'no-such-bucket-here'; check" in said
        assert "cannot write" not in said
    assert "is a Parquet file" in one_line(*line, f"{s3}/k.csv")
    s3.put("run/.k.parquet.work/run.json", b"{}")
    assert "scoring run into" in one_line(*line, out)
    assert s3.names() == ["run/.k.parquet.work/run.json"]
    assert "keeps arrays" in one_line("dedup", str(full_table), "--engine", "ray", "-o", out)

    def create(self, data):
        self.put(data)
        return True

    monkeypatch.setattr(StorePath, "create", create)
    assert "conditional writes (If-None-Match)" in one_line(*line, f"{s3}/other/k.parquet")
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
    assert "never overwritten" in said
    assert objects(s3) == {"k.parquet": full_table.read_bytes()}


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
