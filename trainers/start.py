"""What a run starts from: random weights, weights that timm publishes, or a checkpoint."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scoring.backbones import create_backbone, published_preprocessing, size_options
from scoring.checkpoint import load_model, shipped_models
from scoring.errors import InputError
from scoring.model import ModelSpec, ScoringModel

PUBLISHED = "timm:"
DEFAULT = "resnet18"
RANDOM_SIZE = 224


@dataclass(frozen=True)
class Start:
    """Where a run begins.

    Attributes:
        backbone: architecture, by timm's name.
        model: weights, heads and preprocessing to begin with; None for random weights.
        about: what the model card and the training state say of it, as plain JSON values.
    """

    backbone: str
    model: ScoringModel | None
    about: dict[str, Any]

    def size(self, wanted: int | None, *, frozen: bool) -> int:
        """Return the side of a view in pixels: what was asked for, else what the start was made for.

        Raises:
            InputError: if a frozen start is asked for another size than its own.
        """
        if self.model is None:
            return wanted or RANDOM_SIZE
        own = self.model.spec.preprocessing.size
        if frozen and wanted not in (None, own):
            raise InputError(
                f"a frozen backbone keeps its preprocessing: expected views of {own} pixels, got --size {wanted}; "
                "leave --size out"
            )
        return wanted or own


def find_start(text: str | None, *, size: int | None = None) -> Start:
    """Return what ``--backbone`` names.

    Args:
        text: ``timm:NAME`` for the weights that timm publishes, a checkpoint or the name of a shipped model, any other
            timm name for random weights; None for random weights of the default.
        size: side of what a published model is to see; by default what its weights were made for.

    Raises:
        InputError: if there is no such thing, or its weights cannot be had.
    """
    if text is None:
        return Start(DEFAULT, None, {"random": DEFAULT})
    if text.startswith(PUBLISHED):
        name = text.removeprefix(PUBLISHED)
        options = size_options(name, size) if size else {}
        backbone = create_backbone(name, pretrained=True, options=options)
        spec = ModelSpec(name, options, {}, published_preprocessing(backbone, size))
        return Start(name, ScoringModel(spec, backbone=backbone), {"timm": name})
    if text in shipped_models() or Path(text).is_file() or Path(text).suffix == ".safetensors":
        model, card = load_model(text)
        about = {name: card[name] for name in ("method", "digest", "data_licence", "training", "metrics")}
        return Start(model.spec.backbone, model, about)
    return Start(text, None, {"random": text})
