"""Simulation of strategies on a fully labelled table."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from curate.columns import KEY
from curate.options.function import callable_of
from curate.options.values import several
from curate.policies.receipts import environment
from curate.policies.select.request import make_selector
from curate.probes.probabilities import codes_among
from curate.rounds.options import RoundSimulateOptions
from curate.rounds.simulation.replay import Curves, Lift, Replay, compare, lift
from curate.selectors.contract import Selector
from curate.tables.needs import EMBEDDINGS, Needs
from curate.tables.rows import read_rows
from curate.tables.table import Table, open_table
from curate.tables.typed_json import plain_json
from curate.version import __version__
from scoring.atomic import AtomicFile, commit_together, refuse_existing, require_folder, undo_unfinished
from scoring.errors import InputError
from scoring.settings import require_between

BASELINE = "random"
KNOWN_LATER = frozenset({"holdout_loss", "uncertainty", "quality"})


@dataclass(frozen=True)
class Simulation:
    """The result of a simulation.

    Attributes:
        curves: by strategy, including random.
        lifts: of every other strategy over random.
        facts: table, classes, rows and settings, as plain JSON.
    """

    curves: dict[str, Curves]
    lifts: dict[str, Lift]
    facts: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain JSON; null for values that a single seed cannot give."""
        strategies = {}
        for name, curves in self.curves.items():
            strategies[name] = {
                "mean": plain_json(curves.mean),
                "error": plain_json(curves.error),
                "area": float(curves.area.mean()),
                "accuracy": plain_json(curves.accuracy),
            }
        lifts = {
            name: {
                "difference": plain_json(gain.difference),
                "error": plain_json(gain.error),
                "area": gain.area,
                "area_error": plain_json(gain.area_error),
                "p": gain.p,
                "saved": plain_json(gain.saved),
            }
            for name, gain in self.lifts.items()
        }
        first = next(iter(self.curves.values()))
        return {
            "kind": "replay",
            "curate": __version__,
            **self.facts,
            "budgets": first.budgets.tolist(),
            "seeds": list(first.seeds),
            "strategies": strategies,
            "over_random": lifts,
            "environment": environment(),
        }


def run_round_simulate(options: RoundSimulateOptions) -> Simulation:
    """Simulate strategies on a fully labelled table, always with random as the baseline.

    Rows without a label or embedding are excluded. A random part of the rows, the same for all strategies and seeds, is
    never labelled and measures the accuracy against ``label``.

    Raises:
        InputError: for an unusable table, column, strategy, budget or output.
    """
    out = None if options.out is None else Path(options.out)
    check_outputs(out, overwrite=options.overwrite)
    seeds, test = options.seeds, options.test
    label, noisy_label, calibrate = options.label, options.noisy_label, not options.no_calibration
    require_between("--seeds", seeds, 1, hint="5 give a standard error")
    if not 0 < test < 1:
        raise InputError(f"the share to measure on must be in (0, 1), got {test:g}; 0.2 is a usual one")
    typed = (options.budget,) if isinstance(options.budget, str | int) else options.budget
    budgets = typed_budgets([str(each) for each in typed])
    selectors = _selectors(several(options.strategy) or ("auto",))
    opened = open_table(options.table, require=[KEY, label, *([noisy_label] if noisy_label else [])])
    data, facts = replay_of(opened, label, noisy_label, test, calibrate)
    facts |= {"label": label, "noisy_label": noisy_label, "test": test, "calibrate": calibrate}
    curves = compare(data, selectors, budgets=budgets, seeds=range(seeds), observe=options.report)
    lifts = {name: lift(curve, curves[BASELINE]) for name, curve in curves.items() if name != BASELINE}
    simulation = Simulation(curves, lifts, facts)
    if out is not None:
        write_simulation(simulation, out, overwrite=options.overwrite)
    return simulation


round_simulate = callable_of(RoundSimulateOptions, run_round_simulate)


def _selectors(names: Sequence[str]) -> dict[str, Selector]:
    if not names:
        raise InputError("expected at least one strategy to replay, got none; --strategy auto is the default one")
    selectors: dict[str, Selector] = {}
    for name in dict.fromkeys((*names, BASELINE)):
        selector = make_selector(name)
        late = KNOWN_LATER & set(selector.needs)
        if late:
            raise InputError(f"the strategy {name} needs a column that a replay lacks; replay another one")
        selectors[name] = selector
    return selectors


