"""The model of a round: a probe fitted on all labels so far, and its accuracy."""

import numpy as np
import pyarrow as pa

from curate.probes.accuracy import accuracy, entropy_share, fit
from curate.probes.linear import FeatureScale, Probe, spread_of
from curate.rounds.files.folder import CONTROL, STOP, STRATEGY, Folder
from curate.rounds.files.settings import RoundSettings
from curate.rounds.measures.lift import (
    Arms,
    ModelQuality,
    PairLift,
    anytime_accuracy,
    compared,
    coverage,
    pair_lift,
    sample_of,
)
from curate.rounds.state.standing import Places, RoundRows, TableRows, rows_of_arm


def pool_spread(scored: TableRows, settings: RoundSettings, holdout: Places) -> FeatureScale | None:
    """Return the scaling by rows that are not held out, for the linear probe; None for other probes."""
    if settings.probe != "linear":
        return None
    rows = scored.usable.copy()
    rows[holdout] = False
    return spread_of(scored.vectors[rows])


def fit_probe(scored: TableRows, settings: RoundSettings, standing: RoundRows) -> Probe | None:
    """Fit the probe on rows with a known class; None without any."""
    if not len(standing.known):
        return None
    spread = pool_spread(scored, settings, standing.holdout)
    return fit(settings.probe, scored.vectors, standing.known, spread=spread, seed=settings.seed)


def arms_of(folder: Folder, scored: TableRows, standing: RoundRows, up_to: int | None = None) -> Arms:
    """Return the labelled rows of both arms, of all rounds or up to a given one."""
    keys = [key for key, number in folder.requested.items() if up_to is None or number <= up_to]
    known = standing.known.among(scored.find(keys))
    strategy, control = (rows_of_arm(folder, scored, known, arm) for arm in (STRATEGY, CONTROL))
    spread = pool_spread(scored, folder.settings, standing.holdout)
    return Arms(scored.vectors, strategy, control, standing.held_known, folder.settings.probe, spread)


def lift_of(folder: Folder, scored: TableRows, standing: RoundRows, look: int) -> PairLift | None:
    """Return the strategy's lift over random labels at a look; None without a control arm or with too few labels."""
    if not folder.settings.n_control:
        return None
    return pair_lift(arms_of(folder, scored, standing), look, folder.settings.confidence)


def measure(
    folder: Folder, scored: TableRows, standing: RoundRows, probe: Probe, look: int
) -> tuple[ModelQuality, pa.Table]:
    """Measure a probe on the held-out rows and on the fixed sample.

    Args:
        folder: with the rounds so far; the last sample is compared.
        scored: the table.
        standing: state of the rows.
        probe: fitted on all known labels.
        look: number of imports.

    Returns:
        Its measures, and `key`, `predicted` and `probability` of the sample.
    """
    known = standing.known
    sample = sample_of(np.setdiff1d(np.flatnonzero(scored.usable), standing.holdout), folder.settings.seed)
    probabilities = probe.predict(scored.vectors[sample])
    table = pa.table(
        {
            "key": pa.array(scored.keys(sample), pa.string()),
            "predicted": pa.array([known.classes[i] for i in probabilities.argmax(1)], pa.string()),
            "probability": pa.array(np.minimum(probabilities.max(1), 1), pa.float32()),
        }
    )
    holdout = accuracy(probe, scored.vectors, standing.held_known)
    measured = ModelQuality(
        probe=folder.settings.probe,
        n_labels=len(known),
        classes=known.counts(),
        temperature=getattr(probe, "temperature", None),
        holdout=holdout,
        entropy=entropy_share(probabilities),
        coverage=coverage(scored.vectors, sample, known.rows),
        against_last=compared(table, folder.rounds[-1].folder / STOP if folder.rounds else None),
        anytime=anytime_accuracy(holdout, look, folder.settings.confidence),
    )
    return measured, table
