"""The study of methods: its measures against slow or other restatements, and a run of it on a few images."""

import io
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from scipy import stats
from sklearn.neighbors import KNeighborsClassifier

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import representation_measures as measures
import representation_tables as tables
import representation_transfer as transfer
import representations as study
from representation_data import load_pictures

from scoring.heads import PosteriorHeadSpec
from scoring.images import Preprocessing
from scoring.model import ModelSpec, ScoringModel
from trainers.data import TrainingSet
from trainers.methods.method import Task
from trainers.methods.settings import Augmentation
from trainers.methods.siamese import SimSiam

pytestmark = pytest.mark.study


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Images of two classes, red and blue, under the names of CIFAR-10's files."""
    folder = tmp_path_factory.mktemp("data")
    generator = np.random.default_rng(0)
    for name, n in (("cifar10_train", 40), ("cifar10_test", 20)):
        label = np.arange(n) % 2
        images = []
        for class_ in label:
            pixels = generator.integers(0, 60, (16, 16, 3), np.uint8)
            pixels[:, :, 2 * class_] += 180
            stored = io.BytesIO()
            Image.fromarray(pixels).save(stored, "PNG")
            images.append(stored.getvalue())
        pq.write_table(pa.table({"image": images, "label": label}), folder / f"{name}.parquet")
    return folder


def typed(data, work, *variants, more=()):
    small = ["--images", "32", "--test", "20", "--epochs", "2", "--seeds", "2", "--size", "16", "--set", "hidden_dim=8"]
    return [
        "--data",
        str(data),
        "--work",
        str(work),
        *small,
        "latent_dim=8",
        "batch_size=8",
        *more,
        "--methods",
        *variants,
    ]


def test_a_study_runs_resumes_and_gives_the_same(data, tmp_path, capsys, monkeypatch):
    variants = ["simsiam", "visimsiam lr=0.01 schedule=cosine"]
    out = tmp_path / "results.json"
    chart = tmp_path / "cosines.svg"
    pairs = tmp_path / "pairs.svg"
    drawn = ["--out", str(out), "--chart", str(chart), "--pairs", str(pairs)]
    study.main(typed(data, tmp_path / "work", *variants, more=["--at", "1", *drawn]))
    assert all(name in pairs.read_text() for name in ("of other classes", "share of pairs", "simsiam"))
    assert all(name in chart.read_text() for name in ("cosine of prediction and target", "accuracy of neighbours"))
    told = capsys.readouterr().out.split("\n\n", 1)[1]
    told, near = told.split("| cosine of nearest images")
    assert "| simsiam | 9" in near  # percent, of red next to red
    lines = told.splitlines()
    assert [line.split("|")[1].strip() for line in lines if line.startswith("|")][2:5] == ["random", *variants]
    assert "kappa_visimsiam" in told
    assert "| linear after epoch | 1 | 2 |" in told
    for measure in ("cosine of views, median,", "kNN", "mean kappa_visimsiam"):
        assert f"| {measure} after epoch | 1 | 2 |" in told
    runs = json.loads(out.read_text())
    assert len(runs["random"]) == len(runs["simsiam after 1"]) == 2
    assert runs["visimsiam lr=0.01 schedule=cosine"][1]["recipe"]["schedule"] == "cosine"
    assert runs["simsiam"][0]["measures"]["linear"] == 1  # red and blue
    assert not list((tmp_path / "work").glob("*.state"))
    monkeypatch.setattr(study, "train", None)  # nothing is trained again
    study.main(typed(data, tmp_path / "work", *variants, more=["--at", "1"]))
    assert capsys.readouterr().out.split("\n\n", 1)[1] == told


def test_the_cosine_of_views_is_of_predictions_and_targets_of_the_other_view(monkeypatch):
    torch.manual_seed(0)
    model = ScoringModel(ModelSpec("test_resnet", {}, {}, Preprocessing(size=16, resize=16)))
    method = SimSiam(SimSiam.Settings(latent_dim=4, hidden_dim=8, predictor="mlp"), Task(width=model.width))
    pixels = torch.randint(0, 256, (6, 3, 16, 16), dtype=torch.uint8)
    monkeypatch.setattr(measures, "view", lambda images, *rest: images.float().roll(1, 3))
    found = measures.view_cosines(
        model, method, TrainingSet(pixels, None, [], {}), Augmentation(), device=torch.device("cpu"), seed=0
    )
    with torch.no_grad():
        z = method.projector(model.features(pixels.float().roll(1, 3)))
        cosine = torch.nn.functional.cosine_similarity(z, method.predictor(z))
    assert found["cosine"] == pytest.approx(float(np.median(cosine.numpy())), abs=1e-5)
    assert found["cosine low"] <= found["cosine"] <= found["cosine high"]


