"""What a column of a table means."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """What one column means.

    ``higher`` says what a larger value means, or is empty where order means nothing.
    """

    meaning: str
    unit: str = ""
    higher: str = ""
