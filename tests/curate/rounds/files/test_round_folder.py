"""What a folder of rounds notices: changes, other tables, other processes, what a dead one left."""

import hashlib
import json
import os
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rounds_table import CLASSES, answer, edit_state, sheet, status, table

from curate.lineage.verify import verify
from curate.rounds import init
from curate.rounds.files.folder import open_folder
from curate.rounds.import_labels import round_import
from curate.rounds.init import round_init
from curate.rounds.next import round_next
from curate.rounds.verify import verify_rounds
from scoring.errors import InputError


@pytest.fixture
def folder(tmp_path):
    """Two rounds, both labelled, the second in two imports."""
    truth = table(tmp_path / "t.parquet")
    path = tmp_path / "r"
    round_init(path, tmp_path / "t.parquet", classes=CLASSES, batch=10, holdout="10")
    round_import(path, answer(round_next(path), truth, tmp_path / "1.csv"))
    made = round_next(path)
    keys = pq.read_table(made.folder / "batch.parquet")["key"].to_pylist()
    round_import(path, sheet(tmp_path / "2.csv", [(key, truth[key], "") for key in keys[:5]]))
    round_import(path, sheet(tmp_path / "3.csv", [(key, truth[key], "") for key in keys[5:]]))
    return path


def test_a_folder_left_untouched_is_as_it_was_written(folder):
    assert open_folder(folder).changed() == []
    assert status(folder, lift=False).changed == []


@pytest.mark.parametrize("name", ["round.json", "rounds/0001/state.json", "rounds/0002/state.json"])
def test_an_edited_state_is_named(folder, name):
    text = (folder / name).read_text()
    (folder / name).write_text(text.replace('"curate": "', '"curate": "1'))
    with pytest.raises(InputError, match=rf"{name} was changed"):
        status(folder)
    (folder / name).write_text(text + "{")
    with pytest.raises(InputError, match=f"{name} .*JSON"):
        status(folder)
    (folder / name).write_text(text)
    assert status(folder, lift=False).rounds == 2


@pytest.mark.parametrize("name", ["round.json", "rounds/0001/state.json"])
def test_an_edit_that_covers_its_own_tracks_breaks_the_chain(folder, name):
    edit_state(folder / name, curate="9.9")
    assert any("have changed" in line for line in status(folder, lift=False).changed)
    with pytest.raises(InputError, match=r"was changed: .*have changed"):
        round_next(folder)


@pytest.mark.parametrize("name", ["holdout.parquet", "rounds/0001/batch.parquet", "rounds/0002/stop.parquet"])
def test_another_file_instead_of_one_is_named(folder, name):
    path = folder / name
    table = pq.read_table(path)
    pq.write_table(table.slice(0, table.num_rows - 1), path)
    assert [line for line in open_folder(folder).changed() if line.startswith(name)]
    with pytest.raises(InputError, match=f"was changed: {name}"):
        round_import(folder, folder.parent / "1.csv")


def test_a_state_that_names_a_file_elsewhere_is_named_and_the_file_is_not_opened(folder):
    edit_state(folder / "rounds" / "0002" / "state.json", files={"/dev/zero": "0" * 64, "../0001/state.json": ""})
    state = status(folder, lift=False).changed
    assert "rounds/0002//dev/zero differs from what rounds/0002/state.json records" in state
    assert "rounds/0002/../0001/state.json differs from what rounds/0002/state.json records" in state


@pytest.mark.parametrize(
    "changes",
    [
        {"number": 5},
        {"number": "2"},
        {"files": []},
        {"files": {"batch.parquet": 3}},
        {"labels": 3},
        {"parent": None},
        {"model": [1]},
        {"model": {"name": "foreign"}},
        {"model": {"probe": "linear", "n_labels": 3, "classes": {}, "temperature": 1.0, "holdout": {}, "entropy": "x"}},
    ],
)
def test_a_state_of_another_shape_is_refused_by_name(folder, changes):
    edit_state(folder / "rounds" / "0002" / "state.json", **changes)
    for read in (status, round_next):
        with pytest.raises(InputError, match=r"0002/state\.json") as refused:
            read(folder)
        assert "\n" not in str(refused.value)


