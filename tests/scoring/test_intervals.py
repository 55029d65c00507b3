"""Views of images and the intervals of scores over them, against slow restatements."""

import hashlib

import numpy as np
import pytest
import torch

from scoring.errors import InputError
from scoring.heads import KappaHeadSpec
from scoring.images import Preprocessing
from scoring.intervals import bounds_of, check_views, coverage
from scoring.model import ModelSpec, ScoringModel
from scoring.runner import Runner
from scoring.views import draws, views_of

CPU = torch.device("cpu")
CONTENTS = [hashlib.sha256(bytes([i])).hexdigest() for i in range(5)]


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    built = ScoringModel(
        ModelSpec("resnet10t", {}, {"visimsiam": KappaHeadSpec(8, 3.0)}, Preprocessing(size=32, resize=32))
    )
    with torch.no_grad():
        built.heads["visimsiam"].out.weight.mul_(20)
    return built.eval()


@pytest.fixture(scope="module")
def pixels():
    return np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), np.uint8)


def as_batch(pixels):
    return torch.from_numpy(pixels).permute(0, 3, 1, 2)


def slow_view(picture, mirrored, side, across, down, light):
    """One view of (S, S, 3), pixel by pixel: cubic convolution (a = -0.75) where the window's pixels lie."""

    def weight(distance):
        d, a = abs(distance), -0.75
        if d <= 1:
            return (a + 2) * d**3 - (a + 3) * d**2 + 1
        return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0

    size = len(picture)
    share = 0.85 + 0.15 * side
    left, top = (size - share * size) * across, (size - share * size) * down
    out = np.zeros((size, size, 3))
    for row in range(size):
        for column in range(size):
            x = left + share * (size - 1 - column + 0.5 if mirrored < 0.5 else column + 0.5) - 0.5
            y = top + share * (row + 0.5) - 0.5
            for i in range(int(np.floor(y)) - 1, int(np.floor(y)) + 3):
                for j in range(int(np.floor(x)) - 1, int(np.floor(x)) + 3):
                    near = picture[min(max(i, 0), size - 1), min(max(j, 0), size - 1)].astype(float)
                    out[row, column] += weight(y - i) * weight(x - j) * near
    return np.clip(np.round(out * (0.9 + 0.2 * light)), 0, 255)


def test_what_decides_a_view_is_a_hash_of_content_and_number_cut_into_five():
    for view in (0, 7):
        for one, numbers in zip(CONTENTS, draws(CONTENTS, view), strict=True):
            data = hashlib.blake2b(f"{one}:{view}".encode(), digest_size=40).digest()
            words = [int.from_bytes(data[at : at + 8], "little") >> 11 for at in range(0, 40, 8)]
            assert numbers.tolist() == [word / 2**53 for word in words]
    many = draws([hashlib.sha256(str(i).encode()).hexdigest() for i in range(4000)], 0)
    assert np.abs(many.mean(0) - 0.5).max() < 0.03
    assert np.abs(np.corrcoef(many.T) - np.eye(5)).max() < 0.06


def test_a_view_is_a_window_at_full_size_perhaps_mirrored_brighter_or_darker(pixels):
    drawn = draws(CONTENTS, 3)
    assert {bool(one < 0.5) for one in drawn[:, 0]} == {True, False}
    seen = views_of(as_batch(pixels), drawn).permute(0, 2, 3, 1).numpy()
    assert seen.dtype == np.uint8
    for picture, numbers, view in zip(pixels, drawn, seen, strict=True):
        assert np.abs(slow_view(picture, *numbers) - view).max() <= 1
    whole = views_of(as_batch(pixels), np.array([[0.9, 1.0, 0.3, 0.6, 0.5]] * 5))
    assert torch.equal(whole, as_batch(pixels))
    flipped = views_of(as_batch(pixels), np.array([[0.1, 1.0, 0.3, 0.6, 0.5]] * 5))
    assert torch.equal(flipped, as_batch(pixels).flip(-1))


def test_a_view_is_the_same_whatever_else_is_in_the_batch(pixels):
    together = views_of(as_batch(pixels), draws(CONTENTS, 1))
    order = [3, 0, 4, 2, 1]
    other = views_of(as_batch(pixels[order]), draws([CONTENTS[i] for i in order], 1))
    assert torch.equal(together[order], other)
    for row in range(5):
        assert torch.equal(
            views_of(as_batch(pixels[row : row + 1]), draws(CONTENTS[row : row + 1], 1))[0], together[row]
        )


