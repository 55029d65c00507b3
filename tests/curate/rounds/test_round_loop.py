"""Batches out, labels in, round after round."""

import csv
import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rounds_table import CLASSES, annotate, answer, content, images, sheet, status, table

from curate.commands.status import import_notes, lift_words, status_notes
from curate.exporting.table import TOOLS
from curate.probes.linear import fit_linear_probe, spread_of
from curate.rounds.files.folder import open_folder
from curate.rounds.import_labels import round_import
from curate.rounds.init import round_init
from curate.rounds.next import round_next
from curate.rounds.state.batch import pick_batch
from curate.rounds.state.standing import progress_of, read_table, standing_of
from scoring.errors import InputError


def loop(folder, truth, tmp_path, rounds):
    """Run whole rounds; return what each next gave."""
    made = []
    for number in range(rounds):
        made.append(round_next(folder))
        round_import(folder, answer(made[-1], truth, tmp_path / f"answers-{folder.name}-{number}.csv"))
    return made


@pytest.fixture
def truth(tmp_path):
    return table(tmp_path / "t.parquet")


def batch_of(made):
    return pq.read_table(made.folder / "batch.parquet").to_pylist()


@pytest.mark.parametrize("format", TOOLS)
def test_two_rounds_in_every_format_take_every_label_back(tmp_path, truth, format):
    images(tmp_path, 120)
    round_init(tmp_path / "r", tmp_path / "t.parquet", classes=CLASSES, batch=10, holdout="12", format=format)
    for number in (1, 2):
        made = round_next(tmp_path / "r")
        place = tmp_path / f"tool-{number}"
        place.mkdir()
        imported = round_import(tmp_path / "r", annotate(format, made, truth, place))
        assert (imported.labels, imported.missing, imported.skipped) == (22 if number == 1 else 10, 0, 0)
        assert imported.problems == ()
    opened = open_folder(tmp_path / "r")
    said = {key: agreed_label.label for key, agreed_label in opened.votes.consensus().items()}
    assert said == {key: truth[key] for key in opened.requested}
    assert len(said) == 32
    assert not opened.changed()


def test_no_image_is_requested_twice_and_the_held_out_ones_only_in_the_first_round(tmp_path, truth):
    round_init(tmp_path / "r", tmp_path / "t.parquet", classes=CLASSES, batch=20, control=0.25, holdout="10%")
    made = loop(tmp_path / "r", truth, tmp_path, 3)
    held_out = set(open_folder(tmp_path / "r").holdout["key"].to_pylist())
    assert len(held_out) == 12
    seen = [row["key"] for batch in made for row in batch_of(batch)]
    assert len(seen) == len(set(seen)) == 72
    for number, batch in enumerate(made):
        arms = {
            arm: [row["key"] for row in batch_of(batch) if row["arm"] == arm]
            for arm in ("strategy", "control", "holdout")
        }
        assert (len(arms["strategy"]), len(arms["control"])) == (15, 5)
        assert set(arms["holdout"]) == (held_out if number == 0 else set())


def test_the_control_arm_is_a_fair_draw_from_what_was_left(tmp_path, truth):
    """Over many seeds every row that is not held out comes up about equally often."""
    round_init(tmp_path / "r", tmp_path / "t.parquet", classes=CLASSES, batch=40, control=0.5, holdout="0")
    opened, table = open_folder(tmp_path / "r"), read_table(tmp_path / "t.parquet")
    standing = standing_of(opened, table, progress_of(opened))
    counts, n = np.zeros(120), 60
    for seed in range(n):
        folder = replace(opened, settings=replace(opened.settings, seed=seed))
        picked = pick_batch(replace(standing, folder=folder), 1, None)
        drawn = picked.rows[np.array(picked.arm) == "control"]
        assert len(set(drawn.tolist())) == 20
        counts[drawn] += 1
    share = 20 / 120
    chi = ((counts - n * share) ** 2 / (n * share * (1 - share))).sum()
    assert abs(chi - 119) < 4 * np.sqrt(2 * 119)