def test_one_seed_gives_one_result_and_watching_does_not_change_it(data, tmp_path):
    found = []
    for name, more in (("one", ()), ("other", ("--at", "1"))):
        out = tmp_path / f"{name}.json"
        study.main(typed(data, tmp_path / name, "visimsiam", more=[*more, "--out", str(out)]))
        found.append(json.loads(out.read_text())["visimsiam"])
    for one, other in zip(*found, strict=True):
        assert one["columns"] == other["columns"]
        assert one["measures"] == other["measures"]


def test_what_a_cpu_needs_bends_a_recipe_and_what_is_typed_does_not():
    arguments = study.parse_arguments(["--methods", "simsiam", "--print"])
    bent = study.config_of("simsiam", [], arguments, 3)
    assert (bent.batch_size, bent.settings.latent_dim, bent.settings.n_small, bent.seed) == (128, 256, 0, 3)
    assert bent.lr == pytest.approx(0.2 * 128 / 512)
    straight = study.config_of("simsiam latent_dim=2048 lr=0.2 scale=0.5", ["kappa_pos=3", "gray=0"], arguments, 0)
    assert (straight.settings.latent_dim, straight.lr) == (2048, 0.2)
    assert (straight.augmentation.scale, straight.augmentation.gray) == ((0.5, 1.0), 0)
    assert study.config_of("infonce", ["kappa_pos=3"], arguments, 0).lr == 1e-3  # of AdamW, which batches do not bend


@pytest.mark.parametrize(
    ("variants", "told"),
    [
        (["simsia"], "did you mean 'simsiam'"),
        (["simsiam kappa_pos=2"], "no parameter 'kappa_pos'"),
        (["simsiam lr=much"], "expected float for lr"),
        (["simsiam epochs=3"], "no parameter 'epochs'"),
        (["simsiam 3"], "takes NAME=VALUE"),
    ],
)
def test_a_slip_is_reported_in_a_line_before_anything_is_trained(data, tmp_path, variants, told):
    with pytest.raises(SystemExit, match=told):
        study.main(typed(data, tmp_path / "work", "visimsiam", *variants))
    assert not list((tmp_path / "work").iterdir())


