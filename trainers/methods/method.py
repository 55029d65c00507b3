"""The interface between a training method and the training loop."""

from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from torch import Tensor, nn

from scoring.class_heads import HeadSpec
from trainers.methods.settings import Augmentation, Settings

S = TypeVar("S", bound=Settings)
T = TypeVar("T")


def needed(value: T | None, what: str) -> T:
    """Return what the training loop has to pass; ValueError without it."""
    if value is None:
        raise ValueError(f"this method needs {what}, got none")
    return value


@dataclass(frozen=True)
class Step:
    """The result of one batch: the loss, a scalar to minimise, and measures, scalars for display and checkpoint."""

    loss: Tensor
    measures: dict[str, Tensor]


@dataclass(frozen=True)
class Batch:
    """The images of the next step.

    Attributes:
        rows: row number of each image in the data, shape (N,), int64; the same in every epoch.
        losses: computed by the user for each image, shape (N,), float64, or None.
        share: share of all steps that are done, in [0, 1).
        pixels: every view as the backbone reads it, normalised: one tensor (V, N, 3, S, S) per resolution, standard
            views first; empty if features come from a cache.
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
        width: D, the feature width.
        n_classes: number of classes, for methods that read labels.
        seed: of the run.
        is_frozen: whether the backbone is not trained.
        size: side of a standard view in pixels.
        backbone: the trained backbone, for methods that copy it; must not be registered as a submodule.
        head: the method's head, for the same purpose.
        precision: of the backbone: fp32, bf16 or fp16.
        n: number of images; 0 if unknown.
        mean: channel means in [0, 1] that were subtracted from the pixels of views.
        std: channel standard deviations by which they were then divided.
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
        paper: its publication, or empty.
        Settings: the class of its settings.
        defaults: fields of TrainConfig whose defaults differ for this method.
        needs_labels: whether the data must have labels.
        needs_pixels: whether it reads ``Batch.pixels``, which a feature cache does not have.
        n_unread: number of standard views, at the end, that it reads as pixels only: they have no features.
        embeds: whether the mu of its head, if any, is the embedding of a model whose backbone it trains.
        n_standard: full-resolution views per image; low-resolution views come after them.
        n_plain: number of unaugmented views among them; they come first.
        n_small: low-resolution views per image, with a side of ``small_size`` pixels.
        keeps_batch: whether ``after_step`` stores the batch, so that a step must consist of one batch.
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
            settings: of the method.
            size: side of a standard view in pixels, for heads that generate images.
            n_classes: number of classes, for heads that predict them.
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
        """Return the settings with sizes, such as a queue's, reduced to what the batch size and n images allow."""
        return settings

    @classmethod
    def check_amount(cls, settings: S, batch_size: int, n: int) -> None:
        """Raise ``InputError`` for a batch size or a number of images n that it cannot train with."""

    @classmethod
    def check_views(cls, augmentation: Augmentation) -> None:
        """Raise ``InputError`` for an augmentation that it cannot train with."""

    def rates(self) -> dict[str, float]:
        """Return learning rates relative to lr of its parameters by name; these get no weight decay."""
        return {}

    def before_step(self, batch: Batch) -> None:
        """Prepare for the images of the next features; by default does nothing."""

    def forward(self, features: Tensor, head: nn.Module | None, labels: Tensor | None) -> Step:
        """Return the loss of a batch.

        Args:
            features: of every view except unread ones, shape (V, N, D), float32; standard views come first.
            head: the model's head of this method, features (B, D) -> (B,), or None.
            labels: shape (N,), int64, or None.
        """
        raise TypeError(f"{type(self).__name__} has no loss")

    def after_step(self, step: int) -> None:
        """Called after each optimiser step, for example to update a teacher; by default does nothing."""
