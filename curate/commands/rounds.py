"""``curate round``: labelling in rounds; each of its commands is a thin one."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

from curate.commands import init, options, simulate, status
from curate.commands.declared import command_of
from curate.commands.groups import plain_app
from curate.commands.printing import emit, say
from curate.commands.round_words import import_notes
from curate.counted import counted
from curate.rounds.options import RoundImportOptions, RoundLabelsOptions, RoundNextOptions, RoundPlotOptions

if TYPE_CHECKING:
    from curate.rounds.import_labels import ImportResult


HELP = """Label in rounds: export batches, import labels, measure the gain.

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


@command_of(RoundNextOptions)
def next_(
    request: RoundNextOptions,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Pick the next batch and write it for the annotators.

    Example:

    \b
        curate round next rounds
        curate round next rounds --source images.parquet
    """
    from curate.rounds.next import run_round_next

    made = run_round_next(request)
    if json_:
        emit({"round": made.number, "export": str(made.export), "state": made.state})
    if json_ or quiet:
        return
    picked, model = made.state["picked"], made.state["model"]
    for note in made.notes:
        say(note)
    held_out = f", {counted(picked['holdout'], 'that is', 'that are')} held out" if picked["holdout"] else ""
    by_strategy = counted(picked["strategy"], "image")
    say(f"round {made.number}: {by_strategy} by strategy, {picked['control']:,} at random{held_out}")
    if model and model["holdout"]["n"]:
        holdout, ends = model["holdout"], model["anytime"]
        interval = f"{ends['low']:.1%} to {ends['high']:.1%} at every look"
        say(f"probe of {counted(model['n_labels'], 'label')}: {holdout['accuracy']:.1%} right ({interval})")
    say(f"to annotate: {made.export}")
    if (settings := made.export.with_suffix(".xml")).is_file():
        say(f"labelling settings of the project: {settings}")


@command_of(RoundImportOptions)
def import_(
    request: RoundImportOptions,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Import labels, validate them, and store them with the round.

    Example:

    \b
        curate round import rounds labels.csv
        curate round import rounds export.json --format label-studio --annotator ann
    """
    from curate.rounds.import_labels import run_round_import

    imported = run_round_import(request)
    if json_:
        emit({**imported.to_json(), "notes": import_notes(imported)})
    elif not quiet:
        _report_import(imported)


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
def labels_(
    request: RoundLabelsOptions,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write the label of every image, and how much votes disagree.

    Example:

    \b
        curate round labels rounds -o labels.parquet
    """
    from curate.rounds.labels import run_round_labels

    counts = run_round_labels(request)
    if json_:
        emit({"path": str(request.out), **counts})
    elif not quiet:
        say(f"{request.out}: {', '.join(f'{count:,} {name}' for name, count in counts.items())}")


@command_of(RoundPlotOptions)
def plot_(
    request: RoundPlotOptions,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Draw learning curves with their intervals.

    Example:

    \b
        curate round plot rounds -o curve.png
    """
    from curate.simulation.plot import run_round_plot

    out = run_round_plot(request)
    if json_:
        emit({"image": str(out)})
    elif not quiet:
        say(f"image: {out}")


COMMANDS: dict[str, Callable[..., None]] = {
    "init": init.run,
    "next": next_,
    "import": import_,
    "status": status.run,
    "labels": labels_,
    "simulate": simulate.run,
    "plot": plot_,
}


def group(guard: Callable[[Callable[..., None]], Callable[..., None]]) -> typer.Typer:
    """Return ``curate round`` with its commands, each guarded as all commands are."""
    app = plain_app(help=HELP, no_args_is_help=True)
    for name, run in COMMANDS.items():
        app.command(name, no_args_is_help=True)(guard(run))
    return app
