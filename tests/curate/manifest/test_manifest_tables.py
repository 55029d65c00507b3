"""Lists, CSV and JSON lines as sources."""

import base64
import json
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reading import keys, outcomes

from curate.manifest.contract import SourceOptions
from curate.manifest.keys import UniqueCheck
from curate.manifest.sources import open_manifest
from curate.manifest.text_tables import read_csv, read_jsonl
from scoring.errors import InputError


@pytest.fixture
def photos(tmp_path):
    """Three files in a folder next to the list that will name them."""
    (tmp_path / "p").mkdir()
    for name in ("1.jpg", "2 b.jpg", "#3.jpg"):
        (tmp_path / "p" / name).write_bytes(name.encode())
    return tmp_path


def write(folder, name, text):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_list_has_one_path_a_line_and_comments(photos):
    text = f"\ufeffp/1.jpg\r\n\n# no\n  \n{photos}/p/2 b.jpg\n./p/#3.jpg\nno-such.jpg\n/nowhere/x.jpg"
    manifest = open_manifest(write(photos, "l.txt", text))
    assert keys(manifest) == ["p/1.jpg", "p/2 b.jpg", "./p/#3.jpg", "no-such.jpg", "/nowhere/x.jpg"]
    assert outcomes(manifest) == [b"1.jpg", b"2 b.jpg", b"#3.jpg", "missing", "missing"]


def test_a_list_starts_at_the_root_that_was_given(photos):
    (photos / "lists").mkdir()
    path = write(photos / "lists", "l.txt", "1.jpg\n")
    assert outcomes(open_manifest(path)) == ["missing"]
    assert outcomes(open_manifest(path, SourceOptions(root=str(photos / "p")))) == [b"1.jpg"]
    with pytest.raises(InputError, match="folder for --root"):
        open_manifest(path, SourceOptions(root=str(path)))


def test_a_list_may_name_files_that_are_not_utf8(tmp_path):
    (tmp_path / os.fsdecode(b"\xff.jpg")).write_bytes(b"x")
    manifest = open_manifest(write(tmp_path, "l.txt", b"\xff.jpg\n"))
    assert keys(manifest) == ["./%FF.jpg"]
    assert outcomes(manifest) == [b"x"]


def test_bad_lists_are_errors_of_one_line(photos):
    cases = {
        "# only\n\n": "got no entries",
        "p/1.jpg\n" * 3: r"unique keys, got 2 rows .*'p/1\.jpg'",
        "x" * 5000: "at most 4096 bytes a line in l.txt, got 5,000 in line 1",
        "gopher://x/y.jpg": "no way to open gopher://",
        "zip://a.jpg::s3://b/c.zip": "no way to open zip://",
        "http://a/b::file:///etc/passwd": "chain of URLs",
    }
    for text, message in cases.items():
        with pytest.raises(InputError, match=message) as caught:
            open_manifest(write(photos, "l.txt", text))
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="UTF-16"):
        open_manifest(write(photos, "l.txt", "p/1.jpg".encode("utf-16")))


@pytest.mark.parametrize("name", ["l.txt", "t.csv", "t.jsonl", "t.parquet"])
@pytest.mark.parametrize("bad", ["gopher://x/y.jpg", "zip://a.jpg::s3://b/c.zip", "http://a/b::file:///etc/passwd"])
def test_a_url_that_is_opened_nowhere_is_a_row_among_others(photos, name, bad):
    paths = ["p/1.jpg", bad, "p/2 b.jpg"]
    if name.endswith(".parquet"):
        pq.write_table(pa.table({"path": paths}), photos / name)
    else:
        lines = {"l.txt": paths, "t.csv": ["path", *paths], "t.jsonl": [json.dumps({"path": path}) for path in paths]}
        write(photos, name, "".join(f"{line}\n" for line in lines[name]))
    first, refused, last = outcomes(open_manifest(photos / name))
    assert (first, last) == (b"1.jpg", b"2 b.jpg")
    assert refused == "refused"


def test_labels_of_a_list_come_from_its_relative_paths(photos):
    path = write(photos, "l.txt", f"p/1.jpg\nx.jpg\n{photos}/p/2 b.jpg\n/n/x.jpg\n")
    rows = open_manifest(path, SourceOptions(label_from_folder=True)).rows(0, 4)
    assert rows["label"].to_pylist() == ["p", None, "p", None]


