"""From bytes to model input: the settings stored in a checkpoint."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from scoring.errors import InputError

INTERPOLATIONS = ("bicubic", "bilinear")
LARGEST_RESIZE = 4096


@dataclass(frozen=True)
class Preprocessing:
    """Resizing of the short side to ``resize``, and the central crop of ``size`` x ``size`` pixels.

    Args:
        size: side of the square that the model sees, in pixels, 1 to ``resize``.
        resize: length of the short side after the (antialiased) resize, in pixels, at most 4096.
        interpolation: ``bicubic`` or ``bilinear``.
        mean: of the channels R, G, B in [0, 1]; subtracted on the device, not by the decoder.
        std: of the same channels, above 0; divided by on the device.

    Raises:
        InputError: a field is of the wrong type or out of its range.
    """

    size: int = 64
    resize: int = 64
    interpolation: str = "bicubic"
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)

    def __post_init__(self) -> None:
        for name in ("size", "resize"):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= LARGEST_RESIZE:
                raise InputError(
                    f"preprocessing: expected {name} to be a whole number of pixels between 1 and "
                    f"{LARGEST_RESIZE}, got {value!r}; correct it"
                )
        if self.size > self.resize:
            raise InputError(
                f"preprocessing: expected size <= resize, got size {self.size} and resize {self.resize}; "
                "a square cannot be cut from a smaller image, so raise resize"
            )
        if self.interpolation not in INTERPOLATIONS:
            raise InputError(
                f"preprocessing: expected interpolation to be one of {', '.join(INTERPOLATIONS)}, "
                f"got {self.interpolation!r}; choose one of them"
            )
        object.__setattr__(self, "mean", _channel_values("mean", self.mean, low=0.0, high=1.0))
        object.__setattr__(self, "std", _channel_values("std", self.std, low=1e-6, high=1e6))

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain JSON for ``from_json``."""
        record = asdict(self)
        record["mean"], record["std"] = list(self.mean), list(self.std)
        return record

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Preprocessing":
        """Return the settings that ``to_json`` wrote.

        Raises:
            InputError: a key is unknown or missing, or a value is out of its range.

        >>> Preprocessing.from_json(Preprocessing(size=32).to_json()).size
        32
        """
        known = [field.name for field in fields(cls)]
        if not isinstance(record, Mapping) or sorted(map(str, record)) != sorted(known):
            got = sorted(map(str, record)) if isinstance(record, Mapping) else type(record).__name__
            raise InputError(
                f"preprocessing: expected exactly the keys {', '.join(known)}, got {got}; "
                "was the file written by another version?"
            )
        return cls(**record)


def _channel_values(name: str, values: Any, *, low: float, high: float) -> tuple[float, float, float]:
    numbers = tuple(values) if isinstance(values, (tuple, list)) else ()
    if len(numbers) != 3 or not all(_is_between(number, low, high) for number in numbers):
        raise InputError(
            f"preprocessing: expected {name} to be three numbers between {low:g} and {high:g}, "
            f"got {values!r}; correct it"
        )
    return (float(numbers[0]), float(numbers[1]), float(numbers[2]))


def _is_between(number: Any, low: float, high: float) -> bool:
    is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
    return is_number and math.isfinite(number) and low <= number <= high
