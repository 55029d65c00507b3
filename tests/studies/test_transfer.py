"""The benchmark of transfer runs from end to end on small sets, and its numbers are what slow restatements give."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from sklearn.metrics import average_precision_score, roc_auc_score

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import transfer

pytestmark = pytest.mark.study

ROOT = Path(__file__).parents[2]
PHOTOS = 30


def encoded(pixels):
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def pictures(n, seed, side=24):
    """Images of two classes: coarse squares of two palettes, its own each shade."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 2, n)
    for label in labels:
        small = draw.integers(0, 256, (4, 4, 3)) // (1, 2)[label] + (0, 60)[label] * draw.random()
        yield int(label), encoded(small.clip(0, 255).astype(np.uint8).repeat(side // 4, 0).repeat(side // 4 + 1, 1))


def write(path, n, seed, **columns):
    labels, images = zip(*pictures(n, seed), strict=True)
    pq.write_table(pa.table({"id": range(n), "label": labels, **columns, "image": images}), path)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for seed, name in enumerate(("grocery_160", "monkeys10_160", "rsscn7_160", "cifar10_test", "tinyimagenet_val")):
        write(folder / f"{name}.parquet", 120 if name == "grocery_160" else 60, seed)  # enough to learn from labels
    domains = np.repeat(["photo", "cartoon", "sketch", "art_painting"], 50)
    write(folder / "pacs_160.parquet", 200, 10, domain=domains)
    files = [f"{number:02d}.jpg" for number in range(PHOTOS)]
    write(folder / "caltech_subset.parquet", PHOTOS, 11, file=files)
    with (folder / "caltech_subset_pairs.csv").open("w", newline="") as file:
        rows = [("near_dup", "same", 1, 0), ("near_dup", "flip", 2, 3), ("uncertain", "same", 4, 9)]
        csv.writer(file).writerows([("kind", "orient", "a", "b"), *((k, o, files[a], files[b]) for k, o, a, b in rows)])
    counts = np.random.default_rng(0).multinomial(50, [0.1] * 10, 40)
    pq.write_table(pa.table({"id": range(40), "counts": counts.tolist()}), folder / "cifar10h_test_0-1999.parquet")
    return folder


@pytest.fixture(scope="module")
def done(data, tiny_checkpoint, tmp_path_factory):
    """The numbers of every section, and the folder of scored tables."""
    folder = tmp_path_factory.mktemp("work")
    script = [sys.executable, str(ROOT / "benchmarks" / "transfer.py"), "--data", str(data)]
    options = ["--model", str(tiny_checkpoint), "--work", str(folder / "tables"), "--json", str(folder / "found.json")]
    ran = subprocess.run([*script, *options], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    tables = next((folder / "tables").iterdir())
    return json.loads((folder / "found.json").read_text()), tables, ran.stdout


def embedding_of(tables, start):
    table = pq.read_table(next(path for path in tables.glob(f"{start}-*.parquet") if ".images" not in path.name))
    rows = np.array(table["embedding"].to_pylist(), np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), table


def test_r_auroc_matches_a_loop_over_rows(done):
    record, tables, _ = done
    rows, table = embedding_of(tables, "grocery")
    label = np.array(table["label"].to_pylist())
    middle = rows - rows.mean(0)
    middle /= np.linalg.norm(middle, axis=1, keepdims=True)
    wrong, distance = [], []
    for row in range(len(rows)):
        others = [other for other in range(len(rows)) if other != row]
        wrong.append(label[max(others, key=lambda other: rows[row] @ rows[other])] != label[row])
        distance.append(1 - max(middle[row] @ middle[other] for other in others))
    assert record["Recall@1"]["grocery"]["raw"][0] == pytest.approx(1 - np.mean(wrong), abs=1e-4)
    ours = record["R-AUROC"]["grocery"]["nearest, centred"]
    assert ours[0] == pytest.approx(roc_auc_score(wrong, distance), abs=1e-4)
    assert ours[1] < ours[0] < ours[2]
    score = np.array(table["unc_visimsiam"].to_pylist())
    assert record["R-AUROC"]["grocery"]["unc_visimsiam"][0] == pytest.approx(roc_auc_score(wrong, score), abs=1e-4)


def test_the_mean_is_over_sets_and_its_interval_too(done):
    table = done[0]["R-AUROC"]
    values = [numbers["nearest, raw"][0] for name, numbers in table.items() if name != "mean"]
    assert len(values) == 7
    assert table["mean"]["nearest, raw"][0] == pytest.approx(np.mean(values), abs=2e-4)
    assert table["mean"]["nearest, raw"][1] < np.mean(values) < table["mean"]["nearest, raw"][2]


def test_a_fit_with_labels_is_printed_with_the_probe_and_learns_from_fifty(done):
    ours = done[0]["R-AUROC"]
    assert ours["grocery"]["unc_fitted, 5% labels"] != ours["grocery"]["unc_fitted, 1% labels"]
    gain = done[0]["R-AUROC of unc_fitted"]["grocery"]["5% labels, less probe entropy, 5% labels"]
    parts = [ours["grocery"][f"{name}, 5% labels"][0] for name in ("unc_fitted", "probe entropy")]
    assert gain[0] == pytest.approx(parts[0] - parts[1], abs=2e-4)


def test_average_precision_is_scikit_learns_over_the_pairs_that_count(done):
    record, tables, _ = done
    rows, _ = embedding_of(tables, "caltech_subset")
    a, b = np.triu_indices(PHOTOS, 1)
    counts = ~((a == 4) & (b == 9))
    same = ((a == 0) & (b == 1)) | ((a == 2) & (b == 3))
    expected = average_precision_score(same[counts], (rows[a] * rows[b]).sum(1)[counts])
    ours = record["average precision, near-duplicates"]["Caltech"]["embedding, raw"]
    assert ours[0] == pytest.approx(expected, abs=1e-4)


def test_junk_has_its_share_in_equal_crowds_and_as_many_rows_are_dropped_as_planted(done):
    record, tables, _ = done
    _, table = embedding_of(tables, "grocery_30_junk")
    kinds, counts = np.unique(table["kind"].to_pylist(), return_counts=True)
    crowds = dict(zip(kinds.tolist(), counts.tolist(), strict=True))
    clean = crowds.pop("clean")
    assert clean == 96  # a fifth of 120 is kept for making junk of
    assert len(crowds) == 7
    assert set(crowds.values()) == {round(96 * 0.3 / 0.7 / 7)}
    junk = np.array(table["kind"].to_pylist()) != "clean"
    unc = np.array(table["unc_visimsiam"].to_pylist())
    gone = np.argsort(-unc, kind="stable")[: junk.sum()]
    assert record["junk removed, 30%"]["grocery"]["unc_visimsiam"][0] == pytest.approx(junk[gone].mean(), abs=1e-4)


def test_every_section_prints_a_table_with_random_weights_next_to_the_model(done):
    record, _, printed = done
    assert "random weights, unc_visimsiam" in record["R-AUROC"]["mean"]
    for title in record.keys() - {"model"}:
        assert f"| {title} |" in printed
    assert set(record["less certain: blur"]["mean"]) >= {
        "unc_visimsiam",
        "unc_fitted",
        "nearest, centred",
        "lower Laplacian",
    }
    assert set(record["clean, kept 30%, per class"]["mean"]) == {"unc_fitted", "nearest, centred"}


def test_tables_that_are_there_are_not_scored_again(done, data, tiny_checkpoint):
    tables = done[1]
    before = {path: path.stat().st_mtime_ns for path in tables.glob("*.parquet")}
    script = [sys.executable, str(ROOT / "benchmarks" / "transfer.py"), "--data", str(data), "--only", "people"]
    options = ["--model", str(tiny_checkpoint), "--work", str(tables.parent)]
    again = subprocess.run([*script, *options], cwd=ROOT, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert {path: path.stat().st_mtime_ns for path in tables.glob("*.parquet")} == before


def test_loss_prediction_is_compared_with_every_score_in_whether_annotators_disagree(tmp_path, monkeypatch):
    draw = np.random.default_rng(0)
    disagree, label = np.arange(60) % 2 == 1, torch.arange(60) % 3
    counts = [[9, 1] if each else [10, 0] for each in disagree]
    pq.write_table(
        pa.table({"id": range(60), "counts": counts}), tmp_path / f"{transfer.transfer_people.VOTES}.parquet"
    )
    rows = torch.nn.functional.normalize(torch.randn(60, 4, generator=torch.Generator().manual_seed(0)), dim=1)
    scores = {"unc_losspred": draw.random(60), "nearest, raw": draw.random(60)}
    monkeypatch.setattr(transfer.transfer_people, "in_domain", lambda *_: SimpleNamespace(embedding=rows, label=label))
    monkeypatch.setattr(transfer.transfer_truth, "without_labels", lambda *_: scores)
    *_, table = transfer.people(SimpleNamespace(data=tmp_path, scored=None, limit=None))
    ours = {name: roc_auc_score(disagree, score) for name, score in scores.items()}
    assert table.columns["AUROC"]["unc_losspred"].value == pytest.approx(ours["unc_losspred"])
    less = table.columns["unc_losspred less"]
    assert less["nearest, raw"].value == pytest.approx(ours["unc_losspred"] - ours["nearest, raw"])
    assert transfer.transfer_truth.ALL_LABELS in less
