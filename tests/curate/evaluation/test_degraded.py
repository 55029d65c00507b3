"""Worse versions of images, scored and ranked next to them as they are."""

from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
import torch
from test_evaluate import measure

from curate.evaluation import degraded
from curate.evaluation.run import evaluate
from scoring.errors import InputError


@pytest.mark.parametrize("by", ["uri", "source"])
def test_corrupted_images_are_scored_by_the_model_and_counted(full_table, folder, tiny_checkpoint, by):
    source = str(folder) if by == "source" else None
    settings = {"repeats": 20, "degrade": 20, "device": "cpu"}
    evaluation = evaluate(full_table, source=source, model=tiny_checkpoint, **settings)
    names = {each.name for each in evaluation.measures}
    kinds = ("crop", "blur", "noise", "grey box", "centre crop")
    assert {f"less certain: {kind}" for kind in kinds} <= names
    assert {"Spearman, crop size", "mean, greyscale", "mean, colour jitter", "mean, random crop"} <= names
    assert measure(evaluation, "less certain: blur").values["Laplacian"].value > 0.9
    assert measure(evaluation, "less certain: noise").n == 20


def test_corrupted_images_are_measured_by_the_chosen_columns_of_the_model(full_table, tiny_checkpoint):
    settings = {"model": tiny_checkpoint, "repeats": 5, "degrade": 20, "device": "cpu"}
    evaluation = evaluate(full_table, column=["kappa_visimsiam"], **settings)
    assert set(measure(evaluation, "less certain: blur").values) == {"kappa_visimsiam", "Laplacian"}
    with pytest.raises(InputError, match="--column quality_contrast"):
        evaluate(full_table, column=["quality_contrast"], **settings)


def test_corrupted_images_scored_by_another_model_than_the_table_are_noted(full_table, tiny_checkpoint):
    settings = {"repeats": 5, "degrade": 20, "device": "cpu"}
    note = "corrupted images were scored by trio, and the table by another model"
    same, other = (evaluate(full_table, model=model, **settings) for model in (tiny_checkpoint, "trio"))
    assert same.caveats.other_model is None
    assert any(note in text for text in other.notes())


def test_corrupted_images_need_their_source(full_table, tmp_path, tiny_checkpoint):
    settings = {"repeats": 5, "degrade": 20, "device": "cpu"}
    (tmp_path / "other").mkdir()
    from PIL import Image

    Image.new("RGB", (40, 40)).save(tmp_path / "other" / "x.png")
    with pytest.raises(InputError, match="no image with"):
        evaluate(full_table, source=str(tmp_path / "other"), model=tiny_checkpoint, **settings)
    data = pq.read_table(full_table).drop_columns(["uri"])
    pq.write_table(data, tmp_path / "s.parquet")
    with pytest.raises(InputError, match=r"no path.* --source"):
        evaluate(tmp_path / "s.parquet", model=tiny_checkpoint, **settings)


def test_images_of_several_sizes_go_through_the_model_together():
    seen = []

    class Network:
        def submit(self, pixels):
            seen.append(len(pixels))
            scores = SimpleNamespace(embedding=pixels[:, 0, 0], columns={"unc_light": pixels.mean((1, 2, 3))})
            return SimpleNamespace(result=lambda: scores)

    sizes = [(1, 40), (2, 64), (1, 50), (80, 8), (1, 32)]
    versions = [torch.full((n, 3, side, side), float(side)) for n, side in sizes]
    scored = list(degraded.embedded(Network(), iter(versions), 32))
    assert seen == [84, 1]
    assert [columns["unc_light"].tolist() for _, _, columns in scored] == [[side] * n for n, side in sizes]
