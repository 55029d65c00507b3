"""Intervals that hold at every look, and rules that stop rounds by them."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import run
from rounds_table import CLASSES, answer, sheet, status, table

from curate.commands.status import rule_words
from curate.probes.accuracy import Accuracy
from curate.rounds.files.folder import open_folder
from curate.rounds.files.sealed import digest_of
from curate.rounds.import_labels import round_import
from curate.rounds.init import round_init
from curate.rounds.measures.lift import Anytime, PairLift, anytime_accuracy, anytime_difference
from curate.rounds.measures.rules import StopRule, check_rule, parse_rules, refuse_unreachable
from curate.rounds.next import round_next
from curate.rounds.simulation.plot import folder_curves, round_plot
from curate.rounds.verify import verify_rounds
from curate.statistics.paired import level_of_look, paired_interval
from scoring.errors import InputError
from scoring.metrics.proportions import clopper_pearson

RULES = ["accuracy >= 40%"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Three rounds of forty, half at random, with sixty held out; the second came back in two imports."""
    place = tmp_path_factory.mktemp("made")
    truth = table(place / "t.parquet", n=400)
    folder = place / "r"
    round_init(folder, place / "t.parquet", classes=CLASSES, batch=40, holdout="60", control=0.5, stop=RULES)
    round_import(folder, answer(round_next(folder), truth, place / "1.csv"))
    second = round_next(folder)
    keys = pq.read_table(second.folder / "batch.parquet")["key"].to_pylist()
    for part, name in ((keys[:15], "2a.csv"), (keys[15:], "2b.csv")):
        round_import(folder, sheet(place / name, [(key, truth[key], "ann") for key in part]))
    round_next(folder)
    return folder


def state(folder, number):
    return json.loads((folder / "rounds" / f"{number:04}" / "state.json").read_text())


def reseal(path, change):
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps({**value, "digest": digest_of(value)}))


def test_a_look_is_an_import_and_its_interval_is_the_exact_one_at_the_level_of_that_look(made):
    for number, look in ((2, 1), (3, 3)):
        model = state(made, number)["model"]
        expected = clopper_pearson(model["holdout"]["right"], 60, level_of_look(look))
        assert model["anytime"] == {"look": look, "confidence": 0.95, "low": expected.low, "high": expected.high}
        assert model["anytime"]["low"] < model["holdout"]["low"] < model["holdout"]["high"] < model["anytime"]["high"]


def test_the_lift_of_a_round_is_counted_on_the_rows_held_out_and_its_interval_holds_at_every_look(made):
    lift = state(made, 3)["lift"]
    assert (lift["n"], lift["n_held_out"]) == (40, 60)
    assert lift["strategy"] - lift["control"] == pytest.approx((lift["better"] - lift["worse"]) / 60)
    expected = paired_interval(lift["better"], lift["worse"], 60, level_of_look(3))
    assert (lift["anytime"]["low"], lift["anytime"]["high"]) == (expected.low, expected.high)
    standing = status(made)
    assert standing.pair_lift.better == lift["better"]
    assert standing.looks == 3


def test_status_shows_both_intervals_by_name_and_says_stop(made):
    typed = ("round", "status", made, "--stop", "accuracy >= 99%", "--stop", "lift >= 30%")
    short = run(*typed)
    assert short.stdout.startswith("Stop: accuracy >= 40% is reached; accuracy ")
    assert "95 % of this look" not in short.stdout
    finished = run(*typed, "--all")
    assert finished.exit_code == 0
    assert "95 % at every look" in finished.stdout
    assert "95 % of this look" in finished.stdout
    assert "accuracy >= 40%: STOP" in finished.stdout
    assert "60 held-out images" in finished.stdout
    assert "lift >= 30%: continue" in finished.stdout
    record = json.loads(run("round", "status", made, "--json").stdout)
    assert record["stop"] is True
    assert record["rules"][0]["text"].startswith(f"{record['curve'][-1]['accuracy']:.1%}, at every look between")