def test_a_half_labelled_batch_has_about_half_of_each_arm(tmp_path, truth):
    round_init(tmp_path / "r", tmp_path / "t.parquet", classes=CLASSES, batch=40, control=0.5, holdout="20")
    rows = batch_of(round_next(tmp_path / "r"))
    first = [row["arm"] for row in rows[:30]]
    assert [first.count(arm) for arm in ("strategy", "control", "holdout")] == [10, 10, 10]
    assert [row["rank"] for row in rows] == list(range(1, 61))


def test_nothing_in_the_export_says_why_an_image_is_requested(tmp_path, truth):
    round_init(tmp_path / "r", tmp_path / "t.parquet", classes=CLASSES, batch=10)
    with round_next(tmp_path / "r").export.open(encoding="utf-8-sig") as file:
        header = next(csv.reader(file))
    assert {"arm", "gain", "pick"} & set(header) == set()
    assert header[:2] == ["key", "uri"]


def test_the_same_seed_gives_the_same_rounds_whatever_the_order_of_the_table(tmp_path, truth):
    other = tmp_path / "other"
    other.mkdir()
    order = np.random.default_rng(3).permutation(120)
    table(other / "t.parquet", order=order)
    for folder, place in ((tmp_path / "r", tmp_path), (other / "r", other)):
        round_init(folder, place / "t.parquet", classes=CLASSES, batch=15, seed=5)
    a, b = (loop(folder, truth, tmp_path, 3) for folder in (tmp_path / "r", other / "r"))
    for first, two in zip(a, b, strict=True):
        rows = [
            [(row["key"], row["arm"], row["gain"], row["predicted"]) for row in batch_of(made)] for made in (first, two)
        ]
        assert rows[0] == rows[1]
    round_init(tmp_path / "s", tmp_path / "t.parquet", classes=CLASSES, batch=15, seed=6)
    assert [row["key"] for row in batch_of(round_next(tmp_path / "s"))] != [row["key"] for row in batch_of(a[0])]


def test_the_accuracy_is_the_accuracy_of_the_probe_on_held_out_rows(tmp_path, truth):
    round_init(tmp_path / "r", tmp_path / "t.parquet", classes=CLASSES, batch=15, holdout="30")
    made = loop(tmp_path / "r", truth, tmp_path, 2)
    rows = pq.read_table(tmp_path / "t.parquet")
    vectors = dict(zip(rows["key"].to_pylist(), np.array(rows["embedding"].to_pylist(), np.float32), strict=True))
    first = batch_of(made[0])
    train = [row["key"] for row in first if row["arm"] != "holdout"]
    held_out = [row["key"] for row in first if row["arm"] == "holdout"]
    code = {name: i for i, name in enumerate(CLASSES)}
    probe = fit_linear_probe(
        np.array([vectors[key] for key in train]),
        np.array([code[truth[key]] for key in train]),
        3,
        spread=spread_of(np.array([vectors[key] for key in vectors if key not in held_out])),
    )
    predicted = probe.predict(np.array([vectors[key] for key in held_out])).argmax(1)
    right = sum(int(predicted[i]) == code[truth[key]] for i, key in enumerate(held_out))
    holdout = made[1].state["model"]["holdout"]
    assert (holdout["right"], holdout["n"]) == (right, 30)
    assert holdout["low"] < right / 30 < holdout["high"]
    chances = probe.predict(np.array([vectors[row["key"]] for row in batch_of(made[1])]))
    assert [row["predicted"] for row in batch_of(made[1])] == [CLASSES[i] for i in chances.argmax(1)]
    assert [row["probability"] for row in batch_of(made[1])] == pytest.approx(chances.max(1).tolist(), rel=1e-3)


def test_next_waits_for_labels_unless_it_need_not(tmp_path, truth):
    round_init(tmp_path / "r", tmp_path / "t.parquet", classes=CLASSES, batch=10, holdout="0")
    made = round_next(tmp_path / "r")
    keys = [row["key"] for row in batch_of(made)]
    round_import(tmp_path / "r", sheet(tmp_path / "a.csv", [(key, truth[key], "") for key in keys[:6]]))
    with pytest.raises(InputError, match=r"none for 4 \('set/.*--partial"):
        round_next(tmp_path / "r")
    again = round_next(tmp_path / "r", partial=True)
    assert not {row["key"] for row in batch_of(again)} & set(keys)
    assert again.state["pool"]["pending"] == 4
    late = round_import(tmp_path / "r", sheet(tmp_path / "b.csv", [(keys[9], truth[keys[9]], "")]))
    assert (late.labels, late.missing) == (1, 10)
    assert status(tmp_path / "r", lift=False).counts == {"labelled": 7, "tied": 0, "skipped": 0, "pending": 13}