def test_a_round_with_the_receipt_of_an_earlier_version_is_opened_and_its_receipt_watched(folder):
    state = folder / "rounds" / "0002" / "state.json"
    receipt = state.with_name("receipt.json")
    receipt.write_text('{"kind": "round receipt"}')
    files = json.loads(state.read_text())["files"]
    for labels in state.parent.glob("labels-*.parquet"):
        labels.unlink()  # they follow the state that is edited
    edit_state(state, files={**files, "receipt.json": hashlib.sha256(receipt.read_bytes()).hexdigest()})
    assert open_folder(folder).changed() == []
    assert verify_rounds(folder).identical
    with pytest.raises(InputError, match=r"rounds; .*curate verify"):
        verify(folder)
    assert round_next(folder, partial=True).number == 3
    receipt.write_text("{}")
    assert open_folder(folder).changed() == [
        "rounds/0002/receipt.json differs from what rounds/0002/state.json records"
    ]


def test_labels_that_were_changed_lost_or_brought_from_elsewhere_are_named(folder):
    path = folder / "rounds" / "0002" / "labels-0002.parquet"
    table = pq.read_table(path)
    labels = table.column("label").to_pylist()
    labels[0] = "ant" if labels[0] != "ant" else "bee"
    pq.write_table(table.set_column(1, "label", pa.array(labels)), path)
    with pytest.raises(InputError, match=r"labels-0002\.parquet was changed"):
        round_next(folder)
    path.unlink()
    (folder / "rounds" / "0001" / "labels-0001.parquet").unlink()
    changes = open_folder(folder).changed()
    assert "rounds/0001/labels-0001.parquet differs from what rounds/0002/state.json records" in changes


def test_a_batch_that_is_lost_is_named_with_a_way_out(folder):
    (folder / "rounds" / "0001" / "batch.parquet").unlink()
    with pytest.raises(InputError, match=r"0001/batch\.parquet, .*missing"):
        status(folder)


def test_a_round_that_is_missing_is_named(folder):
    (folder / "rounds" / "0001").rename(folder.parent / "gone")
    with pytest.raises(InputError, match="no round 1"):
        status(folder)


def test_another_table_is_refused_and_both_are_named(folder, tmp_path):
    table(tmp_path / "other.parquet", seed=1)
    with pytest.raises(InputError, match=r"t\.parquet \(120 .*other\.parquet \(120"):
        round_next(folder, table=tmp_path / "other.parquet")
    with pytest.raises(InputError, match=r"t\.parquet .*other keys"):
        round_init(folder, tmp_path / "other.parquet", classes=CLASSES)
    with pytest.raises(InputError, match="already; continue with"):
        round_init(folder, tmp_path / "t.parquet", classes=CLASSES)
    table(tmp_path / "model.parquet", model="m2")
    with pytest.raises(InputError, match=r"model m1\).*another model .*\(model m2"):
        round_next(folder, table=tmp_path / "model.parquet")


def test_a_table_that_was_moved_or_sorted_again_is_the_same(folder, tmp_path):
    table(tmp_path / "sorted.parquet", order=list(reversed(range(120))))
    (tmp_path / "t.parquet").unlink()
    with pytest.raises(InputError, match=r"missing; .*--table"):
        round_next(folder)
    assert round_next(folder, table=tmp_path / "sorted.parquet").number == 3


