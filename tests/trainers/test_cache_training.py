"""Training from a cache."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_cache import CPU, make

from scoring.errors import InputError
from trainers.build import build
from trainers.cache import open_cache
from trainers.config import TrainConfig
from trainers.loop import train
from trainers.methods.table import METHODS
from trainers.views import CachedViews


def config(method="losspred", **changes):
    kind = METHODS[method].Settings
    settings = {"latent_dim": 8, "hidden_dim": 16, "n_small": 0}
    base = TrainConfig(
        method,
        "test_resnet",
        size=32,
        epochs=5,
        batch_size=8,
        lr=0.01,
        freeze="trunk",
        optimizer="adamw",
        settings=kind(**{name: value for name, value in settings.items() if name in kind.about()}),
    )
    return replace(base, **changes)


@pytest.mark.parametrize("method", ["losspred", "mcinfonce", "visimsiam"])
def test_a_head_trained_from_the_cache_leaves_the_backbone_unchanged(made, model, tmp_path, method):
    before = {name: value.clone() for name, value in model.backbone.state_dict().items()}
    cache = open_cache(made)
    recipe = config(method)
    start = build(recipe, len(cache.classes), init=model)
    first = {name: value.clone() for name, value in start[0].heads[method].state_dict().items()}
    trained, measures = train(recipe, cache, state=tmp_path / "s", device=CPU, start=start)
    assert np.isfinite(list(measures.values())).all()
    assert all(torch.equal(value, trained.backbone.state_dict()[name]) for name, value in before.items())
    assert any(not torch.equal(value, trained.heads[method].state_dict()[name]) for name, value in first.items())
    assert set(trained.heads) == {"visimsiam", method}


def test_training_from_the_cache_gives_what_the_same_features_give_from_anywhere(made, model, tmp_path):
    """The definition: the method's own steps over the cached rows, by hand."""
    from trainers.build import make_optimizer, set_mode
    from trainers.data import batches
    from trainers.loop import learning_rate
    from trainers.methods.method import Batch

    cache, recipe = open_cache(made), config(epochs=2)
    trained, _ = train(recipe, cache, state=tmp_path / "s", device=CPU, start=build(recipe, 3, init=model))
    ours, method = build(recipe, 3, init=model)
    optimizer = make_optimizer(recipe, ours, method)
    set_mode(recipe, ours, method)
    views = CachedViews(recipe, cache, method, device=CPU)
    held = {at: cache.epoch(at).float() for at in cache.augmented}
    step = 0
    for epoch in range(2):
        (chosen,) = views.turn(epoch)
        for rows in batches(cache.n, 8, epoch=epoch, seed=0):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(recipe, step, 4)
            method.before_step(Batch(rows, None, step / 4))
            loss = method(held[chosen][rows][None], ours.heads["losspred"], cache.labels[rows]).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
    assert step == 4
    for name, value in ours.heads["losspred"].state_dict().items():
        assert torch.allclose(value, trained.heads["losspred"].state_dict()[name], atol=1e-6)


def test_views_of_an_image_come_from_different_epochs_and_each_is_used_before_any_comes_again(copy, model, files):
    make(copy, model, files, epochs=6)
    cache = open_cache(copy)
    _, method = build(config("mcinfonce"), 3, init=model)
    views = CachedViews(config("mcinfonce"), cache, method, device=CPU)
    turns = [views.turn(epoch) for epoch in range(8)]
    assert all(len(set(turn)) == 2 for turn in turns)
    for start in range(0, 8, 2):
        assert len(set(turns[start] + turns[start + 1])) == 4  # of five; one sits out
    assert len({tuple(turn) for turn in turns}) > 2
    rows = torch.tensor([4, 0, 9])
    features = views(rows, epoch=3, step=0).features
    assert features.shape == (2, 3, model.width)
    assert torch.equal(features, torch.stack([cache.epoch(at)[rows].float() for at in turns[3]]))


def test_memory_holds_no_more_epochs_than_fit(copy, model, files, monkeypatch):
    make(copy, model, files, epochs=6)
    cache = open_cache(copy)
    _, method = build(config("losspred"), 3, init=model)
    views = CachedViews(config("losspred"), cache, method, device=CPU)
    monkeypatch.setattr("trainers.cache.free_memory", lambda: int(1.5 * cache.epoch_bytes))
    for epoch in range(5):
        views(torch.tensor([0]), epoch=epoch, step=0)
        assert len(views._held) == 1
    monkeypatch.setattr("trainers.cache.free_memory", lambda: 100 * cache.epoch_bytes)
    for epoch in range(5):
        views(torch.tensor([0]), epoch=epoch, step=0)
    assert len(views._held) == 5
    monkeypatch.setattr("trainers.cache.free_memory", lambda: cache.epoch_bytes)
    with pytest.raises(InputError, match="GB of memory"):
        cache.epoch(1)


def test_too_few_epochs_for_the_views_name_how_many_to_make(made, model, files, tmp_path):
    make(tmp_path / "f", model, files, epochs=2)
    cache = open_cache(tmp_path / "f")
    with pytest.raises(InputError, match=r"mcinfonce .*has 1; .*--epochs 3"):
        train(
            config("mcinfonce"),
            cache,
            state=tmp_path / "s",
            device=CPU,
            start=build(config("mcinfonce"), 3, init=model),
        )


def test_the_only_epoch_there_is_serves_a_method_with_one_view(model, files, tmp_path):
    make(tmp_path / "f", model, files, epochs=1)
    cache = open_cache(tmp_path / "f")
    assert cache.augmented == [0]
    train(config(epochs=1), cache, state=tmp_path / "s", device=CPU, start=build(config(), 3, init=model))


def test_a_recipe_whose_backbone_moves_cannot_read_a_cache(made, model, tmp_path):
    with pytest.raises(ValueError, match="frozen backbone"):
        train(config(freeze="nothing"), open_cache(made), state=tmp_path / "s", device=CPU)


def test_a_method_that_reads_pixels_cannot_read_a_cache(made, model, tmp_path, monkeypatch):
    monkeypatch.setattr("trainers.methods.losspred.LossPred.needs_pixels", True)
    with pytest.raises(InputError, match="losspred reads pixels"):
        train(config(), open_cache(made), state=tmp_path / "s", device=CPU, start=build(config(), 3, init=model))
