"""What a score must mean, on real photographs, for whichever model makes it."""

import importlib.util
import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import spearmanr

from curate.engines.score import score
from curate.manifest.contract import SourceOptions
from curate.selftests.contract import COPIES, HOLDS, WORSE
from curate.selftests.invariance import FEWEST, WAYS, of_source, unchanged
from curate.selftests.run import selftest
from curate.tables.table import open_table
from scoring.cards import shipped_models
from scoring.checkpoint import load_model, save_checkpoint
from scoring.heads import GaussiansHeadSpec, PosteriorHeadSpec, PrototypeHeadSpec
from scoring.images import decode
from scoring.model import ScoringModel
from scoring.model_names import DEFAULT
from scoring.runner import Runner

ROOT = Path(__file__).parents[2]
PHOTOS = sorted((ROOT / "examples" / "photos").glob("*.jpg"))
TOLERANCE = 1e-4  # relative, in fp32: sums in another order differ in the last digits
LOGARITHMS = ("unc_umm_logdet", "unc_simvae")
RANK = 0.99  # least rank correlation of bf16 and fp32
# The least share of the photographs whose version must be less certain; the mean must be lower, too.
LEAST_SHARE = {
    "unc_junk": {"blurred": 0.9, "noisy": 0.75, "covered": 0.75},
    "unc_losspred": {"blurred": 0.6, "noisy": 0.6, "covered": 0.75},
    "kappa_mcinfonce": {"blurred": 0.75, "covered": 0.6},  # it does not notice noise: README
    "kappa_visimsiam": {"blurred": 0.75, "noisy": 0.5, "covered": 0.75},  # 7 of 12 on a CPU without bf16
}
# The same for random crops, of which a good one may show more than the whole; the two kappas do not notice crops.
LEAST_CROPS = {"unc_junk": 0.55, "unc_losspred": 0.55}


