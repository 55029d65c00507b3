"""The two studies of choosing rows: their parts by definition, and each run on a slice of the real images."""

import io
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import active_learning_cifar10 as labelling
import small_network
import study_data
import study_features
import study_junk
import study_results as results
import subset_training as training

pytestmark = pytest.mark.study

DATA = Path(__file__).parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the folder shared/data next to the repository is absent")


def curves(accuracy, budgets=(10, 100, 1000)):
    return results.curves_of(
        [{"budgets": budgets, "accuracy": reached, "seed": seed} for seed, reached in enumerate(accuracy)]
    )


@pytest.mark.parametrize("count", [2, 5, 11, 40])
def test_half_of_the_interval_is_students(count):
    values = np.random.default_rng(count).normal(3.0, 2.0, (count, 2))
    low, high = stats.t.interval(0.95, count - 1, values.mean(0), stats.sem(values, 0))
    assert results.half_width(values) == pytest.approx((high - low) / 2, rel=2e-3)
    assert np.isnan(results.half_width(values[:1])).all()


def test_a_result_is_made_once_and_another_setting_is_another_result(tmp_path):
    made = []

    def make():
        made.append(1)
        return {"accuracy": [0.5]}

    ledger = results.Ledger(tmp_path, {"pool": 10})
    assert ledger.of("margin + guard x", 0, make) == ledger.of("margin + guard x", 0, make)
    assert len(made) == 1
    assert results.Ledger(tmp_path, {"pool": 20}).known(["margin + guard x"], [0]) == {}
    assert list(ledger.known(["margin + guard x", "auto"], [0])) == ["margin + guard x"]
    assert ledger.known(["margin + guard x"], [0, 1]) == {}  # a seed is missing
    assert not list(tmp_path.glob("*.part"))


def test_a_difference_is_paired_by_seed_and_split_at_a_hundred_labels():
    base = np.array([[0.2, 0.5, 0.8], [0.4, 0.6, 0.7], [0.3, 0.7, 0.9]])
    gain = np.array([[0.1, 0.2, 0.0], [0.2, 0.2, 0.0], [0.3, 0.2, 0.0]])
    comparison = results.against(curves(base + gain), curves(base))
    assert comparison.difference == pytest.approx([0.2, 0.2, 0.0])
    assert comparison.low[0] == pytest.approx(0.2)
    assert comparison.low[1] == pytest.approx(4.303 * np.std([0.15, 0.2, 0.25], ddof=1) / 3**0.5)
    assert comparison.high == pytest.approx((0.0, 0.0))
    assert comparison.p == pytest.approx(0.25)  # 2 of the 8 choices of signs reach it


def test_advice_names_the_best_what_is_alike_and_what_does_harm():
    noise = np.array([[0.0, 0.01, 0.0], [0.01, 0.0, 0.01], [0.0, 0.0, 0.01]])
    base, early = 0.5 + noise, np.array([0.2, 0.1, 0.0])
    by_name = {
        "random": curves(base),
        "auto": curves(base + early),
        "herding": curves(base + early + noise[::-1] / 2),
        "margin": curves(base + np.array([0.0, -0.1, 0.1])),
    }
    low, high, harm, default = results.advice(by_name)
    assert low.startswith("- To 100 labels `herding` is best, +15.")
    assert "interval of it: auto" in low
    assert high.startswith("- Beyond `margin` is best, +10.0 ±0.0 points over random; nothing")
    assert harm == "- Below random by more than the interval somewhere: `margin` (-10.0 ±0.0 at 100)."
    assert default == "- `auto` beats random by more than the interval at 10, 100, and loses by more than it at none."


def test_tables_are_markdown_with_a_cell_for_each_budget():
    by_name = {"random": curves([[0.1, 0.2, 0.3], [0.3, 0.2, 0.3]]), "auto": curves([[0.2, 0.3, 0.4], [0.4, 0.3, 0.4]])}
    assert results.accuracy_table(by_name)[2] == "| random | 20.0 ±127.1 | 20.0 ±0.0 | 30.0 ±0.0 |"
    last = results.against_table(by_name)[2]
    assert last.split(" | ")[1:5] == ["+10.0 ±0.0", "+10.0 ±0.0", "+10.0 ±0.0", "0.50"]


def test_a_guarded_loss_counts_from_the_plain_accuracy_without_junk():
    def run(*accuracy):
        return [{"budgets": [10, 100], "accuracy": [0.5, last], "seed": seed} for seed, last in enumerate(accuracy)]

    clean = {"margin": run(0.8, 0.9), "margin + guard k": run(0.79, 0.89)}
    by_name = {"margin": run(0.7, 0.7), "margin + guard k": run(0.78, 0.88)}
    plain, guarded = study_junk.loss_table(by_name, clean, ["margin"])[2:]
    assert plain.split(" | ")[1] == "+15.0 ±63.5"  # losses of 10 and 20: 12.706 x 7.07 / sqrt 2
    assert guarded.split(" | ")[1:5] == ["+2.0 ±0.0", "13 %", "-1.0 ±12.7", "-1.0 ±0.0"]  # 2 - 10 / 5 and 2 - 20 / 5
    (said,) = study_junk.junk_advice({**by_name, "margin + gate k": run(0.6, 0.7)}, clean, ["margin"])
    assert said.startswith("- `margin` loses 15.0 points to junk, `margin + guard k` 2.0 (13 % of it)")
    assert said.endswith("worse than no guard: `margin + gate k`.")


