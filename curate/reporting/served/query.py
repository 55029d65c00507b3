"""Parsing of a browser's query string; anything invalid is refused with one sentence."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import isfinite
from urllib.parse import parse_qsl

from curate.policies.decided import OUTCOMES

MOST_ROWS, ROWS = 1000, 100  # maximal and default rows of an answer
MOST_FIELDS, MOST_LETTERS = 60, 1000  # of a query, and of one value
ROW, KEY = "row", "key"
MIN, MAX = "min.", "max."


class BadQuery(ValueError):
    """A query that cannot be answered; the text is one sentence."""


@dataclass(frozen=True)
class Query:
    """A query for rows of a table in an order.

    Attributes:
        sort: column; None for the order of the table.
        descending: reverse the order.
        of_class: only rows of this class.
        search: text in the key, case-insensitive.
        bounds: column -> lowest and highest value, inclusive.
        decision: only rows with this decision.
        gallery: only rows of this gallery, in its order unless sorted.
        numbers: only these row indices, in this order unless sorted.
        offset: number of rows to skip.
        limit: maximal number of rows.
    """

    sort: str | None = None
    descending: bool = False
    of_class: str | None = None
    search: str = ""
    bounds: tuple[tuple[str, float, float], ...] = ()
    decision: str | None = None
    gallery: str | None = None
    numbers: tuple[int, ...] | None = None
    offset: int = 0
    limit: int = ROWS


def read_query(
    text: str, n_rows: int, *, sortable: Collection[str], numbers: Collection[str], galleries: Collection[str]
) -> Query:
    """Parse a query string; BadQuery for an unknown or repeated name, or an invalid value.

    Args:
        text: the text after the question mark.
        n_rows: of the table.
        sortable: names of sortable columns.
        numbers: names of numeric columns.
        galleries: ids of the galleries.
    """
    try:
        pairs = parse_qsl(
            text, keep_blank_values=True, strict_parsing=bool(text), max_num_fields=MOST_FIELDS, errors="strict"
        )
    except (ValueError, UnicodeDecodeError):
        raise BadQuery(f"expected at most {MOST_FIELDS} parameters NAME=VALUE in UTF-8") from None
    values = dict(pairs)
    if len(values) < len(pairs):
        raise BadQuery("expected every parameter once")
    listed = values.pop(ROW, None)
    if any(len(value) > MOST_LETTERS for value in values.values()):
        raise BadQuery(f"expected values of at most {MOST_LETTERS:,} characters")
    bounds = {name: values.pop(name) for name in list(values) if name.startswith((MIN, MAX))}
    sort = _choice(values.pop("sort", "") or None, "sort", {*sortable, KEY, ROW})
    query = Query(
        sort=None if sort == ROW and values.get("descending", "0") in ("", "0") else sort,
        descending=_choice(values.pop("descending", ""), "descending", {"", "0", "1"}) == "1",
        of_class=values.pop("class", "") or None,
        search=values.pop("search", ""),
        bounds=_bounds(bounds, numbers),
        decision=_choice(values.pop("decision", "") or None, "decision", OUTCOMES),
        gallery=_choice(values.pop("gallery", "") or None, "gallery", galleries),
        numbers=None if listed is None else _numbers(listed, n_rows),
        offset=_integer(values.pop("offset", "0"), "offset", 10**12),
        limit=_integer(values.pop("limit", str(ROWS)), "limit", MOST_ROWS),
    )
    if values:
        raise BadQuery(f"{_shown(next(iter(values)))} is not a parameter")
    return query


def _choice(value: str | None, name: str, known: Collection[str]) -> str | None:
    if value is not None and value not in known:
        raise BadQuery(f"{name}: {_shown(value)} is missing")
    return value


def _integer(text: str, name: str, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and int(text) <= most):
        raise BadQuery(f"{name}: expected an integer from 0 to {most:,}, got {_shown(text)}")
    return int(text)


def _numbers(text: str, n_rows: int) -> tuple[int, ...]:
    parts = text.split(",") if text else []
    if len(parts) > MOST_ROWS:
        raise BadQuery(f"{ROW}: expected at most {MOST_ROWS:,} numbers, got {len(parts):,}")
    return tuple(_integer(part, ROW, n_rows - 1) for part in parts)


def _bounds(values: Mapping[str, str], numbers: Collection[str]) -> tuple[tuple[str, float, float], ...]:
    bounds: dict[str, list[float]] = {}
    for name, text in values.items():
        column = name[len(MIN) :]
        _choice(column, name[: len(MIN) - 1], numbers)
        if text:
            low, high = bounds.setdefault(column, [-float("inf"), float("inf")])
            value = _number(text, name)
            bounds[column] = [value, high] if name.startswith(MIN) else [low, value]
    return tuple((column, low, high) for column, (low, high) in sorted(bounds.items()))


def _number(text: str, name: str) -> float:
    try:
        value = float(text) if len(text) <= 40 and text.isascii() and "_" not in text else float("nan")
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        raise BadQuery(f"{_shown(name)}: expected a number, got {_shown(text)}")
    return value


def _shown(text: str) -> str:
    return ascii(text[:60])
