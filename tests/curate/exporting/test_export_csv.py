"""CSV out and in: cells that no spreadsheet runs, keys that survive exactly."""

import csv

import pyarrow.parquet as pq
import pytest
from exporting import KEYS, batch, counts, pairs
from hypothesis import given
from hypothesis import strategies as st

from curate.exporting.batches import read_labels, write_batch
from curate.exporting.subset import export
from curate.manifest.text import guarded, unguarded
from scoring.errors import InputError


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def test_every_key_comes_back_exactly_with_the_typed_label(tmp_path):
    out = tmp_path / "batch.csv"
    written = write_batch(batch(tmp_path / "images"), out, "csv")
    assert written.paths == (out,)
    assert written.rows == len(KEYS)
    with out.open(newline="", encoding="utf-8-sig") as file:
        lines = list(csv.reader(file))
    header, rows = lines[0], lines[1:]
    assert header == [
        *("key", "uri", "rank", "round", "gain", "kappa_x", "predicted", "probability", "width", "height"),
        *("label", "annotator"),
    ]
    assert not [cell for line in lines for cell in line if cell[:1] in tuple("=+@\t\r") or cell.startswith("-1.p")]
    for number, row in enumerate(rows):
        row[header.index("label")] = f"=class {number % 3}" if number % 2 else f"class {number % 3}"
        row[header.index("label")] = guarded(row[header.index("label")])
    with out.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    labels = read_labels(out, "csv", keys=KEYS)
    expected = [(key, f"=class {i % 3}" if i % 2 else f"class {i % 3}") for i, key in enumerate(KEYS)]
    assert pairs(labels) == expected
    assert labels.ignored == ()
    assert labels.problems == ()


@given(st.text(max_size=12))
def test_a_guarded_cell_never_starts_like_a_formula_and_is_undone_exactly(text):
    cell = guarded(text)
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    assert unguarded(cell) == text


