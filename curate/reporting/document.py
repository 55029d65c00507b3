"""All facts of a report as one JSON value, with their sources."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.columns import GONE, LABEL
from curate.counted import counted
from curate.manifest.store_path import is_cleaned
from curate.policies.contract import FILTER
from curate.policies.decided import KEEP
from curate.policies.filter.rules import rule_from_json
from curate.policies.issues.kinds import KINDS
from curate.reporting.columns import SCORE, Dataset, Shown, default_score, read_dataset, shortened, shown_columns
from curate.reporting.decided import Applied, Decided, Decisions, decide_all, find_results, row_values
from curate.reporting.galleries import (
    Gallery,
    of_decisions,
    of_duplicates,
    of_failures,
    of_issues,
    of_labels,
    of_score,
    without_copies,
)
from curate.reporting.measured import read_measured
from curate.reporting.numbers import ByClass, columns_in_turn, distribution, finite, histogram, rank_correlations
from curate.reporting.options import ReportOptions
from curate.reporting.places import Places, place_rows
from curate.reporting.thumbs import thumbnails
from curate.tables.provenance import REQUEST
from curate.tables.rows import Codes
from curate.tables.table import Table
from curate.version import __version__
from scoring.errors import InputError

ISSUES = "issues"
VERSION = 1
THUMBS = 1_000
SIZES = ("width", "height", "n_bytes")


def cuts_of(results: Sequence[Applied], decided: Sequence[Decisions]) -> dict[str, list[dict[str, Any]]]:
    """Return the thresholds that policies applied, by column of the table.

    Thresholds by group are omitted.

    Args:
        results: policies in the order applied.
        decided: their decisions, if available.
    """
    thresholds = {id(policy.applied): policy.thresholds for policy in decided}
    cuts: dict[str, list[dict[str, Any]]] = {}
    for applied in results:
        of_policy = thresholds.get(id(applied), {})
        each = _of_filter(applied, of_policy) if applied.name == FILTER else _of_issues(applied)
        for column, value, words in each:
            if isfinite(value):
                cuts.setdefault(column, []).append({"value": value, "words": words})
    return cuts


def _of_filter(applied: Applied, thresholds: Mapping[str, tuple[float, float]]) -> list[tuple[str, float, str]]:
    cuts = []
    for value in applied.rules:
        try:
            rule = rule_from_json(value)
        except InputError:
            continue  # of another version: only its counts are used
        low, high = thresholds.get(rule.typed(), (1.0, 0.0))
        if rule.column is not None and rule.per is None and low == high:
            cuts.append((rule.column, low, f"{rule.typed()} of {applied.name}"))
    return cuts


def _of_issues(applied: Applied) -> list[tuple[str, float, str]]:
    if applied.name != ISSUES or not isinstance(applied.receipt.get("kinds"), dict):
        return []
    cuts = []
    for name, facts in applied.receipt["kinds"].items():
        kind = KINDS.get(name)
        begins = facts.get("begins") if isinstance(facts, dict) else None
        if kind is not None and len(kind.columns) == 1 and isinstance(begins, int | float):
            cuts.append((kind.columns[0], float(begins), f"{name} of {applied.name}"))
    return cuts


@dataclass
class Facts:
    """The facts of a table, before rows are listed.

    Attributes:
        dataset: the table.
        decided: the decisions on its rows.
        columns: the shown columns.
        drawn: rows of the sample, by the hash of their keys.
        galleries: with row indices.
        places: the map; None without one.
        results: policies, in the order applied.
        counted: the parts of the document without rows.
    """

    dataset: Dataset
    decided: Decided
    columns: list[Shown]
    drawn: NDArray[np.int64]
    galleries: list[Gallery]
    places: Places | None
    results: list[Applied]
    counted: dict[str, Any]

    def served(self) -> dict[str, Any]:
        """Return the document without rows and thumbnails; rows are identified by their index in the table."""
        return self.counted | {"served": True, "sampled": None} | self._shown(int)

    def full_document(self, source: str | None = None, *, thumbs: int = THUMBS) -> dict[str, Any]:
        """Return the document with rows and thumbnails; rows are identified by their index in the document.

        Args:
            source: the scored source, if the table has no paths of images.
            thumbs: maximal number of thumbnails.

        Raises:
            InputError: for a source that cannot be opened or has other rows.
        """
        small, rows = thumbnails(self.dataset.table, self._to_thumb(thumbs), source=source), self.listed()
        place = {row: number for number, row in enumerate(rows.tolist())}
        return (
            self.counted
            | {
                "rows": row_values(self.dataset, self.decided, self.columns, rows),
                "thumbs": small.to_json(rows.tolist()),
            }
            | self._shown(lambda row: place[row])
        )

    def listed(self) -> NDArray[np.int64]:
        """Return the rows listed in a document: from the sample, the galleries and the map."""
        of_map = self.places.row if self.places is not None else np.zeros(0, np.int64)
        return np.unique(np.concatenate([self.drawn, np.array(self.in_galleries(), np.int64), of_map]))

    def in_galleries(self) -> list[int]:
        """Return every row of a gallery once, starting with a few of each gallery."""
        turns = [gallery.all_rows() for gallery in self.galleries]
        mixed = [rows[at] for at in range(max(map(len, turns), default=0)) for rows in turns if at < len(rows)]
        return list(dict.fromkeys(mixed))

    def _to_thumb(self, n: int) -> list[int]:
        """Return the first n rows of the galleries, then of the map, then of the sample, without missing images."""
        of_map = self.places.row.tolist() if self.places is not None else []
        rows = dict.fromkeys([*self.in_galleries(), *of_map, *self.drawn.tolist()])
        status = self.dataset.status
        gone = status.names.index(GONE) if GONE in status.names else None
        return [row for row in rows if gone is None or status.codes[row] != gone][:n]

    def _shown(self, place: Any) -> dict[str, Any]:
        return {
            "galleries": [gallery.to_json(place) for gallery in self.galleries],
            "map": None if self.places is None else self.places.to_json(place),
        }


@dataclass
class _Counted:
    """The result of one pass over the numeric columns."""

    sizes: dict[str, Any] = field(default_factory=dict)
    distributions: list[dict[str, Any]] = field(default_factory=list)
    scores: dict[str, NDArray[np.float64]] = field(default_factory=dict)  # of the drawn rows, by name
    certain_first: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


def gather(table: Table, options: ReportOptions, *, seed: int = 0) -> Facts:
    """Compute the facts of a table over all rows, and choose the rows to show.

    Args:
        table: with a unique ``key``.
        options: of ``curate report``.
        seed: of the sample and the map.

    Raises:
        InputError: for an unusable table, column or file, or a policy's file that belongs to another table.
    """
    measured = None if options.measured is None else read_measured(options.measured)
    label = options.label or (LABEL if LABEL in table.schema.names else None)
    results = find_results(table, options.results)
    dataset = read_dataset(table, label, seed=seed)
    columns, left_out = shown_columns(table, label)
    score, note = default_score(table, options.column, columns)
    columns = [score if score is not None and each.column == score.column else each for each in columns]
    decided = decide_all(dataset, results)
    classes = ByClass(dataset)
    drawn = dataset.drawn(options.sample)
    counts = _count(dataset, columns, score, classes, drawn, cuts_of(results, decided.policies))
    galleries = [
        *(of_score(score.column, counts.certain_first, classes) if score is not None else []),
        *of_decisions(dataset, decided),
        *of_duplicates(dataset, decided),
        *of_labels(decided),
        *of_issues(dataset, results),
        *of_failures(dataset),
    ]
    galleries = without_copies(table, [each for each in galleries if each.rows or each.groups])
    places = _places(dataset, score, counts.scores, drawn, options.points, seed)
    without_map = places if isinstance(places, str) else ""
    notes = [each for each in (note, *_unshown(results, columns, left_out), without_map) if each]
    overview = {
        "status": _tally(dataset.status, dataset.n, "ok"),
        "format": _tally(dataset.format, dataset.n, "unknown"),
        "classes": classes.to_json(),
        "sizes": counts.sizes,
        "notes": notes,
        "kept": _kept(decided, results),
    }
    counted_parts = {
        "version": VERSION,
        "title": _title(table),
        "about": _about(dataset),
        "n_rows": dataset.n,
        "sampled": _sampled(dataset, drawn, seed),
        "columns": [each.to_json() for each in columns],
        "default_score": None if score is None else score.name,
        "class_column": next((each.name for each in columns if each.column == label), None),
        "overview": overview,
        "funnel": [each.funnel() for each in results],
        "distributions": counts.distributions,
        "ranks": rank_correlations(counts.scores),
        "measured": measured,
    }
    on_map = None if isinstance(places, str) else places
    return Facts(dataset, decided, columns, drawn, galleries, on_map, results, counted_parts)


def _unshown(results: Sequence[Applied], columns: Sequence[Shown], left_out: Sequence[str]) -> Iterator[str]:
    """Yield notes on missing decisions and on columns beyond the limit."""
    for result in results:
        if result.decisions is None:
            yield f"{result.path.name}: its decisions are missing; it only appears in the funnel"
    if left_out:
        more = counted(len(left_out), "column")
        yield f"{more} beyond {len(columns)} are not shown: {', '.join(left_out[:5])}"


def _kept(decided: Decided, results: Sequence[Applied]) -> int | None:
    """Return the number of rows kept by all policies; None without policies, or if decisions of one are missing."""
    if not results or any(result.decisions is None for result in results):
        return None
    return int((decided.outcome == KEEP).sum())


def _count(
    dataset: Dataset,
    columns: Sequence[Shown],
    score: Shown | None,
    classes: ByClass,
    drawn: NDArray[np.int64],
    cuts: Mapping[str, list[dict[str, Any]]],
) -> _Counted:
    counts = _Counted()
    by_name = {each.column: each for each in columns if each.is_number}
    for name, numbers in columns_in_turn(dataset, list(by_name)):
        column, is_known = by_name[name], finite(numbers)
        spread = distribution(column, numbers, classes, cuts)
        if name in SIZES:
            counts.sizes[name] = histogram(numbers.values[is_known])
        elif spread is not None:
            counts.distributions.append(spread)
        if column.kind == SCORE or column is score:
            counts.scores[column.name] = np.where(is_known[drawn], numbers.values[drawn].astype(np.float64), np.nan)
        if column is score:
            rows = np.flatnonzero(is_known & dataset.ok)
            ascending = rows[np.argsort(numbers.values[rows], kind="stable")]
            counts.certain_first = ascending[::-1] if column.direction > 0 else ascending
    return counts


def _places(
    dataset: Dataset,
    score: Shown | None,
    scores: Mapping[str, NDArray[np.float64]],
    drawn: NDArray[np.int64],
    points: int,
    seed: int,
) -> Places | str:
    if not points:
        return ""
    n = min(points, len(drawn))
    uncertainty = None if score is None else -score.direction * scores[score.name][:n]
    return place_rows(dataset, drawn[:n], uncertainty, seed=seed)


def _title(table: Table) -> str:
    """Return the name of the folder that ``curate clean`` wrote around a table, else the table's name."""
    if isinstance(table.path, Path) and is_cleaned(table.path.parent.parent):
        return table.path.parent.parent.resolve().name
    return table.path.stem


def _about(dataset: Dataset) -> dict[str, Any]:
    model, request = (dataset.table.metadata.get(name) for name in ("model", REQUEST))
    named = None
    if isinstance(model, dict):
        typed = request.get("model") if isinstance(request, dict) else None
        name = Path(str(typed)).name if typed else model.get("method", "a model")
        named = f"{name} ({str(model.get('digest', ''))[:12]})"
    return {
        "table": str(dataset.table.path),
        "digest": dataset.digest,
        "curate": __version__,
        "model": named,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _sampled(dataset: Dataset, drawn: NDArray[np.int64], seed: int) -> dict[str, Any] | None:
    if len(drawn) == dataset.n:
        return None
    words = (
        f"{len(drawn):,} of {dataset.n:,} rows are a sample by the hash of their keys; rows of galleries "
        "come in addition"
    )
    return {"n": len(drawn), "seed": seed, "words": words}


def _tally(codes: Codes, n: int, otherwise: str) -> list[list[Any]]:
    """Return names with their row counts, largest first; for a missing column, one name for all rows."""
    if not len(codes.codes):
        return [[otherwise, n]] if n else []
    return [[shortened(name), n_rows] for _, name, n_rows in codes.largest("none")[:50]]
