"""`curate.models`: the models that ship, and the cards of others."""

from pathlib import Path
from typing import Any


def models(name: str | Path | None = None) -> dict[str, Any]:
    """Return the card of a model; without a name the cards of all models that ship, by name.

    Args:
        name: of a shipped model, or a .safetensors file.

    Raises:
        InputError: for a name that no model has, or a file whose contents do not match its digest.
    """
    from scoring.checkpoint import find_checkpoint, read_checkpoint, shipped_models

    if name is None:
        return {stem: read_checkpoint(path)[0] for stem, path in shipped_models().items()}
    return read_checkpoint(find_checkpoint(name))[0]
