"""The findings on a subset, with every message on it."""

from typing import Any

from curate.counted import Grid, Printed
from curate.evaluation.subset import words
from curate.evaluation.subset.findings import SubsetFindings
from curate.tables.typed_json import plain_json


class SubsetEvaluation(SubsetFindings, Printed):
    """The findings that ``curate evaluate --subset`` prints; see ``SubsetFindings`` for its fields."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; a number that does not exist is null."""
        return {**plain_json(self), "verdicts": plain_json(self.verdicts)}

    def notes(self) -> list[str]:
        """Return notes on the numbers, one sentence each."""
        return words.notes(self)

    def verdict(self) -> list[str]:
        """Return whether the subset helps, in plain words."""
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
