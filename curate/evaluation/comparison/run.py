"""Compare two scored tables: columns, embeddings, and the images that only one of them has."""

from collections.abc import Sequence

import numpy as np

from curate.columns import EMBEDDING, KEY, LABEL, STATUS
from curate.counted import counted
from curate.evaluation.comparison.columns import (
    GROUP_NUMBERS,
    ROW_NAMING,
    Items,
    TableSample,
    contents,
    items,
    key_notes,
    sampled,
    shifts,
)
from curate.evaluation.comparison.options import CompareOptions
from curate.evaluation.comparison.results import (
    SIGNIFICANT,
    ClusterShare,
    DistinctiveRow,
    EmbeddingShift,
    LeftRange,
    TableComparison,
)
from curate.options.function import callable_of
from curate.options.values import several
from curate.statistics.two_sample import Units, classifier_test, mmd_test, share_gaps
from curate.tables.arrays import numbers_of
from curate.tables.keys import named
from curate.tables.needs import SHA256
from curate.tables.provenance import fitted_range, same_model
from curate.tables.table import Table, open_table
from scoring.arrays import Array
from scoring.errors import InputError
from scoring.metrics.proportions import wilson
from scoring.settings import require_between

ROWS_A_CLUSTER = 20  # minimum rows per cluster on average
LACKING = 0.1  # share relative to the other table's
N_EXAMPLES = 5
SIDES = ("first", "second")
MOST_ROWS = 200_000  # maximum rows of a sample, so that arrays take a few gigabytes
MOST_REPEATS = 100_000
MOST_CLUSTERS = 1_000

SETTINGS = ("sample", "repeats", "clusters", "top", "fail_above", "seed")  # options that determine the numbers


