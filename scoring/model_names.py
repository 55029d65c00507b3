"""Parsing of model names."""

from pathlib import Path

from scoring.errors import InputError

DEFAULT = "world"
PREFIX = "timm:"
FILE = "@"  # separates the name from a file of weights; not in timm's names


def is_published(name: str | Path) -> bool:
    """Return whether a name refers to a pretrained timm model."""
    return isinstance(name, str) and name.startswith(PREFIX)


def with_weights(name: str, weights: str | Path | None) -> str:
    """Return the name of a timm model with its weights in a separate file; the name itself if ``weights`` is None.

    Raises InputError if the model is not among timm's, or already names a file.
    """
    if weights is None:
        return name
    if not is_published(name) or FILE in name:
        raise InputError(f"a file of weights goes with a model of timm's: expected timm:NAME, got {name!r}")
    return f"{name}{FILE}{weights}"
