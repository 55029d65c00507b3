"""The start of a run: random weights, pretrained timm weights, or a checkpoint."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from scoring.backbones import create_backbone, published_preprocessing, size_options
from scoring.cards import shipped_models
from scoring.checkpoint import load_model
from scoring.errors import InputError
from scoring.model import ModelSpec, ScoringModel
from scoring.model_names import FILE
from scoring.model_names import PREFIX as PUBLISHED
from trainers.cache import CachedFeatures

DEFAULT = "resnet18"
RANDOM_SIZE = 224
OF_EMBEDDING = ("share", "projection", "packaged")  # of combined backbones: they change no single feature


@dataclass(frozen=True)
class Start:
    """The starting weights of a run.

    Attributes:
        backbone: architecture, by timm's name.
        model: initial weights, heads and preprocessing; None for random weights.
        about: its description in the model card and the training state, as JSON values.
        options: requested options of the backbone; ``model`` is already built with them.
    """

    backbone: str
    model: ScoringModel | None
    about: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)

    def size(self, side: int | None, *, frozen: bool) -> int:
        """Return the view size in pixels: as requested, else the start's.

        Raises:
            InputError: if another size than its own is requested for a frozen start.
        """
        if self.model is None:
            return side or RANDOM_SIZE
        made_for = self.model.spec.preprocessing.size
        if frozen and side not in (None, made_for):
            raise InputError(
                f"a frozen backbone keeps its preprocessing: expected views of {made_for} pixels, got --size {side}; "
                "leave --size out"
            )
        return side or made_for

    @property
    def backbone_digest(self) -> str:
        """Digest of the backbone: architecture, weights and preprocessing, without heads.

        Raises:
            InputError: for random weights, whose features cannot be reproduced.
        """
        if self.model is None:
            raise InputError(
                f"expected a checkpoint, a shipped model or timm:NAME, got {self.backbone!r} with random "
                "weights; choose a trained one"
            )
        return backbone_digest(self.model)


def backbone_digest(model: ScoringModel) -> str:
    """Return the sha256 of architecture, preprocessing and backbone weights, which determine the features."""
    spec = model.spec
    facts: list[Any] = [spec.backbone, spec.backbone_options, spec.preprocessing.to_json()]
    for part in spec.parts:
        facts.append({name: value for name, value in part.to_json().items() if name not in OF_EMBEDDING})
    total = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name, value in sorted(model.backbone.state_dict().items()):
        if spec.parts and name in OF_EMBEDDING:
            continue
        plain = value.detach().cpu().contiguous()
        total.update(f"\0{name}\0{plain.dtype}\0{tuple(plain.shape)}\0".encode())
        total.update(plain.view(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


def find_start(text: str | None, *, size: int | None = None, settings: Mapping[str, Any] | None = None) -> Start:
    """Return the start named by ``--backbone``.

    Args:
        text: ``timm:NAME`` for weights that timm publishes, ``timm:NAME@FILE`` for weights in a file, a checkpoint or
            the name of a shipped model, any other timm name for random weights; None for the default.
        size: image size of a published model; by default the size that its weights were trained for.
        settings: options of the network, for random and published weights.

    Raises:
        InputError: if there is no such model, its weights are not available, or a checkpoint gets options.
    """
    typed = dict(settings or {})
    if text is None:
        return Start(DEFAULT, None, {"random": DEFAULT}, typed)
    is_stored = text in shipped_models() or Path(text).is_file() or Path(text).suffix == ".safetensors"
    if typed and (is_stored or FILE in text):
        raise InputError(
            f"{text} holds the weights of a fixed network; leave --backbone-set {next(iter(typed))} out, or "
            "choose a timm network"
        )
    if text.startswith(PUBLISHED) and FILE in text:
        model, card = load_model(text)
        return Start(model.spec.backbone, model, {"timm": model.spec.backbone, "digest": card["digest"]})
    if text.startswith(PUBLISHED):
        name = text.removeprefix(PUBLISHED)
        options = size_options(name, size) | typed
        backbone = create_backbone(name, pretrained=True, options=options)
        spec = ModelSpec(name, options, {}, published_preprocessing(backbone, size))
        return Start(name, ScoringModel(spec, backbone=backbone), {"timm": name}, typed)
    if is_stored:
        model, card = load_model(text)
        about = {name: card[name] for name in ("method", "digest", "data_licence", "training", "metrics")}
        return Start(model.spec.backbone, model, about)
    return Start(text, None, {"random": text}, typed)


def start_of(cache: CachedFeatures, text: str | None) -> Start:
    """Return the model that a cache was made with.

    Args:
        cache: an open cache.
        text: value of ``--backbone``; None for the model that the cache names, if it is a shipped one: a path in an
            untrusted file is not followed.

    Raises:
        InputError: if the model is not available, or its features differ from those in the cache.
    """
    name = str(cache.about.get("made_from", {}).get("name"))
    if text is None and name not in shipped_models():
        raise InputError(
            f"{cache.folder} was made with {name!r}, which does not ship; pass it as --backbone, so that the "
            "model is complete"
        )
    start = find_start(text or name)
    if start.backbone_digest != cache.about["model"].get("trunk"):
        cached = str(cache.about["model"].get("trunk"))[:12]
        raise InputError(
            f"{cache.folder} holds features of {name!r} (backbone {cached}), and {text or name} is another model "
            f"(backbone {start.backbone_digest[:12]}); pass the model of the cache as --backbone, or build a "
            "cache with this one"
        )
    if start.model is None or start.model.width != cache.width:
        raise InputError(f"{cache.folder} holds features {cache.width} wide, unlike its model's; build it again")
    return start
