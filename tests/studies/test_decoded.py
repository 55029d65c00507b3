"""What a decoder draws: its points, its sheet, how far it is from real images, and a model that cannot draw."""

import io
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from scipy.linalg import sqrtm

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import decoded
import decoded_measures

from scoring.checkpoint import load_model, save_checkpoint
from scoring.errors import InputError
from scoring.heads import PosteriorHeadSpec
from scoring.images import Preprocessing
from scoring.model import ModelSpec, ScoringModel

pytestmark = pytest.mark.study


def test_walks_go_straight_from_one_mu_to_the_next():
    mu = torch.tensor([[0.0, 0.0], [3.0, 6.0], [1.0, 1.0], [1.0, 4.0]])
    expected = [[0, 0], [1, 2], [2, 4], [3, 6], [1, 1], [1, 2], [1, 3], [1, 4]]
    assert torch.allclose(decoded.walks(mu, 4), torch.tensor(expected, dtype=torch.float32))


def test_draws_have_the_mean_and_covariance_of_mu():
    mu = torch.randn(500, 3, generator=torch.Generator().manual_seed(0)) @ torch.tensor(
        [[1.0, 0.5, 0.0], [0.0, 2.0, 0.0], [0.3, 0.0, 0.1]]
    )
    drawn = decoded.draws(mu + 4, 200_000, 0).numpy()
    assert np.allclose(drawn.mean(0), mu.numpy().mean(0) + 4, atol=0.02)
    assert np.allclose(np.cov(drawn.T), np.cov(mu.numpy().T), atol=0.05)


def test_draws_of_classes_are_around_their_own_mu_in_the_order_of_labels():
    labels = torch.tensor([2, 0] * 200)
    mu = torch.randn(400, 3, generator=torch.Generator().manual_seed(0)) + 10.0 * labels[:, None]
    drawn = decoded.class_draws(mu, labels, 50, 0)
    assert drawn.shape == (100, 3)
    assert drawn[:50].mean() == pytest.approx(0, abs=0.5)
    assert drawn[50:].mean() == pytest.approx(20, abs=0.5)
    with pytest.raises(InputError, match="two images"):
        decoded.class_draws(mu[:3], labels[:3], 5, 0)


@pytest.fixture
def model():
    """A model with random weights that decodes images of 16 pixels."""
    torch.manual_seed(0)
    heads = {"simvae": PosteriorHeadSpec(4, 16, 8)}
    return ScoringModel(ModelSpec("resnet10t", {}, heads, Preprocessing(size=16, resize=16), embedding="simvae"))


@pytest.fixture
def files(tmp_path, model):
    """Its checkpoint under two names, and 60 grey images, from dark to light."""
    card = {"method": "simvae", "training": {"data": "none"}, "metrics": {}, "data_licence": "CC0"}
    for name in ("m", "n"):
        save_checkpoint(tmp_path / f"{name}.safetensors", model, card)
    images = []
    for value in range(60):
        stored = io.BytesIO()
        Image.fromarray(np.full((16, 16, 3), 4 * value, np.uint8)).save(stored, "PNG")
        images.append(stored.getvalue())
    pq.write_table(pa.table({"image": images}), tmp_path / "p.parquet")
    return tmp_path


def test_a_sheet_shows_images_first_and_a_model_without_a_decoder_is_refused(files, tiny_checkpoint):
    decoded.main([str(files / "m.safetensors"), str(files / "p.parquet"), "-o", str(files / "d.png")])
    with Image.open(files / "d.png") as file:
        sheet = np.asarray(file)
    assert sheet.shape == (6 * 66 - 2, 12 * 66 - 2, 3)
    assert sheet[30, 66 * np.arange(12) + 30, 0].tolist() == [4 * value for value in range(12)]
    with pytest.raises(SystemExit, match="model that decodes"):
        decoded.main([str(tiny_checkpoint), str(files / "p.parquet"), "-o", str(files / "e.png")])
    table = pq.read_table(files / "p.parquet")
    pq.write_table(table.append_column("side", pa.array(["dark"] * 30 + ["light"] * 30)), files / "q.parquet")
    plain, by_class = (files / name for name in ("plain.png", "by_class.png"))
    decoded.main([str(files / "m.safetensors"), str(files / "p.parquet"), "-o", str(plain)])
    decoded.main([str(files / "m.safetensors"), str(files / "q.parquet"), "-o", str(by_class), "--label", "side"])
    assert Image.open(plain).size == Image.open(by_class).size  # two rows of draws: one of each class
    assert plain.read_bytes() != by_class.read_bytes()
    with pytest.raises(SystemExit, match="expected a column side"):
        decoded.main([str(files / "m.safetensors"), str(files / "p.parquet"), "-o", str(plain), "--label", "side"])


def sample(n, width, seed):
    generator = np.random.default_rng(seed)
    return generator.normal(size=(n, width)) @ generator.normal(size=(width, width)) + generator.normal(size=width)


@pytest.mark.parametrize(("n", "m", "width"), [(50, 70, 6), (70, 50, 6), (7, 6, 6), (5, 8, 12), (2, 2, 3), (2, 90, 9)])
def test_the_frechet_distance_is_its_formula_with_a_root_of_the_product(n, m, width):
    x, y = sample(n, width, 0), sample(m, width, 1)
    first, other = np.cov(x.T), np.cov(y.T)
    # of semidefinite matrices without full rank the root of the product is taken as that of C^(1/2) C' C^(1/2)
    values, vectors = np.linalg.eigh(first)
    root = vectors @ np.diag(np.sqrt(values.clip(0))) @ vectors.T
    inner = np.sqrt(np.linalg.eigvalsh(root @ other @ root).clip(0)).sum()
    expected = np.square(x.mean(0) - y.mean(0)).sum() + np.trace(first + other) - 2 * inner
    assert decoded_measures.frechet_distance(x, y) == pytest.approx(expected, rel=1e-6)
    if min(n, m) > width:
        inner = np.trace(sqrtm(first @ other)).real
        expected = np.square(x.mean(0) - y.mean(0)).sum() + np.trace(first + other) - 2 * inner
        assert decoded_measures.frechet_distance(x, y) == pytest.approx(expected, rel=1e-9)


