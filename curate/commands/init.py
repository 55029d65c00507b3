"""``curate round init``: a folder of rounds for a table."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from curate.commands import options
from curate.commands.printing import emit, say
from curate.counted import counted

if TYPE_CHECKING:
    from curate.rounds.files.folder import Folder

Texts = list[str] | None
NewFolder = Annotated[Path, typer.Argument(help="New or empty folder.")]
Classes = Annotated[
    Texts,
    options.shared("--classes", "; default: any name (repeatable)", metavar="NAMES|FILE|TABLE"),
]
Batch = Annotated[int, typer.Option(help="Images a round; the first asks the held-out ones, too.")]
Strategy = Annotated[str, options.shared("--strategy", ", as in `curate select`", show_default=True)]
Control = Annotated[float, typer.Option(help="Share of each batch that is drawn at random.")]
Holdout = Annotated[
    str | None,
    options.shared("--holdout", ". [default: a tenth, at most 500]", metavar="AMOUNT"),
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
Probe = Annotated[str, options.shared("--probe", ": linear or knn", show_default=True)]
Skip = Annotated[Texts, typer.Option(metavar="NAME", help="Label that means: not this image. [default: skip]")]
Confidence = Annotated[
    str, options.shared("--confidence", ", of all rounds at once", metavar="SHARE", show_default=True)
]
Stop = Annotated[Texts, options.shared("--stop", metavar="RULE")]
Budget = Annotated[int | None, options.shared("--budget", " to label in all; status says when it is reached")]


def run(
    folder: NewFolder,
    table: options.LocalTable,
    classes: Classes = None,
    batch: Batch = 100,
    strategy: Strategy = "auto",
    settings: options.Settings = None,
    control: Control = 0.1,
    holdout: Holdout = None,
    label: Label = None,
    labelled: Labelled = None,
    format_: Format = "csv",
    link: options.Link = "copy",
    probe: Probe = "linear",
    score: options.Score = None,
    quality: options.Quality = None,
    gate: options.Gate = 0.0,
    discount: options.Discount = False,
    noise_guard: options.NoiseGuard = False,
    skip: Skip = None,
    budget: Budget = None,
    confidence: Confidence = "95%",
    stop: Stop = None,
    seed: options.Seed = 0,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Make a folder of rounds for a table; no batch is made yet.

    Example:

    \b
        curate round init rounds scores.parquet --classes cat,dog,bird --format label-studio
        curate round init rounds scores.parquet --classes cat,dog --stop 'accuracy >= 90%'
    """
    arguments = dict(locals())
    from curate.simulation.functions import round_init
    from scoring.settings import parse_settings

    named = {
        "classes": ",".join(classes) if classes else None,
        "format": format_,
        "set": parse_settings(settings or ()),
    }
    opened = round_init(**options.accepted(round_init, {**arguments, **named}))
    if json_:
        emit({"folder": str(folder), **opened.settings.to_json()})
    elif not quiet:
        _report_start(folder, table, opened, holdout)


def _report_start(folder: Path, table: Path, opened: "Folder", holdout: str | None) -> None:
    """Say what was fixed, and what round 1 asks."""
    from curate.rounds.init import other_holdout

    fixed = opened.settings
    other = other_holdout(holdout, fixed.holdout, fixed.n_rows)
    if other is not None:
        say(other)
    say(f"{folder}: rounds of {fixed.batch:,} of the {counted(fixed.n_rows, 'row')} of {table}, by {fixed.strategy}")
    held_out = counted(fixed.holdout, "image is held out", "images are held out")
    say(f"{held_out}, {counted(fixed.n_control, 'of each batch is', 'of each batch are')} drawn at random")
    n_held_out = opened.holdout["label"].null_count
    if n_held_out:
        first = min(fixed.batch, fixed.n_rows - fixed.holdout)
        say(
            f"round 1 asks {counted(first + n_held_out, 'image')}: {first:,} of the batch, and "
            f"{n_held_out:,} held out, on which every round is measured; later rounds ask {fixed.batch:,}"
            f"{'; labels of held-out images count in --budget' if fixed.budget else ''}"
        )
    for rule in fixed.rules:
        say(f"status says stop when it is shown, at {fixed.confidence:.10g} confidence, that {rule}")
    say(f"go on with: curate round next {folder}")
