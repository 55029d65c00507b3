"""The batch of a round: a random control arm, the strategy's picks, and once the held-out rows."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.columns import KEY, URI
from curate.policies.select.plan import Chosen, choose
from curate.policies.select.prepare import prepare
from curate.policies.select.request import SelectRequest
from curate.probes.linear import Probe
from curate.probes.probabilities import Labelled
from curate.rounds.files.folder import CONTROL, HELD_OUT, STRATEGY
from curate.rounds.state.standing import Places, RoundRows, signals_of
from scoring.errors import InputError

FIRST = "auto"  # strategy of the first batch, if the strategy needs labels


@dataclass(frozen=True)
class BatchRows:
    """Rows of a batch, in display order.

    Attributes:
        rows: indices in the table, shape (B,) int64.
        arm: strategy, control or holdout, of each row.
        pick: position in its arm, from 0.
        gain: of the strategy's picks, shape (B,) float64; NaN for the others.
        parts: components of the gains by name, NaN for the others.
        used: the strategy, with its parameters.
        candidates: number of candidates.
        notes: for the user.
    """

    rows: Places
    arm: list[str]
    pick: list[int]
    gain: NDArray[np.float64]
    parts: dict[str, NDArray[np.float64]]
    used: dict[str, Any]
    candidates: int
    notes: tuple[str, ...] = field(default=())


def pick_batch(standing: RoundRows, number: int, probe: Probe | None) -> BatchRows:
    """Pick the batch of a round, deterministically for a folder and table.

    The control arm is sampled first from all candidates, so that it is unbiased; the strategy then counts it as
    labelled. Arms are mixed in display order, so that half a batch has half of each arm.

    Args:
        standing: state of the rows.
        number: of the round, from 1.
        probe: the model, for other kinds than the linear one.
    """
    scored, settings = standing.scored, standing.folder.settings
    ask = standing.to_ask if number == 1 else np.zeros(0, np.int64)
    taken = np.zeros(len(scored.rows), bool)
    taken[standing.holdout] = taken[standing.requested] = True
    free = np.flatnonzero(scored.usable & ~taken)
    size = min(settings.batch, len(free))
    generator = np.random.default_rng([settings.seed, 2, number])
    control = generator.permutation(free)[: min(settings.n_control, size - 1 if size > 1 else 0)]
    chosen, at, used = _by_strategy(standing, number, control, size - len(control), probe)
    rows = np.concatenate([at, control, ask])
    arms = [*[STRATEGY] * len(at), *[CONTROL] * len(control), *[HELD_OUT] * len(ask)]
    picks = [*range(len(at)), *range(len(control)), *range(len(ask))]
    sizes = {STRATEGY: len(at), CONTROL: len(control), HELD_OUT: len(ask)}
    when = np.array([(pick + 0.5) / sizes[arm] for pick, arm in zip(picks, arms, strict=True)])
    order = np.lexsort((generator.random(len(rows)), when))
    fill = np.full(len(rows) - len(at), np.nan)
    return BatchRows(
        rows[order],
        [arms[i] for i in order],
        [picks[i] for i in order],
        np.concatenate([chosen.gains, fill])[order],
        {name: np.concatenate([values, fill])[order] for name, values in chosen.parts.items()},
        used,
        len(free),
        chosen.notes,
    )


def _by_strategy(
    standing: RoundRows, number: int, control: Places, budget: int, probe: Probe | None
) -> tuple[Chosen, Places, dict[str, Any]]:
    """Return the strategy's picks, their rows in the table, and the strategy with its parameters."""
    scored, settings = standing.scored, standing.folder.settings
    nothing = np.zeros(0)
    if budget < 1:
        return Chosen(nothing.astype(np.int64), nothing), nothing.astype(np.int64), {"name": None}
    request = SelectRequest(
        settings.strategy,
        str(budget),
        settings=settings.parameters,
        seed=int(np.random.SeedSequence([settings.seed, 3, number]).generate_state(1)[0]),
        **settings.guard.select_options,
    )
    notes: tuple[str, ...] = ()
    if not len(standing.known) and ({"labels", "probabilities"} & set(request.selector().needs)):
        request = replace(request, strategy=FIRST, settings={})
        notes = (f"{settings.strategy} needs labels, and there are none yet: {FIRST} picks this batch",)
    excluded = np.zeros(len(scored.rows), bool)
    excluded[standing.holdout] = excluded[standing.requested] = True
    rows = scored.rows
    rows = replace(rows, ok=rows.ok & ~np.isin(np.arange(len(rows)), standing.holdout))
    ready = prepare(
        rows, request, _labelled(standing, control), excluded=excluded, signals=signals_of(settings.guard, scored.table)
    )
    pool = ready.pool
    if settings.probe != "linear" and probe is not None and pool.probabilities is not None and pool.vectors is not None:
        pool = replace(pool, probabilities=probe.predict(pool.vectors))
    chosen = choose(pool, request)
    used = {"name": request.strategy, "parameters": dict(request.settings), "seed": request.seed}
    return replace(chosen, notes=(*notes, *chosen.notes)), ready.table_row[chosen.rows], used


