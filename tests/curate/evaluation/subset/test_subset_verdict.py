"""Does the subset help? Cases in which that is known, what is printed, and the small network."""

import json
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sklearn.linear_model
import sklearn.neighbors
from PIL import Image
from typer.testing import CliRunner

from curate.cli import app
from curate.evaluation.run import evaluate
from curate.evaluation.subset.findings import against, compare_with_all
from curate.evaluation.subset.trained import Gap
from curate.evaluation.subset.training import right_by_linear, right_by_neighbours
from curate.evaluation.subset.words import _class_effect
from scoring.errors import InputError
from scoring.metrics.resampling import Interval
from tests.curate.evaluation.subset.labelled_tables import keys, made, write


@pytest.fixture(scope="module")
def columns():
    return made(1500, wrong=0.35, spread=0.8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, columns):
    path = tmp_path_factory.mktemp("subset")
    write(path / "s.parquet", columns)
    checked = made(500, seed=8, spread=0.8)
    write(path / "test.parquet", {**checked, "label": checked["true"], "key": [f"t{i}" for i in range(500)]})
    return path


def judged(folder, columns, kept, **options):
    subset = keys(folder / f"{np.flatnonzero(kept)[:9].sum()}-{sum(kept)}.parquet", columns, kept)
    options = {"label": "label", "test": str(folder / "test.parquet"), "seeds": 3, **options}
    return evaluate(folder / "s.parquet", subset=subset, **options)


def says(result):
    return {verdict.model: (verdict.says, verdict.of_rows, verdict.of_size) for verdict in result.verdicts}


def test_leaving_out_wrong_labels_helps(folder, columns):
    judgement = judged(folder, columns, ~np.array(columns["bad"]), group=["camera"])
    assert says(judgement)["kNN"] == ("helps", "helps", "better")
    assert judgement.verdicts[0].model == "linear"
    assert judgement.verdicts[0].says in ("helps", "does not help")
    assert judgement.noise.subset.low < 0.06
    assert judgement.noise.subset.high < judgement.noise.all_rows.low
    assert judgement.noise.all_rows.low < 0.35 < judgement.noise.all_rows.high + 0.05
    assert judgement.fairness[0].passes
    text = str(judgement)
    assert "verdict: " in text
    assert "wrong labels, estimated" in text
    assert "camera: passes" in text


def test_keeping_wrong_labels_hurts(folder, columns):
    judgement = judged(folder, columns, np.array(columns["bad"]) | (np.arange(1500) % 5 == 0))
    assert says(judgement)["linear"][0] == "hurts"
    assert says(judgement)["kNN"][0] == "hurts"
    assert "the subset hurts" in judgement.verdict()[0]
    assert any(of_class.gaps["random"].interval.high < 0 for of_class in judgement.trained[0].classes)
    assert any("with random rows" in line for line in judgement.verdict())


@pytest.mark.slow
def test_a_random_subset_does_not_help(folder, columns):
    said = []
    for seed in range(3):
        kept = np.random.default_rng(seed).random(1500) < 0.5
        said += [verdict.says for verdict in judged(folder, columns, kept, seed=seed, sample=800).verdicts]
    assert said.count("helps") + said.count("hurts") <= 1


def test_a_subset_of_few_classes_is_separated_from_one_of_good_rows(folder, columns):
    label, generator = np.array(columns["true"]), np.random.default_rng(0)
    kept = (label != "class 2") & (generator.random(1500) < 0.6) | (np.arange(1500) < 30)
    judgement = judged(folder, columns, kept)
    model = judgement.trained[0]
    assert judgement.verdicts[0].says == "hurts"
    assert model.gaps["random by class"].interval.value > model.gaps["random"].interval.value
    assert any("number of each class" in line for line in judgement.verdict())


def test_models_equal_scikit_learn():
    columns = made(400, wrong=0.2)
    rows, label = columns["embedding"].astype(np.float32), np.array([int(name[-1]) for name in columns["label"]])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    train, test = slice(0, 300), slice(300, 400)
    right, c = right_by_linear(rows[train], label[train], rows[test], label[test], 3, seed=0)
    scale = np.sqrt(np.square(rows[train] - rows[train].mean(0)).sum(1).mean())
    reference = sklearn.linear_model.LogisticRegression(C=c, max_iter=2000).fit(rows[train] / scale, label[train])
    assert np.mean(right == (reference.predict(rows[test] / scale) == label[test])) > 0.98
    near = sklearn.neighbors.KNeighborsClassifier(
        20, metric="cosine", weights=lambda distance: np.exp((1 - distance) / 0.07)
    ).fit(rows[train], label[train])
    predicted = right_by_neighbours(rows[train], label[train], rows[test], label[test])
    assert np.mean(predicted == (near.predict(rows[test]) == label[test])) > 0.98


