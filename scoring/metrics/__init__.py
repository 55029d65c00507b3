"""How good embeddings and certainties are: pure functions, ranks in float64, no N x N matrix."""

from scoring.metrics.classifier import (
    LinearClassifier,
    Predictions,
    cross_validate,
    fit_linear,
    spread_folds,
)
from scoring.metrics.duplicates import Groups, group_duplicates
from scoring.metrics.logistic import LogisticFit, logistic_regression
from scoring.metrics.neighbours import knn_predict, knn_vote, nearest, recall_at_1
from scoring.metrics.ranking import auroc, entropy, r_auroc, rank_average, ranks, spearman
from scoring.metrics.resampling import (
    Interval,
    percentiles,
    permutation_test,
    permutation_test_linear,
    resample,
)
from scoring.metrics.retrieval import average_precision_at_r, normalized_mutual_information, recall_at
from scoring.metrics.selective import aurc, least_aurc
from scoring.metrics.weighted import RankOrder, harmonic_sums, weighted_spearman

__all__ = [
    "Groups",
    "Interval",
    "LinearClassifier",
    "LogisticFit",
    "Predictions",
    "RankOrder",
    "aurc",
    "auroc",
    "average_precision_at_r",
    "cross_validate",
    "entropy",
    "fit_linear",
    "group_duplicates",
    "harmonic_sums",
    "knn_predict",
    "knn_vote",
    "least_aurc",
    "logistic_regression",
    "nearest",
    "normalized_mutual_information",
    "percentiles",
    "permutation_test",
    "permutation_test_linear",
    "r_auroc",
    "rank_average",
    "ranks",
    "recall_at",
    "recall_at_1",
    "resample",
    "spearman",
    "spread_folds",
    "weighted_spearman",
]
