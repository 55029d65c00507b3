"""How a view is drawn from an image: part of every recipe and of every cache."""

from dataclasses import dataclass

from scoring.errors import InputError


@dataclass(frozen=True)
class Augmentation:
    """How a view is drawn from an image. The defaults are SimSiam's, which appendix B of VI-SimSiam keeps.

    ``corrupt`` is this project's addition: the probability of noise, and of a grey box, on a view. SimSiam's views hold
    neither, so a kappa head that was trained without them says nothing about such images. ``damage`` is, too: the
    probability that a view is left with little to learn from, in one of the ways of ``trainers.augment``.
    """

    scale: tuple[float, float] = (0.2, 1.0)  # share of the area that a standard view shows
    small_scale: tuple[float, float] = (0.05, 0.2)  # the same for a low-resolution view
    jitter: float = 0.8  # probability of colour jitter
    gray: float = 0.2
    blur: float = 0.5
    blur_sigma: tuple[float, float] = (0.1, 2.0)  # pixels on a side of 224, scaled to the side of the view
    corrupt: float = 0.0
    damage: float = 0.0
    jitter_strength: float = 0.4  # of brightness, contrast and saturation; of the hue a quarter of it
    solarize: float = 0.0  # probability that values of 128 and more are turned into 255 less them
    vertical_flip: float = 0.0

    def __post_init__(self) -> None:
        for name in ("jitter", "jitter_strength", "gray", "blur", "solarize", "vertical_flip", "corrupt", "damage"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"augmentation {name} must be in [0, 1], got {getattr(self, name)}")
        for name in ("scale", "small_scale", "blur_sigma"):
            object.__setattr__(self, name, tuple(getattr(self, name)))  # JSON knows lists alone
        for name, most in (("scale", 1), ("small_scale", 1), ("blur_sigma", 224)):
            low, high = getattr(self, name)
            if not 0 < low <= high <= most:
                raise InputError(f"augmentation {name} needs 0 < low <= high <= {most}, got {low} and {high}")
