"""What a training run is made of. The frozen dataclass is the recipe, and the checkpoint records it."""

from dataclasses import asdict, dataclass, field
from typing import Any

from scoring.errors import InputError

SCHEDULES = ("constant", "cosine")
FREEZE = ("nothing", "batchnorm", "trunk")
PREDICTORS = ("direct", "mlp")
OPTIMIZERS = ("sgd", "adamw")
KAPPAS = ("head", "norm")
POSITIVES = ("views", "labels")
DENOMINATORS = ("eq7", "authors", "negatives")
FORMS = ("ranking", "l2")
TASKS = ("cross-entropy", "brier", "margin")
MOST_KAPPA = 1e6  # up to which the densities are tested
MOST_WIDTH = 1 << 15  # of a layer, or a view in pixels: more is a slip of the finger
MOST_EPOCHS = 10**9
MOST_SEED = 2**31 - 1


def require_seed(seed: int) -> None:
    """Raise ``InputError`` unless a seed can be mixed with the number of a step."""
    if not 0 <= seed <= MOST_SEED:
        raise InputError(f"the seed must be between 0 and 2^31 - 1, got {seed}; choose another")


@dataclass(frozen=True)
class Augmentation:
    """How a view is drawn from an image. The defaults are SimSiam's, which appendix B of VI-SimSiam keeps.

    ``corrupt`` is this project's addition: the chance of noise, and of a grey box, on a view. SimSiam's views hold
    neither, so a kappa head that was trained without them says nothing about such images.
    """

    scale: tuple[float, float] = (0.2, 1.0)  # share of the area that a standard view shows
    small_scale: tuple[float, float] = (0.05, 0.2)  # the same for a low-resolution view
    jitter: float = 0.8  # chance of colour jitter, of strength 0.4, 0.4, 0.4, 0.1
    gray: float = 0.2
    blur: float = 0.5
    blur_sigma: tuple[float, float] = (0.1, 2.0)  # pixels on a side of 224, scaled to the side of the view
    corrupt: float = 0.0

    def __post_init__(self) -> None:
        for name in ("jitter", "gray", "blur", "corrupt"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"augmentation {name} is a chance in [0, 1], got {getattr(self, name)}")
        for name in ("scale", "small_scale", "blur_sigma"):
            object.__setattr__(self, name, tuple(getattr(self, name)))  # JSON knows lists alone
        for name, most in (("scale", 1), ("small_scale", 1), ("blur_sigma", 224)):
            low, high = getattr(self, name)
            if not 0 < low <= high <= most:
                raise InputError(f"augmentation {name} needs 0 < low <= high <= {most}, got {low} and {high}")


@dataclass(frozen=True)
class Contrastive:
    """What the contrastive methods share; the defaults are paper B's where it gives a value (Kirchhof et al. 2023)."""

    kappa: str = "head"  # "head": from the features by a head of its own; "norm": the length of the projection
    kappa_init: float = 16.0  # about where kappa starts
    positives: str = "views"  # "views" of one image, or images of one class ("labels")
    negatives: int = 0  # how many an anchor is compared with, drawn anew each step; 0: all that the batch has
    samples: int = 16  # Monte Carlo draws of an image
    cross: bool = True  # all pairs of two images' draws, not only those of the same number as in equation 7
    denominator: str = "eq7"  # of the ratio: equation 7, the "authors'" code, or the "negatives" alone (equation 5)
    kappa_pos: float = 16.0  # concentration of positives around one another: 1 / temperature
    phases: float = 0.0  # share of the steps in which mu alone learns; kappa alone learns in the others; 0 is jointly
    hib_a: float = 2.0  # slope and
    hib_b: float = 1.0  # offset of HIB's chance of a match

    def __post_init__(self) -> None:
        choices = {"kappa": KAPPAS, "positives": POSITIVES, "denominator": DENOMINATORS}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise InputError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        for name in ("kappa_init", "kappa_pos", "hib_a"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} of a contrastive method must be above 0, got {getattr(self, name)}")
            if getattr(self, name) > MOST_KAPPA:
                raise InputError(f"{name} must be at most {MOST_KAPPA:g}, got {getattr(self, name)}")
        if not 1 <= self.samples <= 4096:
            raise InputError(f"samples must be between 1 and 4096 draws of an image, got {self.samples}")
        if self.negatives < 0:
            raise InputError(f"negatives must be at least 1, or 0 for the whole batch, got {self.negatives}")
        if not 0 <= self.phases < 1:
            raise InputError(f"phases is the share of steps for mu, in [0, 1), got {self.phases}")