def test_transfer_and_few_labels_are_measured_next_to_random_weights(data, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(transfer, "TUNED_VIEWS", 64)
    out = tmp_path / "results.json"
    more = ["--transfer", "cifar10", "--labels", "0.25", "1", "--out", str(out)]
    study.main(typed(data, tmp_path / "work", "simsiam", "visimsiam", more=more))
    found = json.loads(out.read_text())
    for results in found.values():
        for one in results:
            said = one["measures"]
            assert {"cifar10 linear", "cifar10 knn", "25% linear", "25% tuned", "100% linear", "100% tuned"} < set(said)
            assert said["100% linear"] == said["linear"]  # of all labels, that of the study itself
    lines = capsys.readouterr().out.splitlines()
    (head,) = (line for line in lines if "25% tuned" in line)
    under = lines[lines.index(head) + 2 :][:4]
    named = [line.split("|")[1].strip() for line in under]
    assert named == ["random", "simsiam", "visimsiam", "visimsiam less simsiam"]
    ours, theirs = (np.array([one["measures"]["25% tuned"] for one in found[name]]) for name in named[2:0:-1])
    gaps = ours - theirs
    assert f"{100 * np.mean(gaps):+.1f} ±{100 * 12.706 * np.std(gaps, ddof=1) / 2**0.5:.1f}" in under[3]
    with pytest.raises(SystemExit):
        study.main(typed(data, tmp_path / "work", "simsiam", more=["--labels", "10"]))


def test_tuning_learns_from_the_labels_and_leaves_the_model_as_it_was(data, monkeypatch):
    monkeypatch.setattr(transfer, "TUNED_VIEWS", 400)
    pictures = load_pictures(data, "cifar10", pool=40, test=20, size=16)
    torch.manual_seed(0)
    model = ScoringModel(ModelSpec("test_resnet", {}, {}, Preprocessing(size=16, resize=16))).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    few = transfer.few_labels(model, pictures, [0.1, 0.5], seed=0, device=torch.device("cpu"))
    assert few["50% tuned"] == 1  # red and blue
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert few == transfer.few_labels(model, pictures, [0.1, 0.5], seed=0, device=torch.device("cpu"))


def test_the_labels_of_a_share_cover_every_class_and_contain_smaller_shares():
    labels = np.repeat([0, 1, 2], [100, 40, 3])
    rows = transfer.labelled(labels, 0.1, seed=3)
    assert np.bincount(labels[rows]).tolist() == [10, 4, 1]
    assert set(transfer.labelled(labels, 0.01, seed=3)) < set(rows)
    assert transfer.labelled(labels, 1, seed=3).tolist() == list(range(143))
    assert set(transfer.labelled(labels, 0.1, seed=4)) != set(rows)


def test_held_out_images_follow_the_split_and_count_by_the_classes_of_all(tmp_path):
    stored = io.BytesIO()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(stored, "PNG")
    label = np.repeat(np.arange(5), 6)
    split = np.where(np.arange(30) % 3 == 0, "test", np.where(np.arange(30) % 3 == 1, "train", "val"))
    split[label == 2] = "train"  # a class that is not in the test images
    held = pa.table({"image": [stored.getvalue()] * 30, "label": label, "split": split})
    pq.write_table(held, tmp_path / "grocery_160.parquet")
    found = load_pictures(tmp_path, "grocery", pool=100, test=100, size=8)
    assert found.train.classes == found.test.classes == [f"{one:04d}" for one in range(5)]
    for images, is_test in ((found.train, False), (found.test, True)):
        assert sorted(images.labels.tolist()) == sorted(label[(split == "test") == is_test].tolist())
    pq.write_table(held.drop_columns("split"), tmp_path / "rsscn7_160.parquet")
    assert load_pictures(tmp_path, "rsscn7", pool=100, test=100, size=8).test.n == 10


def blobs(n, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 3
    centres = torch.eye(8)[:3]
    return centres[labels] + 0.6 * torch.randn(n, 8, generator=generator), labels


def test_the_vote_equals_another_library():
    (learned, labels), (asked, _) = blobs(150, 0), blobs(60, 1)
    unit = [torch.nn.functional.normalize(rows, dim=1).numpy() for rows in (learned, asked)]
    other = KNeighborsClassifier(
        150, weights=lambda distance: np.exp((1 - distance**2 / 2) / 0.1)
    )  # of unit vectors, d^2 = 2 - 2 cos
    other.fit(unit[0], labels)
    assert measures.knn_answers(learned, labels, asked).tolist() == other.predict(unit[1]).tolist()


def test_probes_learn_what_they_can_and_the_hidden_layer_what_a_plane_cannot():
    (learned, labels), (asked, answer) = blobs(600, 0), blobs(300, 1)
    assert (measures.linear_answers(learned, labels, asked, 3) == answer).float().mean() > 0.75
    generator = torch.Generator().manual_seed(2)
    learned, asked = (torch.randn(1000, 2, generator=generator) for _ in range(2))
    ring = [(rows.norm(dim=1) > 1.2).long() for rows in (learned, asked)]
    assert (measures.perceptron_answers(learned, ring[0], asked, 2, seed=0) == ring[1]).float().mean() > 0.95
    assert (measures.linear_answers(learned, ring[0], asked, 2) == ring[1]).float().mean() < 0.7


def test_cosines_are_of_the_nearest_of_a_class_and_of_others(monkeypatch):
    monkeypatch.setattr(measures, "NEAR", 2)
    angles = np.array([0, 10, 30, 90, 100, 130, 200])
    labels = torch.tensor([0, 0, 0, 1, 1, 1, 2])  # the last has none of its class
    features = 3 * torch.from_numpy(np.stack([np.cos(np.radians(angles)), np.sin(np.radians(angles))], 1))
    apart = np.abs(angles[:, None] - angles)
    pairs = measures.pair_cosines(features, labels)
    for kind, is_same in (("same", True), ("other", False)):
        nearest = [
            sorted(apart[i, j] for j in range(7) if j != i and (labels[i] == labels[j]) == is_same)[:2]
            for i in range(6)
        ]
        assert pairs[kind] == pytest.approx(np.cos(np.radians(np.concatenate(nearest))))


def test_columns_are_compared_as_certainties():
    generator = np.random.default_rng(0)
    kappa, entropy = generator.exponential(size=(2, 3, 50))
    entropy = entropy - kappa
    found = {
        "visimsiam": [
            {"columns": {"kappa_visimsiam": one.tolist(), "unc_visimsiam": (1 / one).tolist()}} for one in kappa
        ],
        "dino": [{"columns": {"unc_dino": one.tolist()}} for one in entropy],
    }
    _, _, line = tables.correlations(found)
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:2] == ["visimsiam: kappa_visimsiam", "dino: unc_dino"]
    for cell, slow in zip(cells[2:], (stats.spearmanr, stats.pearsonr), strict=True):
        values = [slow(a, -b).statistic for a, b in zip(kappa, entropy, strict=True)]
        assert cell == f"{np.mean(values):.3f} ±{4.303 * np.std(values, ddof=1) / 3**0.5:.3f}"
    assert np.isnan(tables.pearson(np.array([1.0, np.inf]), np.array([1.0, 2.0])))


def test_worth_has_the_direction_of_the_column_and_refuses_what_has_no_rank():
    features, labels = blobs(200, 0)
    rows = torch.nn.functional.normalize(features, dim=1)
    right = labels[(rows @ rows.T).fill_diagonal_(-2).argmax(1)] == labels
    said = {"linear": right.numpy(), "knn": ~right.numpy()}
    for name, sign in (("kappa_x", 1), ("unc_x", -1)):
        found = measures.certainty_measures(name, sign * right.double().numpy(), features, labels, said)
        assert found == {f"{name} R-AUROC": 1, f"{name} AUROC linear": 1, f"{name} AUROC knn": 0}
    with pytest.raises(SystemExit, match="1 of 200"):
        measures.certainty_measures("kappa_x", np.r_[np.nan, np.zeros(199)], features, labels, said)


def test_a_mixture_finds_classes_that_are_apart_and_not_those_that_do_not():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(300) % 3
    apart = 6 * torch.eye(40)[labels] + torch.randn(300, 40, generator=generator)
    assert (measures.gmm_answers(apart, labels, apart, 3, seed=0) == labels).float().mean() > 0.99
    turned = labels[torch.randperm(300, generator=generator)]  # which Gaussian is which class is for the labels to say
    said = measures.gmm_answers(apart, (labels + 1) % 3, apart, 3, seed=0)
    assert (said == (labels + 1) % 3).float().mean() > 0.99
    assert (measures.gmm_answers(apart, turned, apart, 3, seed=0) == turned).float().mean() < 0.5


def test_images_with_styles_are_held_out_of_the_same_file(tmp_path):
    generator, images = np.random.default_rng(0), []
    for _ in range(30):
        stored = io.BytesIO()
        Image.fromarray(generator.integers(0, 255, (8, 8, 3), np.uint8)).save(stored, "PNG")
        images.append(stored.getvalue())
    label, domain = np.arange(30) % 3, np.array(["sketch", "photo"])[np.arange(30) % 2]
    pq.write_table(pa.table({"image": images, "label": label, "domain": domain}), tmp_path / "pacs_160.parquet")
    found = load_pictures(tmp_path, "pacs", pool=100, test=10, size=8)
    assert (found.train.n, found.test.n) == (20, 10)
    rows = torch.cat([found.test.pixels, found.train.pixels]).flatten(1)
    assert len(torch.unique(rows, dim=0)) == 30
    stored = {image.tobytes(): at for at, image in enumerate(np.array(Image.open(io.BytesIO(one))) for one in images)}
    for images_of, styles in zip((found.train, found.test), found.styles, strict=True):
        for pixels, style, known in zip(images_of.pixels, styles, images_of.labels, strict=True):
            at = stored[pixels.permute(1, 2, 0).numpy().tobytes()]
            assert (["photo", "sketch"][style], known) == (domain[at], label[at])
    few = found.drawn(5, 0)
    assert (few.train.n, len(few.styles[0]), len(few.styles[1])) == (5, 5, 10)


def test_the_representation_of_a_model_with_a_posterior_is_its_mean_and_styles_are_measured():
    head = PosteriorHeadSpec(4, 16, 8)
    torch.manual_seed(0)
    spec = ModelSpec("resnet10t", {}, {"simvae": head}, Preprocessing(size=16, resize=16), embedding="simvae")
    model, generator = ScoringModel(spec).eval(), torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (40, 3, 16, 16), generator=generator, dtype=torch.uint8)
    images = TrainingSet(pixels, torch.arange(40) % 2, ["a", "b"], {})
    features, columns, inner = measures.read(model, images, torch.device("cpu"))
    with torch.no_grad():
        assert torch.allclose(inner, model.features(pixels), atol=1e-5)
        assert torch.allclose(features, model.heads["simvae"].mean(model.features(pixels)), atol=1e-5)
    assert set(columns) == {"unc_simvae", "unc_simvae_error"}
    styles = (torch.arange(40) // 20, torch.arange(40) // 20)
    found = measures.measure(model, images, images, device=torch.device("cpu"), styles=styles)["measures"]
    assert {"linear", "mlp", "knn", "gmm", "inner", "style", "unc_simvae_error R-AUROC"} <= set(found)


def test_untrained_weights_belong_to_the_named_model(data, tmp_path, capsys):
    out = tmp_path / "results.json"
    variants = ["random vae latent_dim=3 channels=4", "random simsiam"]
    study.main(typed(data, tmp_path / "work", *variants, more=["--out", str(out)]))
    found = {name: results[0]["measures"] for name, results in json.loads(out.read_text()).items()}
    assert found["random simsiam"] == found["random"]
    assert found[variants[0]]["inner"] == found["random"]["linear"]
    assert {name: value for name, value in found[variants[0]].items() if name in ("linear", "inner")} != {}
    assert "recipe" not in json.loads(out.read_text())[variants[0]][0]