def test_the_same_file_twice_is_noticed_and_nothing_is_counted_twice(tmp_path, truth):
    round_init(tmp_path / "r", tmp_path / "t.parquet", classes=CLASSES, batch=10, holdout="0")
    answers = answer(round_next(tmp_path / "r"), truth, tmp_path / "a.csv")
    round_import(tmp_path / "r", answers)
    before = content(tmp_path / "r")
    again = round_import(tmp_path / "r", answers)
    assert again.written is None
    assert again.earlier == "rounds/0001/labels-0001.parquet"
    assert import_notes(again) == [f"this file was imported already, as {again.earlier}: nothing was counted twice"]
    copy = tmp_path / "copy.csv"
    copy.write_text(answers.read_text() + "\n")
    same = round_import(tmp_path / "r", copy)
    assert same.written is None
    assert (len(same.news.repeated), same.news.new) == (10, [])
    assert content(tmp_path / "r") == before


def test_unknown_keys_classes_conflicts_and_ties_are_named_and_the_rest_is_taken(tmp_path, truth):
    round_init(tmp_path / "r", tmp_path / "t.parquet", classes=CLASSES, batch=6, holdout="0")
    a, b, c, d, e, _ = [row["key"] for row in batch_of(round_next(tmp_path / "r"))]
    rows = [
        (a, "ant", "ann"),
        (a, "bee", "bob"),  # tied
        (b, "cow", "ann"),
        (b, "ant", "ann"),  # one annotator, two labels
        (c, "bees", "ann"),  # a class that it is unknown
        ("set/9999.png", "ant", "ann"),  # a key that was not requested
        (d, "skip", "ann"),
        (e, "ant", "ann"),
        (e, "ant", "bob"),
        (e, "bee", "eve"),
    ]
    imported = round_import(tmp_path / "r", sheet(tmp_path / "a.csv", rows))
    said = [str(problem) for problem in imported.problems]
    assert "unknown key: 1 ('set/9999.png')" in said
    assert any(text.startswith(f"unknown class: 1 ('bees' for '{c}'; did you mean 'bee'?") for text in said)
    assert f"two labels by one annotator: 2 ('cow' for '{b}', 'ant' for '{b}')" in said
    assert f"votes are tied, and the image does not count: 1 ('{a}')" in said
    assert any(text.startswith("without a label: 3 (") for text in said)
    agreed = open_folder(tmp_path / "r").votes.consensus()
    assert {key: (agreement.state, agreement.label) for key, agreement in agreed.items()} == {
        a: ("tied", None),
        d: ("skipped", None),
        e: ("labelled", "ant"),
    }
    assert (imported.labels, imported.skipped) == (5, 1)


def test_a_later_import_corrects_and_the_earlier_file_stays(tmp_path, truth):
    round_init(tmp_path / "r", tmp_path / "t.parquet", classes=CLASSES, batch=4, holdout="0")
    keys = [row["key"] for row in batch_of(round_next(tmp_path / "r"))]
    first = round_import(tmp_path / "r", sheet(tmp_path / "a.csv", [(key, "ant", "ann") for key in keys]))
    bytes_of_first = first.written.read_bytes()
    second = round_import(tmp_path / "r", sheet(tmp_path / "b.csv", [(keys[0], "bee", "ann")]))
    assert second.written.name == "labels-0002.parquet"
    assert second.news.changed == [keys[0]]
    assert any("1 earlier answer" in note for note in import_notes(second))
    assert first.written.read_bytes() == bytes_of_first
    assert open_folder(tmp_path / "r").votes.labels_of(keys[0]) == ["bee"]