def test_bounds_are_the_extremes_over_the_image_and_its_views_scored_one_by_one(model, pixels):
    plain = Runner(model, CPU)
    runner = Runner(model, CPU, views=6)
    found = runner.submit(pixels, CONTENTS).result()
    assert runner.columns == (
        "kappa_visimsiam", "unc_visimsiam", "kappa_visimsiam_lower", "kappa_visimsiam_upper",
        "unc_visimsiam_lower", "unc_visimsiam_upper",
    )  # fmt: skip
    said = plain.submit(pixels).result()
    assert np.array_equal(said.embedding, found.embedding)
    for name in runner.scores:
        assert np.array_equal(said.columns[name], found.columns[name])
        every = [said.columns[name]]
        for view in range(6):
            made = np.ascontiguousarray(views_of(as_batch(pixels), draws(CONTENTS, view)).permute(0, 2, 3, 1).numpy())
            every.append(plain.submit(made).result().columns[name])
        lower, upper = (found.columns[bound] for bound in bounds_of(name))
        assert np.array_equal(lower, np.min(every, 0))
        assert np.array_equal(upper, np.max(every, 0))
        assert (lower < upper).all()


def test_bounds_of_unc_are_those_of_kappa_turned_over(model, pixels):
    found = Runner(model, CPU, views=3).submit(pixels, CONTENTS).result().columns
    assert np.allclose(found["unc_visimsiam_lower"], 1 / found["kappa_visimsiam_upper"], rtol=1e-6)
    assert np.allclose(found["unc_visimsiam_upper"], 1 / found["kappa_visimsiam_lower"], rtol=1e-6)


def test_smaller_steps_and_more_views_keep_what_is_there(model, pixels):
    runner = Runner(model, CPU, views=4)
    whole = runner.submit(pixels, CONTENTS).result().columns
    runner.step = 2
    for name, values in runner.submit(pixels, CONTENTS).result().columns.items():
        assert np.allclose(values, whole[name], rtol=1e-4)
    more = Runner(model, CPU, views=9).submit(pixels, CONTENTS).result().columns
    assert (more["kappa_visimsiam_lower"] <= whole["kappa_visimsiam_lower"]).all()
    assert (more["kappa_visimsiam_upper"] >= whole["kappa_visimsiam_upper"]).all()


def test_a_score_that_is_no_number_on_a_view_has_bounds_that_are_none(model, pixels, monkeypatch):
    real = model.forward
    calls = []

    def forward(images, scorers=None):
        outputs = real(images, scorers)
        calls.append(1)
        if len(calls) == 3:
            outputs.columns["kappa_visimsiam"][1] = np.nan
        return outputs

    runner = Runner(model, CPU, views=4)
    monkeypatch.setattr(runner.model, "forward", forward)
    found = runner.submit(pixels, CONTENTS).result().columns
    for bound in bounds_of("kappa_visimsiam"):
        assert np.isnan(found[bound]).tolist() == [False, True, False, False, False]
    assert not np.isnan(found["kappa_visimsiam"]).any()


def test_coverage_is_that_of_the_extremes_of_exchangeable_values():
    generator = np.random.default_rng(0)
    for n in (2, 4, 8, 16):
        values = np.exp(generator.standard_normal((20_000, n + 1)))
        inside = (values[:, :-1].min(1) <= values[:, -1]) & (values[:, -1] <= values[:, :-1].max(1))
        assert abs(inside.mean() - coverage(n)) < 0.012


@pytest.mark.parametrize("n", [-1, 1, 257, 1_000_000])
def test_a_number_of_views_that_is_no_interval_is_refused(n):
    with pytest.raises(InputError, match="--views takes 2 to 256"):
        check_views(n)
    assert [check_views(each) for each in (0, 2, 256)] == [0, 2, 256]


def test_a_model_without_a_score_has_no_interval_to_give():
    bare = ScoringModel(ModelSpec("resnet10t", {}, {}, Preprocessing(size=32, resize=32)))
    with pytest.raises(InputError, match="gives embeddings and no score"):
        Runner(bare, CPU, views=4)


def test_views_without_the_digests_that_decide_them_are_a_mistake_of_the_caller(model, pixels):
    with pytest.raises(ValueError, match="digests"):
        Runner(model, CPU, views=4).submit(pixels, CONTENTS[:2])
