"""Ten crops of an image and their spread, against a slow restatement."""

import numpy as np
import torch
from PIL import Image

from scoring.crops import CropsScorer, ten_crops
from scoring.heads import KappaHeadSpec
from scoring.images import Preprocessing
from scoring.model import ModelSpec, ScoringModel
from scoring.runner import Runner


def test_the_crops_are_corners_and_middle_and_their_mirrors():
    rows, columns = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
    crops = ten_crops(torch.stack([rows, columns, rows + columns]).unsqueeze(0))
    assert crops.shape == (10, 1, 3, 8, 8)
    for at, (top, left) in enumerate(((0, 0), (0, 2), (2, 0), (2, 2), (1, 1))):
        box = (left, top, left + 6, top + 6)
        plane = Image.fromarray(columns.numpy()).resize((8, 8), Image.Resampling.BILINEAR, box=box)
        inner = slice(1, -1)  # at the edge Pillow looks beyond the box
        assert np.allclose(crops[at, 0, 1, inner, inner], np.array(plane)[inner, inner], atol=1e-5)
        assert torch.equal(crops[5 + at], crops[at].flip(-1))


def test_the_spread_is_one_less_the_length_of_the_mean_and_zero_where_all_crops_are_alike():
    torch.manual_seed(0)
    heads = {"visimsiam": KappaHeadSpec(8, 3.0)}
    model = ScoringModel(ModelSpec("test_resnet", {}, heads, Preprocessing(size=32, resize=32))).eval()
    pixels = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), np.uint8)
    pixels[3] = 90
    scores = Runner(model, torch.device("cpu"), scorers={"crops": CropsScorer()}).submit(pixels).result()
    assert list(scores.columns) == ["kappa_visimsiam", "unc_visimsiam", "unc_crops"]
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2)
    with torch.no_grad():
        for row in range(4):
            total = np.zeros(96)
            for crop in ten_crops(images[row : row + 1]):
                feature = model.features(crop)[0].double().numpy()
                total += feature / np.linalg.norm(feature)
            assert abs(scores.columns["unc_crops"][row] - (1 - np.linalg.norm(total / 10))) < 1e-5
    assert scores.columns["unc_crops"][3] < 1e-5 < scores.columns["unc_crops"][:3].min()
