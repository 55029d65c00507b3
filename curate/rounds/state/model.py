"""The model of a round: a probe fitted on what is labelled so far, and what it is worth."""

import numpy as np
import pyarrow as pa

from curate.probes.accuracy import KnownClasses, accuracy, entropy_share, fit
from curate.probes.linear import Probe, Spread, spread_of
from curate.rounds.files.folder import STOP, Folder
from curate.rounds.files.settings import Settings
from curate.rounds.state.pool import TableRows
from curate.rounds.state.standing import Standing
from curate.rounds.worth.comparison import compared
from curate.rounds.worth.coverage import coverage, sample_of
from curate.rounds.worth.measured import Measured


def pool_spread(scored: TableRows, settings: Settings) -> Spread | None:
    """Return how far the rows of the table spread, which the linear probe is scaled by; None for another one."""
    return spread_of(scored.vectors[scored.usable]) if settings.probe == "linear" else None


def fit_probe(scored: TableRows, settings: Settings, known: KnownClasses) -> Probe | None:
    """Return the probe of the rows whose class is known; None before there are any."""
    if not len(known):
        return None
    return fit(settings.probe, scored.vectors, known, spread=pool_spread(scored, settings), seed=settings.seed)


def measure(folder: Folder, scored: TableRows, standing: Standing, probe: Probe) -> tuple[Measured, pa.Table]:
    """Measure a probe of all that is known on rows held out, and on a sample that is the same in every round.

    Args:
        folder: with the rounds so far; the last one's sample is compared with.
        scored: the table.
        standing: how things stand.
        probe: fitted on what is known.

    Returns:
        What it is worth, and `key`, `predicted` and `probability` of the sample.
    """
    known = standing.known
    sample = sample_of(np.setdiff1d(np.flatnonzero(scored.usable), standing.holdout), folder.settings.seed)
    chances = probe.predict(scored.vectors[sample])
    table = pa.table(
        {
            "key": pa.array(scored.keys(sample), pa.string()),
            "predicted": pa.array([known.classes[i] for i in chances.argmax(1)], pa.string()),
            "probability": pa.array(np.minimum(chances.max(1), 1), pa.float32()),
        }
    )
    measured = Measured(
        probe=folder.settings.probe,
        n_labels=len(known),
        classes=known.counts(),
        temperature=getattr(probe, "temperature", None),
        holdout=accuracy(probe, scored.vectors, standing.held_known),
        entropy=entropy_share(chances),
        coverage=coverage(scored.vectors, sample, known.rows),
        against_last=compared(table, folder.rounds[-1].folder / STOP if folder.rounds else None),
    )
    return measured, table