def cluster_shares(
    samples: tuple[TableSample, TableSample], items: Items, k: int, *, repeats: int, seed: int
) -> list[ClusterShare]:
    """Return the non-empty clusters, those that one side lacks first, then by the difference of shares.

    Embeddings are centred on the mean of all items and normalised before clustering.

    Args:
        samples: both, for the numbers of their rows.
        items: of both.
        k: number of clusters; fewer if there are few items.
        repeats: permutations of the test.
        seed: of clusters and permutations.
    """
    from scoring.search.kmeans import assign, spherical_kmeans  # imports torch, which is not always needed

    counts = items.counts
    rows = items.vectors - items.vectors.mean(0, dtype=np.float64).astype(np.float32)
    k = max(1, min(k, len(rows) // ROWS_A_CLUSTER))
    centroids = spherical_kmeans(rows, k, seed=seed, sample=len(rows))
    nearest, cosine = (each[:, 0] for each in assign(rows, centroids))
    nearest = np.maximum(nearest, 0)  # a row at the mean has no direction
    order = np.argsort(nearest, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(nearest[order]) > 0))
    of = Units(counts.part(order), starts, nearest[order][starts].astype(np.float64))
    adjusted = share_gaps(of, repeats=repeats, seed=seed).p
    clusters = []
    for number, p in zip(of.values.astype(int).tolist(), adjusted.tolist(), strict=True):
        inside = nearest == number
        n = int(counts.a[inside].sum()), int(counts.b[inside].sum())
        shares = wilson(n[0], int(counts.a.sum())), wilson(n[1], int(counts.b.sum()))
        small = int(shares[1].value < shares[0].value)
        lacks = p <= SIGNIFICANT and shares[small].value <= LACKING * shares[1 - small].value
        score = np.where(inside, cosine, -np.inf)
        first, second = (distinctive_rows(samples, items, score, side, N_EXAMPLES) for side in (0, 1))
        clusters.append(ClusterShare(number, n, *shares, p, SIDES[small] if lacks else "", (first, second)))
    return sorted(clusters, key=lambda each: (not each.lacking, -abs(each.first.value - each.second.value)))


def distinctive_rows(
    samples: tuple[TableSample, TableSample], items: Items, score: Array, side: int, n: int
) -> tuple[DistinctiveRow, ...]:
    """Return the n rows of one side with the highest finite scores of their items, highest first; each item once.

    Args:
        samples: of both tables.
        items: of both.
        score: of each item, shape (N,); -inf excludes it.
        side: 0 for the first table, 1 for the second.
        n: number of rows.
    """
    sample, offset = samples[side], side * len(samples[0])
    of_row = items.of_row[offset : offset + len(sample)]
    rows = np.flatnonzero(of_row >= 0)
    _, first = np.unique(of_row[rows], return_index=True)
    rows = rows[first]
    value = score[of_row[rows]]
    rows, value = rows[np.isfinite(value)], value[np.isfinite(value)]
    best = np.argsort(-value, kind="stable")[:n]
    index = sample.index[rows[best]]
    keys = named(sample.table, index) if KEY in sample.table.schema.names else [str(row) for row in index.tolist()]
    return tuple(
        DistinctiveRow(int(row), key, float(shown)) for row, key, shown in zip(index, keys, value[best], strict=True)
    )


def _check(options: CompareOptions) -> None:
    for name, low, high, usual in (
        ("sample", 20, MOST_ROWS, 10_000),
        ("repeats", 19, MOST_REPEATS, 999),
        ("clusters", 0, MOST_CLUSTERS, 20),
        ("top", 0, 1000, 10),
        ("seed", 0, 2**31 - 1, 0),
    ):
        require_between(f"--{name}", getattr(options, name), low, high, f"{usual:,} is usual")
    if options.fail_above is not None and not 0.5 <= options.fail_above < 1:
        raise InputError(
            f"--fail-above takes an AUROC from 0.5 (cannot be separated) to below 1, got {options.fail_above:g}; "
            "0.6 is usual"
        )


def run_compare(options: CompareOptions) -> TableComparison:
    """Compare two tables, such as train against production, or before and after a filter; nothing is written.

    Raises:
        InputError: for tables, columns or settings that cannot be used, or embeddings of two models.
    """
    _check(options)
    embedding = options.embedding
    tables = open_table(options.table, embedding=embedding), open_table(options.other, embedding=embedding)
    if tables[0].path.resolve() == tables[1].path.resolve():
        raise InputError(f"expected two tables, got {tables[0].path} twice; pass another one")
    chosen = several(options.column)
    if embedding is not None and chosen and EMBEDDING not in chosen:
        raise InputError(f"--embedding {embedding} needs --column {EMBEDDING}; add it, or leave --embedding out")
    common, only_in = _columns(tables, chosen)
    for each in tables:
        each.require([options.label] if options.label else [])
    has_embedding = all(EMBEDDING in each.schema.names for each in tables)
    if has_embedding and (not chosen or EMBEDDING in chosen):
        same_model(*tables, instead="choose columns to compare, such as --column width")
    of_rows = [name for name in (KEY, SHA256, STATUS, EMBEDDING) if name not in common]
    names = [[*common, *(name for name in of_rows if name in each.schema.names)] for each in tables]
    first, second = (
        sampled(each, columns, options.sample, seed=options.seed) for each, columns in zip(tables, names, strict=True)
    )
    samples = first, second
    content = contents(samples)
    options.announce(
        f"{counted(len(common), 'column')} of {len(first):,} and {len(second):,} rows, "
        f"{options.repeats:,} permutations each"
    )
    columns, left_out = shifts(
        samples, common, content, options.label or LABEL, repeats=options.repeats, seed=options.seed
    )
    comparison = TableComparison(
        tables=(str(tables[0].path), str(tables[1].path)),
        rows=(tables[0].n_rows, tables[1].n_rows),
        sampled=(len(first), len(second)),
        columns=columns,
        only_in=only_in,
        left_out=left_out,
        settings={name: getattr(options, name) for name in SETTINGS},
        notes=[note for each in samples for note in key_notes(each)],
    )
    comparison.left_range = _left_range(tables, samples)
    unasked = bool(chosen) and EMBEDDING not in chosen
    of = "--column does not name embedding" if unasked else items(samples, content, seed=options.seed)
    _compare_embeddings(comparison, samples, of, options)
    return comparison


compare = callable_of(CompareOptions, run_compare)


def _left_range(tables: tuple[Table, Table], samples: tuple[TableSample, TableSample]) -> list[LeftRange]:
    """Return the rows of both samples outside of the ranges on which either table's probabilities were fitted."""
    fitted = {each for each in map(fitted_range, tables) if each is not None}
    left = []
    for fit in sorted(fitted, key=lambda each: (each.column, each.low)):
        for number, sample in enumerate(samples):
            if fit.column in sample.columns.schema.names:
                outside = fit.outside(numbers_of(sample.columns[fit.column]))
                left.append(LeftRange(number, fit, outside, outside.probability(fit)))
    return left


def _compare_embeddings(
    comparison: TableComparison, samples: tuple[TableSample, TableSample], of: Items | str, options: CompareOptions
) -> None:
    """Add the difference of the embeddings, the most distinctive rows, and the clusters."""
    if isinstance(of, str):
        if options.fail_above is not None:
            raise InputError(f"--fail-above is about embeddings, which cannot be compared: {of}")
        comparison.without_embedding = of
        return
    test = {"repeats": options.repeats, "seed": options.seed}
    options.announce(f"embeddings of {len(of.vectors):,} distinct images, {options.repeats:,} permutations")
    classified = classifier_test(of.vectors, of.counts, **test)
    mmd = mmd_test(of.vectors, of.counts, **test)
    comparison.embedding = EmbeddingShift(
        rows=(int(of.counts.a.sum()), int(of.counts.b.sum())),
        shared=int(((of.counts.a > 0) & (of.counts.b > 0)).sum()),
        auroc=classified.auroc,
        p=classified.p,
        mmd=float(mmd.value),
        mmd_p=float(mmd.p),
    )
    limit = options.fail_above
    comparison.failed = limit is not None and classified.auroc.value > limit and classified.p <= SIGNIFICANT
    both = (of.counts.a > 0) & (of.counts.b > 0)  # an image in both tables is distinctive of neither
    like_first, like_second = (np.where(both, -np.inf, sign * classified.scores) for sign in (-1, 1))
    comparison.distinctive = (
        distinctive_rows(samples, of, like_first, 0, options.top),
        distinctive_rows(samples, of, like_second, 1, options.top),
    )
    if options.clusters:
        comparison.clusters = cluster_shares(samples, of, options.clusters, **test)


def _columns(tables: tuple[Table, Table], chosen: Sequence[str]) -> tuple[list[str], tuple[list[str], list[str]]]:
    """Return the columns to compare, and those that only one table has."""
    names = [[name for name in each.schema.names if name != each.embedding_column] for each in tables]
    if chosen:
        for each in tables:
            each.require(chosen)
        return [name for name in dict.fromkeys(chosen) if name != EMBEDDING], ([], [])
    common = [name for name in names[0] if name in names[1] and name not in ROW_NAMING | GROUP_NUMBERS]
    only = [
        [name for name in these if name not in others] for these, others in ((names[0], names[1]), (names[1], names[0]))
    ]
    return common, (only[0], only[1])
