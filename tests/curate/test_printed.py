"""What results print in Python is what their commands print, and it is safe to show."""

import html
from html.parser import HTMLParser

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import run

import curate
from curate.counted import Grid, Printed

HOSTILE = "<script>alert(1)</script>\x1b[2J\n"
SPELLED = "<script>alert(1)</script>\\x1b[2J\\n"
N = 150


class Tags(HTMLParser):
    """The tags of a document, and its text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.text += data


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)


def table(path, *, seed, shift=0.0, classes=("ant", HOSTILE, "cat")):
    """A scored table of three kinds of image, its label the kind, with a hostile name for one, and for a column."""
    generator = np.random.default_rng(seed)
    kind = np.arange(N) % 3
    rows = generator.normal(size=(N, 6)).astype(np.float32) * 0.3
    rows[np.arange(N), kind] += 1
    rows[:, 4] += shift
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    columns = {
        "key": [f"{seed}-{i}" for i in range(N)],
        "status": ["ok"] * N,
        "width": (generator.integers(50, 90, N) + 20 * shift).astype(np.int32),
        "label": [classes[k] for k in np.where(generator.random(N) < 0.3 * shift, 0, kind)],
        f"kappa_{HOSTILE}": generator.normal(size=N),
        "unc_b": generator.normal(size=N),
        "embedding": pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 6),
    }
    pq.write_table(pa.table(columns), path)
    return path


def is_safe(result):
    """Whether a notebook shows the text of a result and nothing else, hostile names and all."""
    seen = Tags(result._repr_html_())
    return seen.tags == ["pre"] and seen.text == str(result) and SPELLED in str(result) and "\x1b" not in str(result)


def test_an_evaluation_prints_as_its_command(tmp_path):
    path = table(tmp_path / "s.parquet", seed=1)
    evaluation = curate.evaluate(path, label="label", repeats=20)
    shown = run("evaluate", path, "--label", "label", "--repeats", 20)
    assert shown.exit_code == 0, shown.output
    assert str(evaluation) + "\n" == shown.stdout
    assert "verdict: " in shown.stdout
    assert is_safe(evaluation)


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_a_comparison_prints_as_its_command(tmp_path, shift):
    paths = table(tmp_path / "a.parquet", seed=1), table(tmp_path / "b.parquet", seed=2, shift=shift)
    comparison = curate.compare(*paths, repeats=199, fail_above=0.6)
    shown = run("compare", *paths, "--repeats", 199, "--fail-above", 0.6)
    assert shown.exit_code == 3 * comparison.failed, shown.output
    assert comparison.failed == bool(shift)
    assert str(comparison) + "\n" == shown.stdout
    assert ("differ more than" in shown.stdout) == bool(shift)
    assert is_safe(comparison)


@pytest.mark.parametrize("asked", [{}, {"label": "label"}])
def test_a_fit_prints_as_its_command(tmp_path, asked):
    path, applied = table(tmp_path / "s.parquet", seed=1), tmp_path / "a.parquet"
    fitted = curate.fit(path, apply=applied, **asked)
    words = [word for name, value in asked.items() for word in (f"--{name}", value)]
    shown = run("fit", path, "--apply", applied, "--overwrite", *words)
    assert shown.exit_code == 0, shown.output
    about, *lines = shown.stderr.splitlines()  # the first says what is about to be done
    assert about.startswith("fitting to 150 images")
    assert str(fitted).splitlines() == lines
    assert lines[-1] == f"table: {applied}"
    assert is_safe(fitted)


def test_a_table_is_set_to_the_right_in_one_column_at_most():
    rows = [("a", 1200, 3), ("b", 4, 1000)]
    assert str(Grid(rows, header=("kind", "rows", "taken"), right=1)).splitlines() == [
        "kind   rows  taken",
        "a     1,200  3",
        "b         4  1,000",
    ]
    assert str(Grid(rows)) == "a  1,200  3\nb  4      1,000"


def test_a_line_of_a_result_stays_one_line():
    class Two(Printed):
        def lines(self):
            return ["a\nb & \x1b[2J", Grid([("c\r", "<d>")])]

    assert str(Two()) == "a\\nb & \\x1b[2J\nc\\r  <d>"
    assert Two()._repr_html_() == f"<pre>{html.escape(str(Two()))}</pre>"
