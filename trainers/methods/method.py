"""The interface of a method for the training loop."""

from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from torch import Tensor, nn

from scoring.heads import HeadSpec
from trainers.methods.settings import Augmentation, Settings

S = TypeVar("S", bound=Settings)


@dataclass(frozen=True)
class Step:
    """The result of one batch.

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
        pixels: every view as the backbone reads it, normalised, one tensor (V, N, 3, S, S) for each resolution,
            standard views first; empty where features come from a cache.
        begins_pass: whether a pass over the images begins with this batch.
    """

    rows: Tensor
    losses: Tensor | None = None
    share: float = 0.0
    pixels: tuple[Tensor, ...] = ()
    begins_pass: bool = False


@dataclass(frozen=True)
class Task:
    """What the modules of a method are built for.

    Attributes:
        width: of the features.
        n_classes: of the labels, for methods that read them.
        seed: of the run.
        is_frozen: whether the backbone stays as it is.
        size: side of a standard view in pixels.
        backbone: the one that learns, for methods that keep a copy of it; not to be registered as a module.
        head: the one of this method, too.
        precision: of the backbone: fp32, bf16 or fp16.
        n: how many images there are; 0 where it is unknown yet.
        mean: of the channels in [0, 1], which was subtracted from the pixels of views.
        std: of the same, which they were divided by then.
    """

    width: int
    n_classes: int = 0
    seed: int = 0
    is_frozen: bool = False
    size: int = 0
    backbone: nn.Module | None = None
    head: nn.Module | None = None
    precision: str = "fp32"
    n: int = 0
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)


class Method(nn.Module, Generic[S]):
    """A loss, and the modules that only training needs.

    Class attributes:
        paper: where it was published, or empty.
        Settings: the class of its settings.
        defaults: where its recipe differs from TrainConfig's defaults in what all methods share.
        needs_labels: whether the data must have them.
        needs_pixels: whether it reads ``Batch.pixels``, which a cache of features does not have.
        n_unread: how many of the standard views, the last of them, it reads as pixels alone: they have no features.
        embeds: whether the mu of its head, if that has one, is the embedding of a model whose backbone it moves.
        n_standard: views of full resolution an image; low-resolution views come after them.
        n_plain: how many of them show the image as it is scored, without augmentation; they come first.
        n_small: low-resolution views an image, of ``small_size`` pixels a side.
        keeps_batch: whether ``after_step`` stores what the batch was, so that a step must be of one batch.
    """

    paper: ClassVar[str] = ""
    Settings: ClassVar[type[Settings]] = Settings
    defaults: ClassVar[dict[str, Any]] = {}
    needs_labels: ClassVar[bool] = False
    needs_pixels: ClassVar[bool] = False
    embeds: ClassVar[bool] = False
    n_standard: int = 2
    n_plain: int = 0
    n_unread: int = 0
    n_small: int = 0
    small_size: int = 0
    keeps_batch: bool = False

    def __init__(self, settings: S, task: Task) -> None:
        super().__init__()
        self.settings = settings

    @classmethod
    def head(cls, settings: S, size: int, n_classes: int = 2) -> HeadSpec | None:
        """Return the trained head that the model keeps, or None.

        Args:
            settings: its settings.
            size: side of a standard view in pixels, for heads that make images.
            n_classes: of the labels, for heads that predict classes.
        """
        return None

    @classmethod
    def reads_labels(cls, settings: S) -> bool:
        """Return whether the data must have labels with these settings."""
        return cls.needs_labels

    @classmethod
    def reads_losses(cls, settings: S) -> str | None:
        """Return the column with a loss for each image, or None."""
        return None

    @classmethod
    def reads_pixels(cls, settings: S) -> bool:
        """Return whether it reads ``Batch.pixels`` with these settings."""
        return cls.needs_pixels

    @classmethod
    def fitted(cls, settings: S, batch_size: int, n: int) -> S:
        """Return the settings with amounts, such as a queue, reduced to what a batch and n images allow."""
        return settings

    @classmethod
    def check_amount(cls, settings: S, batch_size: int, n: int) -> None:
        """Raise ``InputError`` for batch sizes, or numbers of images n, that it cannot train with; most take any."""

    @classmethod
    def check_views(cls, augmentation: Augmentation) -> None:
        """Raise ``InputError`` for views that it cannot train with; most take any."""

    def rates(self) -> dict[str, float]:
        """Return the multiple of lr for its own parameters by name, which get no weight decay; empty for most."""
        return {}

    def before_step(self, batch: Batch) -> None:
        """Prepare for the images of the next features; a no-op for most methods."""

    def forward(self, features: Tensor, head: nn.Module | None, labels: Tensor | None) -> Step:
        """Return the loss of a batch.

        Args:
            features: of every view but those unread, shape (V, N, D), float32; the standard views come first.
            head: the model's head of this method, features (B, D) -> (B,), or None where the method has none.
            labels: shape (N,), int64, or None.
        """
        raise TypeError(f"{type(self).__name__} has no loss")

    def after_step(self, step: int) -> None:
        """Act after the optimiser's step of this number, such as updating a teacher; a no-op for most."""