def picture(size=32):
    """Return blocks of 2 x 2 pixels in colours drawn at random."""
    blocks = np.random.default_rng(9).integers(0, 256, (size // 2, size // 2, 3), np.uint8)
    stored = io.BytesIO()
    Image.fromarray(blocks.repeat(2, 0).repeat(2, 1)).save(stored, "PNG")
    return stored.getvalue()


def roughness(pixels):
    return np.abs(np.diff(pixels, axis=1)).mean()


@pytest.mark.parametrize("kind", study_data.JUNK)
def test_junk_keeps_the_size_and_loses_the_image(kind):
    before = np.asarray(Image.open(io.BytesIO(picture())), float)
    spoilt = Image.open(io.BytesIO(study_data.spoilt(picture(), kind, np.random.default_rng(0))))
    assert spoilt.size == (32, 32)
    after = np.asarray(spoilt, float)
    if kind == "noise":
        assert abs(np.corrcoef(before.ravel(), after.ravel())[0, 1]) < 0.2
        assert after.std() > 40
    elif kind == "box":
        assert (np.abs(after.mean(2) - 127) < 10).mean() > 0.6
    else:
        assert roughness(after) < roughness(before) / 3
    with pytest.raises(ValueError, match="one of noise, blur"):
        study_data.spoilt(picture(), "dust", np.random.default_rng(0))


def scored(n=200, width=6, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, n)
    vectors = rng.normal(size=(n, width)) + 2 * np.eye(3, width)[labels]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    names = ("worse_label", "random_label1", "random_label2", "random_label3")
    columns = {"label": labels, "unc_losspred": rng.random(n, np.float32), "kappa_mcinfonce": rng.random(n, np.float32)}
    columns |= {"unc_mcinfonce": 1 / columns["kappa_mcinfonce"]}
    return study_data.Scored(
        vectors.astype(np.float16), columns | {name: (labels + at) % 3 for at, name in enumerate(names)}
    )


def test_quality_is_a_rank_by_the_direction_of_the_column():
    rows = scored()
    assert rows.certainty_columns == ["kappa_mcinfonce", "unc_losspred"]
    assert rows.quality("kappa_mcinfonce").argmax() == rows.columns["kappa_mcinfonce"].argmax()
    assert rows.quality("unc_losspred").argmax() == rows.columns["unc_losspred"].argmin()
    assert np.sort(rows.quality("unc_losspred")) == pytest.approx((np.arange(200) + 0.5) / 200)


def test_pools_with_and_without_junk_hold_the_same_rows():
    pool, bad = scored(), study_data.junk_rows(200)
    junk = scored(len(bad), seed=1)
    clean, none = labelling.draw_pool(labelling.Pictures(pool, pool, None), 100, 3)
    spoilt, is_junk = labelling.draw_pool(labelling.Pictures(pool, pool, junk), 100, 3)
    assert not none.any()
    assert is_junk.sum() == 20
    assert np.array_equal(clean.vectors[~is_junk], spoilt.vectors[~is_junk])
    assert np.array_equal(clean.columns["label"], spoilt.columns["label"])  # the annotator's, of the image it was
    assert set(map(bytes, spoilt.vectors[is_junk])) <= set(map(bytes, junk.vectors))
    assert not np.array_equal(
        clean.vectors, labelling.draw_pool(labelling.Pictures(pool, pool, None), 100, 4)[0].vectors
    )


def test_one_of_three_annotators_answers_for_each_row():
    rows = scored()
    labels = labelling.annotator(rows, "random", 0)
    said = np.stack([rows.columns[f"random_label{number}"] for number in (1, 2, 3)])
    assert ((said == labels).sum(0) >= 1).all()
    assert 0.25 < (labels == said[0]).mean() < 0.45
    assert np.array_equal(labelling.annotator(rows, "worse", 0), rows.columns["worse_label"])
    assert labelling.annotator(rows, None, 0) is None


def test_principal_directions_match_the_singular_values():
    rows = np.random.default_rng(0).normal(size=(50, 5)) * [1, 9, 3, 0.1, 5]
    turn = study_features.principal(rows, 2)
    expected = np.linalg.svd(rows - rows.mean(0))[2][:2]
    assert np.abs(turn.T @ expected.T) == pytest.approx(np.eye(2), abs=1e-6)


def test_the_most_certain_rows_come_first_and_by_class_the_classes_take_turns():
    rows = scored()
    pool = labelling.Pool(np.arange(200), vectors=rows.vectors, labels=rows.columns["label"])
    drawn = training.Drawn(np.arange(200), pool, rows, rows.vectors, rows.vectors, 3)
    first = training.kept_first(drawn, "unc_losspred")
    assert np.array_equal(first, np.argsort(rows.columns["unc_losspred"]))
    turns = training.kept_first(drawn, "kappa_mcinfonce by class")
    kappa, labels = rows.columns["kappa_mcinfonce"], rows.columns["label"]
    assert sorted(labels[turns[:30]]) == [0] * 10 + [1] * 10 + [2] * 10
    for label in range(3):
        mine = turns[labels[turns] == label]
        assert (np.diff(kappa[mine]) <= 0).all()


def test_a_small_network_learns_colours_and_the_same_seed_learns_the_same():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 2, (120,), generator=generator)
    images = torch.randint(0, 90, (120, 3, 32, 32), generator=generator, dtype=torch.uint8)
    images[labels == 1, 0] += 150
    known = labels.numpy()
    runs = [
        small_network.accuracy_of_network((images[:80], images[80:]), (known[:80], known[80:]), 0, 12, "cpu")
        for _ in range(2)
    ]
    assert runs[0] == runs[1] >= 0.9


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return tmp_path_factory.mktemp("study")


def small_run(work):
    """What a study of few images is run with."""
    few = {
        "--data": str(DATA),
        "--work": str(work),
        "--limit": "120",
        "--pool": "80",
        "--seeds": "2",
        "--features": "16",
    }
    return [word for option in few.items() for word in option]


@needs_data
def test_the_labelling_study_runs_resumes_and_prints_what_follows(work, capsys):
    typed = small_run(work)
    typed += ["--budgets", "10", "30", "60", "--strategies", "random", "auto", "margin"]
    labelling.main(typed)
    said = capsys.readouterr().out
    assert "| labels | 10 | 30 | 60 |" in said
    assert "- To 100 labels `" in said
    assert "- `small-loss`: needs the labels" in said
    assert len(list((work / "results").iterdir())) == 6
    assert (work / "curves-clean-low.png").exists()
    labelling.main([*typed, "--print"])
    again = capsys.readouterr().out
    assert "seed 0" not in again
    assert again.split("Accuracy")[1] == said.split("Accuracy")[1]
    few = [*typed[: typed.index("--strategies") + 1], "random", "margin"]
    labelling.main([*few, "--seeds", "1", "--noisy", "worse"])
    assert "Accuracy in percent" in capsys.readouterr().out
    labelling.main([*few, "margin + guard unc_losspred", "--junk"])
    said = capsys.readouterr().out
    assert "| unc_losspred | " in said.split("AUROC")[1]
    assert "| margin + guard unc_losspred | " in said.split("Points lost")[1]


@needs_data
def test_the_training_study_runs_and_reports_how_many_labels_are_wrong(work, capsys):
    typed = small_run(work)
    names = ["random", "stratified", "auto + guard unc_losspred", "small-loss", "keep-top kappa_visimsiam", "all"]
    training.main([*typed, "--shares", "0.2", "0.5", "--strategies", *names])
    said = capsys.readouterr().out
    assert "| labels | 16 | 40 |" in said
    assert "All 80 rows: " in said
    wrong = next(line for line in said.splitlines() if line.startswith("| all | "))
    table = pq.read_table(work / "pool.parquet", columns=["label", "worse_label"])
    share = 100 * (table.column("label").to_numpy() != table.column("worse_label").to_numpy()).mean()
    assert float(wrong.split(" | ")[1].rstrip(" |")) == pytest.approx(share, abs=9)  # of 80 of these 120 rows
    training.main([*typed, "--network", "--steps", "3", "--shares", "0.2", "--strategies", "random"])
    assert "| labels | 16 |" in capsys.readouterr().out


@needs_data
def test_a_strategy_that_does_not_exist_is_reported(work):
    typed = [
        "--data",
        str(DATA),
        "--work",
        str(work),
        "--limit",
        "120",
        "--pool",
        "80",
        "--seeds",
        "1",
        "--features",
        "16",
    ]
    with pytest.raises(SystemExit, match="unknown strategy 'margn'"):
        labelling.main([*typed, "--budgets", "10", "--strategies", "margn"])
    with pytest.raises(SystemExit, match="unknown strategy 'margn'"):
        training.main([*typed, "--strategies", "margn"])


def test_an_image_that_cannot_be_scored_stops_a_study(tmp_path):
    table = pa.table({"key": ["a"], "image": pa.array([b"no image"], pa.binary())})
    pq.write_table(table, tmp_path / "source.parquet")
    with pytest.raises(SystemExit, match="1 of 1 images"):
        study_data.scored(tmp_path / "source.parquet", tmp_path / "out.parquet")
