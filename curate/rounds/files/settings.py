"""The settings of a folder of rounds: table, classes, strategy and stop rules."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from curate.columns import LABEL
from curate.exporting.row_images import COPY, LINKS
from curate.exporting.table import TOOLS
from curate.rounds.measures.rules import StopRule, parse_rules
from curate.tables.classes import read_classes
from curate.tables.typed_json import from_json
from scoring.errors import InputError
from scoring.lookup import lookup, require_known
from scoring.settings import require_between

KIND = "rounds"
CONFIG = "round.json"
PROBES = ("linear", "knn")
SKIP = "skip"  # label for skipping an image


@dataclass(frozen=True)
class Guard:
    """Use of image quality in a strategy, against bad images.

    Attributes:
        score: column that a strategy uses, with or without ``max:`` or ``min:``.
        quality: column of image quality, with or without ``max:`` or ``min:``.
        gate: share of rows with the lowest quality to exclude, in [0, 1).
        discount: whether quality reduces ranks and weights.
        noise_guard: whether to use the default gate.
    """

    score: str | None = None
    quality: str | None = None
    gate: float = 0.0
    discount: bool = False
    noise_guard: bool = False

    @property
    def select_options(self) -> dict[str, Any]:
        """Return the settings as options of a ``SelectRequest``."""
        return {"gate": self.gate, "discount": self.discount, "noise_guard": self.noise_guard}

    def to_json(self) -> dict[str, Any]:
        """Return the settings as plain JSON."""
        return {name: value for name, value in asdict(self).items() if value}


@dataclass(frozen=True)
class RoundSettings:
    """The settings that are fixed when a folder of rounds is created.

    Attributes:
        table: absolute path.
        digest: of its keys, statuses, embeddings and the strategy's columns, independent of the row order.
        model: digest of the model of the embeddings; empty if unknown.
        n_rows: number of rows of the table.
        classes: valid labels; None for any.
        skip: labels that mean "skip this image".
        holdout: number of held-out rows.
        holdout_sha256: of the file with held-out keys.
        batch: rows per round.
        control: share of random rows in a batch, in [0, 1).
        strategy: for the other rows; a key of ``SELECTORS``.
        parameters: non-default parameters of the strategy.
        guard: use of image quality.
        format: of exported batches; a key of ``TOOLS``.
        link: `copy`, `hard` or `symbolic`: how exported images are stored.
        probe: the model, "linear" or "knn".
        budget: planned number of labels; None for none.
        seed: of all random draws.
        confidence: of simultaneous intervals over all rounds, in (0, 1).
        stop: stop rules, as text for ``StopRule``.
    """

    table: str
    digest: str
    model: str
    n_rows: int
    classes: tuple[str, ...] | None
    holdout: int
    holdout_sha256: str
    skip: tuple[str, ...] = (SKIP,)
    batch: int = 100
    control: float = 0.1
    strategy: str = "auto"
    parameters: dict[str, Any] = field(default_factory=dict)
    guard: Guard = Guard()
    format: str = "csv"
    link: str = COPY
    probe: str = "linear"
    budget: int | None = None
    seed: int = 0
    confidence: float = 0.95
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_between("--batch", self.batch, 1, hint="100 is usual")
        if not 0 <= self.control < 1:
            raise InputError(f"--control must be in [0, 1), got {self.control:g}; 0.1 is the usual one")
        require_between("--budget", self.budget, 1, hint="leave it out for none")
        require_known(self.probe, PROBES, "unknown probe")
        require_between("--seed", self.seed, 0)
        if not 0 < self.confidence < 1:
            raise InputError(f"--confidence must be above 0 and below 1, got {self.confidence:g}; 95% is usual")
        parse_rules(self.stop)
        lookup(TOOLS, self.format, kind="format")
        require_known(self.link, LINKS, "unknown --link")

    @property
    def n_control(self) -> int:
        """Number of random rows in a full batch: at least one if a share is requested."""
        return min(self.batch - 1, max(1, round(self.control * self.batch))) if self.control and self.batch > 1 else 0

    @property
    def rules(self) -> tuple[StopRule, ...]:
        """The stop rules."""
        return parse_rules(self.stop)

    @property
    def names(self) -> tuple[str, ...] | None:
        """Every allowed label, skip labels last; None allows any."""
        return (
            None
            if self.classes is None
            else (*self.classes, *(label for label in self.skip if label not in self.classes))
        )

    def to_json(self) -> dict[str, Any]:
        """Return the settings as plain JSON."""
        values = {**asdict(self), "guard": self.guard.to_json()}
        return {"kind": KIND, "rows_digest": values.pop("digest"), **values}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "RoundSettings":
        """Return the settings that `to_json` wrote; InputError for a missing or unknown name, or another type."""
        fields = {name: field for name, field in value.items() if name not in ("kind", "digest", "curate")}
        if fields.pop("blind", True) is not True:
            raise InputError(
                f"{CONFIG} was written by a version whose models saw held-out rows; start again with round init"
            )
        fields["digest"] = fields.pop("rows_digest", None)  # a file's own digest has that name
        return from_json(cls, fields, what=CONFIG, complete=True)


def class_names(texts: Sequence[str], label: str | None = None) -> tuple[str, ...] | None:
    """Return the class names as typed; None if none were given.

    Args:
        texts: one text as for ``read_classes``, or several with names separated by commas.
        label: column of the classes, if the text is a table.

    Raises:
        InputError: for an empty or repeated name, or a single class.

    >>> class_names(["cat,dog", "a bird"])
    ('cat', 'dog', 'a bird')
    """
    if not texts:
        return None
    names = read_classes(",".join(texts), label or LABEL)
    if len(names) < 2:
        raise InputError(f"expected at least two classes, got {names[0]!r} alone; name all of them")
    return names
