"""The steps of a retrieval: the search of rows, answered queries, and results."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from curate.columns import EMBEDDING
from curate.counted import counted
from curate.retrieval import regions
from curate.retrieval.options import RetrieveOptions
from curate.retrieval.queries import Queries
from curate.retrieval.results import ALONE, ANSWERED, FAILED, REJECTED, UNDECIDED, Retrieval
from curate.tables.amount import exact_number
from curate.tables.needs import Signal
from curate.tables.rows import Rows
from curate.tables.table import Table
from curate.tables.vectors import EMBEDDING_PROBLEMS
from scoring.errors import InputError
from scoring.search.graph import NearestSearch, choose_lists
from scoring.search.inverted import InvertedLists, list_centroids
from scoring.search.links import Links, Recall
from scoring.search.rows import Vectors
from scoring.settings import require_between, require_seed

TOP = 10
# States of a row, in the order of ``Retrieval.row_states``.
SEARCHED, UNSCORED = 0, 1  # followed by EMBEDDING_PROBLEMS
EXACT_ROWS = 50_000  # up to here every query is compared with every row
EXACT_PAIRS = 20_000_000_000  # also up to this many pairs, for which lists cost more than they save
AIMED_RECALL = 0.99  # share of the neighbours that the choice of lists aims at
QUERIES = 4096  # at a time
MOST_PAIRS = 10_000_000  # maximal number of returned pairs


@dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    Attributes:
        links: pairs of a query and a row, by query, nearest first.
        inside: number of rows in the region of each query, shape (Q,); without regions the number returned.
        recall: share of the true neighbours that were found.
    """

    links: Links
    inside: NDArray[np.int64]
    recall: Recall


class TableSearch:
    """The rows of a table that may be found.

    Args:
        vectors: of the table, shape (N, D).
        among: mask of the searched rows, shape (N,).
        seed: of inverted lists.
    """

    def __init__(self, vectors: Vectors, among: NDArray[np.bool_], *, seed: int) -> None:
        self.vectors, self.among, self.seed = vectors, among, seed
        self._everything = NearestSearch(vectors, InvertedLists(np.where(among, 0, -1).astype(np.int32), 1))

    def nearest(self, queries: Vectors, excluded: NDArray[np.int64], k: int) -> SearchResult:
        """Return the k rows nearest to each query, shape (Q, D); ``excluded`` (Q,) is its own row or -1."""
        k = min(k, int(self.among.sum()))
        if len(queries) * k > MOST_PAIRS:
            raise InputError(
                f"{len(queries):,} queries with {k:,} rows each are more than {MOST_PAIRS:,} answers; lower "
                "--top, or pass fewer queries"
            )
        search, probes, recall = self._everything, None, Recall.of_everything()
        n_rows = int(self.among.sum())
        if n_rows > EXACT_ROWS and n_rows * len(queries) > EXACT_PAIRS:
            search, probes, recall = self._listed(k)
        parts = []
        for start in range(0, len(queries), QUERIES):
            block = slice(start, start + QUERIES)
            index, cosine = search.neighbours_of(queries[block], excluded[block], k, probes)
            query, place = np.nonzero(index >= 0)
            parts.append((query + start, index[query, place].astype(np.int64), cosine[query, place]))
        links = Links(*(np.concatenate([part[at] for part in parts]) for at in range(3)))
        return SearchResult(links, np.bincount(links.query, minlength=len(queries)), recall)

    def within(
        self, queries: Vectors, excluded: NDArray[np.int64], bounds: NDArray[np.float64], top: int | None
    ) -> SearchResult:
        """Return the rows whose cosine with a query reaches its bound, shape (Q,): all, or the nearest ``top``.

        Raises InputError for too many rows.
        """
        parts, inside, left = [], [], MOST_PAIRS
        for start in range(0, len(queries), QUERIES):
            block = slice(start, start + QUERIES)
            links = self._everything.within(queries[block], excluded[block], bounds[block], 4 * MOST_PAIRS)
            if links is not None:
                count = np.bincount(links.query, minlength=len(excluded[block]))
                place = np.arange(len(links)) - np.repeat(np.cumsum(count) - count, count)
                keep = place < (top if top is not None else len(self.among))
                left -= int(keep.sum())
            if links is None or left < 0:
                raise InputError(
                    f"the regions hold more than {MOST_PAIRS:,} rows together; lower --credible, set --top, "
                    "or pass fewer queries"
                )
            inside.append(count)
            parts.append((links.query[keep] + start, links.row[keep], links.similarity[keep]))
        links = Links(*(np.concatenate([part[at] for part in parts]) for at in range(3)))
        return SearchResult(links, np.concatenate(inside), Recall.of_everything())

    def _listed(self, k: int) -> tuple[NearestSearch, int, Recall]:
        """Return the inverted lists of rows, how many to search, and the recall on sampled rows."""
        rows = np.flatnonzero(self.among)
        centroids = list_centroids(self.vectors, exact_rows=EXACT_ROWS, seed=self.seed, order=None)
        if centroids is None:
            raise ValueError(f"lists are for more than {EXACT_ROWS} rows, got {len(rows)}")
        lists = InvertedLists.by_centroids(self.vectors, centroids)
        lists = InvertedLists(np.where(self.among, lists.home, -1).astype(np.int32), lists.n_lists, lists.centroids)
        search = NearestSearch(self.vectors, lists)
        probes, recall = choose_lists(search, k, AIMED_RECALL, self.seed)
        return search, probes, recall


