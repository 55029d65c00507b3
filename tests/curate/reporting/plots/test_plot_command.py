"""`curate plot`: what is written, what is printed, and what is refused."""

import json
import re
import shlex
import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from typer.testing import CliRunner

from curate.cli import app
from curate.reporting.plots.table import KINDS

N = 60
HOSTILE = [
    "$x_{1}$ <script>alert(1)</script> & 'q' \"d\"",
    "\u202egpj.exe",
    "a" * 300,
    "two\nlines\x00\x1b[31m",
    "中文 עברית",
]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    place = tmp_path_factory.mktemp("made")
    draw = np.random.default_rng(0)
    embedding = draw.normal(size=(N, 8)).astype(np.float32)
    pq.write_table(
        pa.table(
            {
                "key": [f"{i}" for i in range(N)],
                "embedding": pa.FixedSizeListArray.from_arrays(embedding.ravel(), 8),
                "kappa_a": draw.uniform(1, 9, N),
                "unc_b": draw.uniform(0, 1, N),
                "label": [f"c{i % 3}" for i in range(N)],
                "hostile": [HOSTILE[i % len(HOSTILE)] for i in range(N)],
                "right": [i % 3 > 0 for i in range(N)],
                "same": [2.5] * N,
                "none": pa.nulls(N, pa.float64()),
                "nan": [float("nan")] * N,
                "mixed": [1.0, float("nan"), float("inf"), *range(N - 3)],
                "many": [f"class {i}" for i in range(N)],
            }
        ),
        place / "s.parquet",
    )
    (place / "run").mkdir()
    (place / "run" / "course.csv").write_text("epoch,step,loss,lr,knn\n1,10,2.5,0.1,\n2,20,2.25,0.05,0.5\n")
    return place


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    monkeypatch.chdir(shutil.copytree(made, tmp_path / "w"))
    return tmp_path / "w"


