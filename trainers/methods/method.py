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


@dataclass(frozen=True)
class Batch:
    """Which images come next.

    Attributes:
        rows: number of each image within the data, shape (N,), int64; the same image keeps its number.
        losses: what the user computed for each, shape (N,), float64, or None.
        share: of all steps, how many are done, in [0, 1).
    """

    rows: Tensor
    losses: Tensor | None = None
    share: float = 0.0


class Method(nn.Module):
    """A loss, and the modules that only training needs.

    Class attributes:
        needs_labels: whether the data must have them.
        n_standard: views of full resolution an image; multi-crop views come after them.
        n_plain: how many of them show the image as it is scored, without augmentation; they come first.
        multi_crop: whether low-resolution views are used.
        defaults: where its recipe differs from TrainConfig's defaults.
    """

    needs_labels: ClassVar[bool] = False
    n_standard: int = 2
    n_plain: int = 0
    multi_crop: ClassVar[bool] = True
    defaults: ClassVar[dict[str, Any]] = {}

    def __init__(self, width: int, config: TrainConfig, n_classes: int) -> None:
        super().__init__()

    @classmethod
    def head(cls, config: TrainConfig) -> HeadSpec | None:
        """Return the shape of the head that it trains and that the model keeps, or None."""
        return None

    @classmethod
    def reads_labels(cls, config: TrainConfig) -> bool:
        """Return whether the data must have labels under this recipe."""
        return cls.needs_labels

    @classmethod
    def reads_losses(cls, config: TrainConfig) -> str | None:
        """Return the column of the data that holds a loss for each image, or None."""
        return None

    def before_step(self, batch: Batch) -> None:
        """Take note of which images come next; most have no need to."""

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