@dataclass(frozen=True)
class QueryCut:
    """The cut-off for queries that are too uncertain.

    Attributes:
        text: as typed.
        share: share of the table's least certain rows, in (0, 1); None if the cut is a value.
        value: value of the column; None if the cut is a share.
    """

    text: str
    share: Fraction | None
    value: float = 0.0

    def least(self, certainty: NDArray[np.float64], signal: Signal) -> float:
        """Return the minimal certainty that is sufficient, from values of the table's rows (N >= 1,), without NaN.

        Equal rows are treated equally. ``signal`` has the direction of the column.
        """
        if self.share is None:
            return signal.sign * self.value
        place = int(self.share * len(certainty))
        return float(np.partition(certainty, place)[place])

    def words(self, signal: Signal, least: float) -> str:
        """Return why a row or query is cut off, as text to follow its value."""
        than = "above" if signal.sign < 0 else "below"
        of = f", where the least certain {self.text} of the table end" if self.share is not None else ""
        return f"{than} {signal.sign * least:.6g}{of}"


def parse_cut(text: str | float | None) -> QueryCut | None:
    """Parse ``10%`` (a share of the table) or ``0.35`` (a value of the column); None for None; else InputError."""
    if text is None:
        return None
    typed = str(text).strip()
    try:
        if typed.endswith("%"):
            share = exact_number(typed[:-1]) / 100
            if not 0 < share < 1:
                raise InputError(f"--reject takes a share above 0% and below 100%, got {typed}")
            return QueryCut(typed, share)
        value = float(typed)
    except (ValueError, ZeroDivisionError):
        value = np.nan
    if not np.isfinite(value):
        raise InputError(f"--reject takes a share of the table such as 10%, or a value of the column, got {typed!r}")
    return QueryCut(typed, None, value)


def check_options(options: RetrieveOptions) -> None:
    """Raise InputError for an option that is out of range, or needs another one."""
    require_between("--top", options.top, 1, hint=f"{TOP} is usual")
    if options.credible is not None and not 0 < options.credible < 1:
        raise InputError(f"--credible takes a probability above 0 and below 1, got {options.credible:g}; 0.95 is usual")
    if options.calibrate is not None and options.credible is None:
        raise InputError("--calibrate needs --credible; add --credible, or leave --calibrate out")
    require_seed(options.seed)
    parse_cut(options.reject)


