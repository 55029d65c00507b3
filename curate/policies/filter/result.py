"""The result of a filter."""

from dataclasses import dataclass, field
from typing import Any

from curate.policies.result import Result


@dataclass(frozen=True)
class FilterResult(Result):
    """The result of a filter.

    Attributes:
        evened: by rule as typed, what became of the groups of which amounts take equal shares.
    """

    evened: dict[str, Any] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """Return the receipt's facts next to the counts, as plain JSON."""
        return {**super().facts(), **({"evened": self.evened} if self.evened else {})}
