"""The interface of every head, and bounds on the sizes in a checkpoint."""

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, ClassVar

from scoring.column import Column
from scoring.errors import InputError
from scoring.lookup import attribute
from scoring.scorers import HEAD

if TYPE_CHECKING:
    from torch import Tensor, nn

WIDEST = 65536
WIDEST_INSIDE = 8192  # of a layer between two others, whose weights are their product
MOST_SAMPLES = 1024
LARGEST_SCALE = 1e9  # in float32 a larger factor gives infinite scores, and a smaller one than its inverse zeros


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

    The fields of a subclass are what its module takes after the width of the features, in that order.

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
