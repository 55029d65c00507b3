"""Criteria for the kept image among duplicates, in order; ties go to the shorter key."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import translate

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.columns import KEY, URI, is_less_certain
from curate.counted import counted
from curate.policies.dedup.grouping import loss
from curate.policies.dedup.grouping.stars import Stars
from curate.policies.dedup.options import KEEP as DEFAULT
from curate.tables.copies import first_equal
from curate.tables.digests import is_text, plain
from curate.tables.keys import keys_at
from curate.tables.needs import SHA256, default_column, kappa_of
from curate.tables.rows import Rows
from curate.tables.table import Table
from scoring.arrays import Array, Floats, Ints, Mask
from scoring.errors import InputError
from scoring.lookup import closest
from scoring.relative.columns import JUNK

IS_JUNK = 0.5  # p_junk above which an image is junk
LEAST_LOST = "least-lost"
MAX, MIN = "max:", "min:"


@dataclass(frozen=True)
class Criterion:
    """One criterion: its name, the columns it reads, and a value per row (higher is kept; NaN is last).

    Attributes:
        typed: as on the command line.
        numbers: numeric columns.
        facts: columns of ``loss`` in the table.
        present: columns checked for missing values only.
        value: rows -> shape (N,) float64.
        is_score: whether it is a model's score, whose last digits may differ between runs even for equal files.
    """

    typed: str
    numbers: tuple[str, ...]
    present: tuple[str, ...]
    value: Callable[[Rows], Floats]
    facts: tuple[str, ...] = ()
    is_score: bool = False


MEANINGS: dict[str, str] = {
    "least-lost": "most pixels x bits of colour (24; grey 8, few 4, two 1); a quarter if blocky, noisy; enlarged last",
    "least-lossy": "lossless before JPEG, JPEG by its quality; a palette of colours counts as quality 60",
    "certain": "most certain: highest kappa, or lowest unc where there is no kappa",
    "largest": "most pixels",
    "least-compressed": "most bytes a pixel",
    "no-junk": "p_junk of at most 0.5 before junk, such as a dark or blurred copy",
    "labelled": "with a value in the label column before those without",
    "max:COLUMN": "largest value of any column of numbers",
    "min:COLUMN": "smallest value of any column of numbers",
}


def _no_junk(rows: Rows) -> Floats:
    return (~(rows.numbers[JUNK] > IS_JUNK)).astype(float)


def _pixels(rows: Rows) -> Floats:
    return rows.numbers[loss.WIDTH] * rows.numbers[loss.HEIGHT]


def _bytes_a_pixel(rows: Rows) -> Floats:
    pixels = _pixels(rows)
    return np.asarray(np.divide(rows.numbers[loss.N_BYTES], pixels, out=np.full(len(rows), np.nan), where=pixels > 0))


SIZE = (loss.WIDTH, loss.HEIGHT)
OF_NUMBERS: dict[str, tuple[tuple[str, ...], Callable[[Rows], Floats]]] = {  # columns needed, and value
    "largest": (SIZE, _pixels),
    "least-compressed": ((*SIZE, loss.N_BYTES), _bytes_a_pixel),
    "no-junk": ((JUNK,), _no_junk),
}


def parse_keep(text: str, table: Table, *, label: str | None) -> list[Criterion]:
    """Return the criteria in ``text``, separated by commas; InputError for an unknown one or a missing column.

    Args:
        text: such as ``largest,certain,min:year``. The default skips criteria whose columns the table lacks.
        table: with the columns.
        label: column of the labels, or None.
    """
    default = text == DEFAULT
    criteria = []
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise InputError(f"--keep takes {', '.join(MEANINGS)}, separated by commas, got none; leave it out")
    for name in names:
        if name.startswith((MAX, MIN)):
            criteria.append(_by_column(name, table))
        elif name in MEANINGS:
            if default and not _possible(name, table, label):
                continue
            criteria.append(_named(name, table, label))
        else:
            raise InputError(
                f"--keep takes {', '.join(MEANINGS)}, separated by commas, got {name!r}{closest(name, MEANINGS)}"
            )
    return criteria


def _possible(name: str, table: Table, label: str | None) -> bool:
    """Return whether the table has the columns of a default criterion."""
    names = table.schema.names
    if name == "labelled":
        return label is not None and label in names
    if name == "certain":
        return _score(table) is not None
    if name == "least-lossy":
        return bool({loss.FORMAT, loss.JPEG} & set(names))
    return set(OF_NUMBERS[name][0] if name in OF_NUMBERS else SIZE) <= set(names)


def _named(name: str, table: Table, label: str | None) -> Criterion:
    if name == "labelled":
        if label is None:
            raise InputError("--keep labelled needs a column of labels; choose it with --label")
        table.require([label])
        return Criterion(name, (), (label,), lambda rows: rows.present[label].astype(float))
    if name == "certain":
        column = _score(table)
        if column is None:
            scores = [each for each in table.schema.names if each.startswith(("kappa_", "unc_"))]
            raise InputError(
                f"--keep certain needs the one score of {table.path}, got {', '.join(scores) or 'none'}; "
                "choose a column with max:COLUMN (kappa) or min:COLUMN (unc)"
            )
        sign = -1.0 if is_less_certain(column) else 1.0
        return Criterion(f"certain ({column})", (column,), (), lambda rows: sign * rows.numbers[column], is_score=True)
    if name == LEAST_LOST:
        table.require(SIZE)
        return Criterion(name, (), (), loss.detail, loss.facts_in(table, loss.OF_DETAIL))
    if name == "least-lossy":
        return Criterion(name, (), (), loss.fidelity, loss.facts_in(table, loss.OF_FIDELITY))
    columns, value = OF_NUMBERS[name]
    table.require(columns)
    return Criterion(name, columns, (), value, is_score=JUNK in columns)


def _score(table: Table) -> str | None:
    """Return the kappa column of a table, else its default score; None if there is none."""
    try:
        return kappa_of(table) or default_column(table)
    except InputError:
        return None


def _by_column(name: str, table: Table) -> Criterion:
    column = name.removeprefix(MAX).removeprefix(MIN)
    table.require([column])
    sign = 1.0 if name.startswith(MAX) else -1.0
    return Criterion(name, (column,), (), lambda rows: sign * rows.numbers[column])


def keep_order(
    rows: Rows,
    criteria: Sequence[Criterion],
    ties: NDArray[np.integer],
    protected: Mask | None = None,
    preferred: Ints | None = None,
    large: Mask | None = None,
    apart: Mask | None = None,
    files: Ints | None = None,
) -> Ints:
    """Return all rows, the one to keep before its copies.

    Rows judged to be no copies, ``apart``, come first, then protected rows, then lower values of ``preferred``. Then
    the criteria decide in order, missing values last, then ``ties``, such as ranks of the keys, so that the order does
    not depend on machine or row order. ``large`` marks enlarged rows, which have lost more. Rows with the same number
    in ``files`` are equal files and get the best of their scores. All have shape (N,).
    """
    keys: list[Array] = [ties]  # the last key of lexsort is the primary one
    for criterion in reversed(criteria):
        value = loss.detail(rows, large) if criterion.typed == LEAST_LOST else criterion.value(rows)
        if criterion.is_score and files is not None:
            best = np.full(len(rows), np.nan)
            np.fmax.at(best, files, value)
            value = best[files]
        keys.append(np.where(np.isnan(value), np.inf, -value))
    if preferred is not None:
        keys.append(preferred)
    if protected is not None:
        keys.append(~protected)
    if apart is not None:
        keys.append(~apart)
    return np.lexsort(keys).astype(np.int64)


def equal_files(rows: Rows) -> Ints | None:
    """Return the first row with the same sha256 for each row, shape (N,); None if not read."""
    return first_equal(rows.texts[SHA256]) if SHA256 in rows.texts else None


def links_last(table: Table, ranks: Ints, files: Ints | None) -> Ints:
    """Return ranks that put a link after all files, if the table contains its target.

    Args:
        table: among rows of one ``uri``, the row whose key is its longest suffix is the file; others are links.
        ranks: of the keys, shape (N,).
        files: first row with the same sha256 for each, shape (N,); None where unknown.
    """
    import polars as pl

    if files is None or URI not in table.schema.names or not is_text(table.schema.field(URI).type):
        return ranks
    several = np.flatnonzero(np.bincount(files, minlength=len(files))[files] > 1)
    frame = pl.DataFrame(table.take(several, [KEY, URI])).with_columns(pl.col(KEY, URI).cast(pl.String, strict=False))
    name = pl.concat_str(pl.lit("/"), pl.col(KEY).str.strip_prefix("./"))
    length = pl.when(pl.col(URI).str.ends_with(name)).then(name.str.len_bytes())
    links = frame.select(length.ne_missing(length.max().over(URI))).to_series().to_numpy()
    last = ranks.copy()
    last[several[links]] += len(ranks)
    return last


def preferred_rows(table: Table, globs: Sequence[str]) -> Ints | None:
    """Return the index of the first pattern that matches each key, shape (N,); the last if none; None without patterns.

    Args:
        table: with ``key``.
        globs: patterns such as ``sorted/*``, case-sensitive, with ``*`` matching slashes too; most preferred first.

    Raises:
        InputError: for a pattern that matches no key.
    """
    if not globs:
        return None
    patterns = [re.compile(translate(glob)) for glob in globs]
    places = np.full(table.n_rows, len(globs))
    example, unseen = "", set(range(len(globs)))
    for start, batch in table.numbered([KEY]):
        for row, key in enumerate(plain(batch.column(0)).cast(pa.string()).to_pylist(), start):
            matched = [place for place, pattern in enumerate(patterns) if key is not None and pattern.match(key)]
            if matched:
                places[row] = matched[0]
                unseen -= set(matched)
            example = example or key or ""
    if unseen:
        glob = globs[min(unseen)]
        raise InputError(
            f"--prefer {glob!r} matches no key of {table.path}, where keys look like {example!r}; write a pattern of "
            "whole keys, such as 'FOLDER/*', in quotes"
        )
    return places


def equal_elsewhere(table: Table, stars: Stars, outside: Mask) -> list[str]:
    """Return a note on rows dropped for an equal file in another folder; empty if there are none.

    Args:
        table: with ``key``.
        stars: the groups.
        outside: mask of rows with owners in another table, which are not counted, shape (N,).
    """
    equal = [number for number, name in enumerate(stars.names) if name == "bytes"]
    rows = np.flatnonzero(np.isin(stars.finder, equal) & ~outside)
    pairs = zip(keys_at(table, rows).tolist(), keys_at(table, stars.owner[rows]).tolist(), strict=True)
    apart = [(row, kept) for row, kept in pairs if row.rpartition("/")[0] != kept.rpartition("/")[0]]
    if not apart:
        return []
    files = counted(len(apart), "dropped file equals one", "dropped files equal one")
    return [
        (
            f"{files} kept in another folder, such as {apart[0][0]} for {apart[0][1]}: --prefer 'FOLDER/*' keeps "
            "the copies in that folder"
        )
    ]
