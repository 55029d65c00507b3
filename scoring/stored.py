"""Which tensors of a model its checkpoint stores, and where the others come from."""

import torch
from torch import Tensor

from scoring.backbones import published_shapes
from scoring.errors import InputError
from scoring.model import ModelSpec, ScoringModel
from scoring.packaged import COUNTER


def stored_names(model: ScoringModel) -> dict[str, Tensor]:
    """Return the tensors that a checkpoint stores: all except backbones inside other packages."""
    elsewhere = tuple(f"backbone.parts.{at}." for at, part in enumerate(model.spec.parts) if part.packaged)
    return {name: value for name, value in model.state_dict().items() if not name.startswith(elsewhere or "\0")}


def stored_tensors(model: ScoringModel) -> dict[str, Tensor]:
    """Return ``stored_names``.

    Raises:
        ValueError: if the others are not what their package holds, so that another model would be read back.
    """
    tensors = model.state_dict()
    for name, value in packaged_tensors(model.spec, model).items():
        if not name.endswith(COUNTER) and not torch.equal(tensors[name].cpu(), value):
            raise ValueError(
                f"{name} is not what its package holds; leave `packaged` out of a backbone that was trained"
            )
    return stored_names(model)


def packaged_tensors(spec: ModelSpec, model: ScoringModel) -> dict[str, Tensor]:
    """Return the tensors of backbones that packages hold, by the names of the model's state dict.

    Args:
        spec: of the model.
        model: of that spec, on any device; only the names and shapes of its weights are read.

    Raises:
        InputError: if a package is missing, or holds another file, or one that does not fit.
    """
    tensors: dict[str, Tensor] = {}
    for at, part in enumerate(spec.parts):
        if part.packaged is None:
            continue
        weights = part.packaged.weights(published_shapes(part.name, part.options))
        for name, like in model.backbone.parts[at].state_dict().items():  # type: ignore[index, union-attr]
            if not name.endswith(COUNTER) and (name not in weights or weights[name].shape != like.shape):
                raise InputError(f"{part.packaged.package} does not hold the weights of {part.name!r}: {name} differs")
            counter = torch.zeros(like.shape, dtype=like.dtype)
            tensors[f"backbone.parts.{at}.{name}"] = counter if name.endswith(COUNTER) else weights[name]
    return tensors
