"""Keys that are written otherwise than in the table: taken where there is no doubt, told where there is."""

import unicodedata

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curate
from curate.tables.known import known
from curate.tables.spelling import key_meant, refuse_unmatched, spelled_as
from curate.tables.table import open_table
from scoring.errors import InputError

CAFE = "Café/é.jpg"
NFD = unicodedata.normalize("NFD", CAFE)


def scores(path, keys, uris=None):
    columns = {"key": keys, "status": ["ok"] * len(keys), "unc_a": [float(at) for at in range(len(keys))]}
    pq.write_table(pa.table(columns | ({"uri": uris} if uris else {})), path)
    return open_table(path)


@pytest.mark.parametrize(
    ("in_table", "written"),
    [
        (NFD, CAFE),
        (CAFE, NFD),
        ("cats/1.jpg", "./cats/1.jpg"),
        ("cats/1.jpg", ".\\cats\\1.jpg"),
        ("cats\\1.jpg", "cats/1.jpg"),
        ("./odd%FF/1.jpg", "odd%FF/1.jpg"),
        ("=1.jpg", "'=1.jpg"),
    ],
)
def test_a_key_in_another_form_is_the_one_row_that_it_can_mean(tmp_path, in_table, written):
    table = scores(tmp_path / "s.parquet", ["other.jpg", in_table])
    matched = spelled_as(known("l.csv", [written, "other.jpg"], ["x", "y"]), table)
    assert matched.keys == [in_table.encode(), b"other.jpg"]
    assert matched.labels == ["x", "y"]
    assert matched.n_in_table == 2
    assert "1 of 2 keys" in matched.note
    assert key_meant(written, table) == in_table
    assert matched.digest == known("l.csv", [written, "other.jpg"], ["x", "y"]).digest


def test_what_is_written_as_in_the_table_is_left_alone(tmp_path):
    table = scores(tmp_path / "s.parquet", [NFD, CAFE, "a.jpg"])
    keys = known("l.csv", [CAFE, "a.jpg"])
    matched = spelled_as(keys, table)
    assert (matched.keys, matched.note, matched.hint, matched.n_in_table) == (keys.keys, "", "", 2)


def test_a_key_that_two_rows_could_be_is_not_guessed(tmp_path):
    table = scores(tmp_path / "s.parquet", ["a/1.jpg", "./a/1.jpg"])
    matched = spelled_as(known("l.csv", ["a\\1.jpg"]), table)
    assert matched.keys == [b"a\\1.jpg"]
    assert matched.n_in_table == 0
    assert "could be" in matched.hint


def test_folders_before_a_key_count_only_where_the_image_is_in_them(tmp_path):
    keys = ["cats/1.jpg", "cats/2.jpg", "3.jpg"]
    table = scores(tmp_path / "s.parquet", keys, [f"/data/train/{key}" for key in keys])
    paths = ["/data/train/cats/1.jpg", "train/cats/2.jpg", "test/3.jpg", "nothing/x.jpg"]
    matched = spelled_as(known("l.csv", paths), table)
    assert matched.keys == [b"cats/1.jpg", b"cats/2.jpg", b"test/3.jpg", b"nothing/x.jpg"]
    assert matched.n_in_table == 2
    assert "'3.jpg'" in matched.hint  # may be another 3.jpg: said, not taken


def test_two_spellings_with_two_labels_are_refused(tmp_path):
    table = scores(tmp_path / "s.parquet", [CAFE])
    assert spelled_as(known("l.csv", [CAFE, NFD], ["a", "a"]), table).keys == [CAFE.encode()]
    with pytest.raises(InputError, match="one label a key"):
        spelled_as(known("l.csv", [CAFE, NFD], ["a", "b"]), table)


def test_keys_as_numbers_and_keys_of_other_bytes_do_no_harm(tmp_path):
    table = scores(tmp_path / "s.parquet", [7, 8])
    matched = spelled_as(known("l.csv", ["7", "./8", "\udcff"]), table)
    assert matched.keys == [b"7", b"8", b"\xff"]


def test_no_key_that_matches_is_an_error_with_a_way_out(tmp_path):
    table = scores(tmp_path / "s.parquet", [CAFE])
    none = spelled_as(known("l.csv", ["b.jpg"]), table)
    with pytest.raises(InputError, match=r"--exclude: .*b\.jpg.*--allow-unmatched"):
        refuse_unmatched(none, "exclude", table)
    refuse_unmatched(spelled_as(known("l.csv", [NFD]), table), "exclude", table)


def test_filter_takes_and_drops_rows_by_keys_of_another_form(tmp_path):
    path = scores(tmp_path / "s.parquet", [NFD, "b.jpg", "c.jpg"]).path
    (tmp_path / "k.txt").write_text(f"{CAFE}\n.\\b.jpg\n")
    without = curate.filter(path, tmp_path / "w.parquet", without_keys=tmp_path / "k.txt")
    assert pq.read_table(tmp_path / "w.parquet")["key"].to_pylist() == ["c.jpg"]
    assert curate.filter(path, tmp_path / "k.parquet", keys=tmp_path / "k.txt").kept == 2
    assert "2 of 2 keys" in without.notes[-1]
    assert curate.verify(tmp_path / "w.receipt.json").identical
    (tmp_path / "n.txt").write_text("nothing.jpg\n")
    with pytest.raises(InputError, match="allow-unmatched"):
        curate.filter(path, tmp_path / "n.parquet", without_keys=tmp_path / "n.txt")
    passed = curate.filter(path, tmp_path / "n.parquet", without_keys=tmp_path / "n.txt", allow_unmatched=True)
    assert passed.kept == 3
