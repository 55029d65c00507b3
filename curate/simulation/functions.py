"""`curate.round_init`, `round_next` and so on: the commands of `curate round` as functions."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from curate.columns import LABEL
from curate.exchange.plan import COPY
from curate.policies.audit.request import parse_share
from curate.rounds.files.folder import Folder
from curate.rounds.files.settings import Guard, class_names
from curate.rounds.import_labels import ImportResult, import_labels
from curate.rounds.init import start
from curate.rounds.labels import write_consensus
from curate.rounds.next import NextResult, next_round
from curate.rounds.plot import plot_folder
from curate.rounds.status import Status, status
from curate.simulation.plot import plot_replay
from curate.simulation.run import Simulation, check_outputs, simulate, typed_budgets, write_simulation
from curate.tables.classes import read_classes


def round_init(
    folder: str | Path,
    table: str | Path,
    classes: str | Path | Sequence[str] | None = None,
    *,
    batch: int = 100,
    strategy: str = "auto",
    set: Mapping[str, object] | None = None,
    control: float = 0.1,
    holdout: str | None = None,
    label: str | None = None,
    labelled: str | Path | None = None,
    format: str = "csv",
    link: str = COPY,
    probe: str = "linear",
    score: str | None = None,
    quality: str | None = None,
    gate: float = 0.0,
    discount: bool = False,
    noise_guard: bool = False,
    skip: Sequence[str] | None = None,
    budget: int | None = None,
    confidence: str | float = "95%",
    stop: Sequence[str] | None = None,
    seed: int = 0,
) -> Folder:
    """Make a folder of rounds for a table; no label is requested yet.

    Args:
        folder: not there yet, or empty.
        table: with keys and embeddings; it is never changed.
        classes: names that labels may have; see ``read_classes``. None takes every name.
        batch: images a round.
        strategy: that picks; see `curate.select`.
        set: settings of the strategy by name.
        control: share of each batch that is drawn at random.
        holdout: images to hold out, a count or a share as text; None for a tenth, at most 500.
        label: column of the classes that held-out images have already, in ``labelled`` or in the table.
        labelled: file with keys and classes of held-out images.
        format: of what annotators get, a key of ``TOOLS``.
        link: ``copy``, or ``hard`` or ``symbolic`` links to images.
        probe: ``linear`` or ``knn``.
        score: column that a strategy ranks by.
        quality: column of the quality of an image.
        gate: share of the images of the lowest quality that are left out.
        discount: whether low quality lowers a rank or weight.
        noise_guard: whether the worst fifth by quality is left out, and the rest weighs less.
        skip: labels that mean "not this image"; None for ``skip``.
        budget: labels in all; None for no end.
        confidence: of the intervals of all rounds at once.
        stop: rules such as ``"accuracy >= 90%"``.
        seed: of all draws.

    Raises:
        InputError: for a table, option or place that cannot be used.
    """
    names = class_names([str(classes)], label) if isinstance(classes, str | Path) else None
    if classes is not None and names is None:
        names = read_classes(classes, label or LABEL)
    skipped = {} if skip is None else {"skip": tuple(skip)}
    return start(
        folder,
        table,
        classes=names,
        holdout=holdout,
        label=label,
        labelled=labelled,
        guard=Guard(score, quality, gate or 0.0, discount, noise_guard),
        batch=batch,
        strategy=strategy,
        parameters=dict(set or {}),
        control=control,
        format=format,
        link=link,
        probe=probe,
        budget=budget,
        confidence=parse_share(confidence, "--confidence"),
        stop=tuple(stop or ()),
        seed=seed,
        **skipped,
    )


def round_next(
    folder: str | Path,
    *,
    partial: bool = False,
    table: str | Path | None = None,
    source: str | None = None,
) -> NextResult:
    """Pick the next batch and write it for the annotators.

    Args:
        folder: of `curate.round_init`.
        partial: continue although images of the last batch have no label.
        table: where the table is now, if it was moved.
        source: what was scored, for tables that name no files.

    Raises:
        InputError: if images of the last batch have no label, nothing is left, or the folder or table was changed.
    """
    return next_round(folder, partial=partial, table=table, source=source)


def round_import(
    folder: str | Path,
    file: str | Path,
    *,
    format: str | None = None,
    name: str | None = None,
    annotator: str | None = None,
    skip_rest: bool = False,
) -> ImportResult:
    """Read labels of annotators, check them, and keep them with the round.

    Args:
        folder: of `curate.round_init`.
        file: what the annotation tool exported: a file or a folder.
        format: of it; None for the folder's.
        name: column or field of the labels, where there are several.
        annotator: of labels that name no annotator.
        skip_rest: images of the last batch that have no label count as skipped.

    Raises:
        InputError: for a file in which nothing can be used, or a folder that was changed.
    """
    return import_labels(folder, file, format=format, name=name, annotator=annotator, skip_rest=skip_rest)


def round_status(folder: str | Path, *, table: str | Path | None = None, stop: Sequence[str] | None = None) -> Status:
    """Return how accurate the model is by now, and whether to stop.

    Args:
        folder: of `curate.round_init`.
        table: where the table is now, if it was moved.
        stop: rules in addition to the folder's, such as ``"accuracy >= 90%"``.

    Raises:
        InputError: for an invalid rule, or a folder or table that was changed.
    """
    return status(folder, table=table, stop=stop or ())


def round_labels(folder: str | Path, out: str | Path, *, overwrite: bool = False) -> dict[str, int]:
    """Write the label of every image, and how far annotators differ; return the rows of each state.

    Args:
        folder: of `curate.round_init`.
        out: a table, ``NAME.parquet``.
        overwrite: replace a table that is there.

    Raises:
        InputError: if no label came back yet, the folder was changed, or the place refuses.
    """
    return write_consensus(folder, out, overwrite=overwrite)


def round_plot(
    source: str | Path, out: str | Path, *, table: str | Path | None = None, overwrite: bool = False
) -> Path:
    """Draw learning curves with their intervals; return the chart's path.

    Args:
        source: folder of rounds, or the JSON of `curate.round_simulate`.
        out: ``NAME.png``, ``NAME.svg`` or ``NAME.pdf``.
        table: where the table of the folder is now, if it was moved.
        overwrite: replace a chart that is there.

    Raises:
        InputError: if there is nothing to draw, or the place refuses.
    """
    source, out = Path(source), Path(out)
    if source.is_dir():
        plot_folder(source, out, table=table, overwrite=overwrite)
    else:
        plot_replay(source, out, overwrite=overwrite)
    return out


def round_simulate(
    table: str | Path,
    label: str,
    budget: str | Sequence[int | str],
    *,
    strategy: Sequence[str] | None = None,
    seeds: int = 5,
    test: float = 0.2,
    noisy_label: str | None = None,
    no_calibration: bool = False,
    holdout: str | None = None,
    confidence: str | float = "95%",
    stop: Sequence[str] | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    report: Callable[[str, int, int, float], None] | None = None,
) -> Simulation:
    """Replay strategies on a table whose labels are known.

    Args:
        table: with keys, embeddings and labels.
        label: column of the true classes.
        budget: labels by the end of each round, ascending.
        strategy: names; None for ``auto``. Random is always among them.
        seeds: runs of each strategy.
        test: share of the images to measure on.
        noisy_label: column with what annotators say.
        no_calibration: leave the probabilities of the probe as they are, which is faster.
        holdout: images that each run holds out, as text; None for a tenth, at most 500.
        confidence: of the intervals of all rounds at once.
        stop: rules such as ``"accuracy >= 90%"``.
        out: results, ``NAME.json``; a CSV of the same name is written with it. None for none.
        overwrite: replace files that are there.
        report: called with strategy, seed, labels and accuracy after each round.

    Raises:
        InputError: for a table, option or place that cannot be used.
    """
    out = None if out is None else Path(out)
    check_outputs(out, overwrite=overwrite)
    simulation = simulate(
        table,
        label,
        list(strategy or ["auto"]),
        typed_budgets([budget] if isinstance(budget, str) else [str(each) for each in budget]),
        seeds=seeds,
        test=test,
        noisy_label=noisy_label,
        calibrate=not no_calibration,
        holdout=holdout,
        confidence=parse_share(confidence, "--confidence"),
        stop=stop or (),
        observe=report,
    )
    if out is not None:
        write_simulation(simulation, out, overwrite=overwrite)
    return simulation
