"""The meaning of table columns."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """The meaning of one column.

    ``higher`` says what a larger value means, or is empty where order means nothing.
    """

    meaning: str
    unit: str = ""
    higher: str = ""
