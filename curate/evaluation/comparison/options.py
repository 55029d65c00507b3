"""The options of ``curate compare``."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated

from curate.options import fields
from curate.options.option import Note, Option, shared


@dataclass(frozen=True, eq=False, repr=False)
class CompareOptions:
    """The options of ``curate compare``."""

    table: fields.Table
    other: fields.Other
    _: KW_ONLY
    column: Annotated[
        str | Sequence[str] | None,
        shared("--column", ", or any other, or embedding (repeatable). [default: all that both have]"),
    ] = None
    label: Annotated[
        str | None, shared("--label", ", whose numbers are classes. [default: label]", metavar="COLUMN")
    ] = None
    sample: Annotated[int, shared("--sample", ", of each table", default=True)] = 10_000
    repeats: Annotated[int, shared("--repeats", ": permutations of each permutation test", default=True)] = 999
    fail_above: Annotated[
        float | None,
        Option(
            "Exit with 3 if a classifier separates the embeddings better than this, and better than chance.",
            metavar="AUROC",
        ),
    ] = None
    embedding: fields.Embedding = None
    seed: fields.Seed = 0
    clusters: Annotated[int, Note("Clusters of the rows of both; 0 for none.")] = 20
    top: Annotated[int, Note("Rows of each table to name as its most distinctive.")] = 10
    announce: fields.Announce = lambda text: None
