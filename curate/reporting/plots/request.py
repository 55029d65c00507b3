"""The request of a chart, and the interface of its numbers."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from curate.reporting.plots.options import PlotOptions
from curate.sheets.style import WIDTH
from curate.tables.table import Table, open_table
from curate.tables.typed_json import plain_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class PlotRequest(PlotOptions):
    """The validated request of ``curate plot``."""

    column: tuple[str, ...] = ()
    seed: int = 0

    @cached_property
    def opened(self) -> Table:
        """The table, opened; InputError if it cannot be."""
        return open_table(self.table, embedding=self.embedding)


@dataclass
class Numbers(ABC):
    """The numbers of a chart, and how to draw them.

    Attributes:
        notes: remarks for the reader, a sentence each.
    """

    notes: list[str] = field(default_factory=list, kw_only=True)

    @classmethod
    @abstractmethod
    def measure(cls, request: PlotRequest) -> "Numbers":
        """Compute the numbers."""

    @abstractmethod
    def draw(self, *, title: str = "", width: float = WIDTH) -> "Figure":
        """Draw the numbers."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; a missing number is null."""
        return dict(plain_json(self))
