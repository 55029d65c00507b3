"""Pretrained timm models: embeddings with their published preprocessing, without heads.

``timm:NAME[.tag]`` uses weights that timm downloads, ``timm:NAME@FILE.safetensors`` a state dict.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from scoring.backbones import canonical_name, create_backbone, published_licence, published_preprocessing
from scoring.convert import convert
from scoring.errors import InputError
from scoring.model import ModelSpec, ScoringModel
from scoring.model_names import FILE, PREFIX
from scoring.packaged import tensors_digest

METHOD = "timm"


def load_published(name: str) -> tuple[ScoringModel, dict[str, Any]]:
    """Return a timm model, ready to score on the CPU in float32, and a card as in a checkpoint.

    Args:
        name: ``timm:NAME[.tag]``, or ``timm:NAME[.tag]@FILE.safetensors``.

    Raises:
        InputError: if there is no such model, its weights are not available, or they do not fit.
    """
    architecture, _, file = name.removeprefix(PREFIX).partition(FILE)
    facts: dict[str, Any] = {}
    if file or name.endswith(FILE):
        if Path(file).suffix != ".safetensors":
            raise InputError(
                f"expected weights in a .safetensors file, got {file!r}; `curate models convert` reads others"
            )
        model, facts = convert(file, architecture, option="the model's name")
        if model.heads:
            raise InputError(
                f"{file} holds a head next to its backbone; `curate models convert` makes a checkpoint of it"
            )
        licence = "not stated"
    else:
        backbone = create_backbone(architecture, pretrained=True)
        spec = ModelSpec(canonical_name(backbone) or architecture, {}, {}, published_preprocessing(backbone))
        model, licence = ScoringModel(spec, backbone=backbone).eval(), published_licence(backbone)
    spec = model.spec
    return model, {
        "method": METHOD,
        "backbone": {"name": spec.backbone, "options": {}, "width": model.width},
        "heads": {},
        "preprocessing": spec.preprocessing.to_json(),
        "training": {METHOD: architecture, **facts},
        "metrics": {},
        "data_licence": licence,
        "digest": weights_digest(model),
    }


def weights_digest(model: ScoringModel) -> str:
    """Return the digest that identifies a headless model in its tables: of weights, name and preprocessing."""
    record = {"name": model.spec.backbone, "preprocessing": model.spec.preprocessing.to_json()}
    text = json.dumps({**record, "weights": tensors_digest(model.backbone.state_dict())}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
