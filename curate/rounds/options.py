"""The options of the commands of ``curate round``."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from curate.options import fields
from curate.options.option import Note, Option, shared

OfAllRounds = Annotated[str | float, shared("--confidence", ", for all rounds together", metavar="SHARE", default=True)]


@dataclass(frozen=True, eq=False, repr=False)
class RoundInitOptions:
    """The options of ``curate round init``."""

    folder: Annotated[str | Path, Option("New or empty folder.", argument=True)]
    table: fields.LocalTable
    classes: Annotated[
        str | Path | Sequence[str] | None,
        shared("--classes", "; default: any name (repeatable)", metavar="NAMES|FILE|TABLE", path="name"),
    ] = None
    _: KW_ONLY
    batch: Annotated[int, Option("Images per round; the first also requests the held-out ones.")] = 100
    strategy: Annotated[str, shared("--strategy", ", as in `curate select`", default=True)] = "auto"
    set: fields.Settings = None
    control: Annotated[float, Option("Share of each batch drawn at random.")] = 0.1
    holdout: Annotated[str | None, shared("--holdout", ". [default: a tenth, at most 500]", metavar="AMOUNT")] = None
    label: Annotated[
        str | None,
        shared(
            "--label",
            " of the held-out images, in --labelled or in the table. [default: label of --labelled]",
            metavar="COLUMN",
        ),
    ] = None
    labelled: Annotated[str | Path | None, shared("--labelled", ": classes of held-out images")] = None
    format: Annotated[str, shared("--format", default=True)] = "csv"
    link: fields.Link = "copy"
    probe: Annotated[str, shared("--probe", ": linear or knn", default=True)] = "linear"
    score: fields.Score = None
    quality: fields.Quality = None
    gate: fields.Gate = 0.0
    discount: fields.Discount = False
    noise_guard: fields.NoiseGuard = False
    skip: Annotated[
        Sequence[str] | None, Option("Label that marks a skipped image. [default: skip]", metavar="NAME")
    ] = None
    budget: Annotated[int | None, shared("--budget", " to label in total; status reports when it is reached")] = None
    confidence: OfAllRounds = "95%"
    stop: fields.Stop = None
    seed: fields.Seed = 0


@dataclass(frozen=True, eq=False, repr=False)
class RoundSimulateOptions:
    """The options of ``curate round simulate``."""

    table: fields.Table
    label: Annotated[str, shared("--label", ", all of them true")]
    budget: Annotated[
        str | int | Sequence[int | str],
        shared("--budget", " labelled by the end of each round, ascending: 10,20,40", metavar="ROWS"),
    ]
    _: KW_ONLY
    strategy: Annotated[
        Sequence[str] | None, shared("--strategy", ", next to random; may be repeated. [default: auto]")
    ] = None
    seeds: Annotated[int, shared("--seeds", ": runs of each strategy", default=True)] = 5
    test: Annotated[float, shared("--test", ", of the images", metavar="SHARE", default=True)] = 0.2
    noisy_label: Annotated[
        str | None, Option("Column of annotators' labels; accuracy is still measured against --label.")
    ] = None
    no_calibration: Annotated[bool, Option("Do not calibrate the probe's probabilities (faster).")] = False
    out: Annotated[str | Path | None, shared("--out", ": results, such as results.json; a CSV next to it")] = None
    overwrite: fields.Overwrite = False
    report: Annotated[
        Callable[[str, int, int, float], None] | None,
        Note("Called with strategy, seed, labels and accuracy after each round."),
    ] = None


@dataclass(frozen=True, eq=False, repr=False)
class RoundNextOptions:
    """The options of ``curate round next``."""

    folder: fields.RoundsFolder
    _: KW_ONLY
    partial: Annotated[bool, Option("Continue even if images of the last batch lack a label.")] = False
    table: fields.MovedTable = None
    source: fields.Source = None


@dataclass(frozen=True, eq=False, repr=False)
class RoundImportOptions:
    """The options of ``curate round import``."""

    folder: fields.RoundsFolder
    file: Annotated[str | Path, Option("Export of the annotation tool: a file or a folder.", argument=True)]
    _: KW_ONLY
    format: Annotated[str | None, shared("--format", ", of the file. [default: as in init]")] = None
    name: Annotated[str | None, Option("Column or field of the labels, if there are several.")] = None
    annotator: Annotated[str | None, Option("Annotator of labels that name none.")] = None
    skip_rest: Annotated[bool, Option("Count unlabelled images of the batch as skipped.")] = False


@dataclass(frozen=True, eq=False, repr=False)
class RoundStatusOptions:
    """The options of ``curate round status``."""

    folder: fields.RoundsFolder
    _: KW_ONLY
    table: fields.MovedTable = None
    stop: fields.Stop = None


@dataclass(frozen=True, eq=False, repr=False)
class RoundLabelsOptions:
    """The options of ``curate round labels``."""

    folder: fields.RoundsFolder
    out: Annotated[str | Path, shared("--out", ": a table, such as labels.parquet")]
    _: KW_ONLY
    overwrite: fields.Overwrite = False


@dataclass(frozen=True, eq=False, repr=False)
class RoundPlotOptions:
    """The options of ``curate round plot``."""

    source: Annotated[
        str | Path, Option("Folder of the rounds, or the JSON of `curate round simulate`.", argument=True)
    ]
    out: Annotated[str | Path, shared("--out", ": a chart, such as curve.svg")]
    _: KW_ONLY
    table: fields.MovedTable = None
    overwrite: fields.Overwrite = False