class RetrievalWork:
    """The state of one retrieval."""

    def __init__(
        self,
        table: Table,
        rows: Rows,
        queries: Queries,
        column: Signal | None,
        options: RetrieveOptions,
        notes: list[str],
    ) -> None:
        self.table, self.rows, self.queries, self.options, self.notes = table, rows, queries, options, notes
        self.column = column or Signal("", 1)
        self.values = np.full(len(rows), np.nan) if column is None else rows.numbers[column.column]
        self.certainty = self.column.sign * self.values  # (N,), higher is more certain
        self.row_words = ["searched", "an image that could not be scored", *EMBEDDING_PROBLEMS]
        self.states, self.reasons = [ANSWERED] * len(queries), [""] * len(queries)

    def answers(self) -> Retrieval:
        """Return the answers to the queries."""
        announce = self.options.announce
        row_states = self._row_states()
        among = row_states == SEARCHED
        if not among.any():
            why = ", ".join(f"{int((row_states == at).sum()):,} {text}" for at, text in enumerate(self.row_words) if at)
            raise InputError(
                f"expected rows with an embedding to search in {self.table.path}, got none of {len(self.rows):,} "
                f"({why})"
            )
        enough = self._reject_queries(among)
        answered = np.flatnonzero([state == ANSWERED for state in self.states])
        bounds = self._bounds(among, enough, answered)
        announce(f"comparing {counted(len(answered), 'query', 'queries')} with {counted(int(among.sum()), 'row')}")
        hits = self._search(among, answered, bounds)
        inside = np.zeros(len(self.queries), np.int64)
        inside[answered] = hits.inside
        cosines = np.full(len(self.queries), np.nan)
        if bounds is not None:
            cosines[answered] = bounds.bounds
        for at in answered[hits.inside == 0].tolist():
            self.states[at] = ALONE
            self.reasons[at] = "no row lies inside its region" if bounds is not None else "there is no other row"
        links = Links(answered[hits.links.query], hits.links.row, hits.links.similarity)
        return Retrieval(
            self.table,
            self.queries,
            self.states,
            self.reasons,
            self.column.sign * self.queries.certainty,
            self.column.column,
            links,
            self.values,
            inside,
            None if bounds is None else cosines,
            "" if bounds is None else regions.words(bounds, self.column, self._width),
            row_states,
            tuple(self.row_words),
            hits.recall,
            self.notes,
            self._facts(),
        )

    @property
    def _width(self) -> int:
        return 0 if self.rows.embedding is None else self.rows.embedding.shape[1]

    def _row_states(self) -> NDArray[np.uint8]:
        """Return the state of every row, shape (N,)."""
        problem = self.rows.embedding_problem
        states = np.where(problem, problem + UNSCORED, SEARCHED)
        return np.where(self.rows.ok, states, UNSCORED).astype(np.uint8)

    def _reject_queries(self, among: NDArray[np.bool_]) -> float:
        """Mark queries that failed or are too uncertain; return the minimal sufficient certainty."""
        reject, enough = parse_cut(self.options.reject), -np.inf
        if reject is not None:
            known = self.certainty[among & np.isfinite(self.certainty)]
            if not len(known):
                raise InputError(
                    f"--reject {reject.text}: expected numbers in {self.column.column!r} of {self.table.path}, got "
                    "none; choose another column with --certainty"
                )
            enough = reject.least(known, self.column)
        for at, (problem, certainty) in enumerate(
            zip(self.queries.problems, self.queries.certainty.tolist(), strict=True)
        ):
            if problem:
                self.states[at], self.reasons[at] = FAILED, problem
            elif np.isnan(certainty) and (reject is not None or self.options.credible is not None):
                self.states[at], self.reasons[at] = UNDECIDED, f"it has no {self.column.column}"
            elif reject is not None and certainty < enough:
                self.states[at] = REJECTED
                self.reasons[at] = f"{self.column.column} {reject.words(self.column, enough)}"
        if reject is not None and REJECTED not in self.states:
            share = f"; {reject.text} is a value of the column, and {100 * reject.value:g}% a share"
            self.notes.append(f"--reject {reject.text} rejects no query{share if 0 < reject.value < 1 else ''}")
        return enough

    def _bounds(self, among: NDArray[np.bool_], enough: float, answered: NDArray[np.int64]) -> "regions.Regions | None":
        probability, column = self.options.credible, self.options.calibrate
        if probability is None:
            return None
        certainty = self.queries.certainty[answered]
        if column is None:
            return regions.by_concentration(probability, certainty, self._width)
        self.options.announce(f"calibrating on rows of {column}")
        return regions.by_matches(
            probability,
            self.rows,
            among,
            self.certainty >= enough,
            (self.certainty, certainty),
            column=column,
            seed=self.options.seed,
        )

    def _search(
        self, among: NDArray[np.bool_], answered: NDArray[np.int64], bounds: "regions.Regions | None"
    ) -> SearchResult:
        if not len(answered):
            nothing = np.zeros(0, np.int64)
            return SearchResult(Links(nothing, nothing, np.zeros(0, np.float32)), nothing, Recall.of_everything())
        vectors, searched_rows = self.queries.vectors[answered], self.queries.searched_row[answered]
        searched = TableSearch(self.rows.array(EMBEDDING), among, seed=self.options.seed)
        if bounds is not None:
            return searched.within(vectors, searched_rows, bounds.bounds, self.options.top)
        top = self.options.top or TOP
        most = int(among.sum())
        if top > most:
            self.notes.append(
                f"--top {top:,} is more than the {counted(most, 'row')} that can be found; all are returned"
            )
        return searched.nearest(vectors, searched_rows, top)

    def _facts(self) -> dict[str, object]:
        options = self.options
        reject = parse_cut(options.reject)
        facts = {name: getattr(options, name) for name in ("credible", "calibrate", "seed")}
        return {"top": options.top or (None if options.credible else TOP), **facts, "reject": reject and reject.text}