@dataclass(frozen=True)
class LossPrediction:
    """How a head learns to predict the loss of a task (Kirchhof et al. 2023 and 2024)."""

    form: str = "ranking"  # "ranking" of pairs by their loss, or "l2" distance to the loss
    task: str = "cross-entropy"  # the loss that is predicted
    loss_column: str = ""  # a column of the data that holds the loss, computed elsewhere; then there is no classifier
    margin: float = 0.1  # of the ranking
    within: float = 0.0  # weight of ranking a view as less certain than its own plain image; other pairs have the rest
    weight: float = 1.0  # of the head's loss beside the classifier's
    folds: int = 5  # classifiers; an image's loss is of the one that did not learn from it; 1: all learn from all
    stop_gradient: bool = True  # whether the backbone is out of the head's reach; always, for the ranking

    def __post_init__(self) -> None:
        for name, allowed in (("form", FORMS), ("task", TASKS)):
            if getattr(self, name) not in allowed:
                raise InputError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        if not 1 <= self.folds <= 100:
            raise InputError(f"folds must be between 1 (no cross-fitting) and 100, got {self.folds}")
        for name in ("margin", "weight"):
            if not 0 < getattr(self, name) < float("inf"):
                raise InputError(f"{name} of the loss prediction must be above 0, got {getattr(self, name)}")
        if not 0 <= self.within <= 1:
            raise InputError(f"within is a weight in [0, 1], got {self.within}")
        if self.within and self.form != "ranking":
            raise InputError("pairs within an image are ranked, and --form l2 has no ranking; leave out --within")
        if self.form == "ranking" and not self.stop_gradient:
            raise InputError(
                "the ranking loss always stops its gradient before the backbone; use --form l2, or stop it"
            )


@dataclass(frozen=True)
class TrainConfig:
    """The recipe of one run; the defaults are appendix B of Nakamura et al. 2023 where it gives a value."""

    method: str = "visimsiam"
    backbone: str = "resnet18"
    size: int = 224  # side of a standard view and of what the model scores
    small_size: int = 96
    n_small: int = 6  # low-resolution views an image
    epochs: int = 100
    batch_size: int = 512
    lr: float = 0.1
    schedule: str = "constant"
    warmup: float = 0.0  # share of all steps over which the rate rises from 0
    optimizer: str = "sgd"
    momentum: float = 0.9  # of SGD
    betas: tuple[float, float] = (0.9, 0.999)  # of AdamW
    weight_decay: float = 1e-4
    latent_dim: int = 2048
    hidden_dim: int = 512
    predictor: str = "direct"
    predictor_every: int = 10  # steps between two decompositions for "direct"; one takes a second at M = 2048
    freeze: str = "nothing"
    trunk_lr: float = 1.0  # the backbone's rate as a share of lr
    seed: int = 0
    precision: str = "fp32"
    augmentation: Augmentation = field(default_factory=Augmentation)
    contrastive: Contrastive = field(default_factory=Contrastive)
    losspred: LossPrediction = field(default_factory=LossPrediction)

    def __post_init__(self) -> None:
        for name in ("size", "small_size", "epochs", "latent_dim", "hidden_dim", "predictor_every"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.batch_size < 2:
            raise InputError(f"batch_size must be at least 2 (batch normalisation), got {self.batch_size}")
        for name in ("latent_dim", "hidden_dim", "size", "small_size"):
            if getattr(self, name) > MOST_WIDTH:
                raise InputError(f"{name} must be at most {MOST_WIDTH:,}, got {getattr(self, name):,}")
        if self.latent_dim < 2:
            raise InputError(f"latent_dim must be at least 2 (a sphere), got {self.latent_dim}")
        if self.epochs > MOST_EPOCHS:
            raise InputError(f"epochs must be at most {MOST_EPOCHS:,}, got {self.epochs:,}")
        if not 0 < self.lr < float("inf"):
            raise InputError(f"lr must be above 0 and finite, got {self.lr}")
        for name in ("weight_decay", "trunk_lr"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise InputError(f"{name} must be at least 0 and finite, got {getattr(self, name)}")
        require_seed(self.seed)
        if not 0 <= self.warmup < 1:
            raise InputError(f"warmup is a share of the steps in [0, 1), got {self.warmup}")
        choices = {"schedule": SCHEDULES, "freeze": FREEZE, "predictor": PREDICTORS, "optimizer": OPTIMIZERS}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise InputError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")

    def to_json(self) -> dict[str, Any]:
        """Return the recipe as plain JSON values."""
        return asdict(self)
