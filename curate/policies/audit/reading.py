"""What verdicts say on their own, without the table: the share that is bad, and what each rate would keep."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from curate.policies.audit.request import ANY, parse_share
from curate.policies.audit.results import AuditReading
from curate.policies.audit.verdicts import read_audit
from curate.statistics.guarantee import Sampled, guaranteed_cut
from scoring.metrics.proportions import lower_bound, stratified_share
from scoring.metrics.resampling import Interval

RATES = (0.01, 0.02, 0.05, 0.1)


def read_verdicts(
    files: Sequence[str | Path], *, confidence: str | float = "95%", rates: Sequence[float] = RATES, judges: str = ANY
) -> AuditReading:
    """Read an audit, and say what it shows.

    Args:
        files: of ``curate review plan``, with answers; see ``read_audit``.
        confidence: of what would be kept.
        rates: of bad rows.
        judges: how several answers are joined.

    Raises:
        InputError: as ``read_audit``.
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
    kept = {rate: guaranteed_cut(sampled, rate, share).kept for rate in rates}
    return AuditReading(verdicts.column, among, verdicts.counts(), interval, kept, share)
