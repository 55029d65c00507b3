"""Sorting and filtering of the rows of a table, with few columns in memory at a time."""

import threading
from dataclasses import replace
from functools import lru_cache
from typing import Any

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
from curate.reporting.served.query import KEY as BY_KEY
from curate.reporting.served.query import ROW, Query
from curate.tables.digests import plain
from curate.tables.needs import Needs
from curate.tables.rows import read_rows

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
        if name != BY_KEY and self.columns[name].is_number:
            values = pl.Series(self._numbers(name), nan_to_null=True)
        else:
            column = KEY if name == BY_KEY else self.columns[name].column
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
