"""`curate.round_init`, `round_next` and so on: the commands of `curate round` as functions."""

from pathlib import Path

from curate.columns import LABEL
from curate.options.function import callable_of
from curate.policies.audit.request import parse_share
from curate.rounds.files.folder import Folder
from curate.rounds.files.settings import Guard, class_names
from curate.rounds.import_labels import ImportResult, import_labels
from curate.rounds.init import start
from curate.rounds.labels import write_consensus
from curate.rounds.next import NextResult, next_round
from curate.rounds.plot import plot_folder
from curate.rounds.status import Status, status
from curate.simulation.options import (
    RoundImportOptions,
    RoundInitOptions,
    RoundLabelsOptions,
    RoundNextOptions,
    RoundPlotOptions,
    RoundSimulateOptions,
    RoundStatusOptions,
)
from curate.simulation.plot import plot_replay
from curate.simulation.run import Simulation, check_outputs, simulate, write_simulation
from curate.tables.classes import read_classes


def run_round_init(options: RoundInitOptions) -> Folder:
    """Make a folder of rounds for a table; no label is requested yet.

    Raises:
        InputError: for a table, option or place that cannot be used.
    """
    names = class_names([str(options.classes)], options.label) if isinstance(options.classes, str | Path) else None
    if options.classes is not None and names is None:
        names = read_classes(options.classes, options.label or LABEL)
    skipped = {} if options.skip is None else {"skip": tuple(options.skip)}
    return start(
        options.folder,
        options.table,
        classes=names,
        holdout=options.holdout,
        label=options.label,
        labelled=options.labelled,
        guard=Guard(options.score, options.quality, options.gate or 0.0, options.discount, options.noise_guard),
        batch=options.batch,
        strategy=options.strategy,
        parameters=dict(options.set or {}),
        control=options.control,
        format=options.format,
        link=options.link,
        probe=options.probe,
        budget=options.budget,
        confidence=parse_share(options.confidence, "--confidence"),
        stop=tuple(options.stop or ()),
        seed=options.seed,
        **skipped,
    )


round_init = callable_of(RoundInitOptions, run_round_init)


def run_round_next(options: RoundNextOptions) -> NextResult:
    """Pick the next batch and write it for the annotators.

    Raises:
        InputError: if images of the last batch have no label, nothing is left, or the folder or table was changed.
    """
    return next_round(options.folder, partial=options.partial, table=options.table, source=options.source)


round_next = callable_of(RoundNextOptions, run_round_next)


def run_round_import(options: RoundImportOptions) -> ImportResult:
    """Read labels of annotators, check them, and keep them with the round.

    Raises:
        InputError: for a file in which nothing can be used, or a folder that was changed.
    """
    return import_labels(**vars(options))


round_import = callable_of(RoundImportOptions, run_round_import)


def run_round_status(options: RoundStatusOptions) -> Status:
    """Return how accurate the model is by now, and whether to stop.

    Raises:
        InputError: for an invalid rule, or a folder or table that was changed.
    """
    return status(options.folder, table=options.table, stop=options.stop or ())


round_status = callable_of(RoundStatusOptions, run_round_status)


def run_round_labels(options: RoundLabelsOptions) -> dict[str, int]:
    """Write the label of every image, and how far annotators differ; return the rows of each state.

    Raises:
        InputError: if no label came back yet, the folder was changed, or the place refuses.
    """
    return write_consensus(options.folder, options.out, overwrite=options.overwrite)


round_labels = callable_of(RoundLabelsOptions, run_round_labels)


def run_round_plot(options: RoundPlotOptions) -> Path:
    """Draw learning curves with their intervals; return the chart's path.

    Raises:
        InputError: if there is nothing to draw, or the place refuses.
    """
    source, out = Path(options.source), Path(options.out)
    if source.is_dir():
        plot_folder(source, out, table=options.table, overwrite=options.overwrite)
    else:
        plot_replay(source, out, overwrite=options.overwrite)
    return out


round_plot = callable_of(RoundPlotOptions, run_round_plot)


def run_round_simulate(options: RoundSimulateOptions) -> Simulation:
    """Replay strategies on a table whose labels are known.

    Raises:
        InputError: for a table, option or place that cannot be used.
    """
    out = None if options.out is None else Path(options.out)
    check_outputs(out, overwrite=options.overwrite)
    simulation = simulate(options)
    if out is not None:
        write_simulation(simulation, out, overwrite=options.overwrite)
    return simulation


round_simulate = callable_of(RoundSimulateOptions, run_round_simulate)
