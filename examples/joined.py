"""A model of several backbones out of single ones: what to centre and divide by, seen on images, and a projection."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from scoring.backbones import published_shapes
from scoring.cards import PackagedWeights, PartSpec
from scoring.checkpoint import packaged_tensors
from scoring.errors import InputError
from scoring.images import Preprocessing
from scoring.joined_backbone import JoinedBackbone
from scoring.model import ScoringModel, side_by_side
from scoring.packaged import convert_weights, tensors_digest

FEWEST = 2  # images that a spread can be measured on
WHITENED = 0.25  # 1 would give all directions of a projection the same second moment, 0 leaves them as they are


def part_of(model: ScoringModel, share: float) -> PartSpec:
    """Return a single-backbone model's backbone as a part, whose weights the new checkpoint will hold."""
    spec = model.spec
    if spec.parts:
        raise InputError(f"expected a model of one backbone, got {spec.backbone}; use its parts")
    input_of = spec.preprocessing
    return PartSpec(spec.backbone, input_of.size, share, input_of.mean, input_of.std, dict(spec.backbone_options))


def in_package(name: str, package: str, file: str) -> PackagedWeights:
    """Return where an installed package holds the weights of a timm model; they are read once and must fit."""
    data = PackagedWeights(package, file, "?", "?").path().read_bytes()
    weights = convert_weights(data, published_shapes(name), name=file)
    return PackagedWeights(package, file, hashlib.sha256(data).hexdigest(), tensors_digest(weights))


def join_backbones(
    parts: Sequence[PartSpec],
    weights: Mapping[int, Mapping[str, Tensor]],
    batches: Iterable[Tensor],
    *,
    size: int,
    projection: int = 0,
    precision: str = "fp32",
) -> ScoringModel:
    """Return a headless model of several backbones, centred and scaled on images.

    The centre is the mean of the features, the scale of a part the root mean square of what is left: features then
    have variance 1 on average, whatever the backbone. For a projection see ``projected``. All three are rounded to
    float16, and stored without loss by a checkpoint of either precision.

    Args:
        parts: the backbones, in the order of their features.
        weights: number of a part -> its state dict, for every part that no package holds.
        batches: images of the kind that the model is for, uint8, each (B, 3, size, size).
        size: side of the decoded square in pixels.
        projection: width of the embedding, or 0 for the features'.
        precision: fp32, or bf16 for convolutions that are faster where the CPU has it, and means of 3 digits.

    Raises:
        InputError: if a package is missing or does not fit, or there are too few images.
    """
    spec = side_by_side(parts, Preprocessing(size=size, resize=size), projection)
    model = ScoringModel(spec).eval()
    backbones = model.backbone
    if not isinstance(backbones, JoinedBackbone):
        raise ValueError(f"expected a joined backbone, got {type(backbones).__name__}")
    state = {**model.state_dict(), **packaged_tensors(spec, model)}
    for at, tensors in weights.items():
        state |= {f"backbone.parts.{at}.{name}": value for name, value in tensors.items()}
    model.load_state_dict(state)
    model.to(memory_format=torch.channels_last)
    with torch.inference_mode():
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            features = torch.cat([model.features(batch) for batch in batches])  # (N, D), float32
        _require(features, projection)
        centre = features.mean(0, dtype=torch.float64).float()
        spread = [piece.square().mean().sqrt() for piece in (features - centre).split(backbones.widths, dim=1)]
        backbones.centre.copy_(centre.half())
        backbones.scale.copy_(torch.stack(spread).half())
        if backbones.projection is not None:
            backbones.projection.copy_(projection_of(backbones, backbones.standardize(features), projection))
    return model.to(memory_format=torch.contiguous_format)


def projected(model: ScoringModel, features: Tensor, width: int) -> ScoringModel:
    """Return a model of several backbones, heads and all, whose embeddings have another width.

    Args:
        model: as it is, with or without a projection.
        features: of images of the kind that it is for, shape (N, D), such as a cache holds.
        width: of the embeddings, at most N and D.

    Raises:
        InputError: for a model of one backbone, or too few images.
    """
    if not isinstance(model.backbone, JoinedBackbone):
        raise InputError(f"expected a model of several backbones, got {model.spec.backbone}")
    _require(features, width)
    other = ScoringModel(replace(model.spec, projection=width)).eval()
    state = {**model.state_dict(), "backbone.projection": projection_of(model.backbone, features, width)}
    other.load_state_dict(state)
    return other


@torch.inference_mode()
def projection_of(backbones: JoinedBackbone, features: Tensor, width: int) -> Tensor:
    """Return a projection, shape (E, D), in what float16 can hold: the directions of the greatest second moment.

    So cosines change least; each direction is divided by the eighth root of its moment in addition (a quarter of the
    way to whitening), which separates neighbours of unseen domains no worse and copies better.
    """
    rows = backbones.weigh(features.float()).double()
    moments, vectors = torch.linalg.eigh(rows.T @ rows / len(rows))  # ascending
    scaled = vectors[:, -width:] / moments[-width:].clamp(min=1e-12) ** (WHITENED / 2)
    return scaled.flip(1).T.half().float().contiguous()


def _require(features: Tensor, projection: int) -> None:
    if len(features) < max(FEWEST, projection):
        raise InputError(f"expected at least {max(FEWEST, projection)} images to measure on, got {len(features)}")
