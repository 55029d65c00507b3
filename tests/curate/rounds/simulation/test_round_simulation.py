"""Replays of a labelled table, and the images of curves."""

import csv
import json

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from rounds_table import CLASSES, answer, table

import curate
from curate.rounds.import_labels import round_import
from curate.rounds.init import round_init
from curate.rounds.next import round_next
from curate.rounds.simulation.plot import read_replay, round_plot
from curate.rounds.simulation.replay import lift
from curate.rounds.simulation.run import typed_budgets, write_simulation
from curate.sheets.style import COLOURS
from scoring.errors import InputError


@pytest.fixture
def truth(tmp_path):
    return table(tmp_path / "t.parquet", 150)


def test_a_replay_has_random_next_to_the_strategies_and_compares_seed_by_seed(tmp_path, truth):
    simulation = curate.round_simulate(
        tmp_path / "t.parquet", "truth", [6, 12, 30], strategy=["margin", "typiclust"], seeds=3
    )
    assert list(simulation.curves) == ["margin", "typiclust", "random"]
    assert list(simulation.lifts) == ["margin", "typiclust"]
    assert simulation.facts["rows"] == {"to_label": 120, "to_measure": 30, "left_out": 0}
    for curves in simulation.curves.values():
        assert curves.accuracy.shape == (3, 3)
        assert np.isin(np.round(curves.accuracy * 30), np.arange(31)).all()
    again = lift(simulation.curves["margin"], simulation.curves["random"])
    assert simulation.to_json()["over_random"]["margin"]["area"] == again.area
    assert simulation.curves["margin"].accuracy[:, 0].tolist() == simulation.curves["random"].accuracy[:, 0].tolist()


def test_annotators_who_err_give_less_accuracy_measured_against_the_truth(tmp_path):
    truth = table(tmp_path / "t.parquet", 150, noise=0.4)
    generator = np.random.default_rng(0)
    wrong = [CLASSES[(CLASSES.index(label) + (generator.random() < 0.45)) % 3] for label in truth.values()]
    table(tmp_path / "n.parquet", 150, noise=0.4, noisy=pa.array(wrong))
    good = curate.round_simulate(tmp_path / "n.parquet", "truth", 30, strategy=["random"], seeds=3)
    bad = curate.round_simulate(
        tmp_path / "n.parquet", "truth", [30], strategy=["random"], seeds=3, noisy_label="noisy"
    )
    assert bad.curves["random"].mean[0] < good.curves["random"].mean[0]
    assert bad.facts["wrong_labels"] == pytest.approx(0.45, abs=0.1)
    assert good.curves["random"].picks.tolist() == bad.curves["random"].picks.tolist()


def test_rows_without_a_label_are_left_out_and_the_order_of_the_table_does_not_matter(tmp_path):
    truth = table(tmp_path / "t.parquet", 150)
    labels = [None if i % 10 == 0 else label for i, label in enumerate(truth.values())]
    table(tmp_path / "a.parquet", 150, label=pa.array(labels))
    table(tmp_path / "b.parquet", 150, label=pa.array(labels), order=list(reversed(range(150))))
    a, b = (
        curate.round_simulate(tmp_path / f"{name}.parquet", "label", [10, 20], strategy=["margin"], seeds=2)
        for name in "ab"
    )
    assert a.facts["rows"]["left_out"] == 15
    assert a.facts["digest"] == b.facts["digest"]
    assert a.to_json()["strategies"] == b.to_json()["strategies"]


def test_what_is_written_is_what_was_found(tmp_path, truth):
    simulation = curate.round_simulate(tmp_path / "t.parquet", "truth", [6, 12], strategy=["margin"], seeds=1)
    paths = write_simulation(simulation, tmp_path / "r.json")
    assert [path.name for path in paths] == ["r.json", "r.csv"]
    value = json.loads(paths[0].read_text())
    assert value["strategies"]["margin"]["error"] == [None, None]
    assert value["strategies"]["random"]["mean"] == simulation.curves["random"].mean.tolist()
    with paths[1].open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["strategy"], row["labels"]) for row in rows] == [
        ("margin", "6"),
        ("margin", "12"),
        ("random", "6"),
        ("random", "12"),
    ]
    assert [float(row["accuracy"]) for row in rows[:2]] == simulation.curves["margin"].accuracy[0].tolist()
    with pytest.raises(InputError, match=r"r\.json exists already"):
        write_simulation(simulation, tmp_path / "r.json")


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"label": "truht"}, "did you mean 'truth'"),
        ({"strategy": ["margins"]}, "unknown strategy 'margins'"),
        ({"strategy": ["score"]}, "a replay lacks"),
        ({"budget": [10, 5]}, "budgets must ascend"),
        ({"budget": [500]}, "the 120 rows"),
        ({"seeds": 0}, "seeds must be"),
        ({"test": 1.0}, "got 1"),
        ({"label": "status"}, "at least two classes"),
    ],
)
def test_a_replay_that_cannot_be_is_refused(tmp_path, truth, asked, text):
    labels = {"label": "truth", "strategy": ["margin"], "budget": [5], "seeds": 1} | asked
    with pytest.raises(InputError, match=text):
        curate.round_simulate(tmp_path / "t.parquet", **labels)


def test_budgets_that_are_no_numbers_are_refused():
    with pytest.raises(InputError, match=r"--budget .*'ten'"):
        typed_budgets(["ten"])


def test_plot_draws_a_replay_and_a_folder(tmp_path, truth):
    write_simulation(
        curate.round_simulate(tmp_path / "t.parquet", "truth", [6, 12], strategy=["margin"], seeds=2),
        tmp_path / "r.json",
    )
    round_plot(tmp_path / "r.json", tmp_path / "r.png")
    round_init(tmp_path / "f", tmp_path / "t.parquet", classes=CLASSES, batch=12, control=0.5, holdout="20")
    with pytest.raises(InputError, match="that was measured"):
        round_plot(tmp_path / "f", tmp_path / "f.png")
    for number in range(3):
        round_import(tmp_path / "f", answer(round_next(tmp_path / "f"), truth, tmp_path / f"{number}.csv"))
    round_plot(tmp_path / "f", tmp_path / "f.png")
    with Image.open(tmp_path / "f.png") as picture:
        drawn = {"#{:02X}{:02X}{:02X}".format(*colour) for _, colour in picture.convert("RGB").getcolors(1 << 20)}
    assert set(COLOURS[:3]) <= drawn
    round_plot(tmp_path / "f", tmp_path / "f.svg")
    assert "random labels (control)" in (tmp_path / "f.svg").read_text()
    with pytest.raises(InputError, match=r"f\.png exists already"):
        round_plot(tmp_path / "f", tmp_path / "f.png")
    with pytest.raises(InputError, match=r"or \.pdf, got"):
        round_plot(tmp_path / "f", tmp_path / "f.jpg")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"kind": "replay"}',
        '{"kind": "replay", "budgets": [1], "strategies": {"a": {"mean": [], "error": []}}}',
    ],
)
def test_a_file_that_is_no_replay_is_refused(tmp_path, text):
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(InputError, match="curate round simulate"):
        read_replay(tmp_path / "r.json")
