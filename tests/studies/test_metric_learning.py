"""The study of metric learning: its measures against slow restatements, and a run of it on a few images."""

import io
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.stats
import torch
from PIL import Image
from sklearn.metrics import roc_auc_score

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import metric_data as data
import metric_learning as study
import metric_measures as measures
import metric_tables as tables

from scoring.checkpoint import load_model

pytestmark = pytest.mark.study

SMALL = ["--epochs", "2", "--batch-size", "8", "--latent-dim", "8", "--worse", "30", "--seeds", "2", "--lr", "1e-3"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Images of six classes, coarse squares of six shades, under the name of a data set."""
    draw, out = np.random.default_rng(0), tmp_path_factory.mktemp("data")
    labels, images = np.arange(60) % 6, []
    for label in labels:
        small = draw.integers(0, 120, (4, 4, 3)) + 27 * np.array([label % 2, label // 2 % 2, label // 4]) * 4
        stored = io.BytesIO()
        Image.fromarray(small.clip(0, 255).astype(np.uint8).repeat(8, 0).repeat(8, 1)).save(stored, "PNG")
        images.append(stored.getvalue())
    pq.write_table(pa.table({"image": images, "label": labels}), out / "grocery_160.parquet")
    return out


@pytest.fixture(scope="module")
def told(folder, tmp_path_factory):
    return ["--data", str(folder), "--datasets", "grocery", "--work", str(tmp_path_factory.mktemp("work")), *SMALL]


def test_a_study_runs_goes_on_and_prints_the_same(told, capsys, monkeypatch):
    study.main(told)
    first = capsys.readouterr().out
    first = first[first.index("grocery 0 ") :]  # before it, how features are made
    for name in study.VARIANTS:
        assert f"| {name} | " in first
    assert "| EL-nivMF less ProxyNCA++ | " in first
    monkeypatch.setattr(study, "train", None)  # nothing is trained again
    study.main(told)
    assert capsys.readouterr().out == first
    study.main([*told, "--print"])
    assert capsys.readouterr().out == first[first.index("\n## ") :]


def test_classes_to_learn_from_are_never_measured_and_a_seed_draws_them_for_all(folder, told):
    model, _ = load_model("world")
    dataset = data.load_dataset(folder, "grocery", Path(told[5]), model, worse=30)
    learn, held = dataset.split(0)
    assert learn.n + len(held) == 60
    known = {dataset.cache.classes[label] for label in dataset.labels[learn.rows].tolist()}
    assert known == set(learn.classes)
    assert not known & {dataset.cache.classes[label] for label in dataset.labels[held].tolist()}
    assert [learn.classes[at] for at in learn.labels.tolist()] == [
        dataset.cache.classes[at] for at in dataset.labels[learn.rows].tolist()
    ]
    assert torch.equal(learn.epoch(1), dataset.cache.epoch(1)[learn.rows])
    assert any(not torch.equal(held, dataset.split(seed)[1]) for seed in (1, 2))
    assert (dataset.worse.strength["crop"] >= 0).all()
    assert dataset.worse.features["blur"].shape == (30, model.width)


def test_recall_by_distance_and_certainty_are_their_definitions():
    generator = torch.Generator().manual_seed(0)
    vectors, labels = torch.randn(40, 5, generator=generator), torch.arange(40) % 4
    far = torch.cdist(vectors.double(), vectors.double()).fill_diagonal_(9e9)
    assert measures.euclidean_recall(vectors, labels) == pytest.approx(
        float((labels[far.argmin(1)] == labels).double().mean())
    )
    rows = torch.arange(40) % 2 == 0
    lengths = {kind: torch.rand(40, generator=generator) for kind in ("", "blur")}
    strength = torch.rand(40, generator=generator).double().numpy()
    sharp = np.where(np.arange(40) < 4, np.nan, strength)
    worse = data.Worse(torch.arange(40), {}, {"blur": strength}, {"sharpness": sharp})
    measured = measures.certainty(vectors, labels, lengths, worse, rows)
    units = torch.nn.functional.normalize(vectors, dim=1).double()
    right = labels[(units @ units.T).fill_diagonal_(-9).argmax(1)] == labels
    assert measured["R-AUROC"] == pytest.approx(roc_auc_score(right, vectors.norm(dim=1)))
    even = rows.numpy()
    spearman = scipy.stats.spearmanr(lengths["blur"].numpy()[even], strength[even]).statistic
    assert measured["blur, Spearman"] == pytest.approx(spearman)
    assert measured["blur, shorter"] == pytest.approx((lengths["blur"] < lengths[""])[rows].double().mean().item())
    is_known = even & ~np.isnan(sharp)
    spearman = scipy.stats.spearmanr(lengths[""].numpy()[is_known], sharp[is_known]).statistic
    assert measured["quality sharpness"] == pytest.approx(spearman)


def test_differences_are_paired_by_seed():
    first = [dict.fromkeys(tables.RETRIEVAL, value) for value in (0.5, 0.7)]
    other = [dict.fromkeys(tables.RETRIEVAL, value) for value in (0.4, 0.6)]
    lines = tables.differences({"EL-nivMF": first, "ProxyNCA++": other})
    assert lines[2].startswith("| EL-nivMF less ProxyNCA++ | +10.0 ±0.0 |")


def test_a_setting_that_does_not_exist_is_reported_before_anything_is_run(folder, tmp_path):
    with pytest.raises(SystemExit, match="no parameter 'colour'"):
        study.main(
            ["--data", str(folder), "--datasets", "grocery", "--work", str(tmp_path / "w"), "--add", "nivmf colour=3"]
        )
    assert not (tmp_path / "w" / "results").exists()