def test_csv_passes_the_users_columns_on(photos):
    text = 'path,label,note,width\np/1.jpg,3,"a, ""b""",7\n"p/2 b.jpg",4,"two\nlines",8\n'
    manifest = open_manifest(write(photos, "t.csv", text))
    assert manifest.renamed == {"width": "source_width"}
    assert manifest.rows(0, 2).to_pylist() == [
        {
            "key": "p/1.jpg",
            "uri": f"{photos}/p/1.jpg",
            "path": "p/1.jpg",
            "label": 3,
            "note": 'a, "b"',
            "source_width": 7,
        },
        {
            "key": "p/2 b.jpg",
            "uri": f"{photos}/p/2 b.jpg",
            "path": "p/2 b.jpg",
            "label": 4,
            "note": "two\nlines",
            "source_width": 8,
        },
    ]
    assert outcomes(manifest) == [b"1.jpg", b"2 b.jpg"]
    assert manifest.rows(0, 2).schema == manifest.schema


def test_csv_numbers_are_numbers_only_where_nothing_is_lost():
    text = (
        "i,zip,f,mixed,big,t,e,sign\n1,007,1.5,1,99999999999999999999,true,,+1\n-2,12,2,x,1,false,,2\n,3,1e-3,,2,,,3\n"
    )
    table = read_csv(text.encode(), "t.csv")
    assert table.to_pydict() == {
        "i": [1, -2, None],
        "zip": ["007", "12", "3"],
        "f": [1.5, 2.0, 0.001],
        "mixed": ["1", "x", None],
        "big": ["99999999999999999999", "1", "2"],
        "t": [True, False, None],
        "e": [None, None, None],
        "sign": ["+1", "2", "3"],
    }


def test_marks_of_a_spreadsheet_are_taken_off_text_and_what_they_hide_is_no_number():
    table = read_csv(b"label,n\n'-dash,'-5\n''=x,\n'w,6\n", "t.csv")
    assert table["label"].to_pylist() == ["-dash", "'=x", "'w"]
    assert table["n"].to_pylist() == ["-5", None, "6"]


def test_a_long_cell_is_read(photos):
    manifest = open_manifest(write(photos, "t.csv", "path,text\np/1.jpg," + "x" * 3_000_000 + "\n"))
    assert manifest.rows(0, 1)["text"].to_pylist() == ["x" * 3_000_000]


def test_tsv_is_split_at_tabs(photos):
    manifest = open_manifest(write(photos, "t.tsv", "file_name\tn\np/2 b.jpg\t1,5\n"))
    assert manifest.rows(0, 1)["n"].to_pylist() == ["1,5"]
    assert outcomes(manifest) == [b"2 b.jpg"]


def test_an_empty_path_is_a_missing_row_when_the_key_is_elsewhere(photos):
    path = write(photos, "t.csv", "id,path\n7,p/1.jpg\n8,\n")
    with pytest.raises(InputError, match=r"row 1 .*'path'; .*--key"):
        open_manifest(path)
    manifest = open_manifest(path, SourceOptions(key="id"))
    assert keys(manifest) == ["7", "8"]
    assert manifest.rows(0, 2)["id"].to_pylist() == [7, 8]
    assert manifest.rows(0, 2)["uri"].to_pylist() == [f"{photos}/p/1.jpg", None]
    assert outcomes(manifest) == [b"1.jpg", "missing"]
    assert keys(open_manifest(path, SourceOptions(key="#"))) == ["t.csv#0", "t.csv#1"]


def test_key_columns_keep_their_text(photos):
    path = write(photos, "t.csv", "key,path\n1.10,p/1.jpg\n1.1,p/1.jpg\n")
    manifest = open_manifest(path)
    assert keys(manifest) == ["1.10", "1.1"]
    assert manifest.schema.names == ["key", "uri", "path"]
    assert manifest.renamed == {}


def test_a_whole_number_as_key_is_text_in_key_and_stays_itself(photos):
    manifest = open_manifest(write(photos, "t.csv", "key,path\n5,p/1.jpg\n6,x\n"))
    assert keys(manifest) == ["5", "6"]
    assert manifest.rows(0, 2)["source_key"].to_pylist() == [5, 6]


def test_a_taken_name_gets_a_prefix_as_often_as_it_takes(photos):
    text = "uri,width,source_width,kappa_x\np/1.jpg,1,2,3\n"
    manifest = open_manifest(write(photos, "t.csv", text), SourceOptions(reserved=("kappa_x",)))
    assert manifest.renamed == {"uri": "source_uri", "width": "source_source_width", "kappa_x": "source_kappa_x"}
    row = manifest.rows(0, 1).to_pylist()[0]
    assert row["source_width"] == 2
    assert row["source_source_width"] == 1
    assert row["source_uri"] == "p/1.jpg"


