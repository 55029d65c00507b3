"""`curate round` as typed."""

import csv
import json
import re
import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from rounds_table import CLASSES, sheet, table
from typer.testing import CliRunner

from curate.cli import app

COMMANDS = ["init", "next", "import", "status", "labels", "simulate", "plot"]


def run(line, code=0):
    result = CliRunner().invoke(app, shlex.split(f"round {line}"))
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def truth(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return table(tmp_path / "t.parquet", 90)


def answers(path, truth):
    with open(path, encoding="utf-8-sig") as file:  # noqa: PTH123
        return [(row["key"], truth[row["key"]], "ann") for row in csv.DictReader(file)]


def test_a_holdout_below_one_per_cent_could_be_meant_as_a_fraction(truth):
    assert "0 of 90 rows" in run("init r t.parquet --holdout 0.9%").stderr
    assert "100 times" not in run("init zero t.parquet --holdout 0%").stderr


def test_the_whole_loop_as_typed(truth, tmp_path):
    made = run(f"init r t.parquet --classes {','.join(CLASSES)} --batch 20 --control 0.5 --holdout 20 --seed 3")
    assert "20 of the 90 rows" in made.stderr
    assert "20 images are held out" in made.stderr
    assert made.stdout == ""
    batch = run("next r")
    assert "10 at random, 20" in batch.stderr
    assert "to annotate: r/rounds/0001/export.csv" in batch.stderr
    sheet(tmp_path / "a.csv", answers("r/rounds/0001/export.csv", truth))
    assert "40 images new" in run("import r a.csv").stderr
    assert "nothing was counted twice" in run("import r a.csv").stderr
    batch = json.loads(run("next r --json").stdout)
    assert (batch["round"], batch["state"]["picked"]["holdout"]) == (2, 0)
    sheet(tmp_path / "b.csv", answers(batch["export"], truth))
    taken = json.loads(run("import r b.csv --json").stdout)
    assert (taken["labels"], taken["new"], taken["missing"]) == (20, 20, 0)
    said = run("status r --all").stdout
    assert "2 rounds, 60 images requested: 60 labelled, 0 tied, 0 skipped, 0 pending" in said
    assert "20 of 20 held-out" in said
    assert "20 control labels" in said
    status = json.loads(run("status r --json").stdout)
    assert [point["n_labels"] for point in status["curve"]] == [20, 40]
    run("plot r -o curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert "labels.parquet: 60 labelled, 0 tied, 0 skipped" in run("labels r -o labels.parquet").stderr
    said = json.loads(CliRunner().invoke(app, ["info", "labels.parquet", "--json"]).stdout)
    about = {each["name"]: each["meaning"] for each in said["columns"]}
    assert sorted(about) == ["arm", "entropy", "key", "label", "n_labels", "round", "state"]
    assert not [name for name, meaning in about.items() if meaning == "the user's own"]


def test_images_that_the_table_names_no_file_for_come_from_what_was_scored(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "t.parquet", 30, uri=pa.nulls(30, pa.string()))
    picture = {f"set/{i:04}.png": b"\x89PNG\r\n\x1a\n" + bytes([i]) for i in range(30)}
    pq.write_table(pa.table({"name": list(picture), "image": list(picture.values())}), tmp_path / "images.parquet")
    run("init r t.parquet --batch 6 --holdout 0 --format imagefolder")
    assert "as --source" in run("next r", 1).stderr
    assert "6 of 6" in run("next r --source images.parquet", 1).stderr
    assert not list(Path("r").glob("rounds/*"))
    pq.write_table(pq.read_table("images.parquet").rename_columns(["key", "image"]), "images.parquet")
    run("next r --source images.parquet")
    lines = Path("r/rounds/0001/export/train/metadata.jsonl").read_text().splitlines()
    files = {line["curate_key"]: line["file_name"] for line in map(json.loads, lines)}
    assert len(files) == 6
    for key, name in files.items():
        assert Path("r/rounds/0001/export/train", name).read_bytes() == picture[key]


def test_verify_selects_the_rounds_of_a_folder_again_with_one_line_each(truth):
    run("init r t.parquet --batch 5 --holdout 0")
    run("next r")
    run("next r --partial")
    same = [f"round {number}: ok, 5 rows were chosen again, all the same" for number in (1, 2)]
    for path, lines in (("r", same), ("r/rounds/0002", same[1:]), ("r/rounds/0001/state.json", same[:1])):
        shown = CliRunner().invoke(app, ["verify", path])
        assert (shown.exit_code, shown.stderr, shown.stdout.splitlines()) == (0, "", lines)
    pq.write_table(pq.read_table("r/rounds/0002/batch.parquet").slice(1), "r/rounds/0002/batch.parquet")
    shown = CliRunner().invoke(app, ["verify", "r"])
    assert shown.exit_code == 1
    assert shown.stdout.splitlines()[0] == same[0]
    assert "DIFFERENT: rounds/0002/batch.parquet" in shown.stdout
    facts = json.loads(CliRunner().invoke(app, ["verify", "r", "--json"]).stdout)
    assert (facts["identical"], [round_["identical"] for round_ in facts["rounds"]]) == (False, [True, False])


def test_simulate_prints_curves_lifts_and_writes_them(truth, tmp_path):
    result = run("simulate t.parquet --label truth --strategy margin --budget 6,12 --seeds 2 -o s.json --quiet")
    assert "over random" in result.stdout
    assert re.search(r"^margin +[+-][0-9.]+±[0-9.]+ +0?\.?[0-9]+ ", result.stdout, re.MULTILINE)
    assert {"s.json", "s.csv"} <= {path.name for path in tmp_path.iterdir()}
    run("plot s.json -o again.png")
    assert (tmp_path / "again.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads(run("simulate t.parquet --label truth --budget 6 --seeds 1 --json -q").stdout)["seeds"] == [0]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("next nowhere", "`curate round init`"),
        ("status nowhere", "`curate round init`"),
        ("import nowhere a.csv", "`curate round init`"),
        ("init r none.parquet", "does not exist"),
        ("init r t.parquet --classes cat", "at least two classes"),
        ("init r t.parquet --classes cat,cat", "'cat' twice"),
        ("init r t.parquet --set bandwidth", "--set takes NAME=VALUE"),
        ("init r t.parquet --strategy kcenter", "did you mean 'k-center'"),
        ("labels nowhere -o l.csv", "like labels.parquet"),
        ("plot nowhere.json -o c.png", "No such file"),
        ("simulate t.parquet --label truth --budget 5 -o s.csv", "like results.json"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_left(truth, tmp_path, line, text):
    before = sorted(tmp_path.iterdir())
    result = run(line, code=1)
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert text in result.stderr
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_has_an_example_that_parses(name):
    group = typer.main.get_command(app).commands["round"]
    assert list(group.commands) == COMMANDS
    command = group.commands[name]
    lines = [line.strip() for line in command.help.splitlines() if line.strip().startswith("curate round")]
    assert lines
    for line in lines:
        words = shlex.split(line)
        assert words[2] == name
        command.make_context(name, words[3:])
    for param in command.params:
        assert getattr(param, "help", None), f"{name} {param.name} has no help"


def test_every_line_of_the_document_parses():
    group = typer.main.get_command(app).commands["round"]
    text = (Path(__file__).parents[3] / "docs" / "rounds.md").read_text("utf-8")
    lines = re.findall(r"^    (curate round .*)$", text, re.MULTILINE) + re.findall(r"`(curate round [^`]*)`", text)
    assert {line.split()[2] for line in lines} == set(COMMANDS)
    for line in lines:
        words = shlex.split(line)
        group.commands[words[2]].make_context(words[2], words[3:])


def test_init_prints_what_round_one_requests_and_info_describes_the_folder(truth):
    made = run("init r t.parquet --batch 20 --holdout 30 --budget 90").stderr
    assert "requests 50 images" in made
    assert "later rounds request 20" in made
    assert "count in --budget" in made
    known = run("init k t.parquet --batch 20 --holdout 30 --label truth").stderr
    assert "round 1 asks" not in known
    said = CliRunner().invoke(app, ["info", "r", "--json"])
    assert json.loads(said.stdout)["kind"] == "rounds"
    facts = json.loads(said.stdout)["facts"]
    assert (facts["batch"], facts["held out"], facts["rounds"]) == (20, 30, 0)
    assert "curate round status r" in CliRunner().invoke(app, ["info", "r"]).stdout
    assert CliRunner().invoke(app, ["round", "next", "r"]).exit_code == 0
    result = CliRunner().invoke(app, ["info", "r/rounds/0001"])
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert f"r/rounds/0001 is round 1 of {Path('r').absolute()}; show all of them with `curate info" in result.stderr
    assert CliRunner().invoke(app, ["info", "r/rounds/0001/batch.parquet"]).exit_code == 0


@pytest.mark.usefixtures("truth")
def test_the_labelling_settings_of_label_studio_are_named():
    run("init r t.parquet --classes a,b --batch 5 --holdout 0% --format label-studio")
    assert "r/rounds/0001/export.xml" in run("next r").stderr
