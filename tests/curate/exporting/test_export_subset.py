"""Any subset in any format: what goes out comes back, and what cannot go out is one line."""

import json
import runpy
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from exporting import KEYS, batch, pairs, picture
from typer.testing import CliRunner

from curate.cli import app
from curate.exporting.batches import read_labels
from curate.exporting.subset import export
from curate.exporting.table import FORMATS, OF_LOADERS, TOOLS
from curate.exporting.work import MANIFEST
from curate.options.option import declared
from scoring.errors import InputError

ROOT = Path(__file__).parents[3]
CLASSES = ["cat", "dog & co", "猫"]
OUTSIDE = """
from curate.exporting.contract import Format


def part(rows, part, plan):
    part.piece("lines", "".join(f"{item.key}\\t{item.label}\\n" for item in rows.items).encode())


def finish(whole, plan):
    whole.join(whole.target(whole.out), "lines")
    return ()


TSV = Format(part, finish, out="a line an image", suffix=".tsv")
"""


def run(*args):
    return CliRunner().invoke(app, ["export", *map(str, args)])


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Scored rows with broken keys: every third without a class, and the last one that could not be scored."""
    monkeypatch.chdir(tmp_path)
    n = len(KEYS)
    status = ["ok"] * (n - 1) + ["missing"]
    label = [[*CLASSES[:2], None][i % 3] for i in range(n)]
    pq.write_table(batch(tmp_path / "i", status=status, error=[None] * n, label=label), "t.parquet")
    return tmp_path / "t.parquet"


def labelled():
    return {key: CLASSES[i % 3] for i, key in enumerate(KEYS[:-1]) if i % 3 < 2}


def name_of(format):
    return f"out{FORMATS[format].suffix}"


def test_a_column_status_that_is_not_text_is_refused(table):
    rows = pq.read_table(table)
    at = rows.schema.get_field_index("status")
    pq.write_table(rows.set_column(at, "status", pa.array([1] * rows.num_rows)), table)
    done = run("t.parquet", "--to", "csv", "-o", "x.csv")
    assert done.exit_code == 1
    assert "column 'status'" in done.stderr


@pytest.mark.parametrize("format", TOOLS)
def test_every_label_comes_back_under_its_own_key_from_every_format(table, format):
    result = run("t.parquet", "--to", format, "-o", name_of(format))
    assert result.exit_code == 0, result.output
    assert f"{len(KEYS) - 1} images, {len(labelled())} with a label, as {format}" in result.stderr
    assert "1 row left out" in result.stderr
    assert result.stdout == ""
    assert sorted(pairs(read_labels(name_of(format), format, keys=KEYS))) == sorted(labelled().items())


@pytest.mark.parametrize("format", TOOLS)
def test_rows_without_labels_are_exported_like_rows_of_a_round(table, format):
    from curate.exporting.batches import write_batch

    rows = pq.read_table(table).drop_columns(["label", "status", "error"]).slice(0, 5)
    pq.write_table(rows, "five.parquet")
    export("five.parquet", name_of(format), to=format, take="*")
    Path("round").mkdir()
    write_batch(rows, Path("round") / name_of(format), format)
    folders = (Path(name_of(format)), Path("round") / name_of(format))
    by_export, by_round = (
        {p.relative_to(r): p.read_bytes() for p in [*r.rglob("*")] if p.is_file() and p.name != MANIFEST}
        for r in folders
    )
    assert by_export == by_round
    assert (
        Path(name_of(format)).is_dir()
        or Path(name_of(format)).read_bytes() == (Path("round") / name_of(format)).read_bytes()
    )


def test_images_inside_what_was_scored_are_found_by_key(table):
    rows = pq.read_table(table).drop_columns(["uri"])
    pq.write_table(rows, "t.parquet")
    pictures = {"key": KEYS[::-1], "image": [picture(i, "JPEG") for i in range(len(KEYS))][::-1]}
    pq.write_table(pa.table(pictures), "photos.parquet")
    command = ["t.parquet", "--to", "imagefolder", "-o", "out"]
    without = run(*command)
    assert without.exit_code == 1
    assert "as --source" in without.stderr
    result = run(*command, "--source", "photos.parquet")
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in Path("out/metadata.jsonl").read_text("utf-8").split("\n") if line]
    for number, (key, line) in enumerate(zip(KEYS, lines, strict=False)):
        assert line["curate_key"] == key
        assert (Path("out") / line["file_name"]).read_bytes() == picture(number, "JPEG")
    assert len(lines) == len(KEYS) - 1


def test_links_point_to_the_files(table):
    assert run("t.parquet", "--to", "imagefolder", "--link", "symbolic", "-o", "out").exit_code == 0
    links = [path for path in Path("out").rglob("*") if path.is_symlink()]
    assert len(links) == len(KEYS) - 1
    assert {link.resolve().parent for link in links} == {(table.parent / "i").resolve()}


def test_a_dry_run_counts_and_writes_nothing_and_json_is_one_value(table):
    before = sorted(table.parent.iterdir())
    result = run("t.parquet", "--to", "imagefolder", "--dry-run", "--json")
    shown = json.loads(result.stdout)
    notes = shown.pop("notes")
    assert notes[0] == "1 row left out, because the image could not be scored"
    assert ["--classes" in note for note in notes[1:]] == [True, False]  # the table lists no classes
    assert "--take" in notes[2]
    assert shown == {
        "to": "imagefolder",
        "rows": len(KEYS) - 1,
        "labelled": len(labelled()),
        "left_out": 1,
        "missing": 0,
        "n_bytes": 0,
        "resumed": 0,
        "paths": [],
        "classes": CLASSES[:2],
        "lacking": [],
        "load": [],
    }
    assert "nothing was written" in run("t.parquet", "--to", "csv", "--dry-run").stdout
    assert sorted(table.parent.iterdir()) == before
    report = json.loads(run("t.parquet", "--to", "csv", "-o", "x.csv", "--json").stdout)
    assert report["paths"] == ["x.csv"]
    quiet = run("t.parquet", "--to", "csv", "-o", "x.csv", "--overwrite", "--quiet")
    assert (quiet.exit_code, quiet.stdout, quiet.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--to", "cocoa", "-o", "x.json"], "did you mean 'coco'"),
        (["--to", "coco", "-o", "x.csv"], "got x.csv"),
        (["--to", "csv"], "got none"),
        (["--to", "csv", "-o", "there.csv/x.csv"], "there.csv/x.csv"),
        (["--to", "csv", "-o", "there.csv"], "there.csv exists already"),
        (["--to", "imagefolder", "-o", "i"], "i exists already"),
        (["--to", "imagefolder", "-o", "i", "--overwrite"], "images of the batch"),
        (["--to", "csv", "-o", "x.csv", "--label", "lable"], "did you mean 'label'"),
        (["--to", "csv", "-o", "x.csv", "--label", "embedding"], "column 'embedding'"),
        (["--to", "csv", "-o", "x.csv", "--source", "i"], "--source is for"),
        (["--to", "fiftyone", "-o", "x", "--source", "i"], "i has no image"),
        (["--to", "fiftyone", "-o", "x", "--source", "nothing"], "nothing"),
    ],
)
def test_what_cannot_go_out_is_one_line_and_leaves_nothing(table, args, said):
    Path("there.csv").write_text("important")
    before = sorted(table.parent.rglob("*"))
    result = run("t.parquet", *args)
    assert result.exit_code == 1, result.output
    assert result.stderr.count("\n") == 1
    assert said in result.stderr
    assert sorted(table.parent.rglob("*")) == before
    assert Path("there.csv").read_text() == "important"


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"key": ["a", "a"]}, "such as 'a'"),
        ({"name": ["a", "b"]}, "has no column 'key'"),
        ({"key": ["a", None]}, "key"),
        ({"key": ["a", "b"], "status": ["missing", "missing"]}, "got 2"),
        ({"key": pa.array([], pa.string())}, "image in t.parquet"),
        ({"key": ["a", "b"]}, "no path"),
        ({"key": ["a", "b"], "uri": [None, "/nowhere.png"]}, "as --source"),
        ({"key": ["a", "b"], "uri": ["/nowhere.png"] * 2}, "and 1 more of 2"),
    ],
)
def test_tables_that_cannot_go_out_are_one_line_and_leave_nothing(tmp_path, monkeypatch, columns, said):
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table(columns), "t.parquet")
    result = run("t.parquet", "--to", "imagefolder", "-o", "out")
    assert result.exit_code == 1, result.output
    assert result.stderr.count("\n") == 1
    assert said in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


def test_a_format_from_outside_is_one_file_and_one_line(table, monkeypatch):
    Path("outside_format.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(str(table.parent))
    monkeypatch.setitem(OF_LOADERS, "tsv", "outside_format:TSV")
    result = run("t.parquet", "--to", "tsv", "-o", "x.tsv")
    assert result.exit_code == 0, result.output
    assert Path("x.tsv").read_text().startswith("cats/a b.jpg\tcat\ntest_1.jpg\tdog & co\n")
    tables = runpy.run_path(str(ROOT / "docs/generate.py"))["TABLES"]
    assert "| `tsv` | a line an image |" in tables["formats"]()
    assert "tsv" in run("t.parquet", "--to", "no", "--dry-run").stderr
    anew = runpy.run_path(str(ROOT / "curate/exporting/options.py"))["ExportOptions"]
    assert any("jsonl, paths, tsv" in field.about.text for field in declared(anew))


def test_from_python_a_mistake_is_an_input_error(table):
    with pytest.raises(InputError, match="unknown format"):
        export(table, "x", to="xml")
    with pytest.raises(InputError, match="--take"):
        export(table, "x.csv", to="csv", take=" , ")


def test_a_column_of_bytes_that_was_named_is_not_left_out_in_silence(tmp_path):
    path = tmp_path / "t.parquet"
    columns = {"key": ["a"], "uri": ["/a.png"], "status": ["ok"], "thumbnail": pa.array([b"1"], pa.binary(1))}
    pq.write_table(pa.table(columns), path)
    with pytest.raises(InputError, match="'thumbnail'"):
        export(path, tmp_path / "x.csv", to="csv", take="thumbnail")
    export(path, tmp_path / "x.csv", to="csv", take="thumb*")
    assert "thumbnail" not in (tmp_path / "x.csv").read_text()