def test_repeated_keys_are_named_and_counted(photos):
    path = write(photos, "t.csv", "path,id\n" + "p/1.jpg,1\np/1.jpg,2\nb,3\np/1.jpg,4\nb,5\n")
    with pytest.raises(InputError, match=r"3 rows .*\('b', 'p/1\.jpg'\); .*--key"):
        open_manifest(path)
    assert keys(open_manifest(path, SourceOptions(key="id"))) == ["1", "2", "3", "4", "5"]


def test_repeated_keys_are_found_across_pieces_and_hash_collisions_are_not_repeats():
    check = UniqueCheck()
    check.add(pa.array(["a", "b"]))
    check.add(pa.array(["c", "a"]))
    with pytest.raises(InputError, match=r"1 row .*'a'"):
        check.finish(lambda rows: ["abca"[row] for row in rows], "key", "t")
    check.finish(lambda rows: [f"{row}" for row in rows], "key", "t")  # equal hash, other text


def test_bad_tables_are_errors_of_one_line(photos):
    cases = {
        "a,b\n1,2\n": r"paths, URLs or image bytes in t\.csv, got the columns a, b; .*--path-column",
        "path\n": "at least one row in t.csv",
        "path,a\np/1.jpg\n": "expected CSV with a header",
        "": "expected CSV with a header",
        "path,path\na,b\n": "column names to be unique",
        "path\n" + "x" * 5000 + "\n": "at most 4096 bytes .* got 5,000 bytes in row 0",
        b"path\n\xff\xfe\n": "expected CSV with a header",
        "url\ngopher://x\n": "no way to open gopher://",
        "p/1.jpg,x\np/2.jpg,y\n": r"column names in the first line of t\.csv, got the image 'p/1\.jpg'",
        "path,a\np/1.jpg,b\n".encode("utf-16-le"): "UTF-16 without its mark",
    }
    for text, message in cases.items():
        with pytest.raises(InputError, match=message) as caught:
            open_manifest(write(photos, "t.csv", text))
        assert "\n" not in str(caught.value)


def test_named_columns_must_be_there_and_hold_the_right_thing(photos):
    path = write(photos, "t.csv", "path,n\np/1.jpg,1\n")
    for options, message in (
        ({"key": "pth"}, "did you mean 'path'"),
        ({"path_column": "n"}, None),
        ({"image_column": "path"}, "or a struct"),
        ({"label_from_folder": True}, "list for labels"),
    ):
        if message is None:  # names stay text in CSV, also when they look like whole numbers
            with pytest.raises(InputError, match="--path-column 'n'"):
                open_manifest(path, SourceOptions(**options))
            continue
        with pytest.raises(InputError, match=message):
            open_manifest(path, SourceOptions(**options))


def test_the_path_column_that_was_named_is_used(photos):
    path = write(photos, "t.csv", "path,other\nnowhere,p/1.jpg\n")
    assert outcomes(open_manifest(path, SourceOptions(path_column="other"))) == [b"1.jpg"]


def test_jsonl_keeps_types_nesting_and_dates_as_text(photos):
    text = (
        '{"file_name": "p/1.jpg", "when": "2020-01-01", "box": {"x": [1, 2], "at": "2020-01-01T00:00:00"}}\n\n'
        '{"file_name": "p/2 b.jpg", "score": 0.5, "when": null}\n'
    )
    manifest = open_manifest(write(photos, "t.jsonl", text))
    assert manifest.rows(0, 2).to_pylist() == [
        {
            "key": "p/1.jpg",
            "uri": f"{photos}/p/1.jpg",
            "file_name": "p/1.jpg",
            "when": "2020-01-01",
            "box": {"x": [1, 2], "at": "2020-01-01T00:00:00"},
            "score": None,
        },
        {
            "key": "p/2 b.jpg",
            "uri": f"{photos}/p/2 b.jpg",
            "file_name": "p/2 b.jpg",
            "when": None,
            "box": None,
            "score": 0.5,
        },
    ]
    assert outcomes(manifest) == [b"1.jpg", b"2 b.jpg"]


def test_jsonl_that_is_not_one_object_a_line_is_an_error():
    for text, message in (
        ('[{"path": "a"}]', "got one array"),
        ('{"path": "a"}\n{"path": 1}', "line in t.jsonl"),
        ('{"path": "a"', "one JSON object"),
        ("hello", "one JSON object"),
    ):
        with pytest.raises(InputError, match=message):
            read_jsonl(text.encode(), "t.jsonl")


def test_the_digest_of_a_table_changes_with_its_text_and_with_the_files_it_names(photos):
    path = write(photos, "t.csv", "path,label\np/1.jpg,1\n")
    first = open_manifest(path).digest
    os.utime(path, ns=(1, 1))
    assert open_manifest(path).digest == first
    (photos / "p" / "1.jpg").write_bytes(b"changed")
    second = open_manifest(path).digest
    write(photos, "t.csv", "path,label\np/1.jpg,2\n")
    third = open_manifest(path).digest
    (photos / "p" / "1.jpg").unlink()
    assert len({first, second, third, open_manifest(path).digest}) == 4


