"""Rounds derived again: what was known then decides, what came back later does not, and each change is named."""

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rounds_table import CLASSES, answer, edit_state, sheet, table

from curate.commands.status import check_words
from curate.policies.verify import verify
from curate.rounds.files.folder import rounds_at
from curate.rounds.files.sealed import read_label_file, write_labels
from curate.rounds.files.votes import Vote
from curate.rounds.import_labels import round_import
from curate.rounds.init import round_init
from curate.rounds.next import round_next
from curate.rounds.verify import verify_rounds
from scoring.errors import InputError


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Three rounds of ten; the first two labelled, the second in two imports, one of which corrects the first round."""
    place = tmp_path_factory.mktemp("made")
    truth = table(place / "t.parquet")
    path = place / "r"
    round_init(path, place / "t.parquet", classes=CLASSES, batch=10, holdout="10", control=0.2)
    round_import(path, answer(round_next(path), truth, place / "1.csv"))
    second = round_next(path)
    first_keys = keys_of(path, 1)
    round_import(path, answer(second, truth, place / "2.csv"))
    wrong = next(name for name in CLASSES if name != truth[first_keys[0]])
    round_import(path, sheet(place / "3.csv", [(first_keys[0], wrong, "ann")]))
    round_next(path)
    return path


@pytest.fixture
def folder(made, tmp_path):
    """A copy of it that may be changed."""
    shutil.copytree(made, tmp_path / "r")
    return tmp_path / "r"


def keys_of(path, number):
    return pq.read_table(path / "rounds" / f"{number:04}" / "batch.parquet")["key"].to_pylist()


def rewrite(path, change):
    """Write a table with other rows or values instead of one."""
    table = pq.read_table(path)
    pq.write_table(change(table), path)


def replaced(table, name, row, value):
    values = table[name].to_pylist()
    values[row] = value
    return table.set_column(
        table.schema.get_field_index(name), table.schema.field(name), pa.array(values, table[name].type)
    )


def said(folder, **more):
    """The lines, one a round, and what belongs to none."""
    result = verify_rounds(folder, **more)
    return [check_words(each) for each in result.rounds], result.problems, result.identical


def ok(number, n=10):
    return f"round {number}: ok, {n} rows were chosen again, all the same"


def test_rounds_left_untouched_are_the_same_and_nothing_is_written(folder):
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert said(folder) == ([ok(1, 20), ok(2), ok(3)], [], True)  # ten of the first batch are held out
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_labels_that_came_after_a_round_do_not_matter_to_it(folder):
    first = keys_of(folder, 1)
    rows = [(key, CLASSES[at % 3], "late") for at, key in enumerate([*first, *keys_of(folder, 2), *keys_of(folder, 3)])]
    round_import(folder, sheet(folder.parent / "late.csv", rows))
    assert said(folder) == ([ok(1, 20), ok(2), ok(3)], [], True)


def test_a_table_in_another_order_and_place_gives_the_same_rounds(folder, made, tmp_path):
    table = pq.read_table(made.parent / "t.parquet")
    moved = replaced(table.take(pa.array(range(table.num_rows - 1, -1, -1))), "uri", 5, "elsewhere.png")
    pq.write_table(moved, tmp_path / "moved.parquet")
    assert said(folder, table=tmp_path / "moved.parquet")[2]


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("arm", "control", "another arm"),
        ("gain", 7.5, "another gain"),
        ("predicted", "cow", "another predicted"),
        ("uri", "mine.png", "another uri"),
        ("key", "set/no.png", "not chosen now"),
    ],
)
def test_a_changed_batch_is_named_by_row_and_the_rounds_after_it_are_the_same(folder, column, value, text):
    path = folder / "rounds" / "0002" / "batch.parquet"
    old = pq.read_table(path)
    row = next(at for at, other in enumerate(old[column].to_pylist()) if other != value)
    rewrite(path, lambda table: replaced(table, column, row, value))
    lines, problems, identical = said(folder)
    assert (lines[0], lines[2], problems, identical) == (ok(1, 20), ok(3), [], False)
    assert "rounds/0002/batch.parquet differs" in lines[1]
    key = value if column == "key" else old["key"][row].as_py()
    assert f"{key}: {text}" in lines[1]
    assert f"{2 if column == 'key' else 1} of 10 rows not the same" in lines[1]


def test_rows_that_changed_places_are_named_with_both(folder):
    rewrite(folder / "rounds" / "0001" / "batch.parquet", lambda table: table.take(pa.array([1, 0, *range(2, 20)])))
    keys = keys_of(folder, 1)
    check = verify_rounds(folder).rounds[0]
    assert check.n_different == 2
    assert set(check.different) == {
        f"{keys[0]}: number 2 now, number 1 then",
        f"{keys[1]}: number 1 now, number 2 then",
    }


def test_a_lost_or_damaged_batch_is_named_and_derived_instead(folder):
    path = folder / "rounds" / "0001" / "batch.parquet"
    data = bytearray(path.read_bytes())
    for at in range(200, 300):
        data[at] ^= 0xFF
    path.write_bytes(data)
    lines, _, identical = said(folder)
    assert "rounds/0001/batch.parquet differs from what" in lines[0]
    assert lines[1:] == [ok(2), ok(3)]
    path.unlink()
    lines, _, identical = said(folder)
    assert "batch.parquet, which is missing" in lines[0]
    assert (lines[1:], identical) == ([ok(2), ok(3)], False)


def test_changed_labels_are_named_by_the_rounds_that_used_them_and_by_no_other(folder):
    rewrite(folder / "rounds" / "0002" / "labels-0001.parquet", lambda table: replaced(table, "label", 0, "ant2"))
    lines, problems, _ = said(folder)
    assert (lines[:2], problems) == ([ok(1, 20), ok(2)], [])
    assert "cannot be selected again: " in lines[2]
    assert "labels-0001.parquet was changed" in lines[2]


def test_labels_of_the_last_round_that_were_changed_are_named_though_no_round_used_them(folder):
    round_import(folder, sheet(folder.parent / "last.csv", [(keys_of(folder, 3)[0], "ant", "ann")]))
    rewrite(folder / "rounds" / "0003" / "labels-0001.parquet", lambda table: replaced(table, "label", 0, "bee"))
    lines, problems, identical = said(folder)
    assert (lines, identical) == ([ok(1, 20), ok(2), ok(3)], False)
    assert len(problems) == 1
    assert "rounds/0003/labels-0001.parquet was changed" in problems[0]


def test_labels_that_were_changed_with_their_own_digest_are_named_and_so_are_the_rows_they_would_give(folder):
    path = folder / "rounds" / "0001" / "labels-0001.parquet"
    old = read_label_file(path)
    path.unlink()
    other = dict(zip(CLASSES, (*CLASSES[1:], CLASSES[0]), strict=True))
    votes = [Vote(vote.key, other[vote.label] if at % 2 else vote.label, "ann") for at, vote in enumerate(old.votes)]
    write_labels(path, votes, old.source, old.parent)
    lines, _, _ = said(folder)
    assert lines[0] == ok(1, 20)
    assert "rounds/0001/labels-0001.parquet differs from what rounds/0002/state.json records" in lines[1]
    assert "of 10 rows not the same (" in lines[1]
    assert "rounds/0001/labels-0001.parquet differs from what rounds/0003/state.json records" in lines[2]


def test_labels_that_are_lost_or_brought_from_elsewhere_are_named(folder):
    (folder / "rounds" / "0002" / "labels-0001.parquet").rename(folder / "rounds" / "0001" / "labels-0002.parquet")
    lines, _, _ = said(folder)
    assert lines[0] == ok(1, 20)
    assert "the files before rounds/0001/labels-0002.parquet" not in lines[0]
    assert "labels-0002.parquet did not exist" in lines[1]
    assert "labels-0001.parquet is missing" in lines[2]


def test_a_round_that_is_missing_is_named_and_so_are_those_that_need_it(folder):
    shutil.rmtree(folder / "rounds" / "0002")
    lines, _, identical = said(folder)
    assert (lines[0], identical) == (ok(1, 20), False)
    assert lines[1] == "round 2: DIFFERENT: rounds/0002 is missing; restore it from a backup"
    assert "rounds/0002 is missing" in lines[2]


def test_a_number_far_away_is_reported_at_once(folder):
    (folder / "rounds" / "0003").rename(folder / "rounds" / "99999999999999")
    lines, _, _ = said(folder)
    assert lines[2] == "round 3: DIFFERENT: rounds/0003 to 99999999999998 is missing; restore it from a backup"
    assert len(lines) == 4


def test_a_state_that_was_changed_is_named_and_the_batch_still_compared(folder):
    path = folder / "rounds" / "0002" / "state.json"
    path.write_text(path.read_text().replace('"curate": "', '"curate": "1'))
    lines, problems, _ = said(folder)
    assert (lines[0], lines[2], problems) == (ok(1, 20), ok(3), [])
    assert lines[1].startswith("round 2: DIFFERENT: ")
    assert "0002/state.json was changed" in lines[1]
    assert "of 10 rows" not in lines[1]


def test_a_state_changed_with_its_own_digest_breaks_the_chain(folder):
    edit_state(folder / "rounds" / "0001" / "state.json", wall_s=99.0)
    lines, problems, identical = said(folder)
    assert (lines, identical) == ([ok(1, 20), ok(2), ok(3)], False)
    assert problems == ["the files before rounds/0001/labels-0001.parquet have changed"]


def test_another_seed_gives_other_rows_in_every_round(folder):
    edit_state(folder / "round.json", seed=5)
    lines, problems, _ = said(folder)
    assert "held out only now" in problems[0]
    assert "files before rounds/0001/state.json" in lines[0]
    assert all("rows not the same" in line for line in lines)


def test_without_the_rows_held_out_no_round_is_derived(folder):
    rewrite(folder / "holdout.parquet", lambda table: table.slice(1))
    lines, _, _ = said(folder)
    assert all("holdout.parquet differs" in line for line in lines)


def test_one_round_is_checked_alone(folder):
    rewrite(folder / "rounds" / "0001" / "batch.parquet", lambda table: replaced(table, "arm", 3, "other"))
    assert said(folder, only=2) == ([ok(2)], [], True)
    assert "set/" in said(folder, only=1)[0][0]
    with pytest.raises(InputError, match="from 1 to 3"):
        verify_rounds(folder, only=4)


def test_what_a_path_means(folder, monkeypatch):
    assert rounds_at(folder) == (folder, None)
    assert rounds_at(folder / "rounds" / "0002") == (folder, 2)
    assert rounds_at(folder / "rounds" / "0009") is None
    assert rounds_at(folder / "rounds" / "0001" / "state.json") == (folder, 1)
    assert rounds_at(folder / "rounds" / "0001" / "batch.parquet") is None
    monkeypatch.chdir(folder / "rounds" / "0003")
    assert rounds_at("state.json") == (folder, 3)
    (folder.parent / "receipt.json").write_text('{"kind": "round receipt"}')
    assert rounds_at(folder.parent / "receipt.json") is None
    with pytest.raises(InputError, match="receipt of a round"):
        verify(folder.parent / "receipt.json")


def test_a_folder_without_rounds_is_the_same(tmp_path):
    table(tmp_path / "t.parquet")
    round_init(tmp_path / "r", tmp_path / "t.parquet")
    assert said(tmp_path / "r") == ([], [], True)
    table(tmp_path / "u.parquet", seed=3)
    with pytest.raises(InputError, match="other keys or embeddings"):
        verify_rounds(tmp_path / "r", tmp_path / "u.parquet")


@pytest.mark.parametrize(
    "asked",
    [
        {"probe": "knn", "strategy": "margin"},
        {"strategy": "entropy"},
        {"strategy": "typiclust", "control": 0.0, "holdout": "0"},
        {"strategy": "score", "score": "kappa_x", "quality": "kappa_x", "noise_guard": True},
    ],
)
def test_every_way_to_choose_is_derived_again(tmp_path, asked):
    truth = table(tmp_path / "t.parquet")
    path = tmp_path / "r"
    round_init(path, tmp_path / "t.parquet", batch=8, **{"holdout": "8", **asked})
    round_import(path, answer(round_next(path), truth, tmp_path / "1.csv"))
    made = round_next(path)
    round_import(path, sheet(tmp_path / "2.csv", [(key, truth[key], "") for key in keys_of(path, 2)[:3]]))
    round_next(path, partial=True)
    result = verify_rounds(path)
    assert [(each.identical, each.n_rows) for each in result.rounds][1:] == [(True, 8), (True, 8)], made
    assert json.loads(json.dumps(result.to_json()))["identical"] is True
