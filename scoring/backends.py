"""Registry of the inference backends by name; each is imported when it is used."""

import importlib.metadata
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from scoring.lookup import Lazy

if TYPE_CHECKING:
    import torch

    from scoring.model import ScoringModel

    Prepare = Callable[[ScoringModel, torch.device, str], ScoringModel]

TORCH = "torch"
WHERE: dict[str, str] = {  # to add a backend, add a line: (model, device, precision) -> the same model, run by it
    TORCH: "scoring.folded:for_inference",
    "openvino": "scoring.openvino_backbone:with_openvino",
}
BACKENDS: "Mapping[str, Prepare]" = Lazy(WHERE)


def backend_versions(name: str) -> dict[str, str]:
    """Return the version of the package that affects the last digits of scores in addition to torch, by its name."""
    return {name: importlib.metadata.version(name)} if name == "openvino" else {}
