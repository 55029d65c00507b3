"""``curate fit`` with labels of a column or a file, and what verifies; one line for what teaches nothing."""

import csv
import json

import numpy as np
import pytest
from rounds_table import CLASSES, answer
from rounds_table import table as table_of_rounds
from synthetic import kinds
from test_fitting import columns_of, write
from typer.testing import CliRunner

from curate.cli import app
from curate.fitting.fit import fit
from curate.fitting.verify import verify_fit
from curate.rounds.import_labels import round_import
from curate.rounds.init import round_init
from curate.rounds.next import round_next
from curate.tables.table import open_table
from scoring.cards import read_header
from scoring.checkpoint import load_model
from scoring.errors import InputError
from scoring.relative.stored import read_fit

N = 240


@pytest.fixture
def digest(tiny_checkpoint):
    return read_header(tiny_checkpoint)["digest"]


@pytest.fixture
def table(tmp_path, digest):
    rows, kind = kinds(n=N, spread=0.7)
    return write(tmp_path / "scores.parquet", rows, digest, labels=kind)


def sheet(path, named):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["key", "label"])
        writer.writerows(named)
    return path


def test_a_column_and_a_file_of_the_same_labels_give_the_same_fit(table, tmp_path, tiny_checkpoint):
    kind = kinds(n=N, spread=0.7)[1]
    path = sheet(tmp_path / "labels.csv", [(f"k{i}", f"c{kind[i]}") for i in range(N)])
    by_column = fit(table, apply=tmp_path / "a.parquet", label="label")
    by_file = fit(table, tmp_path / "f.safetensors", apply=tmp_path / "b.parquet", labelled=path, model=tiny_checkpoint)
    assert by_column.labels == by_file.labels
    assert columns_of(tmp_path / "a.parquet") == columns_of(tmp_path / "b.parquet")
    assert by_column.labels["rows"] == N
    assert by_column.labels["classes"] == 6
    about = read_header(tmp_path / "f.safetensors")["fit"]
    assert about["labels"]["path"] == str(path.resolve())
    propagated = read_fit(tmp_path / "f.safetensors", load_model(tmp_path / "f.safetensors")[1]).propagated
    if by_column.labels["better"]:
        assert propagated.classes == tuple(f"c{k}" for k in range(6))
        assert propagated.probabilities.shape == (N, 6)


def test_rows_without_a_class_are_not_learned_from(tmp_path, digest):
    rows, kind = kinds(n=N)
    some = [int(k) if i % 3 == 0 else None for i, k in enumerate(kind)]
    path = write(tmp_path / "s.parquet", rows, digest, labels=some)
    assert fit(path, apply=tmp_path / "a.parquet", label="label").labels["rows"] == N // 3


def test_held_back_classes_measure_how_accurate_the_score_is(table, tmp_path):
    result = fit(table, apply=tmp_path / "a.parquet")
    assert result.labels.keys() == {"rows", "classes", "auroc"}
    assert result.labels["auroc"].low < result.labels["auroc"].value < result.labels["auroc"].high


def test_a_score_no_better_than_chance_level_is_reported(tmp_path, digest):
    rows, kind = kinds(n=N)
    shuffled = np.random.default_rng(0).permutation(kind)
    path = write(tmp_path / "s.parquet", rows, digest, labels=shuffled)
    result = CliRunner().invoke(app, ["fit", str(path), "--apply", str(tmp_path / "a.parquet")])
    assert "no better than chance" in result.stderr


def test_the_command_keeps_what_was_learned_from_apart(table, tmp_path):
    line = ["fit", str(table), "--label", "label", "--apply", str(tmp_path / "a.parquet")]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.output
    assert f"{N} labels of 6 classes" in result.stderr
    assert "labels were held out" in result.stderr
    assert "it was fitted on" in result.stderr


MISTAKES = {
    "expected at least 50 labelled images with an embedding, got 0": lambda kind: [None] * N,
    "expected at least 50 labelled images with an embedding, got 5": lambda kind: [0, 1, 2, 3, 4] + [None] * (N - 5),
    "at least two classes, got 240 of one alone": lambda kind: [1] * N,
}


@pytest.mark.parametrize("says", MISTAKES)
def test_labels_without_information_are_one_line(tmp_path, digest, says):
    rows, kind = kinds(n=N)
    path = write(tmp_path / "s.parquet", rows, digest, labels=MISTAKES[says](kind))
    with pytest.raises(InputError, match=says) as caught:
        fit(path, apply=tmp_path / "a.parquet", label="label")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "a.parquet").exists()


def test_labels_for_keys_that_are_not_there_are_refused(table, tmp_path):
    path = sheet(tmp_path / "labels.csv", [(f"photo{i}", "a") for i in range(60)])
    with pytest.raises(InputError, match=r"60 of 60 .*'photo0'"):
        fit(table, apply=tmp_path / "a.parquet", labelled=path)


def test_a_file_without_classes_or_a_column_that_is_not_there_is_refused(table, tmp_path):
    (tmp_path / "keys.csv").write_text("key\n" + "".join(f"k{i}\n" for i in range(60)))
    with pytest.raises(InputError, match="no column 'label'"):
        fit(table, apply=tmp_path / "a.parquet", labelled=tmp_path / "keys.csv")
    with pytest.raises(InputError, match=r"no column 'lable'.*label"):
        fit(table, apply=tmp_path / "a.parquet", label="lable")