@pytest.mark.parametrize(
    ("low", "high", "said", "size"),
    [
        (0.001, 0.05, "helps", "better"),
        (-0.05, -0.001, "hurts", "worse"),
        (-0.01, 0.01, "does not help", "as good"),
        (-0.10, 0.01, "does not help", "cannot be determined"),
        (-0.01, 0.04, "cannot be determined", "cannot be determined"),
    ],
)
def test_the_verdict_follows_from_the_interval(low, high, said, size):
    gap = Gap(Interval((low + high) / 2, low, high), 0.5, 100)
    assert against(gap) == said
    assert compare_with_all(gap) == size


@pytest.mark.parametrize(
    ("low", "high", "line"),
    [
        (-0.019, 0.019, "what hurts may be the number of each class rather than the choice of rows: "),
        (-0.021, 0.015, "whether what hurts is the choice of rows or the number of each class cannot be determined: "),
        (-0.010, 0.021, "whether what hurts is the choice of rows or the number of each class cannot be determined: "),
        (-0.050, -0.001, "it is the choice of rows, not only the number of each class: "),
    ],
)
def test_the_rows_are_blamed_only_where_the_interval_excludes_zero(low, high, line):
    gap = Gap(Interval((low + high) / 2, low, high), 0.5, 100)
    model = SimpleNamespace(gaps={"random by class": gap})
    (sentence,) = _class_effect(model, "hurts", against(gap))
    assert sentence.startswith(line)


def test_test_rows_with_a_copy_to_train_on_are_left_out(tmp_path):
    columns = made(300, wrong=0)
    twin = {**columns, "key": [f"twin-{key}" for key in columns["key"]]}
    both = {
        name: np.concatenate([values[:40], columns[name]]) if name == "embedding" else [*values[:40], *columns[name]]
        for name, values in twin.items()
    }
    table = write(tmp_path / "s.parquet", both)
    evaluation = evaluate(
        table, subset=keys(tmp_path / "k.parquet", both, np.arange(340) % 2 == 0), label="label", seeds=2
    )
    gone = evaluation.left_out["of the test side that may also be trained on"]
    assert gone > 0
    assert evaluation.n_tested + gone + evaluation.copies == pytest.approx(68, abs=2)
    near = {**both, "embedding": both["embedding"] + np.arange(340)[:, None].astype(np.float16) / 20_000}
    table = write(tmp_path / "n.parquet", near)
    evaluation = evaluate(
        table, subset=keys(tmp_path / "m.parquet", near, np.arange(340) % 2 == 0), label="label", seeds=2
    )
    assert evaluation.copies > 0
    assert evaluation.copies_left_out
    assert any("near-copy" in note for note in evaluation.notes())
    alike = {**columns, "embedding": (0.02 * columns["embedding"] + 1).astype(np.float16)}
    table = write(tmp_path / "t.parquet", alike)
    evaluation = evaluate(
        table, subset=keys(tmp_path / "l.parquet", alike, np.arange(300) % 2 == 0), label="label", seeds=2
    )
    assert evaluation.copies == evaluation.n_tested
    assert not evaluation.copies_left_out
    assert any("and are kept" in note for note in evaluation.notes())
    assert f"tested on {evaluation.n_tested} rows, most of them near-copies of rows that are trained on: " in str(
        evaluation
    )
    assert "no side trained on" not in str(evaluation)
    assert evaluation.verdict()[0].startswith("in part memory: ")
    evaluation.copies_left_out = True
    assert f"tested on {evaluation.n_tested} rows that no side trained on: " in str(evaluation)
    assert "in part memory: " not in str(evaluation)


def test_a_table_is_not_tested_on_itself(folder, columns, tmp_path):
    subset = keys(tmp_path / "k.parquet", columns, ~np.array(columns["bad"]))
    with pytest.raises(InputError, match=r"20 labelled.* got 0"):
        evaluate(folder / "s.parquet", subset=subset, label="label", test=str(folder / "s.parquet"))


def test_without_labels_there_is_diversity_and_fairness_but_no_verdict(tmp_path, columns):
    table = write(tmp_path / "s.parquet", {name: columns[name] for name in ("key", "camera", "embedding")})
    kept = np.array([camera == "old" for camera in columns["camera"]])
    evaluation = evaluate(table, subset=keys(tmp_path / "k.parquet", columns, kept), group="camera", seeds=3)
    assert evaluation.trained == []
    assert evaluation.diversity.subset.value > 1
    assert evaluation.coverage.subset >= 0.5
    assert "cannot be determined" in evaluation.verdict()[0]
    fair = evaluation.fairness[0]
    assert fair.ratio == 0
    assert [group.name for group in fair.groups if group.dropped_more] == ["new"]
    assert "fails the four-fifths rule" in str(evaluation)


