"""Heads: features -> one number an image. Each kind has a shape (its spec, in the checkpoint) and a module."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from scoring.errors import InputError
from scoring.lookup import lookup

WIDEST = 65536
DEEPEST = 16


@dataclass(frozen=True)
class KappaHeadSpec:
    """The shape of a kappa head, as a checkpoint records it.

    ``scale`` multiplies the softplus. The best kappa for a cosine c is (M-1) c / (1-c): with scale = M-1 the head
    has to move within one or two units, where plain softplus would have to move by thousands.
    """

    kind: ClassVar[str] = "kappa"
    column: ClassVar[str] = "kappa"
    hidden: int = 512
    scale: float = 1.0

    def __post_init__(self) -> None:
        _check_width("a kappa head needs a hidden width", self.hidden)
        _check_scale("a kappa head", self.scale)

    def build(self, width: int) -> nn.Module:
        """Return a fresh head for features of this width."""
        return KappaHead(width, self)


@dataclass(frozen=True)
class NormHeadSpec:
    """The shape of a head whose projection has a direction, mu, and a length, kappa."""

    kind: ClassVar[str] = "norm"
    column: ClassVar[str] = "kappa"
    dim: int = 16
    scale: float = 1.0

    def __post_init__(self) -> None:
        _check_width("a norm head needs a dimension", self.dim)
        _check_scale("a norm head", self.scale)

    def build(self, width: int) -> nn.Module:
        """Return a fresh head for features of this width."""
        return NormHead(width, self)


@dataclass(frozen=True)
class UncertaintyHeadSpec:
    """The shape of a head that predicts a loss: how many hidden layers, how wide, and a factor on the result."""

    kind: ClassVar[str] = "uncertainty"
    column: ClassVar[str] = "unc"
    hidden: int = 512
    depth: int = 2
    scale: float = 1.0

    def __post_init__(self) -> None:
        _check_width("an uncertainty head needs a hidden width", self.hidden)
        _check_scale("an uncertainty head", self.scale)
        if not 0 <= self.depth <= DEEPEST:
            raise InputError(f"an uncertainty head needs between 0 and {DEEPEST} hidden layers, got {self.depth}")

    def build(self, width: int) -> nn.Module:
        """Return a fresh head for features of this width."""
        return UncertaintyHead(width, self)


HeadSpec = KappaHeadSpec | NormHeadSpec | UncertaintyHeadSpec

KINDS: dict[str, type[HeadSpec]] = {kind.kind: kind for kind in (KappaHeadSpec, NormHeadSpec, UncertaintyHeadSpec)}


def head_to_json(spec: HeadSpec) -> dict[str, Any]:
    """Return a head's shape as plain JSON values."""
    return {"kind": spec.kind, **asdict(spec)}


def head_from_json(record: Mapping[str, Any]) -> HeadSpec:
    """Return the shape that ``head_to_json`` wrote; a record without a kind is a kappa head's.

    Raises:
        InputError: if the kind is unknown or a value out of range.
        TypeError: if a field is unknown.
    """
    fields = dict(record)
    return lookup(KINDS, str(fields.pop("kind", KappaHeadSpec.kind)), kind="kind of head")(**fields)


class KappaHead(nn.Module):
    """Two layers with batch normalisation between: features (N, D) -> kappa (N,), >= 0, higher is more certain.

    Source: Nakamura et al. 2023, appendix B: Linear(D, 512), BN, ReLU, Linear(512, 1), softplus.
    """

    def __init__(self, width: int, spec: KappaHeadSpec) -> None:
        super().__init__()
        self.spec = spec
        self.hidden = nn.Linear(width, spec.hidden)
        self.norm = nn.BatchNorm1d(spec.hidden)
        self.out = nn.Linear(spec.hidden, 1)

    def forward(self, features: Tensor) -> Tensor:
        """Return kappa, shape (N,), in float32 whatever the precision of the backbone."""
        hidden = F.relu(self.norm(self.hidden(features.float())))
        return self.spec.scale * F.softplus(self.out(hidden)).squeeze(1)


class NormHead(nn.Module):
    """A linear map e = W f: its direction is mu, its length kappa; features (N, D) -> kappa (N,), >= 0.

    Source: Kirchhof et al. 2023 (MCInfoNCE), sec. 4.3 and appendix C: the norm of the embedding is the concentration.
    """

    def __init__(self, width: int, spec: NormHeadSpec) -> None:
        super().__init__()
        self.spec = spec
        self.out = nn.Linear(width, spec.dim, bias=False)

    def project(self, features: Tensor) -> Tensor:
        """Return e, shape (N, dim), float32."""
        return self.spec.scale * self.out(features.float())

    def forward(self, features: Tensor) -> Tensor:
        """Return kappa, the length of e, shape (N,)."""
        return self.project(features).norm(dim=1)


class UncertaintyHead(nn.Module):
    """A multi-layer perceptron: features (N, D) -> uncertainty (N,), > 0, higher is less certain; the order counts.

    Source: Kirchhof et al. 2024 (Pretrained Visual Uncertainties), sec. 3.2: hidden layers of 512 with LeakyReLU,
    then softplus and 1e-6, which keeps it above 0.
    """

    def __init__(self, width: int, spec: UncertaintyHeadSpec) -> None:
        super().__init__()
        self.spec = spec
        widths = [width, *[spec.hidden] * spec.depth]
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), nn.LeakyReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(widths[-1], 1))

    def forward(self, features: Tensor) -> Tensor:
        """Return the uncertainty, shape (N,), in float32 whatever the precision of the backbone."""
        return self.spec.scale * (F.softplus(self.layers(features.float())).squeeze(1) + 1e-6)


def _check_width(what: str, got: int) -> None:
    if not 1 <= got <= WIDEST:
        raise InputError(f"{what} between 1 and {WIDEST}, got {got}")


def _check_scale(what: str, got: float) -> None:
    if not 0 < got < float("inf"):
        raise InputError(f"{what} needs a scale above 0, got {got}")
