"""The result of an evaluation: its measures and all messages about them."""

from dataclasses import asdict, dataclass, field
from typing import Any

from curate.counted import Grid, Printed
from curate.evaluation import words
from curate.evaluation.measures import Caveats, Measure


@dataclass
class Evaluation(Printed):
    """The result of ``curate evaluate``.

    Attributes:
        table: the file.
        rows: rows in the table.
        used: rows that the measures are of.
        left_out: reason -> rows.
        columns: the scores, in the order shown, baselines last.
        measures: in the order shown.
        curves: name of a prediction -> abstained accuracy: column -> one entry a coverage.
        settings: what decides the numbers: folds, repeats, seed, ...
        caveats: what a reader must know in addition.
    """

    table: str
    rows: int
    used: int
    left_out: dict[str, int]
    columns: list[str]
    measures: list[Measure] = field(default_factory=list)
    curves: dict[str, dict[str, list[dict[str, float | None]]]] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    caveats: Caveats = field(default_factory=Caveats)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        record = {name: value for name, value in self.__dict__.items() if name != "measures"}
        measures = [measure.to_json() for measure in self.measures]
        return {**record, "caveats": asdict(self.caveats), "measures": measures}

    def notes(self) -> list[str]:
        """Return notes on the measures, one sentence each."""
        return words.notes(self.caveats, self.used)

    def verdict(self) -> list[str]:
        """Return advice based on the scores and labels; empty without labels."""
        return words.verdict(self.measures, self.caveats.few)

    def lines(self) -> list[str | Grid]:
        """Return the printed lines, tables at full width."""
        learned = self.settings.get("rows learned from")
        return [
            f"{self.used:,} of {self.rows:,} rows measured: {self.table}",
            *([f"{learned:,} rows learned from: {self.settings['train']}"] if learned else []),
            *(f"  left out: {n:,} {reason}" for reason, n in self.left_out.items()),
            *words.tables(self.measures, self.columns),
            *words.meanings(self.measures),
            *(f"note: {note}" for note in self.notes()),
            *(f"verdict: {line}" for line in self.verdict()),
        ]