def test_a_second_annotator_is_separated_by_name(tmp_path, truth):
    round_init(tmp_path / "r", tmp_path / "t.parquet", classes=CLASSES, batch=4, holdout="0")
    keys = [row["key"] for row in batch_of(round_next(tmp_path / "r"))]
    for who, label in (("ann", "ant"), ("bob", "bee"), ("eve", "bee")):
        answers = sheet(tmp_path / f"{who}.csv", [(key, label) for key in keys], ("key", "label"))
        round_import(tmp_path / "r", answers, annotator=who)
    state = status(tmp_path / "r", lift=False)
    assert state.annotators == ["ann", "bob", "eve"]
    assert state.agreement["n_keys"] == 4
    assert state.agreement["pairs"] == pytest.approx(1 / 3)
    assert state.classes == {"ant": 0, "bee": 4, "cow": 0}


def test_skipped_images_are_not_requested_again_and_do_not_hold_up_the_next_round(tmp_path, truth):
    round_init(tmp_path / "r", tmp_path / "t.parquet", classes=CLASSES, batch=5, holdout="0", format="label-studio")
    made = round_next(tmp_path / "r")
    tasks = json.loads(made.export.read_text())
    result = [{"from_name": "label", "to_name": "image", "type": "choices", "value": {"choices": ["cow"]}}]
    for task in tasks[:3]:
        task["annotations"] = [{"result": result, "was_cancelled": False}]
    tasks[3]["annotations"] = [{"result": [], "was_cancelled": True}]
    (tmp_path / "back.json").write_text(json.dumps(tasks))
    imported = round_import(tmp_path / "r", tmp_path / "back.json", skip_rest=True)
    assert (imported.labels, imported.skipped, imported.missing) == (3, 2, 0)
    again = round_next(tmp_path / "r")
    assert again.state["pool"]["skipped"] == 2
    assert not {row["key"] for row in batch_of(again)} & {task["data"]["curate_key"] for task in tasks}


def test_a_file_in_which_every_image_was_skipped_is_taken_as_skips_however_long_the_keys(tmp_path):
    keys = ["x" * 150 + f"{i:03}" for i in range(40)]  # alike as far as a message shows them
    table(tmp_path / "t.parquet", 40, key=keys)
    round_init(tmp_path / "r", tmp_path / "t.parquet", classes=CLASSES, batch=4, holdout="0", format="label-studio")
    pq.write_table(pa.table({"key": keys, "image": [b"GIF89a"] * 40}), tmp_path / "images.parquet")
    made = round_next(tmp_path / "r", source=str(tmp_path / "images.parquet"))
    tasks = json.loads(made.export.read_text())
    for task in tasks:
        task["annotations"] = [{"result": [], "was_cancelled": True}]
    (tmp_path / "back.json").write_text(json.dumps(tasks))
    imported = round_import(tmp_path / "r", tmp_path / "back.json")
    assert (imported.labels, imported.skipped, imported.missing) == (0, 4, 0)
    said = open_folder(tmp_path / "r").votes.consensus()
    assert {key: each.state for key, each in said.items()} == {task["data"]["curate_key"]: "skipped" for task in tasks}


def test_one_file_with_all_labels_serves_round_after_round_and_no_answer_goes_back(tmp_path, truth):
    round_init(tmp_path / "r", tmp_path / "t.parquet", classes=CLASSES, batch=10, holdout="0")
    everything = sheet(tmp_path / "all.csv", [(key, name, "ann") for key, name in truth.items()])
    keys = [row["key"] for row in batch_of(round_next(tmp_path / "r"))]
    assert round_import(tmp_path / "r", everything).labels == 10
    other = next(name for name in CLASSES if name != truth[keys[0]])
    round_import(tmp_path / "r", sheet(tmp_path / "fix.csv", [(keys[0], other, "ann")]))
    round_next(tmp_path / "r")
    again = round_import(tmp_path / "r", everything)
    assert (again.labels, again.missing, len(again.news.new), again.news.changed) == (10, 0, 10, [])
    assert again.earlier == "rounds/0001/labels-0001.parquet"
    assert any("only images requested since" in note for note in import_notes(again))
    said = {key: agreement.label for key, agreement in open_folder(tmp_path / "r").votes.consensus().items()}
    assert said == {key: truth[key] for key in said} | {keys[0]: other}
    assert len(said) == 20
    old = round_import(tmp_path / "r", everything)
    assert (old.written, old.labels, len(old.news.repeated)) == (None, 10, 10)


