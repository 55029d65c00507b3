"""Score columns of a table, and their direction."""

from dataclasses import dataclass

import pyarrow as pa

from curate.columns import EMBEDDING, describe
from curate.tables.table import Table
from scoring.errors import InputError
from scoring.relative.columns import FITTED, LOCAL

MAX, MIN = "max:", "min:"


@dataclass(frozen=True)
class Signal:
    """A numeric column, and whether high values come first (1) or low ones (-1)."""

    column: str
    sign: int


def signal(text: str, table: Table, *, certain_first: bool, flag: str) -> Signal:
    """Return the column and direction of ``COLUMN``, ``max:COLUMN`` or ``min:COLUMN``.

    Args:
        text: as typed; without ``max:`` or ``min:`` the direction must be known, as for ``kappa_*`` and ``unc_*``.
        table: with the column.
        certain_first: whether the most certain values of a known column come first.
        flag: of the option, for messages.

    Raises:
        InputError: for a missing column, or one of unknown direction.
    """
    for prefix, sign in ((MAX, 1), (MIN, -1)):
        if text.startswith(prefix):
            table.require([text.removeprefix(prefix)])
            return Signal(text.removeprefix(prefix), sign)
    table.require([text])
    higher = describe(text).higher
    if higher not in ("more certain", "less certain"):
        raise InputError(
            f"{flag} {text}: it is unknown whether high or low values come first; write {flag} {MAX}{text} "
            f"for high ones, or {flag} {MIN}{text} for low ones"
        )
    return Signal(text, 1 if (higher == "more certain") == certain_first else -1)


def quality_signal(text: str | None, table: Table) -> Signal:
    """Return the column of image quality: as typed, or the model's score; InputError if there is no unique one."""
    named = text or default_column(table, flag="--quality")
    return signal(named, table, certain_first=True, flag="--quality")


def default_column(table: Table, *, flag: str = "--column", fitted: bool = True) -> str:
    """Return the default score of a table: the fitted one, else that by the model's method, else the only one.

    If a model has several heads, the method in its card, which it was trained for last, is used. Kappa takes precedence
    over uncertainties.

    Args:
        table: scored.
        flag: option for another column, for messages.
        fitted: whether to allow the fitted score, which only rows of the table have.

    Raises:
        InputError: if there is none, or several without the model's; the text lists the candidates.
    """
    if fitted and FITTED in table.schema.names:
        return FITTED
    method = table.noted("model").get("method")
    for name in (f"kappa_{method}", f"unc_{method}"):
        if method and name in table.schema.names:
            return name
    of_dataset = () if fitted else (FITTED, LOCAL)
    for kind in ("kappa", "unc"):
        candidates = [name for name in table.schema.names if name.startswith(f"{kind}_")]
        candidates = [name for name in candidates if name not in of_dataset]
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            raise InputError(
                f"{table.path} has several {kind} columns; choose one with {flag}: {', '.join(candidates)}"
            )
    numbers = [f.name for f in table.schema if pa.types.is_integer(f.type) or pa.types.is_floating(f.type)]
    first = "fit a score to it with curate fit" if EMBEDDING in table.schema.names else "score it first"
    other = f", or choose a column of numbers with {flag} (such as: {', '.join(numbers)})" if numbers else ""
    raise InputError(f"{table.path} has no kappa column and no unc column; {first}{other}")


def amount_column(table: Table) -> str:
    """Return the default column for amounts, one that drops an even share of every region of the dataset.

    Dropping by a score of ambiguity itself removes the parts in which everything is hard to recognise, and the rest
    trains worse than as many random rows (docs/fit.md).
    """
    return LOCAL if LOCAL in table.schema.names else default_column(table)


@dataclass(frozen=True)
class Signals:
    """Numeric columns of a selection: ``score`` ranks, ``quality`` guards; losses for small-loss."""

    score: Signal | None = None
    quality: Signal | None = None
    holdout_loss: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to read."""
        ranks = [each.column for each in (self.score, self.quality) if each]
        return tuple(dict.fromkeys([*ranks, *([self.holdout_loss] if self.holdout_loss else [])]))


BEST = "kappa_visimsiam"  # of several, the one that reported copies and originals apart best (docs/studies/dedup.md)


def kappa_of(table: Table) -> str | None:
    """Return the kappa of a table: by the model's method, else the most accurate one measured, else the only one.

    None if absent, or if several are equally good.
    """
    kappas = [name for name in table.schema.names if name.startswith("kappa_")]
    for name in (f"kappa_{table.noted('model').get('method')}", BEST):
        if name in kappas:
            return name
    return kappas[0] if len(kappas) == 1 else None