def _labelled(standing: RoundRows, control: Places) -> Labelled:
    """Return the labelled rows that count for diversity, with their classes if known."""
    rows = np.union1d(standing.away, control)
    codes = np.full(len(rows), -1, np.int64)
    codes[np.searchsorted(rows, standing.known.rows)] = standing.known.codes
    return Labelled(rows, codes, standing.known.classes)


def batch_table(standing: RoundRows, picked: BatchRows, number: int, probe: Probe | None) -> pa.Table:
    """Return a batch as a table, in display order.

    Returns:
        `key`, `uri`, `width` and `height` if the table has them, `round`, `rank`, `arm`, `pick`, `gain`, `predicted`,
        `probability`, and the parts of the gain.
    """
    scored, known = standing.scored, standing.known
    plain_columns = scored.take(picked.rows, [URI, "width", "height"])
    n = len(picked.rows)
    columns: dict[str, Any] = {KEY: pa.array(scored.keys(picked.rows), pa.string())}
    columns[URI] = plain_columns[URI] if URI in plain_columns.column_names else pa.nulls(n, pa.string())
    columns |= {name: plain_columns[name] for name in ("width", "height") if name in plain_columns.column_names}
    columns["round"] = pa.array([number] * n, pa.int32())
    columns["rank"] = pa.array(range(1, n + 1), pa.int32())
    columns["arm"] = pa.array(picked.arm, pa.string())
    columns["pick"] = pa.array(picked.pick, pa.int32())
    columns["gain"] = pa.array(picked.gain, pa.float64(), from_pandas=True)
    if probe is None or not n:
        columns["predicted"], columns["probability"] = pa.nulls(n, pa.string()), pa.nulls(n, pa.float32())
    else:
        probabilities = probe.predict(scored.vectors[picked.rows])
        columns["predicted"] = pa.array([known.classes[i] for i in probabilities.argmax(1)], pa.string())
        columns["probability"] = pa.array(np.minimum(probabilities.max(1), 1), pa.float32())
    for name, values in picked.parts.items():
        columns[f"part_{name}"] = pa.array(values, pa.float64(), from_pandas=True)
    return pa.table(columns)


@dataclass(frozen=True)
class Derived:
    """A round before it is written.

    Attributes:
        probe: the model; None without labels.
        picked: rows of the batch.
        batch: the same as a table, in display order.
    """

    probe: Probe | None
    picked: BatchRows
    batch: pa.Table


def derive(standing: RoundRows, number: int) -> Derived:
    """Fit the model on known labels and pick the batch of a round.

    The result depends only on the state of the rows before the round and its number, not on later labels.

    Raises:
        InputError: if no candidate is left.
    """
    probe = standing.fit_probe()
    picked = pick_batch(standing, number, probe)
    if not len(picked.rows):
        raise InputError(
            f"no image is left to request in {standing.scored.table.path}: every row is labelled, requested or held out"
        )
    return Derived(probe, picked, batch_table(standing, picked, number, probe))