def test_held_out_labels_may_come_from_a_column_or_a_file(tmp_path, truth):
    round_init(tmp_path / "c", tmp_path / "t.parquet", classes=CLASSES, batch=10, holdout="20", label="truth")
    made = round_next(tmp_path / "c")
    assert made.state["picked"] == {"strategy": 9, "control": 1, "holdout": 0}
    round_import(tmp_path / "c", answer(made, truth, tmp_path / "a.csv"))
    assert status(tmp_path / "c", lift=False).curve[-1]["n"] == 20
    held_out = open_folder(tmp_path / "c").holdout["key"].to_pylist()
    known = sheet(tmp_path / "h.csv", [(key, truth[key]) for key in held_out[:15]], ("key", "label"))
    round_init(tmp_path / "f", tmp_path / "t.parquet", classes=CLASSES, batch=10, holdout="20", labelled=str(known))
    assert round_next(tmp_path / "f").state["picked"]["holdout"] == 5


def test_without_held_out_labels_status_reports_no_accuracy(tmp_path, truth):
    round_init(tmp_path / "r", tmp_path / "t.parquet", classes=CLASSES, batch=10, holdout="5")
    made = round_next(tmp_path / "r")
    requested = [row["key"] for row in batch_of(made) if row["arm"] != "holdout"]
    round_import(tmp_path / "r", sheet(tmp_path / "a.csv", [(key, truth[key], "") for key in requested]))
    state = status(tmp_path / "r")
    assert "none of the 5" in str(status_notes(state))
    assert any("5 requested images" in note and "round import" in note for note in status_notes(state))
    assert "not enough yet" in lift_words(state.lift)
    round_init(tmp_path / "n", tmp_path / "t.parquet", classes=CLASSES, batch=10, holdout="0")
    assert "no rows are held" in str(status_notes(status(tmp_path / "n")))


def test_a_strategy_that_needs_labels_begins_with_one_that_does_not(tmp_path, truth):
    round_init(tmp_path / "r", tmp_path / "t.parquet", classes=CLASSES, batch=12, strategy="margin", holdout="0")
    first, second = loop(tmp_path / "r", truth, tmp_path, 2)
    assert first.state["strategy"]["name"] == "auto"
    assert any("margin needs labels" in note for note in first.notes)
    assert second.state["strategy"]["name"] == "margin"


def test_a_quality_column_guards_the_strategy(tmp_path, truth):
    guard = {"gate": 0.5, "quality": "kappa_x"}
    round_init(tmp_path / "r", tmp_path / "t.parquet", classes=CLASSES, batch=20, control=0, holdout="0", **guard)
    rows = pq.read_table(tmp_path / "t.parquet", columns=["key", "kappa_x"]).to_pylist()
    kappa = {row["key"]: row["kappa_x"] for row in rows}
    median = np.median(list(kappa.values()))
    assert min(kappa[row["key"]] for row in batch_of(round_next(tmp_path / "r"))) >= median


def test_rows_run_out_in_peace(tmp_path):
    truth = table(tmp_path / "t.parquet", 14)
    round_init(tmp_path / "r", tmp_path / "t.parquet", classes=CLASSES, batch=10, holdout="0", probe="knn")
    assert [len(batch_of(made)) for made in loop(tmp_path / "r", truth, tmp_path, 2)] == [10, 4]
    with pytest.raises(InputError, match="no image is left"):
        round_next(tmp_path / "r")
    reached = {each.name: each.reached for each in status(tmp_path / "r").advice}
    assert reached["pool"] is True


def test_rows_without_a_usable_embedding_are_never_requested(tmp_path):
    status_of = ["ok"] * 27 + ["decode"] * 3
    truth = table(tmp_path / "t.parquet", 30, status=status_of)
    round_init(tmp_path / "r", tmp_path / "t.parquet", classes=CLASSES, batch=30, holdout="0")
    requested = {row["key"] for row in batch_of(round_next(tmp_path / "r"))}
    assert requested == set(list(truth)[:27])


def test_labels_of_any_name_are_taken_where_no_classes_were_given(tmp_path, truth):
    round_init(tmp_path / "r", tmp_path / "t.parquet", batch=10, holdout="0")
    made = round_next(tmp_path / "r")
    round_import(tmp_path / "r", answer(made, truth, tmp_path / "a.csv"))
    said = {truth[row["key"]] for row in batch_of(made)}
    assert set(status(tmp_path / "r", lift=False).classes) == said
