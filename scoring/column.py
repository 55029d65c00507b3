"""The meaning of table columns."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """The meaning of one column.

    ``higher`` says what a larger value means; empty if values have no order.
    """

    meaning: str
    unit: str = ""
    higher: str = ""
