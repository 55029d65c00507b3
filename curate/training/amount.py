"""Adaptation of training defaults to the number of images."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scoring.settings import parse_settings

if TYPE_CHECKING:
    from trainers.config import TrainConfig


def fitted(
    config: "TrainConfig", n: int, typed: Mapping[str, Any], line: Callable[[str], None] = lambda text: None
) -> "TrainConfig":
    """Return a recipe whose default batch, queue and the like suit n images; report the changes.

    Args:
        config: the recipe.
        n: number of images, at least 2.
        typed: ``batch_size``, None if not typed, and ``set_``, NAME=VALUE as typed; these are not changed.
        line: called with each change.
    """
    from trainers.methods.table import METHODS

    if typed["batch_size"] is None and n < config.batch_size:
        line(f"{n:,} images are fewer than a batch of {config.batch_size:,}: each step uses them all (--batch-size)")
        config = replace(config, batch_size=n)
    settings, suits = config.settings, METHODS[config.method].fitted(config.settings, config.batch_size, n)
    stay = parse_settings(typed["set_"] or [], example="queue=512")
    lowered = {
        name: value for name, value in vars(suits).items() if value != getattr(settings, name) and name not in stay
    }
    for name, value in lowered.items():
        line(
            f"{name}={value} instead of {getattr(settings, name)}, for {n:,} images in batches of "
            f"{config.batch_size:,} (--set {name})"
        )
    return replace(config, settings=replace(settings, **lowered)) if lowered else config
