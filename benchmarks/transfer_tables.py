"""Tables of numbers with their intervals, as JSON and as text."""

from dataclasses import dataclass
from typing import Any

from transfer_numbers import Measured, mean_of

Column = dict[str, Measured]


@dataclass(frozen=True)
class Table:
    """Measured numbers: column -> row -> number; with the mean over columns where they are sets."""

    title: str
    columns: dict[str, Column]
    of_sets: bool = True

    def with_mean(self) -> dict[str, Column]:
        """Return the columns, and a column of their mean."""
        if not self.of_sets or len(self.columns) < 2:
            return self.columns
        rows = [name for name in next(iter(self.columns.values())) if all(name in c for c in self.columns.values())]
        return self.columns | {"mean": {name: mean_of([c[name] for c in self.columns.values()]) for name in rows}}

    def to_json(self) -> dict[str, Any]:
        """Return column -> row -> [value, low, high, p]."""
        return {name: {row: m.to_json() for row, m in column.items()} for name, column in self.with_mean().items()}

    def markdown(self) -> str:
        """Return the table as text."""
        columns = self.to_json()
        rows = list(dict.fromkeys(row for column in columns.values() for row in column))
        lines = [f"| {self.title} | {' | '.join(columns)} |", f"| --- |{' --- |' * len(columns)}"]
        lines += [f"| {row} | {' | '.join(shown(columns[name].get(row)) for name in columns)} |" for row in rows]
        return "\n".join(lines) + "\n"


def shown(numbers: list[float | None] | None) -> str:
    """Return value, interval and, where chance level would do, p as text."""
    if numbers is None or numbers[0] is None:
        return ""
    value, low, high = (f"{number:.3f}".replace("0.", ".", 1) for number in numbers[:3] if number is not None)
    p = numbers[3]
    return f"{value} [{low}, {high}]" + (f" p {p:.2f}" if p is not None and p > 0.01 else "")
