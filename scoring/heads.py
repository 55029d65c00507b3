"""Heads: trained scorers. Each kind has a shape, stored in the checkpoint, and a module of that shape."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from scoring.class_heads import WIDEST_INSIDE, HeadSpec, check_scale, check_width
from scoring.column import Column
from scoring.errors import InputError
from scoring.lookup import lookup
from scoring.maps import map_of_decoder
from scoring.scorers import HEAD_OF_PIXELS, SCORERS, TRAINED

if TYPE_CHECKING:
    from torch import Tensor

DEEPEST = 16
MOST_BRANCHES = 64
UNCERTAINTY = {"unc_<method>": Column("uncertainty of the representation", "1", "less certain")}
JUNK = {
    "unc_junk": Column("probability that it is junk and no whole image, if both were as common", "1", "less certain")
}
RECONSTRUCTION = {
    **UNCERTAINTY,
    "unc_<method>_error": Column(
        "mean squared error of the decoded representation, of pixels in [0, 1]", "1", "less certain"
    ),
}
BRANCHES = "unc_umm_branches"
GAUSSIANS = {
    "unc_umm": Column(
        "trace of Sigma, the covariance around a unit vector mu; of several, their mean", "1", "less certain"
    ),
    "unc_umm_logdet": Column("logarithm of the determinant of Sigma; of several, their mean", "nats", "less certain"),
    BRANCHES: Column("mean squared distance of several mu from their mean", "1", "less certain"),
}
ASSIGNMENT = {"unc_dino": Column("entropy of the teacher's distribution over prototypes", "nats", "less certain")}
KAPPA = {"kappa_<method>": Column("concentration of the representation", "1", "more certain"), **UNCERTAINTY}


def columns_of_kappa(kappa: "Tensor") -> "dict[str, Tensor]":
    """Return the columns for a concentration, shape (N,), >= 0: kappa and 1/kappa, which is infinite at 0."""
    return {"kappa_<method>": kappa, "unc_<method>": 1 / kappa}


@dataclass(frozen=True)
class KappaHeadSpec(HeadSpec):
    """The shape of a kappa head, as stored in a checkpoint.

    ``scale`` multiplies the softplus. The best kappa for a cosine c is (M-1) c / (1-c): with scale = M-1 the head
    has to move within one or two units, where plain softplus would have to move by thousands.
    """

    kind: ClassVar[str] = "kappa"
    module: ClassVar[str] = "scoring.head_modules:KappaHead"
    columns: ClassVar[Mapping[str, Column]] = KAPPA
    hidden: int = 512
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_width("a kappa head needs a hidden width", self.hidden)
        check_scale("a kappa head", self.scale)

    def score(self, kappa: "Tensor") -> "dict[str, Tensor]":
        """Return the columns for the head's outputs, shape (N,)."""
        return columns_of_kappa(kappa)


@dataclass(frozen=True)
class NormHeadSpec(HeadSpec):
    """The shape of a head whose projection has a direction mu and a length kappa."""

    kind: ClassVar[str] = "norm"
    module: ClassVar[str] = "scoring.head_modules:NormHead"
    columns: ClassVar[Mapping[str, Column]] = KAPPA
    dim: int = 16
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_width("a norm head needs a dimension", self.dim)
        check_scale("a norm head", self.scale)

    def score(self, kappa: "Tensor") -> "dict[str, Tensor]":
        """Return the columns for the head's outputs, shape (N,)."""
        return columns_of_kappa(kappa)


@dataclass(frozen=True)
class UncertaintyHeadSpec(HeadSpec):
    """The shape of a head that predicts a loss: number and width of hidden layers, and a factor on the result."""

    kind: ClassVar[str] = "uncertainty"
    module: ClassVar[str] = "scoring.head_modules:UncertaintyHead"
    columns: ClassVar[Mapping[str, Column]] = UNCERTAINTY
    hidden: int = 512
    depth: int = 2
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_width("an uncertainty head needs a hidden width", self.hidden)
        check_scale("an uncertainty head", self.scale)
        if not 0 <= self.depth <= DEEPEST:
            raise InputError(f"an uncertainty head needs between 0 and {DEEPEST} hidden layers, got {self.depth}")

    def score(self, uncertainty: "Tensor") -> "dict[str, Tensor]":
        """Return the columns for the head's outputs, shape (N,)."""
        return {"unc_<method>": uncertainty}


@dataclass(frozen=True)
class JunkHeadSpec(UncertaintyHeadSpec):
    """The shape of a head that outputs -ln(1 - p), p being the probability of junk.

    Softplus makes it so: softplus(z) = -ln(1 - sigmoid(z)). The column is p.
    """

    kind: ClassVar[str] = "junk"
    columns: ClassVar[Mapping[str, Column]] = JUNK

    def score(self, minus_log_clean: "Tensor") -> "dict[str, Tensor]":
        """Return the probability of junk, shape (N,), in [0, 1], from the head's -log(1 - p), shape (N,), in nats."""
        return {"unc_junk": -(-minus_log_clean).expm1()}


