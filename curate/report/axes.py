"""Axes of a chart: the part of the plane that a panel shows, and round numbers along it."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

WIDTH = 960
LEFT, RIGHT, TOP, BOTTOM = 78, 24, 64, 66  # pixels around the axes of a panel
SCALE = 2  # drawn larger, then made smaller: smooth lines


def ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Return round numbers from low to high, at most ``most`` of them.

    >>> ticks(0, 100), ticks(0.62, 0.81)
    ([0.0, 20.0, 40.0, 60.0, 80.0, 100.0], [0.65, 0.7, 0.75, 0.8])
    """
    if not high > low:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(step * i, 12) for i in range(first, last + 1)]


def log_ticks(low: float, high: float, most: int = 12) -> list[float]:
    """Return powers of ten, and three times these where there is room, between two powers of ten.

    >>> log_ticks(-2.7, -0.4)
    [0.003, 0.01, 0.03, 0.1, 0.3]
    """
    first, last = max(math.floor(low), -307), min(math.ceil(high), 308)
    step = -(-(last - first) // (most - 1))
    digits = (1, 3) if step == 1 else (1,)
    values = [float(f"{digit}e{power}") for power in range(first, last + 1, max(step, 1)) for digit in digits]
    return [value for value in values if low <= math.log10(value) <= high] or [10**low, 10**high]


@dataclass(frozen=True)
class Frame:
    """What part of the plane is shown, and where.

    Attributes:
        x0, x1: ends of the horizontal axis.
        y0, y1: ends of the vertical one, logarithms where ``log``.
        top, bottom: pixels between which it lies.
        log: whether the vertical axis is logarithmic.
    """

    x0: float
    x1: float
    y0: float
    y1: float
    top: int
    bottom: int
    log: bool = False

    @classmethod
    def around(cls, xs: Iterable[float], ys: Iterable[float], *, top: int, bottom: int, log: bool = False) -> "Frame":
        """Return the frame around points, with some room; ``ys`` may have values for which there is no x."""
        xs, ys = list(xs), [math.log10(y) if log else y for y in ys]
        x0, x1, y0, y1 = min(xs), max(xs), min(ys), max(ys)
        room = (y1 - y0) * 0.06 or 0.05
        wide = (x1 - x0) * 0.03 or max(1.0, abs(x0) * 0.1)
        return cls(x0 - wide, x1 + wide, y0 - room, y1 + room, top, bottom, log)

    def pixel(self, x: float, y: float) -> tuple[float, float]:
        """Return the pixel of a point."""
        across = (x - self.x0) / (self.x1 - self.x0)
        up = ((math.log10(y) if self.log else y) - self.y0) / (self.y1 - self.y0)
        return (LEFT + across * (WIDTH - LEFT - RIGHT)) * SCALE, (self.bottom - up * (self.bottom - self.top)) * SCALE

    def y_ticks(self) -> list[float]:
        """Return round numbers along the vertical axis."""
        return log_ticks(self.y0, self.y1) if self.log else ticks(self.y0, self.y1)
