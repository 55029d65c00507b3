"""What the loop asks of a method."""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from scoring.heads import HeadSpec
from trainers.config import TrainConfig


@dataclass(frozen=True)
class Step:
    """What one batch gave.

    Attributes:
        loss: scalar, to be minimised.
        measures: name -> scalar, shown while the run goes on and kept in the checkpoint.
    """

    loss: Tensor
    measures: dict[str, Tensor]


class Method(nn.Module):
    """A loss, and the modules that only training needs.

    Class attributes:
        needs_labels: whether the data must have them.
        n_standard: views of full resolution an image; multi-crop views come after them.
        multi_crop: whether low-resolution views are used.
        defaults: where its recipe differs from TrainConfig's defaults.
    """

    needs_labels: ClassVar[bool] = False
    n_standard: ClassVar[int] = 2
    multi_crop: ClassVar[bool] = True
    defaults: ClassVar[dict[str, Any]] = {}

    def __init__(self, width: int, config: TrainConfig, n_classes: int) -> None:
        super().__init__()

    @classmethod
    def head(cls, config: TrainConfig) -> HeadSpec | None:
        """Return the shape of the head that it trains and that the model keeps, or None."""
        return None

    def forward(self, features: Tensor, head: nn.Module | None, labels: Tensor | None) -> Step:
        """Return the loss of a batch.

        Args:
            features: of every view, shape (V, N, D), float32; the standard views come first.
            head: the model's head of this method, features (B, D) -> (B,), or None where the method has none.
            labels: shape (N,), int64, or None.
        """
        raise TypeError(f"{type(self).__name__} has no loss")

    def after_step(self, step: int) -> None:
        """Do what follows the optimiser's step of this number; nothing, for most."""
