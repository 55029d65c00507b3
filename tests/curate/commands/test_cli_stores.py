"""Tables of an object store, as commands read them; and URLs where a command takes none."""

import inspect
import json
from typing import get_args

import pyarrow.parquet as pq
import pytest
from commandline import run
from typer.models import ArgumentInfo

from curate.cli import app
from curate.commands.options import output_argument, table_argument
from curate.manifest.store_path import StorePath, path_or_store, path_to_read
from scoring.errors import InputError

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
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout


SELDOM = ("select", "split", "balance", "issues", "fit", "sheet", "plot")  # which read it the same way


@pytest.mark.parametrize(
    "command", [pytest.param(name, marks=[pytest.mark.slow] * (name in SELDOM)) for name in COMMANDS]
)
def test_a_table_of_a_store_is_read_as_one_of_this_machine(command, full_table, s3, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    s3.put("run/s.parquet", full_table.read_bytes())
    (tmp_path / "s.parquet").write_bytes(full_table.read_bytes())
    arguments, written = COMMANDS[command]
    local = said(command, "s.parquet", *arguments)
    rows = pq.read_table(written) if written else None
    in_store = said(
        command, f"{s3}/run/s.parquet", *arguments, *(["--overwrite"] if {"-o", "--apply"} & set(arguments) else [])
    )
    if rows is not None:
        assert pq.read_table(written).equals(rows)
        assert command == "fit" or said("verify", "k.receipt.json").startswith("identical")
    if command == "info":
        local, in_store = json.loads(local), json.loads(in_store)
        assert {**local, "path": ""} == {**in_store, "path": ""}
    assert not list(tmp_path.glob("s3*"))


def test_a_folder_of_parts_of_a_store_that_is_not_whole_is_refused(full_table, s3):
    s3.put("run/t/part-000000.parquet", full_table.read_bytes())
    assert json.loads(said("info", f"{s3}/run/t", "--json"))["facts"]["rows"] == 30
    s3.put("run/t/_unfinished", b"")
    for place, reason in (("t", "or was interrupted"), ("none.parquet", "does not exist")):
        result = run("info", f"{s3}/run/{place}")
        assert result.exit_code == 1
        assert reason in " ".join(result.stderr.split())


URL = "s3://no-such-bucket-here/run/b.parquet"
TAKES_NONE = "expected a local path"


def commands(app, words=()):
    """The words and the function of every command."""
    for command in app.registered_commands:
        yield (*words, command.name or command.callback.__name__), inspect.unwrap(command.callback)
    for group in app.registered_groups:
        yield from commands(group.typer_instance, (*words, group.name))


def parameters(function):
    """Name, type and what Typer knows of each parameter of a command, and whether it must be given."""
    for name, parameter in inspect.signature(function).parameters.items():
        if name != "ctx":
            kind, about = get_args(parameter.annotation)
            yield name, kind, about, parameter.default is inspect.Parameter.empty


def flag_of(name, about):
    return next((text for text in about.param_decls or () if text.startswith("--")), f"--{name.replace('_', '-')}")


def words_with(function, name):
    """A line of all that a command must be given, with the URL for one of its parameters."""
    return line_with(function, {name: URL})


def line_with(function, values):
    """A line of all that a command must be given, with values for some of its parameters."""
    line = []
    for name, _, about, needed in parameters(function):
        value, chosen = values.get(name, "TABLE"), name if name in values else None
        if isinstance(about, ArgumentInfo):
            line += [value] if needed or name == chosen else []
        elif needed or name == chosen:
            line += [flag_of(name, about), value]
    return line


ALL = {" ".join(words): function for words, function in commands(app)}
OF_PATHS = [
    (name, each, about.parser in (table_argument, output_argument))
    for name, function in ALL.items()
    for each, kind, about, _ in parameters(function)
    if "Path" in str(kind) or each == "out"
]


def test_the_walk_meets_all_that_a_command_reads_and_writes():
    walked = {(name, each): in_store for name, each, in_store in OF_PATHS}
    assert len(walked) > 90
    wrote = ("filter", "dedup", "select", "balance", "split", "issues", "labels")
    assert all(walked[name, "out"] for name in wrote)
    assert all(walked[name, "apply"] for name in ("fit", "calibrate"))
    assert not any(walked[pair] for pair in (("fit", "out"), ("export", "out"), ("round next", "folder")))


@pytest.mark.parametrize("name", ALL)
def test_a_url_is_taken_or_refused_in_one_line_and_never_a_folder_of_this_machine(
    name, full_table, s3, tmp_path, monkeypatch
):
    """Of each option that takes a path: as it is typed, whatever else the command needs."""
    monkeypatch.chdir(tmp_path)
    for _, each, in_store in (place for place in OF_PATHS if place[0] == name):
        line = [str(full_table) if word == "TABLE" else word for word in words_with(ALL[name], each)]
        result = run(*name.split(), *line)
        text = " ".join(result.stderr.split())
        assert result.exit_code in (1, 2), (line, result.exception)
        assert isinstance(result.exception, SystemExit), (line, result.exception)
        assert in_store or name == "score" or TAKES_NONE in text, (line, text)
        assert "s3:/no" not in text, (line, text)
        assert not list(tmp_path.iterdir()), line
    assert not s3.names()


WRITTEN = [
    (name, each)
    for name, function in ALL.items()
    for each, _, about, _ in parameters(function)
    if about.parser is output_argument
]


def test_what_is_written_is_parsed_as_such_and_what_is_read_is_not():
    in_store = {(name, each) for name, each, taken in OF_PATHS if taken}
    assert {pair for pair in in_store if pair[1] in ("out", "apply")} == set(WRITTEN)
    assert len(WRITTEN) >= 9


@pytest.mark.parametrize(("name", "each"), WRITTEN)
@pytest.mark.parametrize("url", ["hf://datasets/owner/name/k.parquet", "http://host/k.parquet"])
def test_what_cannot_be_written_to_is_refused_before_any_work(name, each, url, full_table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = line_with(ALL[name], {each: url})
    result = run(*name.split(), *(str(full_table) if word == "TABLE" else word for word in line))
    text = " ".join(result.stderr.replace("│", " ").split())
    assert result.exit_code == 2, (line, result.exception)
    assert "a local folder" in text
    assert "download" not in text
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("parse", [path_to_read, path_or_store])
def test_a_url_of_a_store_that_names_nothing_there_can_be_is_one_line(parse):
    pytest.importorskip("s3fs", reason="the s3 extra is not installed")
    with pytest.raises(InputError, match=r"empty part.*bkt//k"):
        parse("s3://bkt//k.parquet")
    with pytest.raises(InputError, match="no user or password") as said:
        parse("s3://anna:word@bkt/k.parquet")
    assert "word@" not in str(said.value)
    assert "anna" not in str(said.value)
    assert parse("S3://Bkt/K.parquet") == StorePath("s3://Bkt/K.parquet")


def test_an_empty_first_part_leaves_nothing_in_the_bucket(full_table, s3):
    result = run("filter", str(full_table), "--keep-top", "50%", "-o", f"s3://{s3.name}//k.parquet")
    assert result.exit_code == 2
    assert s3.names() == []


@pytest.mark.parametrize("line", [["TABLE", "-o", "s3:/bucket/k.parquet"], ["s3:/bucket/k.parquet", "-o", "k.parquet"]])
def test_a_url_with_one_slash_is_refused_in_one_line(line, full_table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("filter", "--keep-top", "50%", *(str(full_table) if word == "TABLE" else word for word in line))
    assert result.exit_code == 2
    text = " ".join(result.stderr.replace("│", " ").split())
    assert "got s3:/bucket/k.parquet" in text
    assert not list(tmp_path.iterdir())


def test_a_place_of_the_hub_is_refused_by_the_library_too():
    with pytest.raises(InputError, match="local folder and upload"):
        path_or_store(StorePath("hf://datasets/owner/name/k.parquet"))


@pytest.mark.parametrize(
    ("line", "place"),
    [
        (["filter", "TABLE", "--max-bad-rate", "2%", "--audit", URL], "--audit"),
        (["balance", "TABLE", "--to", "s3://bucket/shares.csv"], "--to"),
    ],
)
def test_a_url_in_an_option_of_texts_is_refused_too(line, place, full_table):
    result = run(*(str(full_table) if word == "TABLE" else word for word in line))
    assert result.exit_code == 1
    assert f"{TAKES_NONE} for {place}" in " ".join(result.stderr.split())


def test_a_table_behind_a_url_that_is_no_store_is_one_line():
    result = run("filter", "https://host/a.parquet", "--keep-top", "50%")
    assert result.exit_code == 2
    assert "URL of s3://" in " ".join(result.stderr.split())
