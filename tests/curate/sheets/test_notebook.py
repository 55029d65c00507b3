"""A table and results as a notebook shows them."""

import html.parser
import re

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deduplicated import HOSTILE
from PIL import Image

import curate
from curate.sheets.notebook import STRIP


class Seen(html.parser.HTMLParser):
    """What a browser would make of a piece of HTML: its tags, and its text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self.alt = [], "", []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.alt += [value for name, value in attrs if name == "alt"]

    def handle_data(self, data):
        self.text += data


@pytest.fixture
def table(tmp_path):
    """Twenty images of one colour each and a broken one; the score falls with the number."""
    keys = [f"{number:02d}.png" for number in range(20)]
    for number, key in enumerate(keys):
        Image.new("RGB", (40, 30), (number * 12, 0, 0)).save(tmp_path / key)
    keys.append("broken.png")
    (tmp_path / "broken.png").write_bytes(b"no image")
    columns = {
        "key": keys,
        "uri": [str(tmp_path / key) for key in keys],
        "status": ["ok"] * 20 + ["not_an_image"],
        "label": ["cat", "dog"] * 10 + [None],
        "unc_fitted": pa.array([*(number / 20 for number in range(20)), None], pa.float32()),
    }
    path = tmp_path / "scores.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def test_both_ends_of_the_score_are_shown_with_value_key_and_label(table):
    opened = curate.open(table)
    seen = Seen(opened._repr_html_())
    surest, least = [f"{n:02d}.png" for n in range(STRIP)], [f"{n:02d}.png" for n in range(19, 19 - STRIP, -1)]
    assert seen.alt == [*least, *surest]
    assert seen.tags.count("img") == 2 * STRIP
    assert re.findall(r"(most|least) certain", seen.text) == ["least", "most"]
    assert "20 ok" in seen.text
    assert "1 not_an_image" in seen.text
    assert "0.95" in seen.text
    assert "cat" in seen.text
    assert repr(opened) == f"{table}: 21 rows, 5 columns"


def test_it_is_a_table_that_polars_reads(table):
    opened = curate.open(table)
    assert opened.to_polars().equals(pl.read_parquet(table))
    assert opened.to_polars(["key"]).columns == ["key"]
    assert opened.n_rows == 21


def test_images_that_are_gone_and_tables_without_a_score_are_shown_all_the_same(table, tmp_path):
    for path in tmp_path.glob("*.png"):
        path.unlink()
    assert Seen(curate.open(table)._repr_html_()).text.count("not readable") == 2 * STRIP
    plain = tmp_path / "plain.parquet"
    pq.write_table(pa.table({"key": ["a"]}), plain)
    seen = Seen(curate.open(plain)._repr_html_())
    assert "1 row" in seen.text
    assert "score it first" in seen.text


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_keys_and_labels_stay_text(tmp_path, text):
    path = tmp_path / "scores.parquet"
    columns = {"key": [text], "uri": ["/gone"], "label": [text], "unc_fitted": pa.array([0.5], pa.float32())}
    pq.write_table(pa.table(columns), path)
    seen = Seen(curate.open(path)._repr_html_())
    assert set(seen.tags) == {"p", "b", "bdi", "div", "figure", "span", "figcaption", "br"}


def test_what_is_no_table_is_refused_as_by_the_commands(tmp_path):
    with pytest.raises(curate.InputError, match="does not exist"):
        curate.open(tmp_path / "none.parquet")


def test_a_result_prints_what_became_of_the_rows(table, tmp_path):
    result = curate.filter(table, tmp_path / "kept.parquet", keep_top=5)
    lines = str(result).splitlines()
    assert [line.split() for line in lines[:2]] == [["rows", "in", "21"], ["kept", "5"]]
    assert lines[2].split() == ["dropped", "15", "--keep-top", "5"]
    assert lines[3].split() == ["failed", "1", "not_an_image"]
    assert lines[4] == f"subset: {tmp_path / 'kept.parquet'}"
    assert Seen(result._repr_html_()).tags == ["pre"]
