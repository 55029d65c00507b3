"""Heads that predict classes with an uncertainty: shapes as stored in a checkpoint, and columns."""

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, ClassVar

from scoring.column import Column
from scoring.errors import InputError
from scoring.lookup import attribute
from scoring.scorers import HEAD, LOGITS

if TYPE_CHECKING:
    from torch import Tensor, nn

WIDEST = 65536
WIDEST_INSIDE = 8192  # maximal width of a hidden layer
MOST_SAMPLES = 1024
LARGEST_SCALE = 1e9  # beyond this factor, or its inverse, float32 scores become infinite or zero
ENTROPY = {"unc_<method>_entropy": Column("entropy of the predicted distribution over classes", "nats", "less certain")}
SPREAD = {
    "unc_<method>_jsd": Column(
        "Jensen-Shannon divergence of the distributions over classes that several predict", "nats", "less certain"
    )
}
LOG_DETERMINANT = {
    "unc_<method>_logdet": Column(
        "logarithm of the determinant of the covariance before the classifier", "nats", "less certain"
    )
}
VARIANCE = {
    "unc_<method>_variance": Column("posterior variance of a logit, relative to the prior's", "1", "less certain")
}


def check_width(what: str, got: int, most: int = WIDEST) -> None:
    """Raise ``InputError`` unless a count is between 1 and ``most``."""
    if not 1 <= got <= most:
        raise InputError(f"{what} between 1 and {most}, got {got}")


def check_scale(what: str, got: float) -> None:
    """Raise ``InputError`` unless a factor is between 1 / ``LARGEST_SCALE`` and ``LARGEST_SCALE``."""
    if not 1 / LARGEST_SCALE <= got <= LARGEST_SCALE:
        shown = f"{got:g}" if isinstance(got, float) else f"a number of {len(str(got))} digits"
        raise InputError(f"{what} needs a scale between {1 / LARGEST_SCALE:g} and {LARGEST_SCALE:g}, got {shown}")


def named(columns: Mapping[str, Column], values: "Tensor") -> "dict[str, Tensor]":
    """Return values, shape (N, K), as K columns."""
    return dict(zip(columns, values.unbind(1), strict=True))


@dataclass(frozen=True)
class HeadSpec:
    """The shape of a head, as stored in a checkpoint: a scorer with a trained module.

    The fields of a subclass are the parameters of its module after the width of the features, in that order.

    Attributes:
        kind: its name in a checkpoint.
        module: ``"package.module:Class"``, imported when a head is built.
    """

    kind: ClassVar[str]
    module: ClassVar[str]
    needs: ClassVar[str] = HEAD
    passes: ClassVar[int] = 0
    columns: ClassVar[Mapping[str, Column]]

    def build(self, width: int) -> "nn.Module":
        """Return an untrained head for features of this width."""
        module: nn.Module = attribute(self.module)(width, *astuple(self))
        return module

    def score(self, outputs: "Tensor", /) -> "dict[str, Tensor]":
        """Return the columns for the head's outputs, shape (N, K)."""
        return named(self.columns, outputs)


@dataclass(frozen=True)
class ClassifierHeadSpec(HeadSpec):
    """The shape of a linear classifier, whose logits other scorers may use."""

    kind: ClassVar[str] = "classifier"
    module: ClassVar[str] = "torch.nn:Linear"
    columns: ClassVar[Mapping[str, Column]] = ENTROPY
    classes: int = 2

    def __post_init__(self) -> None:
        check_width("a classifier needs a number of classes", self.classes)

    def score(self, logits: "Tensor") -> "dict[str, Tensor]":
        """Return the entropy of the class distribution of logits, shape (N, C), in nats."""
        from scoring.class_modules import entropy_and_spread

        return named(self.columns, entropy_and_spread(logits[:, None])[:, :1])


@dataclass(frozen=True)
class EnsembleHeadSpec(HeadSpec):
    """The shape of a shallow ensemble: several linear classifiers on the same features."""

    kind: ClassVar[str] = "ensemble"
    module: ClassVar[str] = "scoring.class_modules:EnsembleHead"
    columns: ClassVar[Mapping[str, Column]] = ENTROPY | SPREAD
    classes: int = 2
    members: int = 10

    def __post_init__(self) -> None:
        check_width("an ensemble needs a number of classes", self.classes)
        check_width("an ensemble needs a number of members", self.members, MOST_SAMPLES)