def test_labels_for_a_model_that_is_only_applied_are_refused(table, tmp_path, tiny_checkpoint):
    fit(table, tmp_path / "f.safetensors", model=tiny_checkpoint)
    with pytest.raises(InputError, match="leave out the labels"):
        fit(table, apply=tmp_path / "a.parquet", fitted=tmp_path / "f.safetensors", label="label")


@pytest.mark.parametrize("options", [{}, {"label": "label"}, {"labelled": "labels.csv"}])
def test_a_fitted_model_verifies_wherever_it_is(table, tmp_path, tiny_checkpoint, options, digest):
    rows, kind = kinds(n=N, spread=0.7)
    sheet(tmp_path / "labels.csv", [(f"k{i}", f"c{kind[i]}") for i in range(100)])
    options = {name: tmp_path / value if name == "labelled" else value for name, value in options.items()}
    model = tmp_path / "f.safetensors"
    fit(table, model, apply=tmp_path / "a.parquet", model=tiny_checkpoint, **options)
    assert verify_fit(model).identical
    order = np.random.default_rng(2).permutation(N)
    moved = write(tmp_path / "moved.parquet", rows, digest, labels=kind, order=order)
    assert verify_fit(model, moved).identical
    (tmp_path / "a.parquet").write_bytes((tmp_path / "a.parquet").read_bytes() + b" ")
    assert verify_fit(model).applied is False


def test_a_model_that_was_fitted_to_other_rows_does_not_verify(table, tmp_path, tiny_checkpoint, digest):
    model = tmp_path / "f.safetensors"
    fit(table, model, model=tiny_checkpoint)
    rows, kind = kinds(n=N, spread=0.7)
    rows[7] = rows[8]
    other = write(tmp_path / "other.parquet", rows, digest, labels=kind)
    result = CliRunner().invoke(app, ["verify", str(model), "--table", str(other)])
    assert result.exit_code == 1
    assert "does not hold the rows" in result.stdout
    assert "gives other values" in result.stdout
    report = json.loads(CliRunner().invoke(app, ["verify", str(model), "--json"]).stdout)
    assert report["identical"] is True


def test_what_cannot_be_derived_is_one_line(table, tmp_path, tiny_checkpoint):
    with pytest.raises(InputError, match="nothing to derive"):
        verify_fit(tiny_checkpoint)
    fit(table, tmp_path / "f.safetensors", model=tiny_checkpoint)
    table.unlink()
    with pytest.raises(InputError, match=r"no longer exists.*--table"):
        verify_fit(tmp_path / "f.safetensors")


def test_labels_imported_into_rounds_are_used(tmp_path):
    truth = table_of_rounds(tmp_path / "t.parquet", noise=0.6)
    round_init(tmp_path / "r", tmp_path / "t.parquet", classes=CLASSES, batch=40, holdout="20")
    made = round_next(tmp_path / "r")
    round_import(tmp_path / "r", answer(made, truth, tmp_path / "answers.csv"))
    result = fit(tmp_path / "t.parquet", apply=tmp_path / "a.parquet", labelled=tmp_path / "r")
    assert result.labels["rows"] == 60
    assert result.labels["classes"] == 3


def test_a_folder_of_rounds_to_which_too_little_came_back_is_refused(tmp_path):
    table_of_rounds(tmp_path / "t.parquet")
    round_init(tmp_path / "r", tmp_path / "t.parquet", classes=CLASSES, batch=10, holdout="12")
    with pytest.raises(InputError, match=r"50 labelled .*got 0"):
        fit(tmp_path / "t.parquet", apply=tmp_path / "a.parquet", labelled=tmp_path / "r")


def test_the_entropy_of_classes_is_a_column_by_classifiers_that_did_not_see_the_row(tmp_path, digest):
    from sklearn.linear_model import LogisticRegression

    rows, kind = kinds(n=N, spread=0.7)
    some = [label if i % 2 else None for i, label in enumerate(kind)]
    path = write(tmp_path / "scores.parquet", rows, digest, labels=some)
    fit(path, apply=tmp_path / "a.parquet", label="label")
    applied = open_table(tmp_path / "a.parquet").read(["unc_class", "embedding"])
    entropies = applied["unc_class"].to_numpy()
    stored = np.stack(applied["embedding"].to_numpy()).astype(np.float64)
    stored /= np.linalg.norm(stored, axis=1, keepdims=True)
    is_odd, is_even = np.arange(N) % 2 == 1, np.arange(N) % 2 == 0
    centred = stored - stored[is_odd].mean(0)
    centred /= np.sqrt((centred[is_odd] ** 2).sum(1).mean())
    chances = LogisticRegression(max_iter=1000).fit(centred[is_odd], np.array(kind)[is_odd]).predict_proba(centred)
    entropy = -(chances * np.log(chances)).sum(1)
    assert entropies[is_even] == pytest.approx(entropy[is_even], abs=0.01)
    assert np.corrcoef(entropies[is_odd], entropy[is_odd])[0, 1] > 0.5
    assert (
        entropies[is_odd].mean() > entropy[is_odd].mean()
    )  # of folds that did not have the row: less certain than of one's own


def test_without_labels_to_learn_from_there_is_no_entropy_of_classes(table, tmp_path):
    fit(table, apply=tmp_path / "a.parquet")
    assert "unc_class" not in open_table(tmp_path / "a.parquet").schema.names
