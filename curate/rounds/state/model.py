"""The model of a round: a probe fitted on what is labelled so far, and what it is worth."""

import numpy as np
import pyarrow as pa

from curate.probes.accuracy import KnownClasses, accuracy, entropy_share, fit
from curate.probes.linear import Probe, Spread, spread_of
from curate.rounds.files.folder import STOP, Folder
from curate.rounds.files.settings import Settings
from curate.rounds.state.pool import TableRows
from curate.rounds.state.standing import Stand
from curate.rounds.worth.comparison import compared
from curate.rounds.worth.coverage import coverage, sample_of
from curate.rounds.worth.measured import Measured


def pool_spread(found: TableRows, settings: Settings) -> Spread | None:
    """Return how far the rows of the table spread, which the linear probe is scaled by; None for another one."""
    return spread_of(found.vectors[found.usable]) if settings.probe == "linear" else None


def fit_probe(found: TableRows, settings: Settings, known: KnownClasses) -> Probe | None:
    """Return the probe of the rows whose class is known; None before there are any."""
    if not len(known):
        return None
    return fit(settings.probe, found.vectors, known, spread=pool_spread(found, settings), seed=settings.seed)


def measure(folder: Folder, found: TableRows, where: Stand, probe: Probe) -> tuple[Measured, pa.Table]:
    """Measure a probe of all that is known on rows held out, and on a sample that is the same in every round.

    Args:
        folder: with the rounds so far; the last one's sample is compared with.
        found: the table.
        where: how things stand.
        probe: fitted on what is known.

    Returns:
        What it is worth, and `key`, `predicted` and `probability` of the sample.
    """
    known = where.standing.known
    sample = sample_of(np.setdiff1d(np.flatnonzero(found.usable), where.standing.holdout), folder.settings.seed)
    chances = probe.predict(found.vectors[sample])
    table = pa.table(
        {
            "key": pa.array(found.keys(sample), pa.string()),
            "predicted": pa.array([known.classes[i] for i in chances.argmax(1)], pa.string()),
            "probability": pa.array(np.minimum(chances.max(1), 1), pa.float32()),
        }
    )
    measured = Measured(
        probe=folder.settings.probe,
        n_labels=len(known),
        classes=known.counts(),
        temperature=getattr(probe, "temperature", None),
        holdout=accuracy(probe, found.vectors, where.held_known),
        entropy=entropy_share(chances),
        coverage=coverage(found.vectors, sample, known.rows),
        against_last=compared(table, folder.rounds[-1].folder / STOP if folder.rounds else None),
    )
    return measured, table
