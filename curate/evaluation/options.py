"""The options of ``curate evaluate``."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from curate.options import fields
from curate.options.option import Option, shared


@dataclass(frozen=True, eq=False, repr=False)
class EvaluateOptions:
    """The options of ``curate evaluate``."""

    table: fields.Table
    _: KW_ONLY
    label: fields.LabelOfEither = None
    labelled: fields.Labelled = None
    train: Annotated[
        str | Path | None,
        shared("--train", ": the images of another scored table, with --label", metavar="TABLE", path="table"),
    ] = None
    probe: Annotated[
        str | Sequence[str] | None,
        shared(
            "--probe",
            " of --train: linear, knn, few (labels), mlp, lars, gmm (repeatable). [default: linear,knn,few]",
            metavar="NAME,...",
        ),
    ] = None
    set: Annotated[
        Mapping[str, object] | None,
        shared(
            "--set",
            " of --probe: k, temperature, c, labels, draws, hidden, passes, rate, epochs, starts",
            metavar="NAME=VALUE",
            example="k=200",
            python="With ``train``, settings of these; see ``ProtocolSettings``.",
        ),
    ] = None
    subset: Annotated[
        str | Path | None, shared("--subset", ": its subset or decisions, or a file of keys; measure how good that is")
    ] = None
    test: Annotated[
        str | None,
        shared(
            "--test",
            " with --subset, of each class; or COLUMN=VALUE, or a table of rows to measure on. [default: 0.2]",
            metavar="SHARE",
            python='With ``subset``, what is tested on: a share of each class ("0.2", the default), "COLUMN=VALUE" '
            "or a table.",
        ),
    ] = None
    seeds: Annotated[
        int, shared("--seeds", ": random subsets, and a network's trainings, with --subset", default=True)
    ] = 5
    group: Annotated[
        str | Sequence[str] | None,
        shared("--group", ", to compare what --subset keeps of each (repeatable)", metavar="COLUMN"),
    ] = None
    network: Annotated[
        int, Option("With --subset: steps of a small network on pixels, 128 images each; 400 is usual.", least=0)
    ] = 0
    column: Annotated[
        str | Sequence[str] | None, shared("--column", " to measure (repeatable). [default: every kappa_* and unc_*]")
    ] = None
    votes: Annotated[
        str | None, Option("Column of lists, in --labelled or in the table: how many annotators chose each class.")
    ] = None
    against: Annotated[
        str | Path | None, shared("--against", ", whose separability is measured", metavar="TABLE", path="table")
    ] = None
    degrade: Annotated[int, Option("Number of images to read again, corrupt and score.", least=0)] = 0
    source: fields.Source = None
    model: Annotated[
        str | Path | None,
        shared("--model", ", for --degrade; by default the shipped one that scored the table", path="name"),
    ] = None
    device: Annotated[str, shared("--device", ", for --degrade and --network", default=True)] = "auto"
    repeats: Annotated[
        int, shared("--repeats", ": bootstrap resamples, shuffles of permutation tests", default=True)
    ] = 1000
    embedding: fields.Embedding = None
    seed: fields.Seed = 0
    sample: Annotated[
        int | None,
        shared(
            "--sample",
            python="Measure that many rows, chosen by a hash of their keys; None for all, but against labels without "
            "``train`` for 20,000 of more than 100,000, compared with all. With ``subset``, train on at most that "
            "many; None for 50,000, and for fewer where classes are many.",
        ),
    ] = None
    announce: fields.Announce = lambda text: None
