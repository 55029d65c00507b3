"""The model, code, fit and calibration of a table's columns: values of different ones are not comparable."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

import numpy as np

from curate.counted import counted
from curate.manifest.contract import NotedOptions
from curate.manifest.store_path import AnyPath
from curate.tables.batches import named_errors, open_parquet
from curate.tables.table import Table, noted_in
from scoring.arrays import Array
from scoring.errors import InputError
from scoring.relative.columns import CLASS
from scoring.relative.columns import COLUMNS as RELATIVE

UNKNOWN = "unknown"
REQUEST = "request"  # in the metadata of a table: the model as named, and how the source was read
READ_AGAIN = ("key", "path_column", "image_column", "follow_symlinks", "hidden", "root", "max_bytes")
WHITE = 65535  # of 16 bits: what tables were scored by that do not say


def model_of(table: Table) -> str:
    """Return the digest of the model of a table's embeddings, empty if unknown; ``column NAME`` for user embeddings.

    Raises InputError, with both models, if parts of the table differ.
    """
    if table.embedding_column is not None:
        return f"column {table.embedding_column}"
    return _of_all_parts(table, "embeddings of two models", "model", "digest")


def signature_of(table: Table) -> str:
    """Return the kind of a table's signatures, empty if unknown; InputError, with both kinds, if parts differ."""
    return _of_all_parts(table, "two kinds of signatures", "settings", "signature")


def _of_all_parts(table: Table, what: str, part: str, name: str) -> str:
    """Return the text under a name in a part of the metadata; empty if absent; InputError if files differ."""
    seen: dict[str, str] = {}
    for file in table.files:
        noted = noted_of(file).get(part)
        noted = noted if isinstance(noted, dict) else {}
        value = str(noted.get(name, ""))
        shown, method = value[:12] or UNKNOWN, noted.get("method", "a model without a name")
        seen.setdefault(value, f"{f'{method} ({shown})' if part == 'model' else shown} in {file.name}")
    if len(seen) > 1:
        first, second = list(seen.values())[:2]
        raise InputError(
            f"{table.path} holds {what}, which cannot be compared: {first} and {second}; score all rows with one "
            "model and version"
        )
    return next(iter(seen), "")


def white_of(table: Table) -> int:
    """Return the value of white for 16-bit images when the table was scored; needed to decode them equally again."""
    white = table.noted("settings").get("white")
    return white if type(white) is int and 0 < white <= WHITE else WHITE


def reading_of(table: Table) -> NotedOptions:
    """Return how the source of a table was read, as recorded in it; defaults without a record.

    Raises:
        InputError: for a note that cannot be used.
    """
    noted = table.noted(REQUEST)
    usual = {field.name: field.default for field in fields(NotedOptions)}
    reading = {name: noted[name] for name in READ_AGAIN if name in noted}
    for name, value in reading.items():
        expected = str if usual[name] is None else type(usual[name])
        if type(value) is not expected:
            raise InputError(
                f"expected {expected.__name__} as {name} in the request stored in {table.path}, got "
                f"{value!r}; score the images again"
            )
    return NotedOptions(**reading)


def same_model(first: Table, second: Table, *, instead: str = "leave embeddings out with --finder") -> None:
    """Raise InputError, with both models, for two tables whose embeddings differ in model, or only one is known.

    ``instead`` is an alternative, for the message.
    """
    a, b = model_of(first), model_of(second)
    if a != b:
        names = [
            f"{table.path} ({table.noted('model').get('method', 'no model named')}, {digest[:12] or UNKNOWN})"
            for table, digest in ((first, a), (second, b))
        ]
        raise InputError(
            f"expected embeddings of one model, got two: {names[0]} and {names[1]}; score both with one model, "
            f"or {instead}"
        )


def require_same_model(table: Table, other: Table, option: str, *, what: str = "embeddings") -> None:
    """Raise InputError, with both models, for two tables of different models; user embeddings are not compared.

    Args:
        table: one table.
        other: the other, from ``option``.
        option: for the message.
        what: compared data for the message, ``embeddings`` or ``scores``.
    """
    if what == "embeddings" and table.embedding_column is not None:
        return
    digest, another = digest_of_model(table), digest_of_model(other)
    if digest and another and digest != another:
        raise InputError(
            f"{option}: {other.path} was scored by another model ({another[:12]}, here {digest[:12]}), whose "
            f"{what} are not comparable; score both with one model"
        )


def digest_of_model(table: Table) -> str:
    """Return the digest of the model that scored a table; empty if unknown."""
    return str(table.noted("model").get("digest", ""))


def same_signature(first: Table, second: Table) -> None:
    """Raise InputError, with both kinds, for two tables whose signatures differ in kind, or only one is known."""
    a, b = signature_of(first), signature_of(second)
    if a != b:
        raise InputError(
            f"expected signatures of one kind, got two: {a or UNKNOWN} in {first.path} and {b or UNKNOWN} in "
            f"{second.path}; score both with one version, or leave signatures out with --finder"
        )


def noted_of(file: AnyPath) -> dict[str, Any]:
    """Return curate's metadata of a file of a table."""
    with named_errors(file), open_parquet(file) as parquet:
        return noted_in(file, parquet.metadata.metadata or {})


