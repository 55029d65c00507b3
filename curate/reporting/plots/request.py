"""The request of a chart, and the interface of its numbers."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.manifest.store_path import AnyPath
from curate.sheets.style import WIDTH
from curate.tables.table import Table, open_table
from curate.tables.typed_json import plain_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class PlotRequest:
    """The request of ``curate plot``."""

    path: AnyPath
    column: tuple[str, ...] = ()
    per: str | None = None
    label: str | None = None
    labelled: str | Path | None = None
    right: str | None = None
    prediction: str | None = None
    embedding: str | None = None
    repeats: int = 1000
    sample: int | None = None
    seed: int = 0
    announce: Callable[[str], None] = lambda text: None

    @cached_property
    def table(self) -> Table:
        """The table, opened; InputError if it cannot be."""
        return open_table(self.path, embedding=self.embedding)


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
