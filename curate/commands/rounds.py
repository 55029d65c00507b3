"""``curate round``: rounds of labelling as files; each of its commands is a thin one."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from curate.commands import options, simulate
from curate.commands.groups import plain_app
from curate.commands.report import emit, say, show, show_table
from curate.commands.round_words import advice_words, import_notes, lift_words, status_notes
from curate.counted import counted

if TYPE_CHECKING:
    from curate.rounds.files.folder import Folder as RoundsFolder
    from curate.rounds.import_labels import ImportResult
    from curate.rounds.status import Status

Texts = list[str] | None
Folder = Annotated[Path, typer.Argument(help="Folder of the rounds.")]

HELP = """Label in rounds: batches out, labels in, and whether it pays.

Example:

\b
    curate round init rounds scores.parquet --classes cat,dog --batch 100
    curate round next rounds
    curate round import rounds labels.csv
    curate round status rounds

init holds out random images, on which every round is measured, and fixes the strategy. next fits a linear
probe on the labels so far, picks the next batch and writes it for the annotators: the first one
holds the held-out images too. A share of each batch is drawn at random, so that status can tell what
the strategy is worth on your own images. simulate replays strategies on a table whose labels are all
known; plot draws either. One small folder a round; nothing in it is ever replaced.
"""


NewFolder = Annotated[Path, typer.Argument(help="New or empty folder.")]
Classes = Annotated[
    Texts,
    typer.Option("--classes", metavar="NAMES", help="Classes, with commas, or the option again; default: any name."),
]
Batch = Annotated[int, typer.Option(help="Images a round.")]
Strategy = Annotated[str, options.shared("--strategy", ", as in `curate select`", show_default=True)]
Control = Annotated[float, typer.Option(help="Share of each batch that is drawn at random.")]
Holdout = Annotated[
    str | None,
    typer.Option(
        metavar="AMOUNT", help="Images held out to measure on: 0.1, 10% or 500. [default: a tenth, at most 500]"
    ),
]
Label = Annotated[
    str | None,
    options.shared(
        "--label",
        " that the held-out images have already, in --labelled or in the table. [default: label of --labelled]",
        metavar="COLUMN",
    ),
]
Labelled = Annotated[Path | None, options.shared("--labelled", ": classes of held-out images")]
Format = Annotated[str, options.shared("--format", show_default=True)]
Probe = Annotated[str, typer.Option(help="Probe: linear or knn.")]
Skip = Annotated[Texts, typer.Option(metavar="NAME", help="Label that means: not this image. [default: skip]")]
Budget = Annotated[int | None, options.shared("--budget", " to label in all; status says when it is reached")]


def init(
    folder: NewFolder,
    table: options.Table,
    classes: Classes = None,
    batch: Batch = 100,
    strategy: Strategy = "auto",
    settings: options.Settings = None,
    control: Control = 0.1,
    holdout: Holdout = None,
    label: Label = None,
    labelled: Labelled = None,
    format_: Format = "csv",
    link: options.Link = False,
    probe: Probe = "linear",
    score: options.Score = None,
    quality: options.Quality = None,
    gate: options.Gate = 0.0,
    discount: options.Discount = False,
    noise_guard: options.NoiseGuard = False,
    skip: Skip = None,
    budget: Budget = None,
    seed: options.Seed = 0,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Make a folder of rounds for a table; nothing is asked yet.

    Example:

    \b
        curate round init rounds scores.parquet --classes cat,dog,bird --format label-studio
    """
    from curate.rounds.files.settings import Guard, class_names
    from curate.rounds.init import start
    from scoring.settings import parse_settings

    asked = {} if skip is None else {"skip": tuple(skip)}
    opened = start(
        folder,
        table,
        classes=class_names(classes or ()),
        holdout=holdout,
        label=label,
        labelled=labelled,
        guard=Guard(score, quality, gate or 0.0, discount, noise_guard),
        batch=batch,
        strategy=strategy,
        parameters=parse_settings(settings or ()),
        control=control,
        format=format_,
        link=link,
        probe=probe,
        budget=budget,
        seed=seed,
        **asked,
    )
    if json_:
        emit({"folder": str(folder), **opened.settings.to_json()})
    elif not quiet:
        _report_start(folder, table, opened)