def test_a_path_with_a_nul_byte_is_a_failed_row(photos):
    manifest = open_manifest(write(photos, "t.jsonl", '{"path": "p/1.jpg\\u0000.png"}\n'))
    assert outcomes(manifest) == ["io_error"]
    assert len(manifest.digest) == 64


def test_a_limit_takes_the_first_rows_and_checks_only_those(photos):
    path = write(photos, "t.csv", "path\np/1.jpg\np/1.jpg\n")
    assert keys(open_manifest(path, SourceOptions(limit=1))) == ["p/1.jpg"]
    with pytest.raises(InputError, match="unique"):
        open_manifest(path, SourceOptions(limit=2))


BROKEN = """
import polars
from curate.manifest.text_tables import read_csv, read_jsonl
from scoring.errors import InputError
for read, data in ((read_csv, b""), (read_csv, b"key,label\\na\\nb,c,d\\n"), (read_jsonl, b'{"a": 1}\\n{')):
    try:
        read(data, "f")
    except InputError:
        print("refused")
"""


@pytest.mark.slow
def test_a_process_that_ends_after_broken_files_is_not_aborted():
    """Where it was, it was at one end in a few."""
    runs = [subprocess.run([sys.executable, "-c", BROKEN], capture_output=True, text=True) for _ in range(5)]
    assert [(run.returncode, run.stdout, run.stderr) for run in runs] == [(0, "refused\n" * 3, "")] * 5


def test_names_are_found_where_a_quoted_cell_goes_beyond_what_is_read_for_them():
    long = "x\n" * (1 << 20)
    table = read_csv(f'key,"a\nlabel"\n1,"{long}"\n2,y\n'.encode(), "f")
    assert table.column_names == ["key", "a\nlabel"]
    assert table["a\nlabel"].to_pylist() == [long, "y"]
    table = read_csv(("key,code\n" + "7,007\n" * (1 << 18)).encode(), "f")
    assert (table.num_rows, table["code"][5].as_py(), table["key"].type) == (1 << 18, "007", pa.int64())


def nested(depth, line_end=b""):
    return b'{"path": "a.jpg", "more": ' + (b"[" + line_end) * depth + b"]" * depth + b"}\n"


@pytest.mark.parametrize("line_end", [b"", b"\n"])
def test_json_lines_nested_without_end_are_refused_before_arrow_meets_them(line_end, monkeypatch):
    """Arrow's reader calls itself for each level, and a hundred thousand of them end the process by SIGSEGV."""
    for block in (16 << 20, 10):
        monkeypatch.setattr("curate.manifest.text_tables._DEPTH_BLOCK", block)
        for depth in (250, 100_000):
            with pytest.raises(InputError, match=r"200 deep .*x\.jsonl"):
                read_jsonl(b'{"path": "b.jpg"}\n' + nested(depth, line_end), "x.jsonl")


def test_brackets_in_the_text_of_json_lines_are_no_nesting(monkeypatch):
    texts = ["[" * 500, '"' + "[" * 500, "\\" + "{" * 500, '\\"' + "{" * 500, "plain"]
    data = b"".join(json.dumps({"path": text, "box": [[1, 2]] * 300}).encode() + b"\n" for text in texts)
    for block in (16 << 20, 10):
        monkeypatch.setattr("curate.manifest.text_tables._DEPTH_BLOCK", block)
        assert read_jsonl(data, "x.jsonl").column("path").to_pylist() == texts
    assert read_jsonl(nested(150), "x.jsonl").num_rows == 1


SHEETS = ["file_name;label\r\na.jpg;x\r\n", "sep=;\nfile_name;label\na.jpg;x\n", "file_name\tlabel\na.jpg\tx\n"]


@pytest.mark.parametrize("text", SHEETS)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_manifest_as_spreadsheets_save_it_is_read(text, encoding):
    table = read_csv(text.encode(encoding), "t.csv", expects={"file_name"})
    assert table.to_pydict() == {"file_name": ["a.jpg"], "label": ["x"]}


def test_images_as_base64_and_paths_of_windows_are_named(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"x")
    png = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(100)).decode()
    cases = {
        "b.csv": (png, "base64"),
        "c.csv": (f"data:image/png;base64,{png}", "base64"),
        "w.csv": (".\\a.jpg", "backslash"),
    }
    for name, (first, word) in cases.items():
        (tmp_path / name).write_text(f"image,label\n{first},x\n")
        with pytest.raises(InputError, match=word):
            open_manifest(str(tmp_path / name))