def test_the_frechet_distance_of_diagonal_gaussians_matches_means_and_standard_deviations():
    signs = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]]) * np.sqrt(3 / 4)  # of variance 1, uncorrelated
    x, y = signs * [2.0, 0.5] + [1.0, 0.0], signs * [0.3, 3.0] + [0.0, 5.0]
    expected = 1 + 25 + (2 - 0.3) ** 2 + (0.5 - 3) ** 2
    assert decoded_measures.frechet_distance(x, y) == pytest.approx(expected, rel=1e-12)
    assert decoded_measures.frechet_distance(x, x) == pytest.approx(0, abs=1e-12)
    same = np.ones((5, 2))
    assert decoded_measures.frechet_distance(x, same) == pytest.approx(0 + 1 + 4 + 0.25, rel=1e-12)


@pytest.mark.parametrize(("x", "y"), [((4, 2), (4, 3)), ((1, 2), (4, 2)), ((4,), (4,))])
def test_a_frechet_distance_of_other_shapes_is_refused(x, y):
    with pytest.raises(ValueError, match=r"\(N, D\) .*\(M, D\)"):
        decoded_measures.frechet_distance(np.zeros(x), np.zeros(y))


def test_images_are_read_by_the_network_as_files_are(tiny_checkpoint):
    network, _ = load_model(tiny_checkpoint)
    pixels = torch.randint(0, 256, (5, 3, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    with torch.no_grad():
        expected = network.eval()(pixels).embedding
    assert np.allclose(decoded_measures.embedded(pixels.float() / 255, network), expected, atol=1e-6)


def test_an_image_is_named_right_where_the_real_ones_near_it_are_of_its_class(monkeypatch):
    monkeypatch.setattr(decoded_measures, "NEIGHBOURS", 1)
    real = np.array([[1.0, 0.0], [0.0, 1.0]])
    near = np.array([[0.8, 0.6], [0.6, 0.8], [1.0, 0.0], [0.0, 1.0]])
    classes = torch.tensor([7, 7, 3, 3])
    assert decoded_measures.named_right(near, classes, real, torch.tensor([7, 3])) == 0.5  # the first and the last


def test_draws_of_classes_are_in_turn_and_named_by_real_images(files, model, tiny_checkpoint, monkeypatch, capsys):
    monkeypatch.setattr(decoded, "FITTED", 20)
    monkeypatch.setattr(decoded, "NETWORK", tiny_checkpoint)
    pixels = torch.randint(0, 256, (20, 3, 16, 16), dtype=torch.uint8)
    labels = torch.arange(20) % 2
    made = decoded.drawn(model.eval(), pixels, pixels[:5], 0, labels)["draws"]
    with torch.no_grad():
        points = decoded.class_draws(decoded.means(model, pixels), labels, 3, 0)
        expected = model.heads["simvae"].decoder(points[[0, 3, 1, 4, 2]])
    assert torch.allclose(made, expected, atol=1e-5)
    table = pq.read_table(files / "p.parquet").append_column("side", pa.array([f"{row % 2}" for row in range(60)]))
    pq.write_table(table, files / "q.parquet")
    typed = [str(files / "m.safetensors"), str(files / "q.parquet"), "-o", str(files / "d.png"), "--label", "side"]
    decoded.main([*typed, "--distance", "20"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("| named right |")
    assert all(0 <= float(line.split("|")[-2]) <= 1 for line in lines[2:])
    assert decoded.OF_CLASS in "".join(lines)


def test_the_distance_of_drawn_images_is_printed_with_its_baselines(files, tiny_checkpoint, monkeypatch, capsys):
    monkeypatch.setattr(decoded, "FITTED", 20)
    monkeypatch.setattr(decoded, "NETWORK", tiny_checkpoint)
    typed = [str(files / "m.safetensors"), str(files / "n.safetensors"), str(files / "p.parquet")]
    decoded.main([*typed, "--distance", "20", "-o", str(files / "d.png")])
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in capsys.readouterr().out.splitlines()]
    assert [name for name, _ in cells[2:]] == [
        "other real images",
        "the same at a quarter of the side",
        "the mean of all, each time",
        "noise of their mean and spread",
        *("m: drawn again", "m: draws", "n: drawn again", "n: draws"),
    ]
    distance = {name: float(value) for name, value in cells[2:]}
    assert distance["m: draws"] == distance["n: draws"] > 0
    grey = (4 * torch.arange(60) / 255).view(-1, 1, 1, 1).expand(-1, 3, 16, 16)  # 20 are for the draws, then 20 and 20
    real, other = (decoded_measures.embedded(some, load_model(tiny_checkpoint)[0]) for some in grey[20:].split(20))
    slow = decoded_measures.frechet_distance(other, real)
    assert distance["other real images"] == pytest.approx(slow, abs=6e-4) != 0
    assert (files / "d-m.png").exists()
    assert (files / "d-n.png").exists()
    with pytest.raises(SystemExit, match=r"held out.* 60 in all"):
        decoded.main([*typed, "--distance", "21", "-o", str(files / "d.png")])