HOLD = """
import sys, time
from curate.rounds.files.folder import held
with held(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_process_is_refused_in_one_line_and_may_go_on_when_the_first_is_dead(folder):
    with subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout.readline() == "held\n"
            with pytest.raises(InputError, match=f"by process {other.pid}"):
                round_next(folder)
            with pytest.raises(InputError, match="is being written"):
                round_import(folder, folder.parent / "1.csv")
            assert status(folder, lift=False).rounds == 2
        finally:
            other.kill()
            other.wait()
    assert round_next(folder).number == 3


def test_what_a_dead_process_left_is_swept_and_nothing_else(folder):
    left = folder / "rounds" / ".0003.tmp"
    left.mkdir()
    (left / "batch.parquet").write_text("half")
    (folder / "rounds" / "notes").mkdir()
    assert status(folder, lift=False).rounds == 2
    assert left.exists()
    round_next(folder)
    assert not left.exists()
    assert sorted(path.name for path in (folder / "rounds").iterdir()) == ["0001", "0002", "0003", "notes"]


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path):
    table(tmp_path / "t.parquet")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(InputError, match=r"holds 'thesis\.txt'"):
        round_init(tmp_path / "mine", tmp_path / "t.parquet")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]
    with pytest.raises(InputError, match="not a folder"):
        round_init(tmp_path / "t.parquet" / "where", tmp_path / "t.parquet")
    with pytest.raises(InputError, match=r"no round\.json"):
        round_next(tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"batch": 0}, "--batch .*got 0"),
        ({"control": 1.0}, r"--control .*got 1"),
        ({"strategy": "autos"}, "did you mean 'auto'"),
        ({"strategy": "small-loss"}, "small-loss is for"),
        ({"strategy": "stratified", "set": {"by": "given"}}, "by=given is for"),
        ({"strategy": "score"}, "choose it with --score"),
        ({"set": {"bandwidht": 1}}, "did you mean 'bandwidth'"),
        ({"format": "xml"}, "unknown format 'xml'"),
        ({"probe": "svm"}, "unknown probe 'svm'"),
        ({"holdout": "120"}, "must leave rows"),
        ({"holdout": "many"}, "--holdout takes"),
        ({"holdout": "0", "label": "truth"}, "--holdout 0"),
        ({"label": "truht"}, "did you mean 'truth'"),
        ({"label": "truth", "classes": ("ant", "bee")}, "got 'cow'"),
        ({"budget": 0}, "--budget must be"),
        ({"seed": -1}, "--seed must be"),
        ({"gate": 0.3, "quality": "truth"}, "high or low"),
    ],
)
def test_settings_that_cannot_be_are_refused_and_nothing_is_made(tmp_path, asked, text):
    table(tmp_path / "t.parquet")
    with pytest.raises(InputError, match=text):
        round_init(tmp_path / "r", tmp_path / "t.parquet", **{"classes": CLASSES, **asked})
    assert not (tmp_path / "r").exists()


def test_labels_before_any_request_are_refused(tmp_path):
    table(tmp_path / "t.parquet")
    round_init(tmp_path / "r", tmp_path / "t.parquet")
    with pytest.raises(InputError, match="has no batch yet"):
        round_import(tmp_path / "r", sheet(tmp_path / "a.csv", []))


def test_labels_are_a_file_or_a_folder_and_nothing_else(folder, tmp_path):
    """A device would be read for ever, a pipe waited for."""
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/zero", tmp_path / "pipe"):
        with pytest.raises(InputError, match="a device or"):
            round_import(folder, path)
    with pytest.raises(InputError, match="got a folder"):
        round_import(folder, tmp_path)
    with pytest.raises(InputError, match="No such file"):
        round_import(folder, tmp_path / "none.csv")


@pytest.mark.parametrize("key", ["", "a\0b", "x" * 5000])
def test_keys_that_cannot_go_out_are_named_when_the_folder_is_made(tmp_path, key):
    keys = [f"set/{i}.png" for i in range(119)] + [key]
    table(tmp_path / "t.parquet", key=keys)
    with pytest.raises(InputError, match="in row 119"):
        round_init(tmp_path / "r", tmp_path / "t.parquet")
    assert not (tmp_path / "r").exists()


def test_status_does_not_write(folder):
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    time.sleep(0.01)
    status(folder)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_a_folder_that_another_process_makes_meanwhile_is_left_alone(tmp_path, monkeypatch):
    table(tmp_path / "t.parquet")
    held_folder = init.HeldFolder

    def late(path):
        monkeypatch.setattr(init, "HeldFolder", held_folder)
        round_init(path, tmp_path / "t.parquet", classes=CLASSES, seed=1)
        return held_folder(path)

    monkeypatch.setattr(init, "HeldFolder", late)
    with pytest.raises(InputError, match="new or empty folder"):
        round_init(tmp_path / "r", tmp_path / "t.parquet", classes=CLASSES, seed=2)
    assert open_folder(tmp_path / "r").settings.seed == 1
    assert open_folder(tmp_path / "r").changed() == []
