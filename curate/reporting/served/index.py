"""Queries of a browser: parsed strictly, and answered by sorting and filtering, with few columns in memory."""

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isfinite
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.columns import KEY
from curate.policies.decided import OUTCOMES
from curate.reporting.columns import shortened
from curate.reporting.decided import row_values
from curate.reporting.document import Facts
from curate.reporting.numbers import finite
from curate.tables.digests import plain
from curate.tables.needs import Needs
from curate.tables.rows import read_rows

MOST_ROWS, ROWS = 1000, 100  # maximal and default rows of an answer
MOST_FIELDS, MOST_LETTERS = 60, 1000  # of a query, and of one value
ROW = "row"
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


ORDERS, COLUMNS, MASKS, ANSWERS = 3, 2, 2, 2  # cache sizes: at most about 50 bytes per row in total


class Index:
    """Answers queries for rows of a table; thread-safe.

    Args:
        facts: on the table.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.columns = {each.name: each for each in facts.columns}
        self._galleries = {each.id: np.array(each.all_rows(), np.int64) for each in facts.galleries}
        self._classes: dict[str, list[int]] = {}  # by the name that is shown
        for code, name in enumerate(facts.dataset.classes.names):
            self._classes.setdefault(shortened(name), []).append(code)
        self._lock = threading.Lock()
        self._sorted = lru_cache(ORDERS)(self._sort)
        self._numbers = lru_cache(COLUMNS)(self._read_numbers)
        self._searched = lru_cache(MASKS)(self._search)
        self._answers = lru_cache(ANSWERS)(self._matching)

    @property
    def galleries(self) -> list[str]:
        """The ids of its galleries."""
        return list(self._galleries)

    def rows(self, query: Query) -> tuple[int, NDArray[np.int64]]:
        """Return the number of rows that match a query, and the row indices of its page."""
        with self._lock:
            matching = self._answers(replace(query, offset=0, limit=0))  # the same for every page
        return len(matching), np.asarray(matching[query.offset : query.offset + query.limit], np.int64)

    def page(self, query: Query) -> dict[str, Any]:
        """Return the answer to a query as JSON."""
        total, rows = self.rows(query)
        return {"total": total, "rows": row_values(self.facts.dataset, self.facts.decided, self.facts.columns, rows)}

    def _matching(self, query: Query) -> NDArray[Any]:
        keep = self._keep(query)
        if query.gallery is not None or query.numbers is not None:
            listed = query.numbers if query.numbers is not None else ()
            rows = np.array(listed, np.int64) if query.gallery is None else self._galleries[query.gallery]
            if query.sort is not None:
                rank = np.empty(self.facts.dataset.n, np.uint32)
                rank[self._order(query)] = np.arange(self.facts.dataset.n, dtype=np.uint32)
                rows = rows[np.argsort(rank[rows], kind="stable")]
            return rows if keep is None else rows[keep[rows]]
        order = self._order(query)
        return order if keep is None else order[keep[order]]

    def _order(self, query: Query) -> NDArray[np.uint32]:
        """Return all rows in the requested order; rows without a value come last in either direction."""
        n = self.facts.dataset.n
        if query.sort in (None, ROW):
            order = np.arange(n, dtype=np.uint32)
            return order[::-1] if query.descending else order
        return self._sorted(str(query.sort), query.descending)

    def _sort(self, name: str, descending: bool) -> NDArray[np.uint32]:
        if name != KEY and self.columns[name].is_number:
            values = pl.Series(self._numbers(name), nan_to_null=True)
        else:
            column = KEY if name == KEY else self.columns[name].column
            batches = self.facts.dataset.table.batches([column])
            texts = [plain(batch.column(0)).cast(pa.large_string()) for batch in batches]
            values = pl.Series(pa.chunked_array(texts, pa.large_string()))
        rows = values.alias("value").to_frame().with_row_index("row")
        ordered = rows.sort("value", descending=descending, nulls_last=True, maintain_order=True)
        return ordered["row"].to_numpy()

    def _keep(self, query: Query) -> NDArray[np.bool_] | None:
        """Return a mask of the rows that pass all filters; None without filters."""
        dataset = self.facts.dataset
        values = [(self._numbers(name), low, high) for name, low, high in query.bounds]
        parts = [(numbers >= low) & (numbers <= high) for numbers, low, high in values]
        if query.search:
            parts.append(self._searched(query.search))
        if query.of_class is not None:
            codes = self._classes.get(query.of_class, [])
            parts.append(
                np.isin(dataset.classes.codes, codes) if len(dataset.classes.codes) else np.zeros(dataset.n, bool)
            )
        if query.decision is not None:
            parts.append(self.facts.decided.outcome == OUTCOMES.index(query.decision))
        return np.logical_and.reduce(parts) if parts else None

    def _read_numbers(self, name: str) -> NDArray[Any]:
        """Read a numeric column as float64, NaN if not finite."""
        column = self.columns[name].column
        numbers = read_rows(self.facts.dataset.table, Needs(exact=(column,), keys=False)).exact[column]
        values = numbers.values if numbers.values.dtype == np.float32 else numbers.values.astype(np.float64)
        values[~finite(numbers)] = np.nan
        return values

    def _search(self, text: str) -> NDArray[np.bool_]:
        matches = [
            pc.match_substring(plain(batch.column(0)).cast(pa.large_string()), text, ignore_case=True)
            for batch in self.facts.dataset.table.batches([KEY])
        ]
        return np.concatenate([np.zeros(0, bool), *(each.to_numpy(zero_copy_only=False) for each in matches)])
