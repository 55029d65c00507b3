"""The sheet of what a decoder draws: its points, its size, and a model that cannot draw."""

import io
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import decoded

from scoring.checkpoint import save_checkpoint
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


def test_a_sheet_shows_pictures_first_and_a_model_without_a_decoder_is_refused(tmp_path, tiny_checkpoint):
    torch.manual_seed(0)
    heads = {"simvae": PosteriorHeadSpec(4, 16, 8)}
    model = ScoringModel(ModelSpec("resnet10t", {}, heads, Preprocessing(size=16, resize=16), embedding="simvae"))
    card = {"method": "simvae", "training": {"data": "none"}, "metrics": {}, "data_licence": "CC0"}
    save_checkpoint(tmp_path / "m.safetensors", model, card)
    images = []
    for value in range(20):
        stored = io.BytesIO()
        Image.fromarray(np.full((16, 16, 3), 10 * value, np.uint8)).save(stored, "PNG")
        images.append(stored.getvalue())
    pq.write_table(pa.table({"image": images}), tmp_path / "p.parquet")
    decoded.main([str(tmp_path / "m.safetensors"), str(tmp_path / "p.parquet"), "-o", str(tmp_path / "d.png")])
    with Image.open(tmp_path / "d.png") as file:
        sheet = np.asarray(file)
    assert sheet.shape == (6 * 66 - 2, 12 * 66 - 2, 3)
    assert sheet[30, 66 * np.arange(12) + 30, 0].tolist() == [10 * value for value in range(12)]
    with pytest.raises(SystemExit, match="expected a model that decodes"):
        decoded.main([str(tiny_checkpoint), str(tmp_path / "p.parquet"), "-o", str(tmp_path / "e.png")])