def test_the_exit_code_says_whether_a_rule_is_reached(made, tmp_path):
    assert run("round", "status", made, "--fail-unless-stop").exit_code == 0
    truth = table(tmp_path / "t.parquet")
    round_init(tmp_path / "r", tmp_path / "t.parquet", classes=CLASSES, batch=12, holdout="40")
    refused = run("round", "status", tmp_path / "r", "--fail-unless-stop")
    assert (refused.exit_code, "add --stop" in refused.output) == (1, True)
    typed = ("round", "status", tmp_path / "r", "--stop", "accuracy >= 20%", "--fail-unless-stop")
    early = run(*typed)
    assert (early.exit_code, "cannot determine (nothing" in early.stdout) == (3, True)
    round_import(tmp_path / "r", answer(round_next(tmp_path / "r"), truth, tmp_path / "1.csv"))
    assert run(*typed).exit_code == 0


def test_nothing_that_picks_or_learns_sees_the_rows_held_out(tmp_path):
    """Other embeddings of the rows held out change the table's digest, and no pick, probability or model."""
    truth = table(tmp_path / "a.parquet", n=150)
    scored = pq.read_table(tmp_path / "a.parquet")
    round_init(tmp_path / "a", tmp_path / "a.parquet", classes=CLASSES, batch=20, holdout="50", strategy="auto")
    held = set(open_folder(tmp_path / "a").holdout["key"].to_pylist())
    vectors = np.array(scored["embedding"].to_pylist(), np.float32)
    vectors[[key in held for key in scored["key"].to_pylist()]] = np.eye(8, dtype=np.float32)[0]
    place = scored.schema.get_field_index("embedding")
    other = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), type=scored.schema.field(place).type)
    pq.write_table(scored.set_column(place, scored.schema.field(place), other), tmp_path / "b.parquet")
    round_init(tmp_path / "b", tmp_path / "b.parquet", classes=CLASSES, batch=20, holdout="50", strategy="auto")
    for number in range(3):
        batches = []
        for name in ("a", "b"):
            made = round_next(tmp_path / name)
            batches.append(pq.read_table(made.folder / "batch.parquet").drop_columns(["uri"]))
            round_import(tmp_path / name, answer(made, truth, tmp_path / f"{name}{number}.csv"))
        assert batches[0].equals(batches[1])


@pytest.mark.slow
def test_verify_measures_again_and_names_what_is_not_so(made, tmp_path):
    assert verify_rounds(made).identical
    changes = {
        "the model is right on": lambda value: value["model"]["holdout"].update(right=1),
        "the interval of its accuracy": lambda value: value["model"]["anytime"].update(low=0.2),
        "the interval of its lift": lambda value: value["lift"]["anytime"].update(high=0.9),
        "the lift of the strategy is not what the labels show": lambda value: value["lift"].update(better=50),
    }
    for number, (text, change) in enumerate(changes.items()):
        copy = tmp_path / str(number)
        shutil.copytree(made, copy)
        reseal(copy / "rounds/0003/state.json", change)
        checked = verify_rounds(copy).rounds[2]
        assert any(text in problem for problem in checked.problems)
        assert not checked.n_different


def test_the_image_has_the_band_of_every_look_and_the_bound_to_reach(made, tmp_path):
    curves, bounds = folder_curves(made)
    assert list(curves[0].low) == [point["anytime"]["low"] for point in status(made, lift=False).curve]
    assert (bounds[0].name, set(bounds[0].y)) == ("stop: accuracy >= 40%", {0.4})
    round_plot(made, tmp_path / "curve.svg")
    assert "labels (band: 95 % at every look)" in (tmp_path / "curve.svg").read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("acuracy >= 90%", "did you mean 'accuracy'"),
        ("lifts <= 1%", "did you mean 'lift'"),
        ("accuracy > 90%", "got '>'"),
        ("accuracy => 90%", "got '=>'"),
        ("accuracy >= 90", "got 90;"),
        ("accuracy >= 100%", "got 100%"),
        ("accuracy >= 0%", "100%, got 0%"),
        ("accuracy >= -5%", "got -5%"),
        ("lift <= 100%", "above -100%"),
        ("accuracy 90%", "takes a measure"),
        ("", "takes a measure"),
        ("accuracy >= 9e1%", "takes a measure"),
    ],
)
def test_a_rule_with_a_typo_is_one_line_that_says_what_is_expected(text, message):
    with pytest.raises(InputError, match=r"^--stop") as refused:
        StopRule.parse(text)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_rules_read_as_they_are_written():
    assert [str(rule) for rule in parse_rules(["accuracy>=.9", " Accuracy ≥ 90 % ", "lift <= -1.5%"])] == [
        "accuracy >= 90%",
        "lift <= -1.5%",
    ]


