"""The recipe of a training run: a frozen dataclass, stored in the checkpoint."""

from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

from scoring.errors import InputError
from scoring.lookup import lookup, require_known
from scoring.settings import require_between, require_seed
from trainers.methods.settings import MOST_WIDTH, Augmentation
from trainers.methods.table import METHODS

SCHEDULES = ("constant", "cosine")
FREEZE = ("nothing", "batchnorm", "trunk")
OPTIMIZERS = ("sgd", "adamw", "lars")
MOST_EPOCHS = 10**9


def rate_steps(text: str) -> list[tuple[float, float]]:
    """Parse a learning-rate step schedule to pairs (share of all steps, factor of lr from there on).

    Raises:
        InputError: if a factor is not positive, or the shares do not increase strictly within (0, 1).

    >>> rate_steps("0.5@0.3,0.1@0.6")
    [(0.3, 0.5), (0.6, 0.1)]
    """
    steps: list[tuple[float, float]] = []
    for part in text.split(","):
        try:
            factor, share = (float(number) for number in part.split("@"))
        except ValueError:
            steps = []
            break
        steps.append((share, factor))
    shares = [0.0, *(share for share, _ in steps), 1.0]
    rises = all(before < after for before, after in pairwise(shares))
    if not steps or not rises or not all(0 < factor < float("inf") for _, factor in steps):
        raise InputError(
            f"schedule must be one of {', '.join(SCHEDULES)}, or factors of lr, each with the share of the steps that "
            f"it begins at, such as 0.1@0.6,0.01@0.8; got {text!r}"
        )
    return steps


@dataclass(frozen=True)
class TrainConfig:
    """The recipe of one run; defaults are from Nakamura et al. 2023, appendix B, where it gives a value.

    ``settings`` are the method's; by default its default settings.

    Raises:
        InputError: for an unknown method, or a value out of range.
        TypeError: for settings of another method.
    """

    method: str = "visimsiam"
    backbone: str = "resnet18"
    size: int = 224  # side in pixels of standard views and of scored images
    epochs: int = 100
    batch_size: int = 512
    lr: float = 0.1
    schedule: str = "constant"  # one of SCHEDULES, or steps; see ``rate_steps``
    warmup: float = 0.0  # share of all steps over which the rate rises from 0
    optimizer: str = "sgd"
    momentum: float = 0.9  # for SGD and LARS
    betas: tuple[float, float] = (0.9, 0.999)  # for AdamW
    weight_decay: float = 1e-4
    clip: float = 0.0  # maximum global gradient norm; 0: no clipping
    accumulate: int = 1  # batches per step, whose gradients are averaged
    freeze: str = "nothing"
    backbone_lr: float = 1.0  # the backbone's rate as a share of lr
    seed: int = 0
    precision: str = "fp32"
    stream: bool = False  # whether images are read again in each epoch, and views cropped from whole images
    backbone_options: dict[str, Any] = field(default_factory=dict)  # requested options of the network
    augmentation: Augmentation = field(default_factory=Augmentation)
    settings: Any = None  # converted to the method's class

    def __post_init__(self) -> None:
        kind = lookup(METHODS, self.method, kind="method")
        settings_class = kind.Settings
        if self.settings is None:
            object.__setattr__(self, "settings", settings_class())
        if not isinstance(self.settings, settings_class):
            raise TypeError(f"{self.method} takes {settings_class.__name__}, got {type(self.settings).__name__}")
        kind.check_views(self.augmentation)
        require_between("size", self.size, 1, MOST_WIDTH, unit="pixels")
        require_between("epochs", self.epochs, 1, MOST_EPOCHS)
        require_between("accumulate", self.accumulate, 1)
        require_between("batch_size", self.batch_size, 2, hint="batch normalisation needs two images")
        if not 0 < self.lr < float("inf"):
            raise InputError(f"lr must be above 0 and finite, got {self.lr}")
        for name in ("weight_decay", "backbone_lr", "clip"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise InputError(f"{name} must be at least 0 and finite, got {getattr(self, name)}")
        require_seed(self.seed)
        if not 0 <= self.warmup < 1:
            raise InputError(f"warmup is a share of the steps in [0, 1), got {self.warmup}")
        if self.schedule not in SCHEDULES:
            rate_steps(self.schedule)
        require_known(self.freeze, FREEZE, "unknown freeze")
        require_known(self.optimizer, OPTIMIZERS, "unknown optimizer")

    def to_json(self) -> dict[str, Any]:
        """Return the recipe as JSON values."""
        return asdict(self)
