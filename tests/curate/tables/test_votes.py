"""Votes for classes by key: files, folders of rounds, and where a row has several."""

import csv

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.tables.known import MOST_VOTES, read_votes
from curate.tables.needs import Needs
from curate.tables.rows import read_rows
from curate.tables.table import open_table
from scoring.errors import InputError

ROWS = [("b", "dog", "ann"), ("a", "cat", "ann"), ("b", "cat", "bob"), ("c", "", "bob"), ("b", "dog", "eve")]


def sheet(path, rows, header=("key", "label", "annotator")):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def said(votes):
    keys = [votes.known.keys[place].decode() for place in votes.place]
    who, names = (np.array(each)[codes] for each, codes in ((votes.annotators, votes.who), (votes.classes, votes.code)))
    return sorted(zip(keys, names.tolist(), who.tolist(), strict=True))


def test_a_file_has_a_vote_of_each_annotator_for_each_key(tmp_path):
    votes = read_votes(sheet(tmp_path / "v.csv", ROWS))
    assert said(votes) == sorted(row for row in ROWS if row[1])
    table = pa.table({name: [row[at] for row in ROWS] for at, name in enumerate(("key", "mine", "annotator"))})
    pq.write_table(table, tmp_path / "v.parquet")
    other = read_votes(tmp_path / "v.parquet", "mine")
    assert said(other) == said(votes)
    assert other.digest == votes.digest
    assert read_votes(sheet(tmp_path / "w.csv", [*ROWS[::-1], ROWS[0]])).digest == votes.digest
    assert read_votes(sheet(tmp_path / "x.csv", [*ROWS[:-1], ("b", "dog", "eva")])).digest != votes.digest
    assert read_votes(sheet(tmp_path / "y.csv", ROWS[:-1])).digest != votes.digest


def test_without_annotators_a_key_has_one_label(tmp_path):
    votes = read_votes(sheet(tmp_path / "v.csv", [("a", 1), ("b", 2), ("a", 1)], ("key", "label")))
    assert said(votes) == [("a", "1", ""), ("b", "2", "")]
    with pytest.raises(InputError, match="'1' and '2' for 'a'"):
        read_votes(sheet(tmp_path / "w.csv", [("a", 1), ("a", 2)], ("key", "label")))
    with pytest.raises(InputError, match="for 'b' by 'ann'"):
        read_votes(sheet(tmp_path / "x.csv", [*ROWS, ("b", "cow", "ann")]))


def test_rows_get_their_votes_in_whatever_order_either_stands(tmp_path):
    pq.write_table(pa.table({"key": ["z", "c", "b", "a"]}), tmp_path / "t.parquet")
    rows = read_rows(open_table(tmp_path / "t.parquet"), Needs(), by_hash=True)
    for order in (1, -1):
        votes = read_votes(sheet(tmp_path / "v.csv", ROWS[::order]))
        classes, who = votes.of(rows, "t")
        assert classes.shape == who.shape == (4, 3)
        by_key = dict(zip((["z", "c", "b", "a"][place] for place in rows.place), range(4), strict=True))
        assert (classes[[by_key["z"], by_key["c"]]] == -1).all()
        assert classes[by_key["a"]].tolist() == [0, -1, -1]
        named = {
            votes.annotators[w]: votes.classes[c] for w, c in zip(who[by_key["b"]], classes[by_key["b"]], strict=True)
        }
        assert named == {"ann": "dog", "bob": "cat", "eve": "dog"}


@pytest.mark.parametrize(
    ("rows", "header", "words"),
    [
        ([("a", "x")], ("key", "class"), r"no column 'label'.*with --label"),
        ([("a", "x")], ("id", "label"), "has no column 'key'"),
        ([("a", ""), ("b", "")], ("key", "label"), "on any key"),
        ([], ("key", "label"), "on any key"),
        ([("a", "x", i) for i in range(MOST_VOTES + 1)], ("key", "label", "annotator"), "at most 1,000 labels"),
    ],
)
def test_a_file_without_votes_is_refused_in_one_line(tmp_path, rows, header, words):
    with pytest.raises(InputError, match=words) as error:
        read_votes(sheet(tmp_path / "v.csv", rows, header))
    assert "\n" not in str(error.value)


def test_a_key_that_the_table_lacks_is_named(tmp_path):
    pq.write_table(pa.table({"key": ["a", "b"]}), tmp_path / "t.parquet")
    rows = read_rows(open_table(tmp_path / "t.parquet"), Needs(), by_hash=True)
    with pytest.raises(InputError, match=r"1 of 3 .*'c'"):
        read_votes(sheet(tmp_path / "v.csv", [*ROWS, ("c", "cat", "ann")])).of(rows, "t.parquet")
