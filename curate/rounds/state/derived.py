"""What a round asks, from what was known before it: `next` writes it, and `curate verify` compares with it."""

from dataclasses import dataclass

import pyarrow as pa

from curate.probes.linear import Probe
from curate.rounds.files.settings import RoundSettings
from curate.rounds.state.batch import BatchRows, batch_table, pick_batch
from curate.rounds.state.graph import PoolGraph
from curate.rounds.state.model import fit_probe
from curate.rounds.state.pool import TableRows
from curate.rounds.state.standing import RoundRows
from scoring.errors import InputError


@dataclass(frozen=True)
class Derived:
    """A round before it is written.

    Attributes:
        probe: the model of what was known; None before there are labels.
        picked: rows of the batch.
        batch: the same as a table, in the order shown.
    """

    probe: Probe | None
    picked: BatchRows
    batch: pa.Table


def derive(
    scored: TableRows, settings: RoundSettings, standing: RoundRows, number: int, graph: PoolGraph | None = None
) -> Derived:
    """Fit the model on what is known, and pick the batch of a round.

    The same table, settings, standing and number give the same batch, whatever came back since.

    Args:
        scored: the table.
        settings: of the folder.
        standing: how things was before the round.
        number: of the round, from 1.
        graph: of the rows that can be requested, for strategies that look at one; None to compute it.

    Raises:
        InputError: if nothing is left to ask.
    """
    probe = fit_probe(scored, settings, standing)
    picked = pick_batch(scored, settings, standing, number, probe, graph)
    if not len(picked.rows):
        raise InputError(f"nothing is left to ask in {scored.table.path}: every row is labelled, requested or held out")
    return Derived(probe, picked, batch_table(scored, picked, number, probe, standing.known))
