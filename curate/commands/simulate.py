"""``curate round simulate``: strategies simulated on a fully labelled table."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from curate.commands import options
from curate.commands.declared import command_of
from curate.commands.printing import emit, say, show, show_table
from curate.counted import counted
from curate.rounds.options import RoundSimulateOptions

if TYPE_CHECKING:
    from curate.simulation.run import Simulation


@command_of(RoundSimulateOptions)
def run(
    request: RoundSimulateOptions,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Simulate labelling strategies on a fully labelled table.

    Example:

    \b
        curate round simulate scores.parquet --label label --strategy auto --strategy margin --budget 20,50,100

    Prints learning curves with standard errors, the area under them, the share of labels saved, and a paired test of
    the areas against random (sign flips: with 5 seeds the smallest p is 0.0625).
    """
    from curate.simulation.run import run_round_simulate

    line = (lambda text: None) if quiet else say

    def observe(name: str, seed: int, labels: int, accuracy: float) -> None:
        line(f"{name}, seed {seed}, {counted(labels, 'label')}: {accuracy:.1%}")

    simulation = run_round_simulate(replace(request, report=observe))
    if json_:
        emit(simulation.to_json())
    else:
        _report(simulation)
    if request.out is not None:
        for path in (request.out, Path(request.out).with_suffix(".csv")):
            line(f"results: {path}")


def _report(simulation: "Simulation") -> None:
    budgets = next(iter(simulation.curves.values())).budgets.tolist()
    rows = []
    for name, curve in simulation.curves.items():
        cells = [
            f"{100 * mean:.1f}" + (f"±{100 * error:.1f}" if error == error else "")
            for mean, error in zip(curve.mean.tolist(), curve.error.tolist(), strict=True)
        ]
        rows.append((name, *cells, f"{100 * float(curve.area.mean()):.1f}"))
    show_table(rows, header=("accuracy, %", *(f"{budget:,}" for budget in budgets), "area"))
    if not simulation.lifts:
        return
    rows = []
    for name, lift in simulation.lifts.items():
        error = f"±{100 * lift.area_error:.1f}" if lift.area_error == lift.area_error else ""
        saved = ["-" if share != share else f"{share:.0%}" for share in lift.saved.tolist()]
        rows.append((name, f"{100 * lift.area:+.1f}{error}", f"{lift.p:.3g}", *saved))
    show("over random: area in points, p of the paired test, and the share of labels saved at each budget")
    show_table(rows, header=("strategy", "area", "p", *(f"{budget:,}" for budget in budgets)))
