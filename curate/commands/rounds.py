"""``curate round``: labelling in rounds; each of its commands is a thin one."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from curate.commands import status
from curate.commands.declared import command_of
from curate.commands.groups import plain_app
from curate.commands.printing import NextCommand, Output, emit, say, show, show_table, suggest, unused
from curate.commands.status import after_batch, import_notes
from curate.counted import counted
from curate.rounds.options import (
    RoundImportOptions,
    RoundInitOptions,
    RoundLabelsOptions,
    RoundNextOptions,
    RoundPlotOptions,
    RoundSimulateOptions,
)

if TYPE_CHECKING:
    from curate.rounds.files.folder import Folder
    from curate.rounds.import_labels import ImportResult
    from curate.rounds.next import NextResult
    from curate.rounds.simulation.run import Simulation

HELP = """Label in rounds: export batches, import labels, measure gains.

Example:

\b
    curate round init rounds scores.parquet --classes cat,dog --batch 100
    curate round next rounds
    curate round import rounds labels.csv
    curate round status rounds

init holds out random images, on which every round is measured, and fixes the strategy. next trains a linear
probe on the labels so far, picks the next batch and writes it for the annotators; the first batch also
contains the held-out images. A share of each batch is drawn at random, so that status can report how much
the strategy gains on your images. simulate replays strategies on a table with known labels; plot draws
learning curves of both. Each round is a small folder, and no file in it is ever replaced.
"""


@command_of(RoundSimulateOptions)
def simulate(request: RoundSimulateOptions, output: Output) -> NextCommand:
    """Simulate labelling strategies on a fully labelled table.

    Example:

        curate round simulate scores.parquet --label label --strategy auto --strategy margin --budget 20,50,100

    Prints learning curves with standard errors, the area under them, the share of labels saved, and a paired test of
    the areas against random (sign flips: with 5 seeds the smallest p is 0.0625).
    """
    from curate.rounds.simulation.run import run_round_simulate

    def observe(name: str, seed: int, labels: int, accuracy: float) -> None:
        output.note(f"{name}, seed {seed}, {counted(labels, 'label')}: {accuracy:.1%}")

    simulation = run_round_simulate(replace(request, report=observe))
    if output.json:
        emit(simulation.to_json())
    else:
        _report_simulation(simulation)
    if request.out is not None:
        for path in (request.out, Path(request.out).with_suffix(".csv")):
            output.note(f"results: {path}")
    best = max(simulation.curves, key=lambda name: float(simulation.curves[name].area.mean()))
    return suggest("round", "init", unused("rounds"), request.table, "--strategy", best)


def _report_simulation(simulation: "Simulation") -> None:
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


@command_of(RoundInitOptions)
def init(request: RoundInitOptions, output: Output) -> NextCommand:
    """Create a folder of rounds for a table, without a batch yet.

    Example:

        curate round init rounds scores.parquet --classes cat,dog,bird --format label-studio
        curate round init rounds scores.parquet --classes cat,dog --stop 'accuracy >= 90%'
    """
    from curate.rounds.init import run_round_init

    names = ",".join(request.classes) if isinstance(request.classes, list) else None  # a,b and c in separate arguments
    opened = run_round_init(replace(request, classes=names))
    if output.json:
        emit({"folder": str(request.folder), **opened.settings.to_json()})
    elif not output.quiet:
        _report_start(request, opened)
    return replace(suggest("round", "next", request.folder), printer=say)


def _report_start(request: RoundInitOptions, opened: "Folder") -> None:
    """Print the fixed settings, and what round 1 will ask."""
    from curate.rounds.init import other_holdout

    fixed = opened.settings
    other = other_holdout(request.holdout, fixed.holdout, fixed.n_rows)
    if other is not None:
        say(other)
    rows = f"{counted(fixed.n_rows, 'row')} of {request.table}"
    say(f"{request.folder}: rounds of {fixed.batch:,} of the {rows}, by {fixed.strategy}")
    held_out = counted(fixed.holdout, "image is held out", "images are held out")
    say(f"{held_out}, {counted(fixed.n_control, 'of each batch is', 'of each batch are')} drawn at random")
    n_held_out = opened.holdout["label"].null_count
    if n_held_out:
        first = min(fixed.batch, fixed.n_rows - fixed.holdout)
        say(
            f"round 1 requests {counted(first + n_held_out, 'image')}: {first:,} of the batch, and "
            f"{n_held_out:,} held out, on which every round is measured; later rounds request {fixed.batch:,}"
            f"{'; labels of held-out images count in --budget' if fixed.budget else ''}"
        )
    for rule in fixed.rules:
        say(f"status says stop once it is shown, at {fixed.confidence:.10g} confidence, that {rule}")


@command_of(RoundNextOptions)
def next_(request: RoundNextOptions, output: Output) -> NextCommand:
    """Pick the next batch and write it for the annotators.

    Example:

        curate round next rounds
        curate round next rounds --source images.parquet
    """
    from curate.rounds.next import run_round_next

    result = run_round_next(request)
    if output.json:
        emit({"round": result.number, "export": str(result.export), "state": result.state})
    elif not output.quiet:
        _report_next(result)
    return after_batch(request.folder, "status", request.folder)


def _report_next(result: "NextResult") -> None:
    picked, model = result.state["picked"], result.state["model"]
    for note in result.notes:
        say(note)
    held_out = f", {counted(picked['holdout'], 'that is', 'that are')} held out" if picked["holdout"] else ""
    by_strategy = counted(picked["strategy"], "image")
    say(f"round {result.number}: {by_strategy} by strategy, {picked['control']:,} at random{held_out}")
    if model and model["holdout"]["n"]:
        holdout, ends = model["holdout"], model["anytime"]
        interval = f"{ends['low']:.1%} to {ends['high']:.1%} at every look"
        say(f"probe of {counted(model['n_labels'], 'label')}: {holdout['accuracy']:.1%} right ({interval})")
    say(f"to annotate: {result.export}")
    if (settings := result.export.with_suffix(".xml")).is_file():
        say(f"labelling settings of the project: {settings}")


@command_of(RoundImportOptions)
def import_(request: RoundImportOptions, output: Output) -> NextCommand:
    """Import labels, validate them, and store them with the round.

    Example:

        curate round import rounds labels.csv
        curate round import rounds export.json --format label-studio --annotator ann
    """
    from curate.rounds.import_labels import run_round_import

    imported = run_round_import(request)
    if output.json:
        emit({**imported.to_json(), "notes": import_notes(imported)})
    elif not output.quiet:
        _report_import(imported)
    return suggest("round", "status", request.folder)


def _report_import(imported: "ImportResult") -> None:
    for problem in imported.problems:
        say(str(problem))
    for note in import_notes(imported):
        say(note)
    news = imported.news
    say(
        f"{counted(imported.labels, 'label')}, {imported.skipped:,} skipped: {counted(len(news.new), 'image')} new, "
        f"{len(news.changed):,} changed, {len(news.repeated):,} known already"
    )
    if imported.written is not None:
        say(f"labels: {imported.written}")


@command_of(RoundLabelsOptions)
def labels_(request: RoundLabelsOptions, output: Output) -> NextCommand:
    """Write the label of every image, and how much votes disagree.

    Example:

        curate round labels rounds -o labels.parquet
    """
    from curate.rounds.files.folder import open_folder
    from curate.rounds.labels import run_round_labels

    counts = run_round_labels(request)
    if output.json:
        emit({"path": str(request.out), **counts})
    elif not output.quiet:
        say(f"{request.out}: {', '.join(f'{count:,} {name}' for name, count in counts.items())}")
    return suggest("labels", open_folder(request.folder).settings.table, "--labelled", request.folder)


@command_of(RoundPlotOptions)
def plot_(request: RoundPlotOptions, output: Output) -> NextCommand:
    """Draw learning curves with their intervals.

    Example:

        curate round plot rounds -o curve.png
    """
    from curate.rounds.simulation.plot import run_round_plot

    out = run_round_plot(request)
    if output.json:
        emit({"image": str(out)})
    elif not output.quiet:
        say(f"image: {out}")
    if Path(request.source).is_dir():
        return suggest("round", "status", request.source)
    return suggest("round", "init", unused("rounds"), json.loads(Path(request.source).read_bytes())["table"])


COMMANDS: dict[str, Callable[..., None]] = {
    "init": init,
    "next": next_,
    "import": import_,
    "status": status.run,
    "labels": labels_,
    "simulate": simulate,
    "plot": plot_,
}


def group(guard: Callable[[Callable[..., None]], Callable[..., None]]) -> typer.Typer:
    """Return ``curate round`` with its commands, each guarded as all commands are."""
    app = plain_app(help=HELP, no_args_is_help=True)
    for name, run in COMMANDS.items():
        app.command(name, no_args_is_help=True)(guard(run))
    return app
