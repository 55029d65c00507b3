"""Sequential picks with progress reports."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

ReportPicks = Callable[[int, int], None]


class _Count:
    """Counts the picks of selectors that run in sequence, by group or by part of a strategy."""

    def __init__(self, report: ReportPicks, total: int) -> None:
        self._report, self._total = report, total
        self._before, self._last = 0, 0

    def at(self, done: int) -> None:
        if done < self._last:  # the next selector begins
            self._before += self._last
        self._last = done
        self._report(min(self._before + done, self._total), self._total)


_COUNT: ContextVar[_Count | None] = ContextVar("count", default=None)


@contextmanager
def reporting_picks(report: ReportPicks, total: int) -> Iterator[None]:
    """Report the minimal number of picks so far of inner selectors, and the total."""
    token = _COUNT.set(_Count(report, total))
    try:
        yield
    finally:
        _COUNT.reset(token)


def picking(budget: int) -> Iterator[int]:
    """Yield 0, 1, ..., budget - 1 for sequential picks, and report progress."""
    count = _COUNT.get()
    for position in range(budget):
        if count is not None:
            count.at(position)
        yield position
    if count is not None:
        count.at(budget)