def _report_start(folder: Path, table: Path, opened: "RoundsFolder") -> None:
    """Say what was fixed, and what round 1 asks."""
    fixed = opened.settings
    say(f"{folder}: rounds of {fixed.batch:,} of the {counted(fixed.n_rows, 'row')} of {table}, by {fixed.strategy}")
    held_out = counted(fixed.holdout, "image is held out", "images are held out")
    say(f"{held_out}, {counted(fixed.n_control, 'of each batch is', 'of each batch are')} drawn at random")
    asked_too = opened.holdout["label"].null_count
    if asked_too:
        first = min(fixed.batch, fixed.n_rows - fixed.holdout)
        say(
            f"round 1 asks {counted(first + asked_too, 'image')}: {first:,} of the batch, and {asked_too:,} held out, "
            f"on which every round is measured; later rounds ask {fixed.batch:,}"
            f"{'; labels of held-out images count in --budget' if fixed.budget else ''}"
        )
    say(f"go on with: curate round next {folder}")


def next_(
    folder: Folder,
    partial: Annotated[
        bool, typer.Option("--partial", help="Go on though images of the last batch lack a label.")
    ] = False,
    table: options.MovedTable = None,
    source: options.Source = None,
    key: options.SourceKey = None,
    path_column: options.SourcePathColumn = None,
    image_column: options.SourceImageColumn = None,
    root: options.SourceRoot = None,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Pick the next batch and write it for the annotators.

    Example:

    \b
        curate round next rounds
        curate round next rounds --source images.parquet --key file
    """
    from curate.manifest import SourceOptions
    from curate.rounds.next import next_round
    from curate.tables.images import images_by_key

    where = SourceOptions(root=root, key=key, path_column=path_column, image_column=image_column)
    images = (lambda batch: images_by_key(batch, source=source, options=where)) if source else None
    made = next_round(folder, partial=partial, table=table, images=images)
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
        found = model["holdout"]
        interval = f"{found['low']:.1%} to {found['high']:.1%}"
        say(f"probe of {counted(model['n_labels'], 'label')}: {found['accuracy']:.1%} right ({interval})")
    say(f"to annotate: {made.export}")


def import_(
    folder: Folder,
    file: Annotated[Path, typer.Argument(help="What the annotation tool exported: a file or a folder.")],
    format_: Annotated[str | None, options.shared("--format", ", of the file. [default: that of init]")] = None,
    name: Annotated[
        str | None, typer.Option(help="Column or field of the labels, where there are several.", show_default=False)
    ] = None,
    annotator: Annotated[str | None, typer.Option(help="Who made labels that name nobody.", show_default=False)] = None,
    skip_rest: Annotated[
        bool, typer.Option("--skip-rest", help="Images of the batch still without a label count as skipped.")
    ] = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Take labels back, check them, and keep them beside the round.

    Example:

    \b
        curate round import rounds labels.csv
        curate round import rounds export.json --format label-studio --annotator ann
    """
    from curate.rounds.import_labels import import_labels

    found = import_labels(folder, file, format=format_, name=name, annotator=annotator, skip_rest=skip_rest)
    if json_:
        emit({**found.to_json(), "notes": import_notes(found)})
    elif not quiet:
        _report_import(found)


def _report_import(found: "ImportResult") -> None:
    for problem in found.problems:
        say(str(problem))
    for note in import_notes(found):
        say(note)
    news = found.news
    say(
        f"{counted(found.labels, 'label')}, {found.skipped:,} skipped: {counted(len(news.new), 'image')} new, "
        f"{len(news.changed):,} changed, {len(news.repeated):,} known already"
    )
    if found.written is not None:
        say(f"labels: {found.written}")


def status_(
    folder: Folder,
    table: options.MovedTable = None,
    no_lift: Annotated[bool, typer.Option("--no-lift", help="Do not compare with random labels (faster).")] = False,
    json_: options.Json = False,
) -> None:
    """Tell how good it is by now, and whether to stop.

    Example:

    \b
        curate round status rounds
    """
    from curate.rounds.status import status

    found = status(folder, table=table, lift=not no_lift)
    if json_:
        emit(_status_json(found))
    else:
        _show_status(found)


def _status_json(found: "Status") -> dict[str, Any]:
    """Facts, and beside them what is said of them."""
    facts = found.to_json()
    for facts_of, advice in zip(facts["advice"], found.advice, strict=True):
        facts_of["text"] = advice_words(advice)
    if found.lift is not None:
        facts["lift"]["text"] = lift_words(found.lift)
    return {**facts, "notes": status_notes(found)}


def _show_status(found: "Status") -> None:
    for line in found.changed:
        show(f"CHANGED: {line}")
    counts = ", ".join(f"{count:,} {name}" for name, count in found.counts.items())
    show(f"{found.path}: {counted(found.rounds, 'round')}, {counted(found.asked, 'image')} asked: {counts}")
    show(f"with a class: {found.held_out[1]:,} of {counted(found.held_out[0], 'held-out image')}")
    if found.classes:
        most_first = sorted(found.classes.items(), key=lambda one: one[1], reverse=True)
        show_table(most_first, header=("class", "labels to learn from"), right=1)
    if found.agreement["n_keys"]:
        alpha = found.agreement["alpha"]
        said = "not defined" if alpha is None else f"{alpha:.3f}"
        people = f" ({', '.join(found.annotators)})" if found.annotators else ""
        show(
            f"annotators{people} agree on {found.agreement['pairs']:.1%} of pairs in "
            f"{counted(int(found.agreement['n_keys']), 'image')}, alpha {said}"
        )
    if found.tied:
        more = ", ..." if len(found.tied) < found.counts["tied"] else ""
        show(f"tied, and without a class: {', '.join(found.tied)}{more}")
    rows = [
        (point["n_labels"], f"{point['accuracy']:.1%}", f"{point['low']:.1%} to {point['high']:.1%}", point["n"])
        for point in found.curve
        if point["n"]
    ]
    if rows:
        show_table(rows, header=("labels", "accuracy", "95 % interval", "held-out images"), right=0)
    if found.lift is not None:
        show(lift_words(found.lift))
    for one in found.advice:
        mark = "cannot tell" if one.reached is None else "STOP" if one.reached else "go on"
        show(f"{one.name}: {mark} ({advice_words(one)})")
    for note in status_notes(found):
        show(note)


def labels_(
    folder: Folder,
    out: Annotated[Path, options.shared("--out", ": a table, such as labels.parquet")],
    overwrite: options.Overwrite = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write the label of every image, and how far votes differ.

    Example:

    \b
        curate round labels rounds -o labels.parquet
    """
    from curate.rounds.labels import write_consensus

    counts = write_consensus(folder, out, overwrite=overwrite)
    if json_:
        emit({"path": str(out), **counts})
    elif not quiet:
        say(f"{out}: {', '.join(f'{count:,} {name}' for name, count in counts.items())}")


def plot_(
    source: Annotated[Path, typer.Argument(help="Folder of the rounds, or the JSON of `curate round simulate`.")],
    out: Annotated[Path, options.shared("--out", ": a picture, such as curve.png")],
    table: options.MovedTable = None,
    overwrite: options.Overwrite = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Draw learning curves with their intervals.

    Example:

    \b
        curate round plot rounds -o curve.png
    """
    if source.is_dir():
        from curate.rounds.plot import plot_folder

        plot_folder(source, out, table=table, overwrite=overwrite)
    else:
        from curate.simulation.plot import plot_replay

        plot_replay(source, out, overwrite=overwrite)
    if json_:
        emit({"picture": str(out)})
    elif not quiet:
        say(f"picture: {out}")


COMMANDS: dict[str, Callable[..., None]] = {
    "init": init,
    "next": next_,
    "import": import_,
    "status": status_,
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
