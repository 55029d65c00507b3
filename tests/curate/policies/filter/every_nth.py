"""A rule from outside of the project: one class, one line and one field, and a command line that has it."""

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from curate.policies.filter import options
from curate.policies.filter.rule import Reasons, Rule, RuleArguments
from curate.policies.filter.ruling import RuleResult, Ruling
from curate.policies.filter.table import WHERE
from scoring.errors import InputError


@dataclass(frozen=True)
class EveryNth(Rule):
    """Keep every n-th row of the table."""

    n: int
    column: str | None = field(default=None, init=False)
    per: str | None = field(default=None, init=False)
    name: ClassVar[str] = "every-nth"

    @classmethod
    def read(cls, value: Any, arguments: RuleArguments) -> Self:
        if not str(value).isdecimal():
            raise InputError(f"--{cls.name} takes a whole number, got {value}")
        return cls(int(value))

    def judge(self, table_rows, rows: slice, inside) -> Ruling:
        places = np.arange(rows.start, rows.start + len(inside))
        return Ruling(places % self.n == 0, np.ones(len(inside), bool), None)

    def reasons(self, result: RuleResult, rows, dropped) -> Reasons:
        texts = [
            f"row {row} is left out" if out else f"row {row} is taken" for row, out in zip(rows, dropped, strict=True)
        ]
        return Reasons(texts)

    def notes(self, result: RuleResult) -> list[str]:
        return [f"one of {self.n} rows is taken"]


@dataclass(frozen=True, eq=False, repr=False)
class WithEveryNth(options.FilterOptions):
    """The options of ``curate filter`` with a field for the rule."""

    every_nth: Annotated[str | None, options.rule("Keep every N-th row.", "N")] = field(default=None, kw_only=True)


def add():
    """Add the line and the field."""
    WHERE[EveryNth.name] = "every_nth:EveryNth"
    options.FilterOptions = WithEveryNth


if __name__ == "__main__":
    add()
    from curate.cli import main

    main()