def replay_of(
    table: Table, label: str, noisy: str | None, test: float, calibrate: bool
) -> tuple[Replay, dict[str, Any]]:
    """Return the training and test rows, and facts on them as plain JSON; InputError for fewer than two classes."""
    columns = (label, *([noisy] if noisy else ()))
    rows = read_rows(table, Needs(representations=EMBEDDINGS, names=columns), by_hash=True)
    if rows.embedding is None or not len(rows):
        raise InputError(f"expected a table with rows, got none in {table.path}; score some images")
    usable = rows.ok & (rows.embedding_problem == 0)
    for name in columns:
        usable &= rows.names[name].codes >= 0
    classes = sorted({name for column in columns for name in rows.names[column].names})
    if len(classes) < 2:
        raise InputError(f"expected at least two classes in column {label!r} of {table.path}, got {len(classes)}")
    at = np.flatnonzero(usable)
    held_out = np.zeros(len(rows), bool)
    held_out[np.random.default_rng(0).permutation(at)[: round(test * len(at))]] = True
    train, tested = np.flatnonzero(usable & ~held_out), np.flatnonzero(usable & held_out)
    if not len(train) or not len(tested):
        raise InputError(
            f"expected rows to label and rows to measure on, got {len(train):,} and {len(tested):,} of "
            f"{len(rows):,} in {table.path} with a label and an embedding"
        )
    codes = {name: codes_among(classes, rows.names[name].names, rows.names[name].codes) for name in columns}
    data = Replay(
        features=rows.embedding[train],
        labels=codes[label][train],
        test_features=rows.embedding[tested],
        test_labels=codes[label][tested],
        annotated=codes[noisy][train] if noisy else None,
        calibrate=calibrate,
    )
    facts = {
        "table": str(table.path),
        "digest": rows.digest,
        "classes": len(classes),
        "rows": {"to_label": len(train), "to_measure": len(tested), "left_out": len(rows) - len(at)},
        "wrong_labels": float((codes[noisy][train] != codes[label][train]).mean()) if noisy else None,
    }
    return data, facts


def typed_budgets(texts: Sequence[str]) -> list[int]:
    """Return budgets as typed, separated by commas or single; InputError for a text that is no integer.

    >>> typed_budgets(["10,20", "50"])
    [10, 20, 50]
    """
    budgets = []
    for text in ",".join(texts).split(","):
        if not text.strip().isdecimal() or len(text.strip()) > 12:
            raise InputError(f"--budget takes numbers of labels such as 10,20,50, got {text.strip()[:40]!r}")
        budgets.append(int(text))
    return budgets


def check_outputs(out: Path | None, *, overwrite: bool) -> None:
    """Raise InputError, before the simulation, for an output other than a new ``.json`` in an existing folder."""
    if out is None:
        return
    if out.suffix.lower() != ".json":
        raise InputError(f"a replay is a JSON file: expected a name like results.json, got {out}")
    require_folder(out)
    paths = [out, out.with_suffix(".csv")]
    if not overwrite:
        undo_unfinished(paths)
    for path in paths:
        refuse_existing(path, overwrite=overwrite)


def write_simulation(simulation: Simulation, out: str | Path, *, overwrite: bool = False) -> list[Path]:
    """Write a simulation as JSON, and its curves as CSV next to it; InputError if not possible; return the paths."""
    path = Path(out)
    check_outputs(path, overwrite=overwrite)
    record, sheet = AtomicFile(path, overwrite=overwrite), None
    try:
        sheet = AtomicFile(path.with_suffix(".csv"), overwrite=overwrite)
        record.write((json.dumps(simulation.to_json(), indent=1, allow_nan=False) + "\n").encode())
        sheet.write(_csv(simulation).encode())
        commit_together([record, sheet])
    finally:
        record.discard()
        if sheet is not None:
            sheet.discard()
    return [record.path, sheet.path]


def _csv(simulation: Simulation) -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(["strategy", "seed", "labels", "accuracy"])
    for name, curves in simulation.curves.items():
        for seed, row in zip(curves.seeds, curves.accuracy, strict=True):
            for budget, value in zip(curves.budgets.tolist(), row.tolist(), strict=True):
                writer.writerow([name, seed, budget, repr(value)])
    return text.getvalue()
