"""The validated request of a selection, as recorded in the receipt."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from typing import Any, ClassVar

from curate.columns import LABEL
from curate.policies.contract import Request
from curate.policies.select.options import SelectParameters
from curate.selectors.contract import Pool, Selector
from curate.selectors.ranked import Discounted, Ranked, gate
from curate.selectors.table import selector_named
from curate.tables.amount import Amount
from curate.tables.needs import EMBEDDINGS, Needs, Signal, Signals, quality_signal, signal
from curate.tables.table import Table
from scoring.errors import InputError
from scoring.settings import require_between, with_settings

SAFE_GATE = 0.2  # of the noise guard


def make_selector(name: str, settings: Mapping[str, object] | None = None) -> Selector:
    """Return a selector with its parameters; InputError for an unknown strategy or parameter, or an invalid value.

    Args:
        name: a key of ``SELECTORS``.
        settings: parameter -> value, or its text as typed.
    """
    return with_settings(selector_named(name), settings, name=name, what="strategy")


def settings_of(selector: Selector) -> dict[str, object]:
    """Return all parameters of a selector, including defaults, as plain JSON."""
    return {field.name: getattr(selector, field.name) for field in fields(selector)}  # type: ignore[arg-type]


def can_discount(selector: Selector) -> bool:
    """Return whether quality can reduce the rank or weight of rows in a strategy."""
    return "quality" in selector.optional or isinstance(selector, Ranked)


def guard(
    pool: Pool, name: str, selector: Selector, *, least: float = 0.0, discount: bool = False
) -> tuple[Pool, Selector, list[str]]:
    """Return the pool and the selector with quality used as requested.

    Args:
        pool: with quality if ``least`` or ``discount`` is set.
        name: of the strategy.
        selector: the strategy.
        least: share of candidates with the lowest quality to exclude; 0 for none.
        discount: whether quality reduces ranks and weights.

    Returns:
        pool, selector, notes.

    Raises:
        InputError: if the strategy cannot be discounted, or the gate leaves nothing.
    """
    notes: list[str] = []
    if least:
        before = len(pool.candidates)
        pool = gate(pool, least)
        notes.append(f"the gate at {least:g} left out {before - len(pool.candidates):,} of {before:,} candidates")
    if not discount:
        return replace(pool, quality=None), selector, notes
    if "quality" in selector.optional:
        return pool, selector, notes
    if isinstance(selector, Ranked):
        return pool, Discounted(selector), notes
    raise InputError(
        "--discount works with strategies that rank by a score (margin, entropy, ...) or weigh rows (auto), got "
        f"{name}; use --gate"
    )


@dataclass(frozen=True)
class SelectRequest(SelectParameters, Request):
    """The validated request of a selection; ``settings`` are the strategy's.

    A noise guard sets two other fields: a quality gate at 0.2, and the discount if the strategy supports one.
    """

    rule: ClassVar[str] = "select"
    budget: str = "100"
    settings: dict[str, Any] = field(default_factory=dict)
    _: KW_ONLY
    labelled: str | None = None
    exclude: str | None = None

    def __post_init__(self) -> None:
        for flag, name in (("--per", self.per), ("--balance", self.balance)):
            if name == "":
                raise InputError(f"{flag} takes the name of a column, got an empty text; choose one, or leave it out")
        if self.per and self.balance:
            raise InputError(
                "--per gives each group the whole budget and --balance divides it among them; leave one of them out"
            )
        if self.noise_guard and (self.gate or self.discount):
            raise InputError("--noise-guard is a gate and a discount in one; leave out --gate and --discount")
        Amount.parse(self.budget, "--budget")
        if not 0 <= self.gate < 1:
            raise InputError(f"the gate must be in [0, 1), got {self.gate:g}; 0.3 leaves out the worst three tenths")
        if self.min_distance is not None and not 0 < self.min_distance <= 2:
            raise InputError(
                "--min-distance must be in (0, 2], between embeddings of unit length (0.32 is a cosine of 0.95), "
                f"got {self.min_distance:g}"
            )
        require_between("--seed", self.seed, 0)
        if self.quality and not self.wants_quality:
            raise InputError(f"--quality {self.quality} is for --gate, --discount or --noise-guard; add one of them")

    def selector(self) -> Selector:
        """Return the strategy with its parameters; InputError for an unknown one, or a value out of range."""
        return make_selector(self.strategy, self.settings)

    @property
    def wants_quality(self) -> bool:
        """Whether a quality column is needed."""
        return bool(self.gate) or self.discount or self.noise_guard

    @property
    def group(self) -> str | None:
        """The column of groups."""
        return self.per or self.balance

    def signals(self, table: Table) -> Signals:
        """Return the columns of scores and quality; InputError if one is missing, has no direction or is unused."""
        needs = self.selector().needs
        if self.score and "uncertainty" not in needs:
            raise InputError(f"--score is for the strategy score; {self.strategy} has its own")
        if self.holdout_loss and "holdout_loss" not in needs:
            raise InputError(f"--holdout-loss is for the strategy small-loss, got {self.strategy}; leave it out")
        table.require([self.holdout_loss] if self.holdout_loss else [])
        score: Signal | None = None
        if self.score:
            score = signal(self.score, table, certain_first=False, flag="--score")
        quality = quality_signal(self.quality, table) if self.wants_quality else None
        return Signals(score, quality, self.holdout_loss)

    def needs(self, table: Table, signals: Signals, *, labels_of_table: bool) -> Needs:
        """Return the columns and facts to read of the table."""
        names = [name for name in (self.group, self.label_column(table) if labels_of_table else None) if name]
        return Needs(
            representations=EMBEDDINGS if self.needs_vectors(signals) else frozenset(),
            numbers=signals.columns,
            names=tuple(dict.fromkeys(names)),
            conditions=(("--labelled-where", self.labelled_where),) if self.labelled_where else (),
        )

    def needs_vectors(self, signals: Signals) -> bool:
        """Return whether embeddings are used."""
        by_vectors = bool({"vectors", "probabilities"} & set(self.selector().needs))
        return self.min_distance is not None or by_vectors or self.derives_losses(signals)

    def derives_losses(self, signals: Signals) -> bool:
        """Return whether losses are computed out-of-fold from embeddings, since there is no column of losses."""
        return "holdout_loss" in self.selector().needs and signals.holdout_loss is None

    def class_column(self, table: Table) -> str | None:
        """Return the column of the classes of all rows; None if the strategy uses none; InputError if it is missing."""
        if "labels" not in self.selector().needs:
            return None
        column = self.label_column(table)
        if column is None:
            raise InputError(
                f"{self.strategy}{' with these settings' if self.settings else ''} uses a class of each row, and "
                f"{table.path} has no column {LABEL!r}; choose the column with --label"
            )
        return column

    def label_column(self, table: Table) -> str | None:
        """Return the label column of the table, or None; InputError if the requested one is missing."""
        if self.label:
            table.require([self.label])
            return self.label
        return LABEL if LABEL in table.schema.names else None