def test_an_infinite_gain_and_a_null_are_empty_cells(tmp_path):
    write_batch(batch(tmp_path / "i", ["a", "b"], kappa_x=[None, 1.5]), tmp_path / "o.csv", "csv")
    with (tmp_path / "o.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["gain"] for row in rows] == ["", "-0.5"]
    assert [row["kappa_x"] for row in rows] == ["", "1.5"]


def test_text_that_is_ascii_has_no_byte_order_mark_and_other_text_has_one(tmp_path):
    write_batch(batch(tmp_path / "i", ["a"]), tmp_path / "a.csv", "csv")
    write_batch(batch(tmp_path / "i", ["ä"]), tmp_path / "b.csv", "csv")
    assert (tmp_path / "a.csv").read_bytes().startswith(b"key,")
    assert (tmp_path / "b.csv").read_bytes().startswith(b"\xef\xbb\xbfkey,")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_encodings_line_ends_and_separators_of_spreadsheets_are_read(tmp_path, encoding, end, separator):
    lines = [["label", "key", "annotator", "at"], ["kät", "007", "ann", "2024-01-02"], ["", "", "", ""]]
    text = "".join(separator.join(line) + end for line in lines)
    labels = read_labels(write(tmp_path / "l.csv", text, encoding), "csv", keys=["007"])
    assert [(row.key, row.label, row.annotator, row.labelled_at) for row in labels.rows] == [
        ("007", "kät", "ann", "2024-01-02")
    ]


def test_several_annotators_are_several_rows_and_their_disagreement_is_named(tmp_path):
    text = "key,label,annotator\na,cat,ann\na,dog,bob\nb,cat,ann\nb,cat,bob\n"
    labels = read_labels(write(tmp_path / "l.csv", text), "csv", keys=["a", "b"])
    assert pairs(labels) == [("a", "cat"), ("a", "dog"), ("b", "cat"), ("b", "cat")]
    assert counts(labels) == {"annotators disagree": 1}
    assert labels.table().to_pydict() == {
        "key": ["a", "a", "b", "b"],
        "label": ["cat", "dog", "cat", "cat"],
        "annotator": ["ann", "bob", "ann", "bob"],
        "at": [None] * 4,
    }


def test_rows_without_annotators_are_votes(tmp_path):
    labels = read_labels(write(tmp_path / "l.csv", "id,label\na,cat\na,cat\na,dog\n"), "csv", keys=["a"])
    assert pairs(labels) == [("a", "cat"), ("a", "cat"), ("a", "dog")]


def test_one_person_who_contradicts_himself_is_set_aside_and_one_who_repeats_counts_once(tmp_path):
    text = "key,label,annotator\na,cat,ann\na,dog,ann\nb,cat,ann\nb,cat,ann\n"
    labels = read_labels(write(tmp_path / "l.csv", text), "csv", keys=["a", "b"])
    assert pairs(labels) == [("b", "cat")]
    assert counts(labels) == {"two labels by one annotator": 2, "given twice": 1}


def test_everything_that_cannot_be_used_is_named_with_counts_and_examples(tmp_path):
    keys = ["a", "b", "c", "d", "e"]
    text = "key,label\na,cat\nb,\nx,cat\ny,dog\nz,cat\nw,cat\nc,Cat\n"
    labels = read_labels(write(tmp_path / "l.csv", text), "csv", keys=keys, classes=["cat", "dog"])
    assert pairs(labels) == [("a", "cat")]
    assert counts(labels) == {"no label": 1, "unknown key": 4, "unknown class": 1, "not in the file": 2}
    lines = [str(problem) for problem in labels.problems]
    assert lines == [
        "no label: 1 ('b')",
        "unknown key: 4 ('x', 'y', 'z', ...)",
        "unknown class: 1 ('Cat' for 'c'; did you mean 'cat'?; known: cat, dog)",
        "not in the file: 2 ('d', 'e')",
    ]
    assert [ignored.reason for ignored in labels.ignored].count("unknown key") == 4


def test_keys_and_classes_are_never_trimmed_or_folded(tmp_path):
    text = 'key,label\n" a",cat\na,cat \nA,cat\n7,cat\n'
    labels = read_labels(write(tmp_path / "l.csv", text), "csv", keys=[" a", "a", "007"], classes=["cat"])
    assert pairs(labels) == [(" a", "cat")]
    assert counts(labels) == {"unknown class": 1, "unknown key": 2, "not in the file": 1}


def test_a_foreign_file_may_hold_a_key_that_looks_escaped(tmp_path):
    assert pairs(read_labels(write(tmp_path / "l.csv", "key,label\n'=x,cat\n"), "csv", keys=["'=x"])) == [
        ("'=x", "cat")
    ]
    assert pairs(read_labels(write(tmp_path / "m.csv", "key,label\n'=x,cat\n"), "csv", keys=["=x"])) == [("=x", "cat")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "got nothing"),
        ("key,lable\na,cat\n", "did you mean 'lable'"),
        ("kee,label\na,cat\n", "did you mean 'kee'"),
        ("key,label\na,cat,dog\n", "got 3 in line 2"),
        ('key,label\na,"cat\n', "in line 2"),
        ("key,label,label\na,cat,dog\n", "column 'label' once"),
        ("key,label\nx,cat\n", "unknown key: 1"),
        ("key,label\n", "the file has none"),
        ("key,label\na,cat\0\n", "NUL"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(tmp_path, text, message):
    with pytest.raises(InputError, match=message) as caught:
        read_labels(write(tmp_path / "l.csv", text), "csv", keys=["a"])
    assert "\n" not in str(caught.value)


def test_bytes_of_another_encoding_are_refused_with_their_place(tmp_path):
    (tmp_path / "l.csv").write_bytes("key,label\na,ä\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"at byte 12 .*UTF-8"):
        read_labels(tmp_path / "l.csv", "csv", keys=["a"])


def test_a_file_that_is_there_is_replaced_only_on_request(tmp_path):
    table = batch(tmp_path / "i", ["a"])
    write_batch(table, tmp_path / "o.csv", "csv")
    with pytest.raises(InputError, match="exists already"):
        write_batch(table, tmp_path / "o.csv", "csv")
    pq.write_table(batch(tmp_path / "i", ["b"]), tmp_path / "t.parquet")
    export(tmp_path / "t.parquet", tmp_path / "o.csv", to="csv", overwrite=True)
    assert b"\nb," in (tmp_path / "o.csv").read_bytes()


def test_the_column_of_labels_can_be_named(tmp_path):
    path = write(tmp_path / "l.csv", "key,label,final\na,cat,dog\n")
    assert pairs(read_labels(path, "csv", keys=["a"], name="final")) == [("a", "dog")]
