"""The options of ``curate score``."""

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from curate.engines.table import ENGINES
from curate.options import fields
from curate.options.fields import ReadingOptions, ScoringOptions
from curate.options.option import Note, Option, shared
from scoring.scorers import free_scorers

if TYPE_CHECKING:
    from curate.engines.run import ScoreProgress


@dataclass(frozen=True, eq=False, repr=False)
class _FirstOptions:
    """The options that help shows first."""

    source: Annotated[
        str | Path | Sequence[str | Path],
        Option(
            "Folder, list (.txt), CSV, JSONL, Parquet, WebDataset .tar, or URL (s3://...); several are read as one.",
            path="name",
            argument=True,
        ),
    ]
    out: Annotated[
        str | Path,
        shared(
            "--out",
            ": NAME.parquet for one file; any other name is a folder of parts; s3:// and gs:// too",
            path="name",
        ),
    ]
    _: KW_ONLY
    model: Annotated[
        str | Path | None,
        shared(
            "--model",
            " (see `curate models`), or timm:NAME for embeddings alone; by default world",
            path="name",
            python="A shipped model, a .safetensors file, or timm:NAME for embeddings alone; by default world, with "
            "``add`` the table's.",
        ),
    ] = None
    weights: Annotated[
        str | Path | None,
        Option("A .safetensors file with the weights of --model timm:NAME, instead of the published ones."),
    ] = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ScoreOptions(ReadingOptions, ScoringOptions, _FirstOptions):
    """The options of ``curate score``."""

    workers: fields.Workers = None
    dtype: Annotated[str, shared("--dtype", ", for embeddings", default=True)] = "float16"
    scorer: Annotated[
        str | Sequence[str] | None,
        Option(f"A score that needs no training (repeatable): {', '.join(free_scorers())}.", metavar="NAME"),
    ] = None
    embedding: Annotated[
        bool, Option("Omit the embeddings.", " /--no-embedding", python="Store the embeddings.", default=False)
    ] = True
    engine: Annotated[str, shared("--engine", f"; there are: {', '.join(ENGINES)}", metavar="NAME", default=True)] = (
        "local"
    )
    actors: Annotated[int | None, shared("--actors", least=1)] = None
    num_gpus: Annotated[float | None, shared("--num-gpus")] = None
    add: Annotated[bool, Option("Score new and changed images of the source and add them to the table.")] = False
    check: Annotated[bool, Option("With --add, compare every known image by its sha256.", default=False)] = False
    refit: Annotated[bool, Option("With --add, fit the scores of the dataset again.", default=False)] = False
    retry: Annotated[
        str | Iterable[str] | None,
        Option("On a repeat, also retry rows of this status, such as denied (repeatable).", metavar="STATUS"),
    ] = None
    log: fields.Log = None
    overwrite: fields.Overwrite = False
    explicit: Annotated[
        Set[str], Note("With ``add``, names of options that are not the table's; by default the keywords of the call.")
    ] = frozenset()
    report: Annotated[
        Callable[["ScoreProgress"], None], Note("Called with the progress after every image batch or so.")
    ] = lambda progress: None
    announce: fields.Announce = lambda text: None
