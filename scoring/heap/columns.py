"""The columns of scores that look at the heap; importing this loads nothing."""

from collections.abc import Mapping

from scoring.column import Column

NEIGHBOUR, AMBIGUOUS = "unc_neighbour", "unc_ambiguous"
OUTLIER, FITTED, LOCAL = "unc_outlier", "unc_fitted", "unc_local"
CLASS = "unc_class"  # where there are labels to learn from
LESS = "less certain"
COLUMNS: Mapping[str, Column] = {
    NEIGHBOUR: Column("1 - cosine to the nearest other image that is no copy, less the heap's mean", "1", LESS),
    AMBIGUOUS: Column("how little the heap tells what it is: the share of it that is clearer", "1", LESS),
    OUTLIER: Column("unlike the heap as a whole: log of the median mean cosine to all rows over its own", "1", LESS),
    FITTED: Column("fitted to the heap: junk highest, below it what the heap cannot tell", "1", LESS),
    LOCAL: Column("how many of its nearest are clearer by unc_fitted; junk highest", "1", LESS),
}
OF_CLASSES = Column("entropy of the classes that a linear classifier of the labels expects, out of fold", "nats", LESS)