# What ``curate score`` notes of a fit; a fit that notes more may have been applied to other rows.
OF_SCORING = {"rows", "images", "digest", "groups", "junk"}
JUDGED = "judged"  # rows that were added later, and judged by the fit as it was: on its scale, so not apart


def fitted_apart(table: Table, columns: Iterable[str]) -> list[str]:
    """Return a warning if rows of several fits are ranked by a score relative to a dataset.

    Args:
        table: one file, or parts that may come from several tables.
        columns: the ranking scores.
    """
    relative = [name for name in columns if name in RELATIVE or name == CLASS]
    if not relative:
        return []
    fits = {json.dumps(fit, sort_keys=True): fit for fit in (noted_of(file).get("fit") for file in table.files)}
    if len(fits) > 1:
        return [_words(table, relative[0], f"its parts have {len(fits)} different fits")]
    fit = next(iter(fits.values()), None)
    if not isinstance(fit, dict) or type(fit.get("rows")) is not int or not set(fit) <= OF_SCORING:
        return []
    n_scored = sum(len(part) - part.column(0).null_count for part in table.batches(relative[:1]))
    if n_scored <= fit["rows"]:
        return []
    return [_words(table, relative[0], f"{counted(n_scored, 'row')} with a value, and a fit of {fit['rows']:,}")]


def _words(table: Table, column: str, why: str) -> str:
    return (
        f"{table.path} holds rows that were fitted separately ({why}), and {column} is relative to the "
        f"rows it was fitted with: fit them together with curate fit {table.path} --apply NAME.parquet"
    )


CALIBRATION = "calibration"  # in the metadata of a table: what its columns of probabilities were fitted on
ALARM = 0.01  # of as many rows outside, where all are drawn alike


@dataclass(frozen=True)
class FittedRange:
    """The range of a column among the judged rows.

    Attributes:
        column: the score.
        low: lowest value.
        high: highest value.
        rows: number of judged rows.
    """

    column: str
    low: float
    high: float
    rows: int

    def to_json(self) -> dict[str, Any]:
        """Return the range as plain JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """Return the range of ``to_json``; KeyError, TypeError or ValueError if invalid."""
        fitted = cls(str(record["column"]), float(record["low"]), float(record["high"]), int(record["rows"]))
        if not (np.isfinite([fitted.low, fitted.high]).all() and fitted.low < fitted.high and fitted.rows >= 2):
            raise ValueError(f"a range from {fitted.low} to {fitted.high} of {fitted.rows} rows")
        return fitted

    def outside(self, values: Array) -> "Outside":
        """Return the number of finite values outside of the range."""
        finite = values[np.isfinite(values)]
        return Outside(len(finite), int((finite < self.low).sum()), int((finite > self.high).sum()))


@dataclass(frozen=True)
class Outside:
    """Number of rows with a score, and numbers of rows below and above a range."""

    rows: int = 0
    below: int = 0
    above: int = 0

    def __add__(self, other: "Outside") -> "Outside":
        return Outside(self.rows + other.rows, self.below + other.below, self.above + other.above)

    def probability(self, fitted: FittedRange) -> float:
        """Return the probability of at least as many rows outside, if these and the judged rows are drawn alike."""
        return outside_by_chance(fitted.rows, self.rows, self.below + self.above)

    def words(self, fitted: FittedRange) -> str:
        """Return the numbers as a sentence, with a warning if significant."""
        n = self.below + self.above
        where = f"the range that was judged ({fitted.column} from {fitted.low:.4g} to {fitted.high:.4g})"
        if not n:
            return f"none of {self.rows:,} rows lies outside {where}"
        outside = f"{n:,} of {self.rows:,} rows ({n / self.rows:.1%}; {self.below:,} below, {self.above:,} above)"
        p = self.probability(fitted)
        verdict = "no more than chance" if p > ALARM else f"more than chance (p {p:.1g}): judge some of these too"
        return f"{outside} lie outside {where}, {verdict}"


def fitted_range(table: Table) -> FittedRange | None:
    """Return the range that a table's probabilities were fitted on; None without any; InputError if malformed."""
    record = table.metadata.get(CALIBRATION)
    if record is None:
        return None
    try:
        return FittedRange.from_json(record["range"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{table.path} has metadata of a calibration that is invalid ({error}); apply it again"
        ) from None


def outside_by_chance(n: int, others: int, outside: int) -> float:
    """Return the probability that at least ``outside`` new rows of the same distribution leave the range of ``n``.

    The share of a distribution beyond the range of n rows has a Beta(2, n - 1) distribution without ties, so the number
    of ``others`` outside is beta-binomial. Ties make the result conservative. n >= 2.

    >>> round(outside_by_chance(2, 1, 1), 4)  # the third of three is the middle one in a third of all orders
    0.6667
    """
    if n < 2 or not 0 <= outside <= others:
        raise ValueError(f"expected n >= 2 and 0 <= outside <= others, got {n}, {outside}, {others}")
    if not outside:
        return 1.0
    from scipy.special import betaln  # type: ignore[import-untyped]

    k = np.arange(outside)  # fewer
    choices = -np.log(others + 1) - betaln(others - k + 1, k + 1)
    return float(max(0.0, 1 - np.exp(choices + betaln(k + 2, others - k + n - 1) - betaln(2, n - 1)).sum()))
