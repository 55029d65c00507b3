"""Tables of an object store, as commands read them; and URLs where a command takes none."""

import json

import pyarrow.parquet as pq
import pytest
from commandline import run

COMMANDS = {  # what each writes is compared with what it writes for the same table here
    "filter": (["--keep-top", "50%", "-o", "k.parquet"], "k.parquet"),
    "dedup": (["-o", "k.parquet"], "k.parquet"),
    "issues": (["-o", "k.parquet"], "k.parquet"),
    "select": (["-b", "5", "-o", "k.parquet"], "k.parquet"),
    "split": (["--train", "80%", "--test", "20%", "-o", "k.parquet"], "k.parquet"),
    "balance": (["--per", "format", "-o", "k.parquet"], "k.parquet"),
    "fit": (["--apply", "k.parquet"], "k.parquet"),
    "info": (["--json"], None),
    "sheet": (["-o", "s.png"], None),
    "plot": (["histogram", "-o", "h.png"], None),
    "report": (["-o", "r.html"], None),
    "export": (["--to", "csv", "-o", "e.csv"], None),
}


def said(*arguments):
    """What a command prints, which ended well."""
    found = run(*arguments)
    assert found.exit_code == 0, found.stderr
    return found.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_a_table_of_a_store_is_read_as_one_of_this_machine(command, whole, s3, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    s3.put("run/s.parquet", whole.read_bytes())
    (tmp_path / "s.parquet").write_bytes(whole.read_bytes())
    arguments, written = COMMANDS[command]
    here = said(command, "s.parquet", *arguments)
    rows = pq.read_table(written) if written else None
    there = said(
        command, f"{s3}/run/s.parquet", *arguments, *(["--overwrite"] if {"-o", "--apply"} & set(arguments) else [])
    )
    if rows is not None:
        assert pq.read_table(written).equals(rows)
        assert command == "fit" or said("verify", "k.receipt.json").startswith("identical")
    if command == "info":
        here, there = json.loads(here), json.loads(there)
        assert {**here, "path": ""} == {**there, "path": ""}
    assert not list(tmp_path.glob("s3*"))


def test_a_folder_of_parts_of_a_store_that_is_not_whole_is_refused(whole, s3):
    s3.put("run/t/part-000000.parquet", whole.read_bytes())
    assert json.loads(said("info", f"{s3}/run/t", "--json"))["facts"]["rows"] == 30
    s3.put("run/t/_unfinished", b"")
    for place, reason in (("t", "is being written, or that was cut off"), ("none.parquet", "does not exist")):
        found = run("info", f"{s3}/run/{place}")
        assert found.exit_code == 1
        assert reason in " ".join(found.stderr.split())


URL = "s3://bucket/run/b.parquet"
TAKES_NONE = [
    ["filter", "TABLE", "--keep-top", "50%", "-o", URL],
    ["dedup", "TABLE", "-o", URL],
    ["dedup", "TABLE", "--against", URL, "-o", "k.parquet"],
    ["issues", "TABLE", "-o", URL],
    ["select", "TABLE", "-b", "5", "-o", URL],
    ["balance", "TABLE", "--per", "format", "-o", URL],
    ["split", "TABLE", "--train", "80%", "--test", "20%", "-o", URL],
    ["labels", "TABLE", "--label", "format", "-o", URL],
    ["labels", "TABLE", "--label", "format", "--sheet", URL],
    ["fit", "TABLE", "--apply", URL],
    ["fit", "TABLE", "-o", URL],
    ["sheet", "TABLE", "-o", URL],
    ["plot", "TABLE", "histogram", "-o", URL],
    ["report", "TABLE", "-o", URL],
    ["evaluate", "TABLE", "--label", "format", "-o", URL],
    ["compare", "TABLE", "TABLE", "-o", URL],
    ["export", "TABLE", "--to", "csv", "-o", URL],
    ["verify", URL],
    ["audit", URL],
    ["run", URL],
    ["train", "visimsiam", "photos", "-o", URL],
    ["cache", "photos", "-o", URL],
    ["round", "init", URL, "TABLE", "--classes", "a,b", "--batch", "2"],
    ["round", "init", "rounds", URL, "--classes", "a,b", "--batch", "2"],
    ["score", "photos", "-o", "s.parquet", "--log", URL],
]


@pytest.mark.parametrize("line", TAKES_NONE, ids=" ".join)
def test_a_url_where_a_command_takes_a_path_is_one_line_and_no_folder(line, whole, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = run(*(str(whole) if word == "TABLE" else word for word in line))
    text = " ".join(found.stderr.split())
    assert found.exit_code == 1, text
    assert "expected a path of this machine" in text
    assert URL in text
    assert not list(tmp_path.iterdir())


def test_a_table_behind_a_url_that_is_no_store_is_one_line():
    found = run("filter", "https://host/a.parquet", "--keep-top", "50%")
    assert found.exit_code == 2
    assert "expected a path, or a URL of s3://" in " ".join(found.stderr.split())