@dataclass(frozen=True)
class DropoutHeadSpec(HeadSpec):
    """The shape of a linear classifier behind dropout that stays on in scoring: ``samples`` fixed masks for all images.

    Source: Gal & Ghahramani 2016, "Dropout as a Bayesian Approximation".
    """

    kind: ClassVar[str] = "mcdropout"
    module: ClassVar[str] = "scoring.class_modules:DropoutHead"
    columns: ClassVar[Mapping[str, Column]] = ENTROPY | SPREAD
    classes: int = 2
    rate: float = 0.1
    samples: int = 10

    def __post_init__(self) -> None:
        check_width("a head with dropout needs a number of classes", self.classes)
        check_width("a head with dropout needs a number of samples", self.samples, MOST_SAMPLES)
        check_scale("a head with dropout", 1 / self.rate - 1 if self.rate > 0 else 0.0)


@dataclass(frozen=True)
class HetXLHeadSpec(HeadSpec):
    """The shape of a classifier of noisy features: N(mean, V V' + diag d) in ``dim`` dimensions, V of ``rank`` columns.

    Source: Collier et al. 2023, "Massively Scaling Heteroscedastic Classifiers" (HET-XL), arXiv:2301.12860.
    """

    kind: ClassVar[str] = "hetxl"
    module: ClassVar[str] = "scoring.class_modules:HetXLHead"
    columns: ClassVar[Mapping[str, Column]] = ENTROPY | SPREAD | LOG_DETERMINANT
    classes: int = 2
    dim: int = 512
    rank: int = 1
    samples: int = 20

    def __post_init__(self) -> None:
        check_width("a HET-XL head needs a number of classes", self.classes)
        check_width("a HET-XL head needs a dimension", self.dim, WIDEST_INSIDE)
        check_width("a HET-XL head needs a rank, at most its dimension,", self.rank, min(self.dim, 256))
        check_width("a HET-XL head needs a number of samples", self.samples, MOST_SAMPLES)


@dataclass(frozen=True)
class SNGPHeadSpec(HeadSpec):
    """The shape of a Gaussian process classifier on random Fourier features of the normalised features.

    Attributes:
        classes: C.
        features: number F of random features; the precision is F x F.
        length: scale of the kernel exp(-|x - x'|^2 / (2 length^2)) of unit vectors.
        ridge: precision of the prior.
        mean_field: lambda in logits / sqrt(1 + lambda variance); 0 leaves them as they are.

    Source: Liu et al. 2020, "Simple and Principled Uncertainty Estimation ..." (SNGP), arXiv:2006.10108, eq. 8 to 10.
    """

    kind: ClassVar[str] = "sngp"
    module: ClassVar[str] = "scoring.class_modules:SNGPHead"
    columns: ClassVar[Mapping[str, Column]] = ENTROPY | VARIANCE
    classes: int = 2
    features: int = 1024
    length: float = 1.0
    ridge: float = 1.0
    mean_field: float = 12.5

    def __post_init__(self) -> None:
        check_width("an SNGP head needs a number of classes", self.classes)
        check_width("an SNGP head needs a number of random features", self.features, WIDEST_INSIDE)
        check_scale("an SNGP head's kernel", self.length)
        check_scale("an SNGP head's prior", self.ridge)
        check_scale("an SNGP head's mean field", 1 + self.mean_field if self.mean_field >= 0 else 0.0)


@dataclass(frozen=True)
class DropoutScorer:
    """The disagreement of class predictions over passes with dropout; runs the network ten more times.

    Source: Gal & Ghahramani 2016, "Dropout as a Bayesian Approximation".
    """

    needs: ClassVar[str] = LOGITS
    columns: ClassVar[Mapping[str, Column]] = ENTROPY | SPREAD
    passes: int = 10

    def score(self, logits: "Tensor") -> "dict[str, Tensor]":
        """Return the columns for logits of several passes, shape (P, N, C)."""
        from scoring.class_modules import entropy_and_spread

        return named(self.columns, entropy_and_spread(logits.transpose(0, 1)))