@pytest.mark.parametrize(
    ("holdout", "options", "message"),
    [
        ("20", {"stop": ("accuracy >= 90%",)}, "20 held-out .*at least 58"),
        ("20", {"stop": ("accuracy <= 2%",)}, "were the model wrong"),
        ("0", {"stop": ("accuracy >= 50%",)}, "--holdout 0"),
        ("30", {"stop": ("lift <= 5%",)}, "50 held-out .*got 30"),
        ("60", {"stop": ("lift <= 5%",), "control": 0.0}, "--control 0 draws none"),
        ("20", {"confidence": 1.0}, "--confidence .*got '1.0'"),
        ("20", {"confidence": 0.0}, "--confidence .*got '0.0'"),
    ],
)
def test_what_can_never_be_reached_is_refused_at_init(tmp_path, holdout, options, message):
    table(tmp_path / "t.parquet")
    with pytest.raises(InputError, match=message):
        round_init(tmp_path / "r", tmp_path / "t.parquet", classes=CLASSES, holdout=holdout, **options)
    assert not (tmp_path / "r" / "round.json").exists()


def test_the_rows_that_a_rule_needs_at_best_are_enough_if_all_are_right():
    rule = StopRule.parse("accuracy >= 90%")
    refuse_unreachable([rule], 58, 0, 0.95)
    assert check_rule(rule, 1, 0.95, Accuracy(58, 58, 1.0), None).reached
    short = check_rule(rule, 1, 0.95, Accuracy(57, 57, 1.0), None)
    assert (short.why, short.needed, short.reached) == ("too few rows", 58, False)


def test_rules_use_the_interval_of_every_look_in_both_directions():
    accuracy = Accuracy(450, 500, 0.9)
    ends = anytime_accuracy(accuracy, 4, 0.95)
    for text, reached in (
        (f"accuracy >= {ends.low - 0.001:.4f}", True),
        (f"accuracy >= {ends.low + 0.001:.4f}", False),
        (f"accuracy <= {ends.high + 0.001:.4f}", True),
        (f"accuracy <= {ends.high - 0.001:.4f}", False),
    ):
        assert check_rule(StopRule.parse(text), 4, 0.95, accuracy, None).reached is reached
    ends = anytime_difference(30, 20, 500, 4, 0.95)
    lift = PairLift(40, 500, 30, 20, 0.8, 0.78, ends)
    for bound, reached in ((ends.high + 0.001, True), (ends.high - 0.001, False)):
        assert check_rule(StopRule.parse(f"lift <= {bound:.4f}"), 4, 0.95, accuracy, lift).reached is reached


@pytest.mark.parametrize(("right", "text"), [(0, "accuracy >= 50%"), (500, "accuracy <= 50%")])
def test_all_wrong_and_all_right_are_reported_like_any_other(right, text):
    check = check_rule(StopRule.parse(text), 1, 0.95, Accuracy(right, 500, right / 500), None)
    assert (check.reached, check.needed) == (False, None)
    assert "is not enough" in rule_words(check)
    assert check_rule(StopRule.parse("accuracy >= 50%"), 1, 0.95, Accuracy(500, 500, 1.0), None).reached


def test_a_lack_of_labels_is_reported_with_the_number_that_would_do():
    check = check_rule(StopRule.parse("accuracy >= 90%"), 3, 0.95, Accuracy(460, 500, 0.92), None)
    assert check.needed > 500
    assert f"about {check.needed:,} held-out images would show it, there are 500" in rule_words(check)
    needed = Accuracy(int(0.92 * check.needed), check.needed, 0.92)
    assert check_rule(StopRule.parse("accuracy >= 90%"), 3, 0.95, needed, None).reached
    none = check_rule(StopRule.parse("lift <= 1%"), 0, 0.95, None, None)
    assert (none.reached, "nothing is measured yet" in rule_words(none)) == (None, True)
    assert isinstance(anytime_accuracy(Accuracy(), 1, 0.95), Anytime)
