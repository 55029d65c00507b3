"""The result for a subset, with all messages about it."""

from typing import Any

from curate.counted import Grid, Printed
from curate.evaluation.subset import words
from curate.evaluation.subset.findings import SubsetFindings
from curate.tables.typed_json import plain_json


class SubsetEvaluation(SubsetFindings, Printed):
    """The result of ``curate evaluate --subset``; see ``SubsetFindings`` for its fields."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; a missing number is null."""
        return {**plain_json(self), "verdicts": plain_json(self.verdicts)}

    def notes(self) -> list[str]:
        """Return notes on the numbers, one sentence each."""
        return words.notes(self)

    def verdict(self) -> list[str]:
        """Return in plain words whether the subset helps."""
        return words.verdict(self)

    def lines(self) -> list[str | Grid]:
        """Return the printed lines."""
        return [
            *words.about(self),
            *words.of_models(self),
            *words.of_classes(self),
            *words.of_holdings(self),
            *words.of_fairness(self),
            *(f"note: {note}" for note in self.notes()),
            *(f"verdict: {line}" for line in self.verdict()),
        ]
