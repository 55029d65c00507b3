"""Rows of a table found by sort and filter, with few columns of it in memory at a time."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.columns import KEY
from curate.facts.document import Facts
from curate.facts.numbers import finite
from curate.facts.served.query import KEY as BY_KEY
from curate.facts.served.query import ROW, Query
from curate.facts.texts import shortened
from curate.facts.values import row_values
from curate.policies.outcomes import OUTCOMES
from curate.tables.digests import plain
from curate.tables.needs import Needs
from curate.tables.rows import read_rows

ORDERS, COLUMNS, MASKS, ANSWERS = 3, 2, 2, 2  # that are kept: at most some 50 bytes a row in all
T = TypeVar("T")


class Kept(Generic[T]):
    """The last few of something, each made once at a time.

    Args:
        most: that are kept.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._kept: OrderedDict[Hashable, T] = OrderedDict()

    def get(self, name: Hashable, make: Callable[[], T]) -> T:
        """Return what has this name, made now where it is not kept."""
        if name not in self._kept:
            while len(self._kept) >= self.most:
                self._kept.popitem(last=False)
            self._kept[name] = make()
        self._kept.move_to_end(name)
        return self._kept[name]


class Index:
    """Answers which rows of a table come in a query; safe to ask from many threads.

    Args:
        facts: of the table.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.columns = {each.name: each for each in facts.columns}
        self._galleries = {each.id: np.array(each.all_rows(), np.int64) for each in facts.galleries}
        self._classes: dict[str, list[int]] = {}  # by the name that is shown
        for code, name in enumerate(facts.dataset.classes.names):
            self._classes.setdefault(shortened(name), []).append(code)
        self._lock = threading.Lock()
        self._orders: Kept[NDArray[np.uint32]] = Kept(ORDERS)
        self._values: Kept[NDArray[Any]] = Kept(COLUMNS)
        self._masks: Kept[NDArray[np.bool_]] = Kept(MASKS)
        self._answers: Kept[NDArray[np.int64]] = Kept(ANSWERS)

    @property
    def galleries(self) -> list[str]:
        """Their ids."""
        return list(self._galleries)

    def rows(self, query: Query) -> tuple[int, NDArray[np.int64]]:
        """Return how many rows a query finds, and the numbers of those on its page."""
        with self._lock:
            matching = self._answers.get(query.chosen, lambda: self._matching(query))
        return len(matching), np.asarray(matching[query.offset : query.offset + query.limit], np.int64)

    def page(self, query: Query) -> dict[str, Any]:
        """Return the answer to a query as JSON has it."""
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
        """All rows in the order requested; those without a value last either way."""
        n = self.facts.dataset.n
        if query.sort in (None, ROW):
            order = np.arange(n, dtype=np.uint32)
            return order[::-1] if query.descending else order
        name = str(query.sort)
        return self._orders.get((name, query.descending), lambda: self._sorted(name, query.descending))

    def _sorted(self, name: str, descending: bool) -> NDArray[np.uint32]:
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
        """Which rows pass all filters; None if absent."""
        dataset = self.facts.dataset
        parts = [self._between(*bounds) for bounds in query.bounds]
        if query.search:
            parts.append(self._masks.get(query.search, lambda: self._searched(query.search)))
        if query.of_class is not None:
            codes = self._classes.get(query.of_class, [])
            parts.append(
                np.isin(dataset.classes.codes, codes) if len(dataset.classes.codes) else np.zeros(dataset.n, bool)
            )
        if query.decision is not None:
            parts.append(self.facts.decided.outcome == OUTCOMES.index(query.decision))
        return np.logical_and.reduce(parts) if parts else None

    def _between(self, name: str, low: float, high: float) -> NDArray[np.bool_]:
        values = self._numbers(name)
        return (values >= low) & (values <= high)

    def _numbers(self, name: str) -> NDArray[Any]:
        """A column of numbers, NaN where there is no finite one; whole numbers as float64."""

        def read() -> NDArray[Any]:
            column = self.columns[name].column
            numbers = read_rows(self.facts.dataset.table, Needs(exact=(column,), keys=False)).exact[column]
            values = numbers.values if numbers.values.dtype == np.float32 else numbers.values.astype(np.float64)
            values[~finite(numbers)] = np.nan
            return values

        return self._values.get(name, read)

    def _searched(self, text: str) -> NDArray[np.bool_]:
        matches = [
            pc.match_substring(plain(batch.column(0)).cast(pa.large_string()), text, ignore_case=True)
            for batch in self.facts.dataset.table.batches([KEY])
        ]
        return np.concatenate([np.zeros(0, bool), *(each.to_numpy(zero_copy_only=False) for each in matches)])
