"""Names and meanings of the dataset-relative columns; importing this is cheap."""

from collections.abc import Mapping

from scoring.column import Column

JUNK = "p_junk"
NEIGHBOUR, AMBIGUOUS = "unc_neighbour", "unc_ambiguous"
FITTED, LOCAL = "unc_fitted", "unc_local"
COPIES, CLUSTER, UNLIKE = "copies", "cluster", "unlike_group"
CLASS = "unc_class"  # only with labels
LESS = "less certain"
USABLE = 0.5  # largest unc_fitted and unc_local of an image that is not junk
FEW_ROWS = 50  # images; a fit to fewer gives a warning
PER_IMAGE: Mapping[str, Column] = {  # columns that a fitted model computes for any image
    JUNK: Column(
        (
            "probability that the image is a corrupted one rather than one of this dataset; 0.5 is the threshold; "
            "null if it does not apply to the dataset"
        ),
        "1",
        LESS,
    ),
    NEIGHBOUR: Column(
        "1 - cosine to the nearest other image that is not a copy, with the dataset's mean subtracted", "1", LESS
    ),
    AMBIGUOUS: Column(
        "closeness to the boundary between groups of this dataset: the share of images that are less ambiguous",
        "1",
        LESS,
    ),
    FITTED: Column("above 0.5: junk, by p_junk; up to 0.5: ambiguity, by unc_ambiguous", "1", LESS),
    LOCAL: Column("order of dropping: among similar images the least certain first, junk before all", "1", LESS),
    CLUSTER: Column("number of the cluster of similar images, from 0"),
    UNLIKE: Column("number of the group of images unlike the rest, from 1; null for the rest"),
}
COLUMNS: Mapping[str, Column] = {
    **PER_IMAGE,
    COPIES: Column("images of the table equal or nearly equal to this one, itself included"),
}
OF_CLASSES = Column("entropy of the classes that a linear classifier of the labels expects, out of fold", "nats", LESS)