@dataclass(frozen=True)
class GaussiansHeadSpec(HeadSpec):
    """The shape of a head that describes an image by one diagonal Gaussian, or an even mixture of several.

    With one Gaussian, the column of the spread between Gaussians is omitted: it would always be 0.
    """

    kind: ClassVar[str] = "gaussians"
    module: ClassVar[str] = "scoring.head_modules:GaussiansHead"
    columns: ClassVar[Mapping[str, Column]] = GAUSSIANS
    dim: int = 128
    branches: int = 1

    def __post_init__(self) -> None:
        check_width("a head of Gaussians needs a dimension", self.dim)
        if not 1 <= self.branches <= MOST_BRANCHES:
            raise InputError(f"a head of Gaussians has between 1 and {MOST_BRANCHES} of them, got {self.branches}")
        if self.branches == 1:
            columns = {name: about for name, about in GAUSSIANS.items() if name != BRANCHES}
            object.__setattr__(self, "columns", columns)

    def score(self, gaussians: "Tensor") -> "dict[str, Tensor]":
        """Return the columns for the head's outputs, shape (N, 2, C, M): unit vectors mu, and log variances."""
        mean, log_variance = gaussians.unbind(1)
        apart = (mean - mean.mean(1, keepdim=True)).square().sum(-1)
        values = (log_variance.exp().sum(-1), log_variance.sum(-1), apart)  # each of shape (N, C)
        columns = dict(zip(GAUSSIANS, (value.mean(1) for value in values), strict=True))
        return {name: columns[name] for name in self.columns}


@dataclass(frozen=True)
class PrototypeHeadSpec(HeadSpec):
    """The shape of a head that assigns an image to prototypes; the column is the teacher's entropy, in nats.

    Source: Caron et al. 2021 (DINO), arXiv:2104.14294; its entropy as an uncertainty: Nakamura et al. 2023, sec. 4.
    """

    kind: ClassVar[str] = "prototypes"
    module: ClassVar[str] = "scoring.head_modules:PrototypeHead"
    columns: ClassVar[Mapping[str, Column]] = ASSIGNMENT
    prototypes: int = 4096
    hidden: int = 2048
    bottleneck: int = 256
    temperature: float = 0.04

    def __post_init__(self) -> None:
        check_width("a head of prototypes needs a number of them", self.prototypes)
        check_width("a head of prototypes needs a hidden width", self.hidden, WIDEST_INSIDE)
        check_width("a head of prototypes needs a bottleneck", self.bottleneck, WIDEST_INSIDE)
        if not 0 < self.temperature < float("inf"):
            raise InputError(f"a head of prototypes needs a temperature above 0, got {self.temperature}")

    def score(self, logits: "Tensor") -> "dict[str, Tensor]":
        """Return the entropy, shape (N,), in [0, ln K], of logits, shape (N, K)."""
        log_p = logits.log_softmax(1)
        return {"unc_dino": -(log_p.exp() * log_p).sum(1)}


@dataclass(frozen=True)
class PosteriorHeadSpec(HeadSpec):
    """The shape of a head with posterior q(z|x), a diagonal Gaussian, and a decoder from z to an image.

    Attributes:
        dim: width M of z; its mean is the representation.
        size: side of the image, in pixels.
        channels: of the decoder's first feature map; each upsampling halves them, down to 16.
    """

    kind: ClassVar[str] = "posterior"
    module: ClassVar[str] = "scoring.posterior:PosteriorHead"
    needs: ClassVar[str] = HEAD_OF_PIXELS
    columns: ClassVar[Mapping[str, Column]] = RECONSTRUCTION
    dim: int = 64
    size: int = 224
    channels: int = 256

    def __post_init__(self) -> None:
        check_width("a posterior head needs a dimension", self.dim)
        check_width("a decoder needs a number of channels", self.channels)
        map_of_decoder(self.size)


EMBEDS = (NormHeadSpec, GaussiansHeadSpec, PosteriorHeadSpec)  # with ``project``: features (N, D) -> mu (N, dim)


def head_to_json(spec: HeadSpec) -> dict[str, Any]:
    """Return a head's shape as plain JSON."""
    return {"kind": spec.kind, **asdict(spec)}


def head_from_json(record: Mapping[str, Any]) -> HeadSpec:
    """Return the shape that ``head_to_json`` wrote; a record without a kind is a kappa head.

    Raises InputError for an unknown kind or a value out of range, TypeError for an unknown field.
    """
    fields = dict(record)
    kinds: dict[str, Any] = {name: kind for name, kind in SCORERS.items() if kind.needs in TRAINED}
    return lookup(kinds, str(fields.pop("kind", KappaHeadSpec.kind)), kind="kind of head")(**fields)
