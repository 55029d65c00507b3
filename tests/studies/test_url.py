"""The URL benchmark: its measures against slow restatements, and a run of it on a few images."""

import csv
import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import url
import url_baselines
import url_costs
import url_data
import url_estimators
import url_figures
import url_measures
import url_tables
import url_trunks
import url_tuned

from scoring.errors import InputError

pytestmark = pytest.mark.study

DOMAINS = ("photo", "cartoon", "sketch", "art_painting")


def picture(colour, generator, side=20):
    pixels = generator.integers(0, 156, (5, 5, 3), np.uint8)
    pixels[:, :, colour % 3] += np.uint8(15 * (colour // 3))
    stored = io.BytesIO()
    Image.fromarray(pixels).resize((side, side)).save(stored, "PNG")
    return stored.getvalue()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Small files under the names of the real ones: colours are classes."""
    folder, generator = tmp_path_factory.mktemp("data"), np.random.default_rng(0)

    def write(name, classes, each, **more):
        label = np.repeat(np.arange(classes), each)
        columns = {"id": np.arange(len(label)), "label": label.astype(np.int16)}
        columns["image"] = [picture(class_, generator) for class_ in label]
        pq.write_table(
            pa.table(columns | {key: make(len(label)) for key, make in more.items()}), folder / f"{name}.parquet"
        )

    for name in url_data.UPSTREAM:
        write(name, 20, 4)
    write(url_data.HELD_OUT, 20, 8)
    for name in ("caltech_subset", "grocery_160", "monkeys10_160", "rsscn7_160"):
        write(name, 3, 12)
    write("pacs_160", 3, 32, domain=lambda n: [DOMAINS[row % 4] for row in range(n)])
    write(url_data.PEOPLE, 10, 3)
    drawn = generator.integers(0, 9, (24, 10))
    drawn[:, 0] += 1
    drawn[::2, 1:] = 0  # annotators who agree
    counts = pa.array(drawn.tolist())
    pq.write_table(pa.table({"id": np.arange(24), "counts": counts}), folder / f"{url_data.VOTES}.parquet")
    return folder


def typed(data, work, *more):
    small = [
        "--seeds",
        "2",
        "--epochs",
        "1",
        "--views",
        "2",
        "--per-class",
        "16",
        "--shots",
        "2",
        "--trunk-epochs",
        "20",
    ]
    return [
        "--data",
        str(data),
        "--work",
        str(work),
        "--trunks",
        "upstream",
        *small,
        "--size",
        "32",
        "--backbone",
        "test_resnet",
        *more,
    ]


def test_the_benchmark_runs_resumes_and_gives_the_same(data, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(url_estimators, "FEW_STEPS", 2)
    monkeypatch.setattr(url_measures, "REPEATS", 20)
    out = tmp_path / "results.jsonl"
    few = {name: url_estimators.ESTIMATORS[name] for name in ("CE", "InfoNCE", "nivMF", "loss prediction, ranks")}
    monkeypatch.setattr(url_estimators, "ESTIMATORS", few)
    arguments = typed(data, tmp_path / "work", "--estimators", *few, "--out", str(out))
    url.main(arguments)
    tables = capsys.readouterr().out.split("\n## ", 1)[1]
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(result["name"], result["seed"]) for result in lines] == [
        *((f"upstream {name}", seed) for name in few for seed in range(2)),
        *((f"upstream {name}", seed) for name in url.BASELINES for seed in range(2 if name == "chance level" else 1)),
    ]
    by_name = {(result["name"].removeprefix("upstream "), result["seed"]): result["measures"] for result in lines}
    assert set(by_name["CE", 0]) == {"R-AUROC", "crop", "votes", "disagree", "OOD", "mixed", "few", "few, before"}
    mean = np.mean([np.mean([by_name["CE", seed]["OOD"][name] for name in url_data.DOWNSTREAM]) for seed in range(2)])
    row = next(line for line in tables.splitlines() if line.startswith("| CE |"))
    assert row.split("|")[7].split()[0] == url_tables.number(mean)
    assert not list((tmp_path / "work" / "results").glob("*.state"))
    monkeypatch.setattr(url_estimators, "train", None)  # nothing is trained again
    url.main(arguments)
    assert capsys.readouterr().out.split("\n## ", 1)[1] == tables
    with pytest.raises(SystemExit, match="images of other amounts"):
        url.main([*arguments, "--shots", "3"])


def test_upstream_is_cut_by_class_and_no_held_out_image_is_trained_on(data, tmp_path):
    parts = url_data.class_parts(np.repeat(np.arange(200), 3))
    assert [len(part) for part in parts] == [140, 30, 30]
    assert sorted(np.concatenate(parts)) == list(range(200))
    assert all((first == two).all() for first, two in zip(parts, url_data.class_parts(np.arange(200)), strict=True))
    for file in data.iterdir():
        (tmp_path / file.name).symlink_to(file)
    first = pq.read_table(data / f"{url_data.UPSTREAM[0]}.parquet")
    stolen = pq.read_table(data / f"{url_data.HELD_OUT}.parquet")["image"][0].as_py()
    images = [stolen if row % 4 == 0 else image for row, image in enumerate(first["image"].to_pylist())]
    (tmp_path / f"{url_data.UPSTREAM[0]}.parquet").unlink()
    pq.write_table(
        first.drop_columns("image").append_column("image", pa.array(images)),
        tmp_path / f"{url_data.UPSTREAM[0]}.parquet",
    )
    pictures = url_data.upstream(tmp_path, per_class=None)
    assert stolen not in pictures.images
    assert sorted(set(pictures.labels)) == [f"seen/{number:04d}" for number in url_data.class_parts(np.arange(20))[0]]
    assert len(pictures.labels) == 14 * (3 + 4 + 4)
    assert np.unique(url_data.upstream(tmp_path, per_class=5).labels, return_counts=True)[1].tolist() == [5] * 14


def test_a_crop_is_the_middle_and_shots_are_of_every_class(data):
    image = picture(0, np.random.default_rng(1), side=21)
    pixels = np.array(Image.open(io.BytesIO(image)))
    crop = np.array(Image.open(io.BytesIO(url_data.middle(image, 0.5))))
    assert (crop == pixels[5:15, 5:15]).all()  # of 21 half is 10 (to even)
    pictures = url_data.measured(data, 3000)
    some = url_data.shots(pictures, url_data.Amounts(shots=2, seeds=2))
    assert len(some.keys) == len(set(some.keys)) == 2 * 4 * 3 * 2
    images = dict(zip(pictures.keys, pictures.images, strict=True))
    assert all(images[key.split("/", 1)[1]] == image for key, image in zip(some.keys, some.images, strict=True))


def toy(n=40, seed=0):
    """Two sets downstream and one upstream, with a few crops and votes."""
    generator = np.random.default_rng(seed)
    names = [*url_data.DOWNSTREAM, url_data.SEEN, url_data.UNSEEN, url_data.CHOOSING, url_data.VOTED]
    keys = [f"{name}/file/{row}" for name in names for row in range(n)]
    labels = torch.tensor([4 * at + row % 4 for at in range(len(names)) for row in range(n)])
    features = torch.from_numpy(generator.normal(size=(len(keys), 6))).float()
    crops = np.flatnonzero([key.split("/")[0] in (url_data.UNSEEN, *url_data.DOWNSTREAM) for key in keys])
    few = {(0, name): at * n + np.arange(4) for at, name in enumerate(names) if name in url_tables.few_sets()}
    return url_measures.Measured(
        keys,
        features,
        url_measures.unit(features),
        labels,
        features[crops] + 1,
        crops,
        generator.random((n, 10)) * (np.arange(n)[:, None] % 2 + np.eye(10)[np.arange(n) % 10] > 0),
        few,
        [],
    )


def slow_auroc(said, target):
    """Count pairs, ties as half."""
    pairs = [(uncertain > other) + (uncertain == other) / 2 for uncertain in said[target] for other in said[~target]]
    return float(np.mean(pairs))


@pytest.mark.parametrize("rounded", [False, True])
def test_answers_are_measured_as_defined_on_written_out_resamples(rounded, monkeypatch):
    monkeypatch.setattr(url_measures, "REPEATS", 2)
    measured, generator = toy(), np.random.default_rng(1)
    counts = url_measures.resampled(measured)
    answers = {dataset: generator.normal(size=len(rows)) for dataset, rows in measured.datasets.items()}
    answers |= {
        f"{dataset}, crops": generator.normal(size=len(measured.crops_in(dataset))) for dataset in measured.sets
    }
    answers |= {f"{dataset}, few": generator.normal(size=36) for dataset in url_tables.few_sets()}
    if rounded:  # so that many tie
        answers = {dataset: said.round() for dataset, said in answers.items()}
    embedding = measured.embedding.double()
    for question in url_measures.questions(measured, 0):
        values = question.values(answers, counts)
        vectors = embedding[question.rows]
        near = (vectors @ vectors.T).fill_diagonal_(-2).argmax(1)
        wrong = (measured.labels[question.rows][near] != measured.labels[question.rows]).numpy()
        for value, line in zip(values, counts, strict=True):
            rows = np.repeat(np.arange(len(question.rows)), line[question.rows])
            said = answers[question.dataset] if question.within is None else answers[question.dataset][question.within]
            if question.measure == "crop":
                slow = float((answers[f"{question.dataset}, crops"] > said)[rows].mean())
            elif question.measure == "votes":
                share = measured.votes / measured.votes.sum(1, keepdims=True)
                slow = stats.spearmanr(said[rows], stats.entropy(share, axis=1)[rows]).statistic
            elif question.measure == "disagree":
                slow = slow_auroc(said[rows], np.array([len(set(np.flatnonzero(v))) > 1 for v in measured.votes])[rows])
            else:
                is_down = np.array([measured.keys[row].split("/")[0] == question.of for row in question.rows])
                slow = slow_auroc(said[rows], (is_down if question.measure == "OOD" else wrong)[rows])
            assert value == pytest.approx(slow, abs=1e-9), (question.measure, question.of)


def test_mixes_hold_as_many_of_either_kind_and_resamples_keep_to_their_set():
    measured = toy()
    for name in url_data.DOWNSTREAM:
        rows = measured.datasets[url_measures.mix_of(name)]
        kinds = [measured.keys[row].split("/")[0] for row in rows]
        assert sorted(set(kinds)) == sorted({name, url_data.SEEN})
        assert kinds.count(name) == kinds.count(url_data.SEEN) == 40
    counts = url_measures.resampled(measured)
    assert (counts[0] == 1).all()
    assert all((counts[:, rows].sum(1) == len(rows)).all() for rows in measured.sets.values())


def test_an_uncertainty_that_is_not_a_number_is_refused():
    measured = toy()
    question = url_measures.questions(measured, 0)[0]
    with pytest.raises(SystemExit, match="not a number"):
        question.values({question.dataset: np.full(40, np.nan)}, np.ones((1, len(measured.keys)), np.int32))


def test_a_crop_is_as_far_as_the_nearest_image_that_it_is_not_of():
    measured = toy()
    model = torch.nn.Module()
    model.embed = url_measures.unit  # type: ignore[assignment]
    known = url_baselines.Known(model, measured, None)
    rows = measured.sets["Caltech"]
    crops = measured.crops_in("Caltech")
    full, parts = url_baselines.alone(known, rows, crops, 0)
    mean = measured.embedding[rows].mean(0)
    middle = url_measures.unit(measured.embedding[rows] - mean).double()
    of_crops = url_measures.unit(url_measures.unit(measured.crops[crops]) - mean).double()
    for at in range(len(rows)):
        others = np.delete(np.arange(len(rows)), at)
        assert full[at] == pytest.approx(float(1 - (middle[others] @ middle[at]).max()), abs=1e-5)
        place = int(np.flatnonzero(measured.crop_rows[crops] == rows[at])[0])
        assert parts[place] == pytest.approx(float(1 - (middle[others] @ of_crops[place]).max()), abs=1e-5)


def test_what_is_chosen_is_best_on_the_classes_for_choosing_alone(tmp_path, monkeypatch):
    measured = toy()
    rows = measured.sets[url_data.CHOOSING]
    good = measured.mistaken(rows).astype(float)
    bench = url.Bench(None, url_trunks.Backbone("t", "t", tmp_path), None, None, measured, url.Ledger(tmp_path, {}))
    said = {0: -good, 1: good, 2: np.zeros(len(good))}
    monkeypatch.setattr(url.Bench, "fit", lambda self, name, candidate, seed: (candidate, seed))
    calls = []

    def answer(self, name, candidate, fitted, features):
        calls.append((fitted[1], len(features)))
        return said[candidate["kappa_pos"]]

    monkeypatch.setattr(url.Bench, "said", answer)
    candidates = tuple({"kappa_pos": value} for value in said)
    monkeypatch.setitem(url.ESTIMATORS, "InfoNCE", replace(url.ESTIMATORS["InfoNCE"], candidates=candidates))
    assert bench.chosen("InfoNCE") == {"kappa_pos": 1}
    assert calls == [(url.TRIAL, len(rows))] * 3
    assert bench.chosen("InfoNCE") == {"kappa_pos": 1}
    assert len(calls) == 3  # kept


def test_a_mean_is_over_seeds_and_sets_and_its_interval_draws_seeds_too():
    values = {("R-AUROC", name): np.full((3, 5), at) + np.arange(3)[:, None] for at, name in enumerate("ab")}
    drawn = np.array([[0, 0, 0], [1, 1, 1], [2, 2, 2], [0, 1, 2]])
    samples = url_tables.Samples(values, drawn)
    assert samples.of("R-AUROC", "ab").tolist() == [1.5, 0.5, 1.5, 2.5, 1.5]
    assert samples.of("R-AUROC", "abc") is None
    assert samples.by_seed("R-AUROC", "ab").tolist() == [0.5, 1.5, 2.5]
    alone = url_tables.Samples({("R-AUROC", "a"): np.arange(5.0)[None]}, drawn)  # a baseline without seeds
    assert alone.of("R-AUROC", "a").tolist() == [0, 1, 2, 3, 4]


def test_going_on_takes_over_what_fits_and_leaves_the_first_as_it_was():
    old, new = (torch.nn.ModuleDict({"a": torch.nn.Linear(3, 2), "b": torch.nn.Linear(3, n)}) for n in (4, 5))
    before = {name: value.clone() for name, value in old.state_dict().items()}
    url_estimators.take_over(old, new)
    assert torch.equal(new["a"].weight, old["a"].weight)
    with torch.no_grad():
        new["a"].weight.add_(1)
    assert all(torch.equal(value, before[name]) for name, value in old.state_dict().items())


def test_the_image_alone_counts_in_the_better_direction():
    sets, drawn = list(url_data.DOWNSTREAM), np.zeros((4, 1), np.int64)

    def reached(value):
        return url_tables.Samples({("R-AUROC", name): np.full((1, 5), value) for name in sets}, drawn)

    by_name = {"CE": reached(0.55), "fewer bytes a pixel": reached(0.42), "less sharp": reached(0.54)}
    name, samples = url_tables.best_of_pictures(by_name)
    assert (name, samples[0]) == ("fewer bytes a pixel, turned round", pytest.approx(0.58))
    row = url_tables.ahead_table(by_name | {"unc_fitted": reached(0.7)})[-1]
    assert row == "| CE | +.050 [+.050, +.050] | -.030 [-.030, -.030] | -.150 [-.150, -.150] |"


def test_variants_are_compared_with_the_first_of_their_estimator_on_the_same_resamples(monkeypatch):
    known = dict(url_estimators.ESTIMATORS)
    monkeypatch.setattr(url_tables, "ESTIMATORS", known)
    drawn, noise = np.zeros((4, 1), np.int64), np.array([[0, 0.1, 0.2, 0.3, 0.4]])
    names = ["HIB: samples=3", "CE", "HIB: samples=5"]
    known |= dict.fromkeys(names, known["HIB"])
    by_name = {
        name: url_tables.Samples({("R-AUROC", each): value + noise for each in url_data.DOWNSTREAM}, drawn)
        for name, value in zip(names, (0.5, 0.6, 0.52), strict=True)
    }
    assert url_tables.variants_table(by_name)[2:] == ["| HIB: samples=5 | +.020 [+.020, +.020] |  |"]
    assert url_tables.variants_table({"CE": by_name["CE"]}) == []


def test_the_figure_is_of_trained_estimators_and_their_rank_correlations(tmp_path, monkeypatch):
    table = Path(__file__).parents[2] / "docs" / "studies" / "data" / "url-world.csv"
    rows = [line.split(",") for line in table.read_text().replace('"', "").replace(", ", " ").splitlines()[1:14]]
    downstream, seen = ([float(row[place].partition("±")[0]) for row in rows] for place in (1, 3))
    correlation = url_figures.read(table).correlation("seen classes")
    assert correlation == pytest.approx(stats.spearmanr(seen, downstream).statistic)
    monkeypatch.setattr(sys, "argv", ["url_figures.py", str(table), "-o", str(tmp_path / "url.svg")])
    url_figures.main()
    assert f"world: {correlation:.2f}" in (tmp_path / "url.svg").read_text()


def test_costs_are_ratios_to_the_classifier_and_count_what_a_step_keeps(capsys, tmp_path):
    typed = "--estimators InfoNCE --backbone test_resnet --size 32 --batch 8 --classes 3 --steps 1 --rounds 2"
    url_costs.main([*typed.split(), "--csv", str(tmp_path / "costs.csv")])
    rows = list(csv.DictReader((tmp_path / "costs.csv").open()))
    assert [row["estimator"] for row in rows] == ["CE", "InfoNCE"]
    assert rows[0]["step, of CE"] == "1.00±0.00"
    assert rows[1]["paper: epoch, of CE"] == "1.12"  # 6703 / 5971
    # two views of each image instead of one
    assert 1.5 < float(rows[1]["memory, of CE"].partition("±")[0]) < 2.5
    with pytest.raises(SystemExit):
        url_costs.main(["--steps", "0"])
    assert "round and a step" in capsys.readouterr().err


def test_memory_of_a_step_is_what_is_kept_less_the_weights():
    weight = torch.ones(4, 4, requires_grad=True)
    watch = url_costs.Watch(torch.device("cpu"), [weight])
    with torch.autograd.graph.saved_tensors_hooks(watch.keep, lambda kept: kept):
        ((torch.ones(8, 4) @ weight).exp()).sum().backward()
    watch.end_step()
    assert watch.most == 4 * (8 * 4 + 8 * 4)  # the input of the product, and the exponential


def test_a_variant_has_its_own_settings_and_a_slip_is_named(monkeypatch):
    known = url_estimators.ESTIMATORS
    monkeypatch.setattr(url_estimators, "ESTIMATORS", dict(known))
    text = url_estimators.add_variant("HIB: samples=3")
    config = url_estimators.config_of(url_estimators.ESTIMATORS[text], {})
    assert (config.settings.samples, config.settings.positives) == (3, "labels")
    assert url_estimators.add_variant("CE") == "CE"
    for slip, named in (("HIP", "HIB"), ("HIB: sample=3", "samples"), ("HIB: samples", "samples")):
        with pytest.raises(InputError, match=named):
            url_estimators.add_variant(slip)


def test_whole_networks_are_tuned_once_and_drawn(data, tmp_path, monkeypatch, capsys):
    table, chart = tmp_path / "tuned.csv", tmp_path / "tuned.svg"
    small = "--estimators CE HIB --seeds 2 --epochs 1 --per-class 4 --batch 16 --start-epochs 1 --size 32"
    places = ["--data", str(data), "--work", str(tmp_path / "work"), "--csv", str(table), "-o", str(chart)]
    arguments = [*small.split(), *places]
    url_tuned.main(arguments)
    rows = list(csv.DictReader(table.open()))
    assert [row["estimator"] for row in rows] == ["CE"] * 2 + ["HIB"] * 2
    assert [row["setting"] for row in rows[:2]] == ["lr=0.2", "lr=0.02"]
    assert rows[2]["paper: R-AUROC"] == ".538 / .541"
    best = [row["best by"] for row in rows[:2]]
    assert sum("Recall@1" in by for by in best) == sum("R-AUROC" in by for by in best) == 1
    assert "Recall@1, best by either" in chart.read_text()
    monkeypatch.setattr(url_tuned, "train", None)  # nothing is trained again
    url_tuned.main(arguments)
    assert list(csv.DictReader(table.open())) == rows
