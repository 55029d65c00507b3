"""Files of keys and labels, in every form they come in."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from choosing import csv, table

from curate.tables.known import known, read_known, refuse_unknown_keys
from curate.tables.needs import Needs
from curate.tables.rows import read_rows
from curate.tables.spelling import spelled_as
from curate.tables.table import open_table
from scoring.errors import InputError

ROWS = [("a.png", "cat"), ("b.png", ""), ("c.png", "dog")]


def as_parquet(path, rows=ROWS):
    keys, labels = zip(*rows, strict=True)
    pq.write_table(pa.table({"key": list(keys), "label": [label or None for label in labels]}), path)
    return path


def as_jsonl(path):
    path.write_text("\n".join(f'{{"key": "{key}", "label": "{label}"}}' for key, label in ROWS))
    return path


def as_tsv(path):
    path.write_text("key\tlabel\n" + "".join(f"{key}\t{label}\n" for key, label in ROWS))
    return path


@pytest.mark.parametrize(
    ("name", "make"),
    [("l.csv", lambda path: csv(path, ROWS)), ("l.tsv", as_tsv), ("l.jsonl", as_jsonl), ("l.parquet", as_parquet)],
)
def test_every_format_says_the_same_and_has_the_same_digest(tmp_path, name, make):
    read = read_known(make(tmp_path / name))
    assert read.keys == [b"a.png", b"c.png"]  # a blank label is not one
    assert read.labels == ["cat", "dog"]
    assert read.digest == known("elsewhere", ["c.png", "a.png"], ["dog", "cat"]).digest
    assert read.digest != known("elsewhere", ["c.png", "a.png"], ["cat", "cat"]).digest
    assert read_known(tmp_path / name, labels=False).keys == [b"a.png", b"b.png", b"c.png"]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_sheet_as_spreadsheets_save_it_is_read(tmp_path, separator, encoding):
    lines = ["key;label;note", '"a;b,c.png";Bär;x', "d.png;Uhu;y", "e.png;;"]
    text = "\r\n".join(lines).replace(";", separator) + "\r\n"
    (tmp_path / "l.csv").write_bytes(text.encode(encoding))
    read = read_known(tmp_path / "l.csv")
    assert [key.decode() for key in read.keys] == [f"a{separator}b,c.png" if separator != "," else "a,b,c.png", "d.png"]
    assert read.labels == ["Bär", "Uhu"]


def test_numbers_as_keys_and_labels_stay_as_they_are_written(tmp_path):
    texts = read_known(csv(tmp_path / "l.csv", [("007", "1"), ("8", "02")]))
    assert texts.keys == [b"007", b"8"]
    assert texts.labels == ["1", "02"]
    numbers = read_known(csv(tmp_path / "m.csv", [("7", "1"), ("8", "2")]))
    assert (numbers.keys, numbers.labels) == ([b"7", b"8"], ["1", "2"])


def test_a_label_column_by_another_name_or_none_at_all(tmp_path):
    path = csv(tmp_path / "l.csv", [("a", "x")], header="key,species")
    assert read_known(path).labels is None
    assert read_known(path, "species").labels == ["x"]
    assert read_known(path, "species", labels=False).labels is None


def test_a_key_given_twice_counts_once_unless_its_labels_differ(tmp_path):
    path = csv(tmp_path / "l.csv", [("a", "x"), ("b", "y"), ("a", "x")])
    assert read_known(path).keys == [b"a", b"b"]
    path = csv(tmp_path / "m.csv", [("a", "x"), ("a", "y")])
    with pytest.raises(InputError, match="'x' and 'y' for 'a'"):
        read_known(path)
    assert read_known(path, labels=False).keys == [b"a"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("no.csv", None, "does not exist"),
        ("l.csv", "id,label\na,b\n", "has no column 'key'"),
        ("l.csv", "key,label\na\n", "CSV with a header"),
        ("l.jsonl", '[{"key": 1}]', "one JSON object"),
        ("l.parquet", "key,label\n", "not a Parquet file"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(tmp_path, name, text, said):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=said):
        read_known(tmp_path / name)


def test_a_null_key_is_refused(tmp_path):
    path = as_parquet(tmp_path / "l.parquet", [("a", "x"), (None, "y")])
    with pytest.raises(InputError, match="key in every row"):
        read_known(path)


def test_keys_are_found_in_the_table_and_unknown_keys_are_counted_and_named(tmp_path):
    rows = read_rows(open_table(table(tmp_path / "s.parquet", 20)), Needs(), by_hash=True)
    some = known("labels.csv", ["img/003.png", "img/999.png", "img/000.png", "IMG/001.png"])
    at = some.rows(rows)
    keys = [f"img/{place:03}.png" for place in rows.place[at[at >= 0]]]
    assert keys == ["img/003.png", "img/000.png"]
    with pytest.raises(InputError, match=r"'img/999\.png', 'IMG/001\.png'"):
        refuse_unknown_keys(some, at, "s.parquet")
    refuse_unknown_keys(some, np.abs(at), "s.parquet")


def test_keys_that_a_spreadsheet_marked_are_found(tmp_path):
    opened = open_table(table(tmp_path / "s.parquet", 3, key=["=a.png", "b.png", "-c.png"]))
    rows = read_rows(opened, Needs(), by_hash=True)
    at = spelled_as(known("l.csv", ["'=a.png", "b.png", "-c.png"]), opened).rows(rows)
    assert rows.place[at].tolist() == [0, 1, 2]


def test_a_list_of_keys_is_a_key_a_line(tmp_path):
    (tmp_path / "keys.txt").write_bytes("a b.png\r\n\r\né,1.png\n".encode())
    assert read_known(tmp_path / "keys.txt").keys == [b"a b.png", "é,1.png".encode()]
