"""Files that mean harm, and what holds for every format."""

import json
import os

import pyarrow as pa
import pytest
from exporting import batch

from curate.exporting.batches import read_labels, write_batch
from curate.exporting.table import TOOLS
from curate.manifest import text as text_module
from curate.manifest.text import read_json
from scoring.errors import InputError

JSON_TOOLS = ["label-studio", "coco", "fiftyone"]


def refuse(path, format, match):
    with pytest.raises(InputError, match=match) as caught:
        read_labels(path, format, keys=["a"])
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1200


@pytest.mark.parametrize("format", JSON_TOOLS)
@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "invalid JSON"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"a":' * 200_000, "nested too deeply"),
        (b'[{"a": NaN}]', "NaN is not a JSON number"),
        (b'[{"a": -Infinity}]', "-Infinity is not a JSON number"),
        (b'[{"data": 1, "data": 2}]', "the name 'data' occurs twice"),
        (b"[" + b"9" * 5000 + b"]", "invalid JSON"),
        (b"\xff\xfe\x00", "UTF-8, got other bytes"),
        ('["ä"]'.encode("latin-1"), "UTF-8, got other bytes at byte 2"),
        (b"PAR1 and more", "invalid JSON"),
    ],
)
def test_json_that_means_harm_is_refused_in_one_line(tmp_path, format, data, match):
    (tmp_path / "f.json").write_bytes(data)
    refuse(tmp_path / "f.json", format, match)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_marks_of_the_encoding_and_windows_line_ends_do_no_harm(tmp_path, encoding):
    tasks = [{"data": {"curate_key": "ä"}, "annotations": [{"result": [{"value": {"choices": ["é"]}}]}]}]
    text = json.dumps(tasks, ensure_ascii=False, indent=1).replace("\n", "\r\n")
    (tmp_path / "f.json").write_bytes(text.encode(encoding))
    labels = read_labels(tmp_path / "f.json", "label-studio", keys=["ä"])
    assert [(row.key, row.label) for row in labels.rows] == [("ä", "é")]


def test_files_and_values_have_bounds(tmp_path, monkeypatch):
    (tmp_path / "f.json").write_text("[1, 2, 3, 4]")
    monkeypatch.setattr(text_module, "MOST_VALUES", 3)
    with pytest.raises(InputError, match=r"3 values .* about 4"):
        read_json(tmp_path / "f.json", what="JSON")
    monkeypatch.setattr(text_module, "MOST_BYTES", 10)
    with pytest.raises(InputError, match="10 bytes, got 12"):
        read_json(tmp_path / "f.json", what="JSON")


def test_a_gibibyte_more_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "huge.json"
    path.touch()
    os.truncate(path, (1 << 30) + 1)  # a hole: takes no room on the disk
    refuse(path, "coco", "at most 1,073,741,824 bytes")


@pytest.mark.parametrize("format", sorted(set(TOOLS) - {"imagefolder"}))
def test_what_is_no_file_is_refused_without_waiting(tmp_path, format):
    os.mkfifo(tmp_path / "pipe")
    refuse(tmp_path / "pipe", format, "got something other than a file")
    refuse(tmp_path / "none", format, "No such file or directory; check the path")
    refuse(tmp_path / "nul\0byte", format, "check the path") if format != "fiftyone" else None


def test_half_a_character_is_no_label_and_no_key(tmp_path):
    tasks = [
        {"data": {"curate_key": key}, "annotations": [{"result": [{"value": {"choices": [label]}}]}]}
        for key, label in (("a", "\ud800"), ("\ud800", "cat"), ("a", "cat"))
    ]
    (tmp_path / "f.json").write_text(json.dumps(tasks))
    labels = read_labels(tmp_path / "f.json", "label-studio", keys=["a"])
    assert [(row.key, row.label) for row in labels.rows] == [("a", "cat")]
    assert [ignored.reason for ignored in labels.ignored] == ["not a label", "unknown key"]
    labels.table().validate(full=True)
    "".join(str(problem) for problem in labels.problems).encode()


@pytest.mark.parametrize("format", TOOLS)
def test_a_batch_is_written_alike_twice_and_the_table_is_not_touched(tmp_path, format):
    table = batch(tmp_path / "i", ["b", "a"])
    before = table.to_pydict()
    outputs = []
    for which in ("one", "two"):
        (tmp_path / which).mkdir()
        write_batch(table, tmp_path / which / f"out{TOOLS[format].suffix}", format)
        files = sorted(path for path in (tmp_path / which).rglob("*") if path.is_file())
        outputs.append([(str(path.relative_to(tmp_path / which)), path.read_bytes()) for path in files])
    assert outputs[0] == outputs[1]
    assert table.to_pydict() == before


def test_rows_are_exported_by_rank_and_without_columns_of_lists(tmp_path):
    rows = batch(tmp_path / "i", ["a", "b", "c"], rank=[2, 0, 1])
    written = write_batch(rows, tmp_path / "o.csv", "csv")
    assert [line.split(",")[0] for line in (tmp_path / "o.csv").read_text().splitlines()] == ["key", "b", "c", "a"]
    assert written.notes == ("left out, because no tool reads them: embedding",)


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ({"uri": ["x"]}, "batch, got uri"),
        ({"key": pa.array([], pa.string())}, "at least one row"),
        ({"key": ["a", "a"]}, "such as 'a'"),
        ({"key": ["a", None]}, "in row 1"),
        ({"key": ["a"], "probability": [1.5]}, r"got 1.5"),
        ({"key": ["a"], "probability": ["high"]}, "got 'high' for 'a'"),
    ],
)
def test_a_batch_that_cannot_be_written_is_one_line(tmp_path, columns, match):
    with pytest.raises(InputError, match=match):
        write_batch(pa.table(columns), tmp_path / "o.csv", "csv")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_format_and_an_empty_round_are_one_line(tmp_path):
    with pytest.raises(InputError, match="did you mean 'coco'"):
        read_labels(tmp_path, "cocoo", keys=["a"])
    with pytest.raises(InputError, match="keys of a round"):
        read_labels(tmp_path, "csv", keys=[])
    with pytest.raises(InputError, match="at least one class"):
        read_labels(tmp_path, "csv", keys=["a"], classes=[])
