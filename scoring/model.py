"""A scoring model: a backbone and its heads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scoring.backbones import feature_width, stored_backbone
from scoring.cards import PartSpec
from scoring.class_heads import ClassifierHeadSpec, HeadSpec
from scoring.crops import ten_crops
from scoring.errors import InputError
from scoring.heads import EMBEDS
from scoring.images import Preprocessing
from scoring.joined_backbone import PLAIN_MEAN, PLAIN_STD, JoinedBackbone
from scoring.scorers import CROPS, HEAD_OF_PIXELS, LOGITS, Scorer, columns_of, scored

DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
DROPOUT_SEED = 0  # fixed for repeated passes, so that every batch uses the same masks


@dataclass(frozen=True)
class ModelSpec:
    """Everything needed to build a model, except its weights.

    Attributes:
        backbone: timm's name; for several joined backbones their names separated by ``+``.
        backbone_options: timm's options of a single backbone.
        heads: method -> head.
        preprocessing: of the image for all backbones.
        parts: the backbones if there are several, else empty.
        projection: width of the embedding of several backbones; 0 for the width of their features.
        cpu_precision: default precision of the backbones on CPUs with bfloat16: ``fp32`` or ``bf16``.
        embedding: the head whose mu is the embedding; empty if the features are the embedding.

    Raises:
        InputError: if the head ``embedding`` is missing or has no mu.
    """

    backbone: str
    backbone_options: dict[str, Any] = field(default_factory=dict)
    heads: dict[str, HeadSpec] = field(default_factory=dict)
    preprocessing: Preprocessing = field(default_factory=Preprocessing)
    parts: tuple[PartSpec, ...] = ()
    projection: int = 0
    cpu_precision: str = "fp32"
    embedding: str = ""

    def __post_init__(self) -> None:
        if self.embedding and not isinstance(self.heads.get(self.embedding), EMBEDS):
            raise InputError(f"expected a head that computes the embedding, and this model has no {self.embedding!r}")

    def create_backbone(self) -> nn.Module:
        """Return the backbone, or the joined ones, for weights to be loaded."""
        if self.parts:
            return JoinedBackbone(self.parts, self.preprocessing.size, self.projection)
        return stored_backbone(self.backbone, self.backbone_options)


def side_by_side(parts: Sequence[PartSpec], preprocessing: Preprocessing, projection: int = 0) -> ModelSpec:
    """Return the spec of a headless model with several backbones.

    Args:
        parts: the backbones, each with its normalisation.
        preprocessing: how images are decoded; its mean and std are ignored.
        projection: width of the embedding; 0 for the width of the features.
    """
    name = "+".join(part.name for part in parts)
    return ModelSpec(
        name, {}, {}, replace(preprocessing, mean=PLAIN_MEAN, std=PLAIN_STD), tuple(parts), projection, "bf16"
    )


@dataclass(frozen=True)
class Outputs:
    """The outputs of a model for N images.

    Attributes:
        embedding: shape (N, E), float32, rows of unit length; E is D for a single backbone.
        columns: name of a column of the table -> shape (N,), float32; see ``scoring.scorers``.
    """

    embedding: Tensor
    columns: dict[str, Tensor]


@dataclass(frozen=True)
class BackbonePart:
    """A backbone and its input: ``scale`` x (mean pixel value in cells of ``pool`` x ``pool``) + ``shift``.

    Attributes:
        backbone: (N, 3, S, S) -> pooled features, (N, D).
        pool: side of a cell, in pixels.
        scale: of each channel, shape (3,), float32.
        shift: of each channel, shape (3,), float32.
    """

    backbone: nn.Module
    pool: int
    scale: Tensor
    shift: Tensor


class ScoringModel(nn.Module):
    """A timm backbone, or several joined, and the heads on its features."""

    mean: Tensor
    std: Tensor
    quick: nn.Module | None  # faster backbones on this device; see scoring.folded

    def __init__(self, spec: ModelSpec, *, backbone: nn.Module | None = None) -> None:
        """Build the model; ``backbone`` is used instead of a new one."""
        super().__init__()
        self.spec = spec
        self.register_module("quick", None)
        self.backbone = backbone or spec.create_backbone()
        self.width = feature_width(self.backbone)
        self.heads = nn.ModuleDict({name: head.build(self.width) for name, head in spec.heads.items()})
        # on the CPU whatever the default device: arithmetic on the device "meta" imports torch's compiler
        for name, values in (("mean", spec.preprocessing.mean), ("std", spec.preprocessing.std)):
            scaled = 255 * torch.tensor(values, device="cpu").view(1, 3, 1, 1)
            self.register_buffer(name, scaled, persistent=False)

    @property
    def embedding_width(self) -> int:
        """E, the width of an embedding."""
        spec = self.spec.heads.get(self.spec.embedding)
        if isinstance(spec, EMBEDS):
            return spec.dim
        return self.backbone.embedding_width if isinstance(self.backbone, JoinedBackbone) else self.width

    def embed(self, features: Tensor) -> Tensor:
        """Return embeddings, shape (N, E), rows of unit length, for float32 features, shape (N, D)."""
        if self.spec.embedding:
            head: Any = self.heads[self.spec.embedding]  # one of EMBEDS
            return F.normalize(head.project(features), dim=1)
        return (
            self.backbone.embed(features) if isinstance(self.backbone, JoinedBackbone) else F.normalize(features, dim=1)
        )

    def normalize(self, pixels: Tensor) -> Tensor:
        """Return the backbone's input, float32, from pixel values in [0, 255], shape (N, 3, H, W)."""
        return (pixels.float() - self.mean) / self.std

    def features(self, pixels: Tensor) -> Tensor:
        """Return pooled features, shape (N, D), from pixel values in [0, 255], shape (N, 3, H, W)."""
        return self.backbone(self.normalize(pixels)) if self.quick is None else self.quick(pixels)

    def backbone_parts(self) -> list["BackbonePart"]:
        """Return the backbones, one or several, each with its preprocessing of pixel values."""
        mean, std = (torch.tensor(value) for value in (self.spec.preprocessing.mean, self.spec.preprocessing.std))
        if not isinstance(self.backbone, JoinedBackbone):
            return [BackbonePart(self.backbone, 1, 1 / (255 * std), -mean / std)]
        parts = []
        for part, spec, pool in zip(self.backbone.parts, self.backbone.specs, self.backbone.pools, strict=True):
            part_mean, part_std = torch.tensor(spec.mean), torch.tensor(spec.std)
            parts.append(BackbonePart(part, pool, 1 / (255 * std * part_std), (-mean / std - part_mean) / part_std))
        return parts

    def forward(self, pixels: Tensor, scorers: Mapping[str, Scorer] | None = None) -> Outputs:
        """Score a batch.

        Args:
            pixels: RGB, shape (N, 3, H, W), uint8 or float in [0, 255].
            scorers: further scorers in addition to the model's heads, by name; see ``require_needs``.

        Returns:
            Embeddings and columns in float32: scorers always run in float32, since half precision has only a few
            thousand distinct values.
        """
        features = self.features(pixels)
        outputs = self.read(features, pixels)
        for name, scorer in (scorers or {}).items():
            if scorer.needs == CROPS:
                inputs = self.of_crops(pixels)
            else:
                inputs = self.repeated(pixels, scorer.passes) if scorer.passes else features
            with torch.autocast(inputs.device.type, enabled=False):
                inputs = self.logits(inputs.float()) if scorer.needs == LOGITS else inputs.float()
                outputs.columns.update(scored(name, scorer, inputs, len(features)))
        return outputs

    def read(self, features: Tensor, pixels: Tensor | None = None) -> Outputs:
        """Return the heads' scores for features, shape (N, D), and the embedding.

        Args:
            features: from ``features``.
            pixels: of the same images, as in ``forward``; only some heads need them.
        """
        features = features.float()
        columns: dict[str, Tensor] = {}
        with torch.autocast(features.device.type, enabled=False):
            for name, head in self.heads.items():
                spec = self.spec.heads[name]
                if spec.needs == HEAD_OF_PIXELS:
                    if pixels is None:
                        raise ValueError(f"the head {name} needs pixels")
                    outputs = head(features, pixels.float() / 255)
                else:
                    outputs = head(features)
                columns |= scored(name, spec, outputs, len(features))
            return Outputs(self.embed(features), columns)

    def logits(self, features: Tensor) -> Tensor:
        """Return logits (..., C) for features (..., D) by the model's classifier; ValueError if it has none."""
        name = self.classifier
        if name is None:
            raise ValueError("logits are a classifier's, and the model has none")
        return self.heads[name](features.flatten(0, -2)).unflatten(0, features.shape[:-1])

    @property
    def classifier(self) -> str | None:
        """The name of the head with logits, or None."""
        return next((name for name, spec in self.spec.heads.items() if isinstance(spec, ClassifierHeadSpec)), None)

    def of_crops(self, pixels: Tensor) -> Tensor:
        """Return embeddings of ten crops of each image, shape (10, N, E), rows of unit length."""
        crops = []
        for crop in ten_crops(pixels):
            seen = self.features(crop.contiguous(memory_format=torch.channels_last)).float()
            with torch.autocast(seen.device.type, enabled=False):
                crops.append(self.embed(seen))
        return torch.stack(crops)

    def repeated(self, pixels: Tensor, passes: int) -> Tensor:
        """Return features of several passes with dropout on, shape (P, N, D); the masks are the same at every call."""
        layers = self.dropouts()
        with torch.random.fork_rng(devices=[pixels.device] if pixels.is_cuda else []):
            torch.manual_seed(DROPOUT_SEED)
            for layer in layers:
                layer.train()
            try:
                return torch.stack([self.features(pixels) for _ in range(passes)])
            finally:
                for layer in layers:
                    layer.eval()

    def dropouts(self) -> list[nn.Module]:
        """Return the dropout layers of the backbone."""
        return [layer for layer in self.backbone.modules() if isinstance(layer, DROPOUTS) and layer.p > 0]


def require_needs(model: ScoringModel, scorers: Mapping[str, Scorer]) -> None:
    """Raise ``InputError`` unless a model provides what scorers need, and their column names are free."""
    taken = columns_of(model.spec.heads)
    for name, scorer in scorers.items():
        if scorer.needs == LOGITS and model.classifier is None:
            raise InputError(f"{name} needs a classifier's logits, and the model has no classifier; use another model")
        if scorer.passes and not model.dropouts():
            raise InputError(
                f"{name} runs the network {scorer.passes} times with dropout, and {model.spec.backbone} has none: "
                "every pass would be the same; use another model"
            )
        for column in columns_of({name: scorer}):
            if column in taken:
                raise InputError(
                    f"{name} writes the column {column}, and the model has a head of that name; leave it out"
                )
