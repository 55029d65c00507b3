"""The settings of methods, whose fields document their meaning and range; and the augmentation of a view."""

import math
from dataclasses import dataclass, field, fields
from typing import Any

from scoring.errors import InputError

MOST_WIDTH = 1 << 15  # maximum width of a layer, or side of a view in pixels, to catch typing errors
LATER = object()  # marker: a cache does not fix the value


@dataclass(frozen=True)
class About:
    """The meaning of a setting, and its allowed values.

    Attributes:
        meaning: with the unit, for display.
        choices: allowed words of a text setting.
        least: minimum, inclusive.
        above: minimum, exclusive.
        most: maximum, inclusive.
        below: maximum, exclusive.
        cached: its only allowed value if features come from a cache, for settings of views.
    """

    meaning: str
    choices: tuple[str, ...] = ()
    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None
    cached: Any = LATER

    @property
    def values(self) -> str:
        """The allowed values in words; empty if every value of the type is allowed."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        bounds = (("at least", self.least), ("above", self.above), ("at most", self.most), ("below", self.below))
        return " and ".join(f"{word} {_number(bound)}" for word, bound in bounds if bound is not None)

    @property
    def is_of_views(self) -> bool:
        """Whether the setting concerns views of images, which are fixed in a cache."""
        return self.cached is not LATER

    def allows(self, value: Any) -> bool:
        """Return whether a value of the right type is allowed; a number must be finite."""
        if self.choices:
            return value in self.choices
        if isinstance(value, str | bool):
            return True
        return (
            math.isfinite(value)
            and (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        )


def setting(default: Any, meaning: str, **allowed: Any) -> Any:
    """Return a dataclass field of a setting; ``allowed`` are attributes of ``About``."""
    return field(default=default, metadata={"about": About(meaning, **allowed)})


@dataclass(frozen=True)
class Settings:
    """Base class of all settings, and the settings of a method without any.

    Raises:
        InputError: for a value that is not allowed.
    """

    def __post_init__(self) -> None:
        for name, about in self.about().items():
            value = getattr(self, name)
            if not about.allows(value):
                raise InputError(f"{name} must be {about.values}, got {_number(value)}")

    @classmethod
    def about(cls) -> dict[str, About]:
        """Return the meaning and range of each setting, in order."""
        return {field.name: field.metadata["about"] for field in fields(cls)}


@dataclass(frozen=True)
class Shown:
    """A setting for display: its name, default, meaning and allowed values."""

    name: str
    default: str
    meaning: str


def shown(kind: type[Settings]) -> list[Shown]:
    """Return the settings of a method, in order, for help and documents."""
    rows = []
    for name, about in kind.about().items():
        default = getattr(kind, name)
        text = (
            str(default).lower()
            if isinstance(default, bool)
            else f"{default:g}"
            if isinstance(default, float)
            else str(default)
        )
        rows.append(Shown(name, text, f"{about.meaning} ({about.values})" if about.values else about.meaning))
    return rows


def _number(value: Any) -> str:
    if isinstance(value, int) and abs(value) >= 10_000:
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else repr(value)


@dataclass(frozen=True)
class Augmentation:
    """How a view is drawn from an image. Defaults are SimSiam's, which VI-SimSiam keeps (appendix B).

    ``corrupt`` and ``damage`` are this project's additions. ``corrupt`` is the probability of noise, and of a grey box,
    on a view: SimSiam's views have neither, so kappa trained on them is undefined for such images. ``damage`` is the
    probability that a view gets one of the corruptions of ``trainers.augment``.
    """

    scale: tuple[float, float] = (0.2, 1.0)  # share of the area in a standard view
    small_scale: tuple[float, float] = (0.05, 0.2)  # share of the area in a low-resolution view
    jitter: float = 0.8  # probability of colour jitter
    gray: float = 0.2
    blur: float = 0.5
    blur_sigma: tuple[float, float] = (0.1, 2.0)  # in pixels for a side of 224, scaled to the view's side
    corrupt: float = 0.0
    damage: float = 0.0
    jitter_strength: float = 0.4  # for brightness, contrast and saturation; a quarter of it for hue
    solarize: float = 0.0  # probability that values v >= 128 become 255 - v
    vertical_flip: float = 0.0

    def __post_init__(self) -> None:
        for name in ("jitter", "jitter_strength", "gray", "blur", "solarize", "vertical_flip", "corrupt", "damage"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"augmentation {name} must be in [0, 1], got {getattr(self, name)}")
        for name in ("scale", "small_scale", "blur_sigma"):
            object.__setattr__(self, name, tuple(getattr(self, name)))  # JSON has no tuples
        for name, most in (("scale", 1), ("small_scale", 1), ("blur_sigma", 224)):
            low, high = getattr(self, name)
            if not 0 < low <= high <= most:
                raise InputError(f"augmentation {name} needs 0 < low <= high <= {most}, got {low} and {high}")
