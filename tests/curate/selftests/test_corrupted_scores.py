"""Scores of corrupted images and of copies: what a self-test concludes from them."""

import io

import numpy as np
import pytest
import torch
from PIL import Image
from test_selftest import picture

from curate.evaluation.degraded import LAPLACIAN
from curate.selftests import corruption
from curate.selftests.contract import BROKEN, HOLDS, UNTRIED


class Made:
    """Scores of a batch as a function of its pixels, at a side of 32."""

    side, white = 32, 65535

    def __init__(self, **columns):
        self.columns = columns

    def scored(self, versions):
        return map(self.scores_of, versions)

    def scores_of(self, images):
        small = torch.nn.functional.adaptive_avg_pool2d(images.float(), 8).flatten(1).double()
        embedding = torch.nn.functional.normalize(small - small.mean(1, keepdim=True), dim=1).float().numpy()
        columns = {name: function(images.float()).double().numpy() for name, function in self.columns.items()}
        return embedding, columns | {LAPLACIAN: np.zeros(len(images))}


def light(images):
    return images.mean((1, 2, 3))


def turning(images):
    """Higher in some darkness, lower in much: what turns back."""
    mean = light(images) / 128
    return 1 - (mean - 0.4).abs()


MADE = {
    "kappa_light": light,  # falls with the light
    "unc_light": light,  # so this says the wrong thing
    "unc_dark": lambda images: 255 - light(images),
    "kappa_same": lambda images: torch.ones(len(images)),
    "kappa_turning": turning,
}


@pytest.fixture(scope="module")
def climbed():
    pictures = [picture(seed) for seed in range(40)]
    return corruption.climb(pictures, Made(**MADE), kinds=["darkness", "noise"], seed=0)


def judged(climbed, kind):
    return {check.column: check for check in corruption.less_certain(climbed) if check.what == kind}


def test_a_score_that_falls_with_the_light_keeps_the_contract_and_one_that_rises_breaks_it(climbed):
    judgement = judged(climbed, "darkness")
    assert {name: check.state for name, check in judgement.items()} == {
        "kappa_light": HOLDS,
        "unc_light": BROKEN,
        "unc_dark": HOLDS,
        "kappa_same": BROKEN,
        "kappa_turning": BROKEN,
        LAPLACIAN: UNTRIED,
    }
    assert "worse the image" in judgement["unc_light"].words
    assert "does not notice" in judgement["kappa_same"].words
    assert "between 0 and 0.3" in judgement["kappa_turning"].words
    assert judgement["unc_dark"].measured == judgement["kappa_light"].measured


def test_the_share_is_how_many_unchanged_images_are_more_certain(climbed):
    base = climbed.base["unc_dark"]
    last = climbed.steps["darkness"][-1]["unc_dark"]
    slow = [np.mean([(other < value) + (other == value) / 2 for other in base]) for value in last]
    assert climbed.shares("darkness", "unc_dark")[-1] == pytest.approx(slow)
    assert climbed.shares("darkness", "unc_dark")[0].mean() == pytest.approx(0.5)
    check = judged(climbed, "darkness")["unc_dark"]
    assert check.measured.value == pytest.approx(np.mean(slow) - 0.5)
    assert check.images == 40


def test_corrupted_images_come_in_the_order_of_the_images():
    """Images of several sizes go through in batches of one size."""
    pictures = [picture(seed, side) for seed, side in enumerate([40, 64, 40, 50, 64] * 5)]
    climbed = corruption.climb(pictures, Made(kappa_light=light), kinds=["darkness"], seed=0)
    for number, data in enumerate(pictures):
        with Image.open(io.BytesIO(data)) as image:
            assert climbed.base["kappa_light"][number] == pytest.approx(np.asarray(image).mean(), abs=2)


def test_copies_are_nearer_than_anything_else():
    pictures = [picture(seed) for seed in range(30)]
    made = Made(kappa_light=light)
    dataset = np.concatenate(
        [made.scores_of(torch.rand(200, 3, 32, 32) * 255)[0], made.scores_of(torch.zeros(1, 3, 32, 32))[0]]
    )
    checks = {check.what: check for check in corruption.less_unique(pictures, made, dataset)}
    assert checks.keys() == corruption.KINDS.keys()
    assert {check.state for check in checks.values()} == {HOLDS}
    assert checks["an exact copy"].measured.value == 1


def test_an_embedding_that_is_another_each_time_makes_no_image_less_unique():
    generator = np.random.default_rng(0)

    class Random(Made):
        def scores_of(self, images):
            rows = generator.normal(size=(len(images), 16)).astype(np.float32)
            return rows / np.linalg.norm(rows, axis=1, keepdims=True), {}

    dataset = generator.normal(size=(200, 16))
    checks = corruption.less_unique([picture(seed) for seed in range(30)], Random(), dataset)
    assert {check.state for check in checks} == {BROKEN}
