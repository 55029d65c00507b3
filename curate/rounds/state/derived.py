"""What a round asks, from what was known before it: `next` writes it, and `curate verify` compares with it."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from curate.probes.linear import Probe
from curate.rounds.files.settings import Settings
from curate.rounds.state.batch import Picked, batch_table, pick_batch
from curate.rounds.state.graph import PoolGraph
from curate.rounds.state.model import fit_probe
from curate.rounds.state.pool import TableRows
from curate.rounds.state.standing import Stand
from scoring.errors import InputError


@dataclass(frozen=True)
class Derived:
    """A round before it is written.

    Attributes:
        probe: the light model of what was known; None before there are labels.
        picked: rows of the batch.
        batch: the same as a table, in the order shown.
    """

    probe: Probe | None
    picked: Picked
    batch: pa.Table


def derive(found: TableRows, settings: Settings, where: Stand, number: int, graph: PoolGraph | None = None) -> Derived:
    """Fit the light model on what is known, and pick the batch of a round.

    The same table, settings, standing and number give the same batch, whatever came back since.

    Args:
        found: the table.
        settings: of the folder.
        where: how things stood before the round.
        number: of the round, from 1.
        graph: of the rows that can be asked, for strategies that look at one; None to compute it.

    Raises:
        InputError: if nothing is left to ask.
    """
    probe = fit_probe(found, settings, where.standing.known)
    ask = where.ask if number == 1 else np.zeros(0, np.int64)
    picked = pick_batch(found, settings, where.standing, number, ask, probe, graph)
    if not len(picked.rows):
        raise InputError(f"nothing is left to ask in {found.table.path}: every row is labelled, asked or held out")
    return Derived(probe, picked, batch_table(found, picked, number, probe, where.standing.known))