def run(line, code=0):
    result = CliRunner().invoke(app, shlex.split(line), catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


ASKED = {
    "histogram": "s.parquet histogram",
    "abstained-accuracy": "s.parquet abstained-accuracy --label label --repeats 5",
    "risk-coverage": "s.parquet risk-coverage --right right --repeats 5",
    "roc": "s.parquet roc --right right --repeats 5",
    "reliability": "s.parquet reliability --label label --repeats 5",
    "course": "run course",
}


def test_every_kind_is_tried_here():
    assert ASKED.keys() == KINDS.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_written_with_the_same_bytes_twice_and_its_numbers_printed_with_an_image_or_without(folder, kind):
    run(f"plot {ASKED[kind]} -o a.svg --quiet")
    both = json.loads(run(f"plot {ASKED[kind]} --json -o b.svg --quiet").stdout)
    assert Path("a.svg").read_bytes() == Path("b.svg").read_bytes()
    run(f"plot {ASKED[kind]} -o a.png --quiet")
    with Image.open("a.png") as picture:
        assert picture.size[0] == 1051  # 89 mm at 300 dots an inch
    text = Path("a.svg").read_text()
    root = ElementTree.fromstring(text)
    assert root.tag == f"{SVG}svg"
    assert any(node.text for node in root.iter(f"{SVG}text"))
    assert not re.search(r"<dc:date>|<script|href=\"http", text)
    alone = json.loads(run(f"plot {ASKED[kind]} --json").stdout)
    assert alone["kind"] == kind
    assert (alone.pop("image"), both.pop("image")) == (None, "b.svg")
    assert alone == both


def test_the_help_names_every_kind():
    text = run("plot --help").stdout
    for name, kind in KINDS.items():
        assert f"{name} " in text
        assert kind.shows in text


def test_the_width_and_a_title_are_as_requested(folder):
    run("plot s.parquet histogram --width 183 --title 'A $title$' -o wide.png --quiet")
    run("plot s.parquet histogram --title 'A $title$' -o titled.svg --quiet")
    with Image.open("wide.png") as picture:
        assert picture.size[0] == int(183 / 25.4 * 300)
    assert "A $title$" in Path("titled.svg").read_text()


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_hostile_labels_are_shown_as_they_are_and_in_silence(folder, ending, capfd):
    result = run(f"plot s.parquet histogram --column kappa_a --per hostile -o x.{ending} --title '$\\frac$'")
    assert result.stderr == f"image: x.{ending}\n"
    assert capfd.readouterr().err == ""
    if ending == "svg":
        said = [node.text or "" for node in ElementTree.parse("x.svg").iter(f"{SVG}text")]
        assert any(text.startswith("$x_{1}$") for text in said)
        assert any(text.startswith("\\u202e") for text in said)
        assert any("\\x0a" in text for text in said)
        assert any("中文" in text for text in said)
        assert max(map(len, said)) < 100


def test_of_many_classes_the_largest_are_shown_with_a_note(folder):
    result = run("plot s.parquet histogram --column kappa_a --per many -o x.svg")
    assert "48 rows" in result.stderr
    assert "the 12 largest" not in run("plot s.parquet histogram --column kappa_a --per many -o y.svg --quiet").stderr


def test_rows_without_a_finite_value_are_left_out_and_counted(folder):
    result = run("plot s.parquet histogram --column mixed -o x.svg")
    assert "2 of 60 rows" in result.stderr


def test_a_constant_column_and_a_single_row_are_images_too(folder):
    pq.write_table(pq.read_table("s.parquet").slice(0, 1), "one.parquet")
    for table in ("s", "one"):
        run(f"plot {table}.parquet histogram --column same -o x.svg --overwrite --quiet")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("s.parquet histogran -o x.svg", "did you mean 'histogram'"),
        ("histogram s.parquet -o x.svg", "table comes first"),
        ("histogram 's 2.parquet' -o x.svg", "plot 's 2.parquet' histogram"),
        ("s.parquet histogram -o x.jpg", "got x.jpg"),
        ("s.parquet histogram", "or --json"),
        ("s.parquet histogram --column kapa_a -o x.svg", "did you mean 'kappa_a'"),
        ("s.parquet histogram --column label -o x.svg", "numbers in column 'label'"),
        ("s.parquet histogram --column none -o x.svg", "row of 60"),
        ("s.parquet histogram --column nan -o x.svg", "row of 60"),
        ("s.parquet histogram --label label -o x.svg", "--label is not used"),
        ("s.parquet histogram --column kappa_a --column unc_b --per label -o x.svg", "one column, got 2"),
        ("s.parquet histogram --width 5 -o x.svg", "400 mm, got 5"),
        ("s.parquet histogram --width nan -o x.svg", "400 mm, got nan"),
        ("s.parquet risk-coverage -o x.svg", "or --right"),
        ("s.parquet risk-coverage --right kappa_a -o x.svg", "0 in 'kappa_a'"),
        ("s.parquet risk-coverage --right label -o x.svg", "in 'label'"),
        ("s.parquet risk-coverage --label label --prediction lineal -o x.svg", "did you mean 'linear'"),
        ("s.parquet reliability --right right -o x.svg", "such as kappa_a"),
        ("s.parquet reliability --label label --repeats 0 -o x.svg", "--repeats must be"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(folder, line, said):
    result = run(f"plot {line}", code=1)
    assert result.stderr.startswith("error: ")
    assert said in result.stderr
    assert result.stderr.count("\n") <= 3  # what was going on, and the mistake
    assert not list(folder.glob("x.*"))


def test_an_existing_image_is_kept_unless_requested(folder):
    Path("x.svg").write_text("mine")
    assert "x.svg exists already" in run("plot s.parquet histogram -o x.svg", code=1).stderr
    assert Path("x.svg").read_text() == "mine"
    run("plot s.parquet histogram -o x.svg --overwrite --quiet")
    assert Path("x.svg").read_text().startswith("<?xml")
