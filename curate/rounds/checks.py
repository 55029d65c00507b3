"""What came of deriving rounds again."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class RoundCheck:
    """What came of deriving one round again.

    Attributes:
        number: of the round.
        n_rows: rows of its batch, as derived; 0 where it could not be.
        n_different: rows of the batch that are not as derived.
        different: the first of them, in words.
        problems: what else is not as it was, or why it could not be derived.
    """

    number: int
    n_rows: int = 0
    n_different: int = 0
    different: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def identical(self) -> bool:
        """Whether the batch was derived, and nothing differs."""
        return not self.n_different and not self.problems


@dataclass
class RoundsCheck:
    """What came of deriving the rounds of a folder again.

    Attributes:
        path: of the folder.
        rounds: one after another.
        problems: what is not as it was and belongs to no round that was derived.
    """

    path: Path
    rounds: list[RoundCheck] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def identical(self) -> bool:
        """Whether nothing differs."""
        return not self.problems and all(each.identical for each in self.rounds)

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        rounds = [{"identical": each.identical, **asdict(each)} for each in self.rounds]
        return {"identical": self.identical, "path": str(self.path), "rounds": rounds, "problems": self.problems}