def test_a_class_of_one_row_and_one_without_a_kept_row_are_reported(tmp_path):
    columns = made(200, wrong=0)
    columns["label"][0] = "alone"
    table = write(tmp_path / "s.parquet", columns)
    kept = np.array([name != "class 1" for name in columns["label"]]) & (np.arange(200) > 3)
    evaluation = evaluate(table, subset=keys(tmp_path / "k.parquet", columns, kept), label="label", seeds=2)
    assert evaluation.lost == ["alone", "class 1"]
    assert any("alone, class 1" in note for note in evaluation.notes())
    assert evaluation.trained[0].classes[0].name == "class 1"


def test_the_command_writes_json_that_says_what_it_prints(folder, columns, tmp_path):
    subset = keys(tmp_path / "k.parquet", columns, ~np.array(columns["bad"]))
    arguments = ["evaluate", str(folder / "s.parquet"), "--subset", str(subset), "--label", "label", "--seeds", "2"]
    result = CliRunner().invoke(app, [*arguments, "--group", "camera", "--json", "-o", str(tmp_path / "r.json")])
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert record == json.loads((tmp_path / "r.json").read_text())
    assert record["verdicts"][0]["model"] == "linear"
    assert (
        record["trained"][0]["gaps"]["random"]["interval"]["low"]
        <= record["trained"][0]["gaps"]["random"]["interval"]["high"]
    )
    assert len(record["trained"][1]["draws"]["random"]) == 2
    assert record["fairness"][0]["groups"][0]["name"] in ("old", "new")
    assert record["verdict"]
    quiet = CliRunner().invoke(app, [*arguments, "--quiet"])
    assert quiet.stderr == ""
    assert quiet.stdout.splitlines()[-1].startswith("verdict: ")
    again = CliRunner().invoke(app, [*arguments, "-o", str(tmp_path / "r.json")])
    assert again.exit_code == 1
    assert "--overwrite" in again.stderr


def test_options_of_images_are_for_a_network(folder, columns, tmp_path):
    subset = keys(tmp_path / "k.parquet", columns, ~np.array(columns["bad"]))
    result = CliRunner().invoke(
        app, ["evaluate", str(folder / "s.parquet"), "--subset", str(subset), "--label", "label", "--source", "x/"]
    )
    assert result.exit_code == 1
    assert "--source needs --network" in result.stderr


@pytest.fixture
def pictures(tmp_path):
    """Red and blue images, of which a third of the labels is wrong; one file is gone."""
    generator = np.random.default_rng(0)
    columns = made(120, classes=2, wrong=0.3)
    folder = tmp_path / "images"
    folder.mkdir()
    for key, true in zip(columns["key"], columns["true"], strict=True):
        image = generator.integers(0, 120, (24, 20, 3), dtype=np.uint8)
        image[:, :, 0 if true == "class 0" else 2] += 120
        Image.fromarray(image).save(folder / key, quality=95)
    columns["uri"] = [str(folder / key) for key in columns["key"]]
    (folder / columns["key"][0]).unlink()
    table = write(tmp_path / "s.parquet", columns)
    return table, keys(tmp_path / "k.parquet", columns, ~np.array(columns["bad"])), columns, folder


@pytest.mark.slow
def test_a_network_is_trained_on_every_side_with_every_seed(pictures, tmp_path):
    table, subset, _, folder = pictures
    options = {"subset": subset, "label": "label", "test": "0.3", "seeds": 2, "network": 2}
    evaluation = evaluate(table, **options)
    first = evaluation.trained[0]
    assert first.model == "network"
    assert {side: len(draws) for side, draws in first.draws.items()} == dict.fromkeys(first.draws, 2)
    assert first.n_unread == 1
    assert evaluation.verdicts[0].model == "network"
    assert any("not be read" in note for note in evaluation.notes())
    plain = write(tmp_path / "p.parquet", {name: pictures[2][name] for name in ("key", "label", "embedding")})
    Image.new("RGB", (9, 9)).save(folder / pictures[2]["key"][0])
    again = evaluate(plain, **options, source=str(folder))
    assert again.trained[0].n_unread == 0
    assert again.trained[0].draws.keys() == first.draws.keys()


def test_a_network_without_images_is_one_line(tmp_path, columns):
    table = write(tmp_path / "s.parquet", columns)
    with pytest.raises(InputError, match="as --source"):
        evaluate(
            table,
            subset=keys(tmp_path / "k.parquet", columns, np.arange(1500) < 700),
            label="label",
            seeds=2,
            network=5,
        )


def test_keys_may_be_numbers(tmp_path):
    columns = {**made(200), "key": list(range(200))}
    table = write(tmp_path / "s.parquet", columns)
    pq.write_table(pa.table({"key": list(range(0, 200, 2))}), tmp_path / "k.parquet")
    assert evaluate(table, subset=tmp_path / "k.parquet", label="label", seeds=2).kept == 100
