"""Worse versions of images, scored and ranked next to them as they are."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from test_evaluate import measure

from curate.evaluation.curves import read_strengths
from curate.evaluation.degraded import ORIGINAL, Degraded
from curate.evaluation.run import evaluate
from curate.evaluation.strengths import strength_curves
from scoring.errors import InputError


@pytest.mark.parametrize("by", ["uri", "source"])
def test_worse_images_are_scored_by_the_model_and_counted(full_table, folder, tiny_checkpoint, by):
    source = str(folder) if by == "source" else None
    settings = {"repeats": 20, "degrade": 20, "device": "cpu"}
    evaluation = evaluate(full_table, source=source, model=tiny_checkpoint, **settings)
    names = {each.name for each in evaluation.measures}
    kinds = ("crop", "blur", "noise", "grey box", "centre crop")
    assert {f"less certain: {kind}" for kind in kinds} <= names
    assert {"Spearman, crop size", "mean, greyscale", "mean, colour jitter", "mean, random crop"} <= names
    assert measure(evaluation, "less certain: blur").values["Laplacian"].value > 0.9
    assert measure(evaluation, "less certain: noise").n == 20


@pytest.mark.slow
def test_strengths_are_ranks_among_the_images_as_they_are_and_change_nothing_else(full_table, tiny_checkpoint):
    settings = {"repeats": 20, "degrade": 20, "device": "cpu", "model": tiny_checkpoint}
    evaluation, without = evaluate(full_table, strengths=True, **settings), evaluate(full_table, **settings)
    assert [each.to_json() for each in evaluation.measures] == [each.to_json() for each in without.measures]
    assert without.strengths == {}
    assert list(evaluation.strengths) == ["zoom", "blur", "noise", "grey box", "recompression", "darkness"]
    assert read_strengths(json.loads(json.dumps(evaluation.to_json())))[1]["kind"] == "blur"
    for about in evaluation.strengths.values():
        assert about["strength"][0] == 0
        assert len(about["strength"]) == 6
        for ends in about["columns"].values():
            assert ends["value"][0] == pytest.approx(0.5)  # of ranks among themselves, ties by half
            assert all(
                low <= value <= high for low, value, high in zip(ends["low"], ends["value"], ends["high"], strict=True)
            )
    sharp = evaluation.strengths["blur"]["columns"]["Laplacian"]["value"]
    assert sharp == sorted(sharp)
    assert sharp[-1] > 0.89
    noisy = evaluation.strengths["noise"]["columns"]["Laplacian"]["value"]
    assert noisy[-1] < 0.05  # noise is taken for sharpness


def test_ranks_by_strength_are_their_definition():
    base, worse = np.array([1.0, 2.0, 2.0, 4.0]), np.array([2.0, 5.0, 0.0, 3.0])
    shape = {"unc_a": base, "kappa_b": base}
    steps = [{"unc_a": worse, "kappa_b": worse}] * 5
    degraded = Degraded(np.arange(4), {ORIGINAL: shape}, np.zeros(4), np.zeros(4), {"zoom": steps})
    curves = strength_curves(degraded, repeats=10, seed=0)["zoom"]["columns"]
    more = np.mean(
        [np.mean(base < value) + np.mean(base == value) / 2 for value in worse]
    )  # for unc_a, less is more certain
    assert curves["unc_a"]["value"][1] == pytest.approx(more)
    assert curves["kappa_b"]["value"][1] == pytest.approx(1 - more)


def test_worse_images_scored_by_another_model_than_the_table_are_noted(full_table, tiny_checkpoint):
    settings = {"repeats": 5, "degrade": 20, "device": "cpu"}
    note = "corrupted images were scored by trio, and the table by another model"
    same, other = (evaluate(full_table, model=model, **settings) for model in (tiny_checkpoint, "trio"))
    assert same.caveats.other_model is None
    assert any(note in text for text in other.notes())


def test_worse_images_need_their_source(full_table, tmp_path, tiny_checkpoint):
    settings = {"repeats": 5, "degrade": 20, "device": "cpu"}
    (tmp_path / "other").mkdir()
    from PIL import Image

    Image.new("RGB", (40, 40)).save(tmp_path / "other" / "x.png")
    with pytest.raises(InputError, match="has no image with the key"):
        evaluate(full_table, source=str(tmp_path / "other"), model=tiny_checkpoint, **settings)
    data = pq.read_table(full_table).drop_columns(["uri"])
    pq.write_table(data, tmp_path / "s.parquet")
    with pytest.raises(InputError, match=r"holds no path to .* images; name what was scored with --source"):
        evaluate(tmp_path / "s.parquet", model=tiny_checkpoint, **settings)