def demonstration():
    """The script that makes corrupted versions of the photographs."""
    spec = importlib.util.spec_from_file_location("demo", ROOT / "examples" / "demo.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """The photographs and their versions: `NAME.jpg`, `NAME_blurred.jpg`, ..., four `NAME_duplicate.jpg`."""
    folder = tmp_path_factory.mktemp("contract") / "heap"
    folder.mkdir()
    demonstration().make_dataset(folder)
    for name in ("cut_short.jpg", "not_an_image.jpg"):
        (folder / name).unlink()
    return folder


@pytest.fixture(scope="module")
def random_weights(tiny_checkpoint, tmp_path_factory):
    """The tiny model with heads next to it that the model that ships does not have."""
    tiny, card = load_model(tiny_checkpoint)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        beside = {
            "dino": PrototypeHeadSpec(64, 32, 8),
            "umm": GaussiansHeadSpec(16, 2),
            "simvae": PosteriorHeadSpec(8, 32, 16),
        }
        heads = {**tiny.spec.heads, **beside}
        model = ScoringModel(replace(tiny.spec, heads=heads), backbone=tiny.backbone)
    model.heads["visimsiam"] = tiny.heads["visimsiam"]
    path = tmp_path_factory.mktemp("random") / "random.safetensors"
    facts = {name: card[name] for name in ("method", "training", "metrics", "data_licence")}
    save_checkpoint(path, model.eval(), facts)
    return path


@pytest.fixture(scope="module", params=["shipped", "random weights"])
def model(request, random_weights):
    """The model that ships, and one with random weights: these rules are not learned."""
    if request.param == "random weights":
        return random_weights
    if DEFAULT not in shipped_models():
        pytest.skip("no checkpoint is in scoring/checkpoints yet")
    return shipped_models()[DEFAULT]


@pytest.fixture(scope="module")
def shipped():
    """The model that ships."""
    if DEFAULT not in shipped_models():
        pytest.skip("no checkpoint is in scoring/checkpoints yet")
    return shipped_models()[DEFAULT]


def certainties(source, out, checkpoint, **settings):
    """Score as `curate score` does on a CPU; column -> file name -> kappa, or 1/uncertainty where there is no kappa.

    Of an uncertainty that is a logarithm the exponential stands instead.

    Without the fit to the dataset, which depends on what else is there.
    """
    score(source, out, model=checkpoint, workers=2, **{"device": "cpu", "fit": False, **settings})
    table = open_table(out)
    kappas = [name for name in table.schema.names if name.startswith("kappa_")]
    alone = [name for name in table.schema.names if name.startswith("unc_") and f"kappa_{name[4:]}" not in kappas]
    rows = table.read(["key", *alone, *kappas, "status"]).to_pylist()
    assert {row["status"] for row in rows} == {"ok"}
    assert kappas

    def certainty(column, value):
        if column in LOGARITHMS:
            return math.exp(-value)
        return 1 / value if column in alone else value

    return {
        column: {Path(row["key"]).name: certainty(column, row[column]) for row in rows} for column in (*alone, *kappas)
    }


@pytest.fixture(scope="module")
def scored_by(dataset, tmp_path_factory):
    """The certainties of the photographs and their versions, by a model, scored once."""
    return cache(lambda model: certainties(dataset, tmp_path_factory.mktemp("scored") / "s.parquet", model))


@pytest.fixture(scope="module")
def reference(scored_by, model):
    return scored_by(model)


@pytest.fixture(scope="module")
def of_shipped(scored_by, shipped):
    return scored_by(shipped)


def same(first, other):
    assert first.keys() == other.keys()
    return all(first[column] == pytest.approx(other[column], rel=TOLERANCE) for column in first)


def test_scores_are_positive_finite_and_differ_between_photographs(reference):
    for certainty in reference.values():
        values = np.array([certainty[path.name] for path in PHOTOS])
        assert np.isfinite(values).all()
        assert (values > 0).all()
        assert len(set(values.tolist())) == len(PHOTOS)
        assert values.std() / values.mean() > 10 * TOLERANCE  # or the other tests would compare noise


def test_every_column_of_the_model_that_ships_is_held_to_what_follows(of_shipped):
    assert of_shipped.keys() == LEAST_SHARE.keys()


def test_a_duplicate_has_the_very_same_score(reference):
    for certainty in reference.values():
        copies = [name for name in certainty if name.endswith("_duplicate.jpg")]
        assert len(copies) == 4
        for name in copies:
            assert certainty[name] == certainty[name.replace("_duplicate", "")]


@pytest.mark.parametrize("model", [pytest.param("shipped", marks=pytest.mark.slow), "random weights"], indirect=True)
def test_neither_batches_nor_order_company_or_parts_change_a_score(dataset, model, tmp_path):
    """What `curate selftest` tries on the user's images."""
    options = SourceOptions()
    _, everything = of_source(str(dataset), FEWEST, tmp_path, seed=0, options=options, announce=lambda text: None)
    ways = [way for way in WAYS if not way.needs and way.tolerance is not None]
    checks = unchanged(everything, tmp_path, model, fit=False, ways=ways)
    assert len(everything.keys) == len(list(dataset.iterdir()))
    assert {check.what for check in checks} == {way.what for way in ways}
    assert [check for check in checks if check.state != HOLDS] == []


@pytest.mark.slow
def test_every_score_of_the_model_that_ships_notices_what_it_must(dataset, shipped):
    """By `curate selftest`, on the photographs and their versions; noise, zoom and recompression: docs/selftest.md."""
    changes = ["blur", "grey box", "darkness"]
    report = selftest(dataset, model=shipped, device="cpu", images=40, change=changes, ways=())
    assert {*LEAST_SHARE, "unc_fitted"} <= set(report.columns)
    broken = {(check.column, check.what) for check in report.broken if check.section in (WORSE, COPIES)}
    assert {column for column, _ in broken} <= {"unc_ambiguous"}, broken


def test_a_batch_that_shrinks_has_the_scores_of_the_whole(model):
    network, _ = load_model(model)
    pixels = np.stack([decode(path.read_bytes(), network.spec.preprocessing).pixels for path in PHOTOS])
    runner = Runner(network, torch.device("cpu"))
    together = runner.submit(pixels).result()
    runner.step = 5
    parts = runner.submit(pixels).result()
    said = [(parts.columns[name], value) for name, value in together.columns.items()]
    for in_parts, at_once in said:
        assert at_once.shape == (len(PHOTOS),)
        assert np.allclose(in_parts, at_once, rtol=TOLERANCE, atol=0)
    assert np.abs(parts.embedding - together.embedding).max() < TOLERANCE


@pytest.mark.parametrize("model", ["random weights"], indirect=True)
def test_a_lossless_copy_of_the_pixels_has_the_same_score(model, tmp_path):
    """The score is of the image, not of the file: PNG for JPEG, a name for another."""
    for folder in ("jpeg", "png"):
        (tmp_path / folder).mkdir()
    for path in PHOTOS:
        with Image.open(path) as file:
            image = file.convert("RGB")
        image.save(tmp_path / "jpeg" / f"{path.stem}.bmp")
        image.save(tmp_path / "png" / f"{path.stem}.bmp", "PNG")
    ours = certainties(tmp_path / "jpeg", tmp_path / "a.parquet", model)
    assert same(certainties(tmp_path / "png", tmp_path / "b.parquet", model), ours)


def test_half_precision_keeps_the_order(dataset, shipped, of_shipped, tmp_path):
    bf16 = certainties(dataset, tmp_path / "b.parquet", shipped, precision="bf16")
    for column, fp32 in of_shipped.items():
        names = sorted(fp32)
        rank = spearmanr([fp32[name] for name in names], [bf16[column][name] for name in names]).statistic
        assert rank >= RANK, column


CASES = [(column, kind) for column, kinds in LEAST_SHARE.items() for kind in kinds]


@pytest.mark.parametrize(("column", "kind"), CASES)
def test_a_corrupted_photograph_is_less_certain(of_shipped, column, kind):
    certainty_of = of_shipped[column]
    pairs = [(certainty_of[path.name], certainty_of[f"{path.stem}_{kind}.jpg"]) for path in PHOTOS]
    share = np.mean([worse < good for good, worse in pairs])
    assert np.mean([np.log(worse / good) for good, worse in pairs]) < 0
    assert share >= LEAST_SHARE[column][kind], f"{kind}: lower for {share:.0%} of the photographs"


def test_random_crops_of_a_photograph_are_less_certain_on_average(shipped, tmp_path):
    """Each photograph, and eight windows of 10 to 50 % of its area."""
    folder = tmp_path / "crops"
    folder.mkdir()
    generator = np.random.default_rng(0)
    for path in PHOTOS:
        with Image.open(path) as file:
            image = file.convert("RGB")
        image.save(folder / f"{path.stem}.png", compress_level=1)
        for i in range(8):
            share = generator.uniform(0.1, 0.5) ** 0.5
            w, h = int(image.width * share), int(image.height * share)
            x, y = generator.integers(0, image.width - w + 1), generator.integers(0, image.height - h + 1)
            image.crop((x, y, x + w, y + h)).save(folder / f"{path.stem}_{i}.png", compress_level=1)
    certainties_of = certainties(folder, tmp_path / "s.parquet", shipped)
    for column, least in LEAST_CROPS.items():
        values = certainties_of[column]
        ratios = [np.log(values[f"{p.stem}_{i}.png"] / values[f"{p.stem}.png"]) for p in PHOTOS for i in range(8)]
        assert np.mean(ratios) < 0, column
        assert np.mean(np.array(ratios) < 0) >= least, column
