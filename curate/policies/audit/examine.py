"""Results of verdicts on images, pairs or labels: ``curate.review_verdicts``."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from curate.options.function import callable_of
from curate.options.values import several
from curate.policies.audit.options import ReviewVerdictsOptions
from curate.policies.audit.results import ANY, AuditReading, parse_share
from curate.policies.audit.verdicts import is_audit, read_audit
from curate.policies.dedup.quality.answers import read_answers
from curate.policies.dedup.quality.precision import Precision, Suggestion, precision, suggest_threshold
from curate.policies.labels.review import Verdicts, is_review
from curate.policies.labels.review import read_verdicts as read_labels
from curate.statistics.guarantee import Sampled, guaranteed_cut
from scoring.errors import InputError
from scoring.metrics.proportions import lower_bound, stratified_share
from scoring.metrics.resampling import Interval

RATES = (0.01, 0.02, 0.05, 0.1)


def read_verdicts(files: Sequence[str | Path], *, confidence: str | float = "95%", judges: str = ANY) -> AuditReading:
    """Read the verdicts of an audit, and return its results; InputError as ``read_audit``.

    Args:
        files: of ``curate review plan``, with verdicts; see ``read_audit``.
        confidence: level of the bounds.
        judges: how several verdicts are combined.
    """
    share = parse_share(confidence, "--confidence")
    verdicts = read_audit(files, judges=judges)
    sampled = Sampled(
        np.array([zone.among for zone in verdicts.zones], np.int64),
        np.array([verdict.rank for verdict in verdicts.judged], np.int64),
        verdicts.badness(),
    )
    among = int(sampled.ends[-1])
    strata = sampled.until(among)
    interval = Interval(
        stratified_share(strata), lower_bound(strata, 0.975), 1 - lower_bound([each.turned() for each in strata], 0.975)
    )
    kept = {rate: guaranteed_cut(sampled, rate, share).kept for rate in RATES}
    return AuditReading(verdicts.column, among, verdicts.counts(), interval, kept, share)


@dataclass(frozen=True)
class PairReading:
    """The results of verdicts on pairs of `curate dedup --audit`.

    Attributes:
        precision: share of duplicates among the pairs, with its intervals.
        suggestions: the loosest threshold of each finder with the requested precision; empty if none is requested.
    """

    precision: Precision
    suggestions: tuple[Suggestion, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the results as plain JSON."""
        return {**self.precision.to_json(), "suggestions": [each.to_json() for each in self.suggestions]}


def run_review_verdicts(options: ReviewVerdictsOptions) -> AuditReading | PairReading | Verdicts:
    """Return the results of verdicts on images, pairs or labels.

    Raises:
        InputError: for a file that is not from an audit, or options that do not apply to it.
    """
    files, target_precision = several(options.answers), options.target_precision
    if not files:
        raise InputError("expected the answers of an audit, got no file; pass NAME.audit.csv")
    of_images, of_labels = any(is_audit(path) for path in files), len(files) == 1 and is_review(Path(files[0]))
    if target_precision is not None and (of_images or of_labels):
        raise InputError("--target-precision is for pairs of curate dedup --audit; leave it out")
    if of_images:
        return read_verdicts(files, confidence=options.confidence, judges=options.judges)
    if of_labels:
        return read_labels(files[0])
    if len(files) > 1:
        raise InputError(f"{files[0]} is not an audit of curate review plan; of pairs, pass one file at a time")
    share = parse_share(options.confidence, "--confidence")
    read = read_answers(Path(files[0]))
    estimate = precision(read)
    return PairReading(
        estimate, () if target_precision is None else tuple(suggest_threshold(read, target_precision, share))
    )


review_verdicts = callable_of(ReviewVerdictsOptions, run_review_verdicts)
