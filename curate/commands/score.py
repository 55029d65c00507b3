"""``curate score``: an embedding and a certainty for every image."""

import os
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from curate.commands import options
from curate.commands.complete import OFFERED
from curate.commands.printing import BRIEF, emit, say, say_next, say_table
from curate.commands.progress import ScoreBar
from curate.engines.table import ENGINES
from scoring.scorers import free_scorers

OF_PYTHON = {"reserved", "max_bytes", "allow_private_hosts"}  # fields of its settings that are no options


def run(
    ctx: typer.Context,
    source: Annotated[
        list[str],
        typer.Argument(
            help="Folder, list (.txt), CSV, JSONL, Parquet, WebDataset .tar, or URL (s3://...); several are one."
        ),
    ],
    out: Annotated[
        str,
        options.shared(
            "--out", ": NAME.parquet for one file; any other name is a folder of parts; s3:// and gs:// too"
        ),
    ],
    model: Annotated[
        str | None,
        options.shared("--model", " (see `curate models`), or timm:NAME for embeddings alone; by default world"),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            help="A .safetensors file with the weights of --model timm:NAME, instead of the published ones.",
            show_default=False,
        ),
    ] = None,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    backend: Annotated[
        str,
        typer.Option(
            "--backend",
            metavar="NAME",
            help="What runs the network: torch; openvino, faster on a CPU, an extra; or compile, torch's own compiler.",
            autocompletion=OFFERED["--backend"],
        ),
    ] = "torch",
    batch_size: Annotated[int | None, options.shared("--batch-size", "; by default 64 on a CPU, 256 on a GPU")] = None,
    workers: options.Workers = None,
    limit: options.Limit = None,
    dtype: Annotated[str, options.shared("--dtype", ", for embeddings", show_default=True)] = "float16",
    scorer: Annotated[
        list[str] | None,
        typer.Option(
            "--scorer",
            metavar="NAME",
            help=f"A score that needs no training (repeatable): {', '.join(free_scorers())}.",
            show_default=False,
        ),
    ] = None,
    fit: Annotated[
        bool,
        typer.Option("--fit/--no-fit", help="End with scores fitted to the dataset: unc_fitted and what it is of."),
    ] = True,
    quality: Annotated[
        bool,
        typer.Option(" /--no-quality", help="Leave out image quality: the columns quality_*.", show_default=False),
    ] = True,
    embedding: Annotated[
        bool, typer.Option(" /--no-embedding", help="Leave out the embeddings.", show_default=False)
    ] = True,
    key: options.Key = None,
    path_column: options.PathColumn = None,
    image_column: options.ImageColumn = None,
    root: options.Root = None,
    label_from_folder: Annotated[bool, options.shared("--label-from-folder", ", in a column `label`")] = False,
    connections: options.Connections = 64,
    follow_symlinks: Annotated[
        bool, typer.Option("--follow-symlinks", help="Follow links to folders; loops are cut.")
    ] = False,
    hidden: Annotated[bool, typer.Option("--hidden", help="Include hidden files and folders.")] = False,
    decode: Annotated[
        str,
        typer.Option(
            metavar="cpu|gpu",
            help="Where plain JPEGs are decoded; gpu needs --no-quality, and was never run on one.",
            autocompletion=OFFERED["--decode"],
        ),
    ] = "cpu",
    max_pixels: Annotated[
        int, typer.Option(help="Leave a larger image undecoded, with the status too_large.")
    ] = 100_000_000,
    decode_timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="Of processor time for one image that is no plain JPEG, PNG or WebP; beyond it, the status timeout.",
        ),
    ] = 20.0,
    allow_truncated: Annotated[
        bool, typer.Option("--allow-truncated", help="Score what there is of a truncated image, with a warning.")
    ] = False,
    white: options.White = None,
    engine: Annotated[
        str,
        options.shared("--engine", f"; there are: {', '.join(ENGINES)}", metavar="NAME", show_default=True),
    ] = "local",
    actors: Annotated[int | None, options.shared("--actors", min=1)] = None,
    num_gpus: Annotated[float | None, options.shared("--num-gpus")] = None,
    shard_size: Annotated[int, typer.Option(help="Rows committed at a time; a kill costs at most that many.")] = 4096,
    overwrite: options.Overwrite = False,
    add: Annotated[
        bool, typer.Option("--add", help="Add what is new or changed in the source to the table, as it was scored.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="With --add, compare every known image by its sha256.", show_default=False)
    ] = False,
    refit: Annotated[
        bool, typer.Option("--refit", help="With --add, fit the scores of the dataset again.", show_default=False)
    ] = False,
    retry: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STATUS",
            help="On a repeat, read rows of this status again too, such as denied (repeatable).",
            show_default=False,
        ),
    ] = None,
    log: options.Log = None,
    quiet: options.Quiet = False,
    json_: options.Json = False,
) -> None:
    """Score every image: certainty, embedding, hashes, image quality.

    Every image is a row of the table; one that cannot be read has a status and an error instead of scores.
    Killed, the run goes on where it stopped when you repeat the command. Nothing in the source is changed.
    A repeat reads rows again that were missing, io_error or timeout, and scores those that can be read now.

    Example:

    \b
        curate score photos/ -o scores.parquet
        curate score 'shards-{000..099}.tar' -o scores/ --device cuda
        curate score images.csv --path-column file --root /data -o scores.parquet
        curate score photos/ --model timm:convnext_nano.in12k_ft_in1k -o scores.parquet
        curate score /nfs/photos -o /nfs/scores --engine ray:auto --num-gpus 1
    """
    # Threads of the model that wait for one another must sleep, for decoding threads want the core: a quarter faster
    # on two cores. Read once, when torch loads its OpenMP.
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    from curate.engines.contract import Cluster
    from curate.engines.score import score
    from scoring.errors import InputError
    from scoring.model_names import DEFAULT, with_weights

    line = (lambda text: None) if quiet else say
    keywords = _keywords(ctx.params, options.typed(ctx, ctx.params) if add else None)
    with ScoreBar("images", quiet=quiet) as bar:
        result = score(
            source[0] if len(source) == 1 else source,
            out,
            model=model if weights is None else with_weights(model or DEFAULT, weights),
            workers=workers,
            engine=engine,
            cluster=Cluster(None, actors, num_gpus),
            overwrite=overwrite,
            add=add,
            check=check,
            refit=refit,
            retry=tuple(retry or ()),
            log=log,
            report=bar.update,
            announce=line,
            **keywords,
        )
    if not quiet and ctx.obj != BRIEF:
        _report(result)
        say_next(f"curate issues {shlex.quote(str(result.path))}")
    if json_:
        emit(_plain(result))
    if result.failed == result.rows:
        kinds = ", ".join(f"{n:,} {status}" for status, n in sorted(result.statuses.items()))
        start = "; relative paths start in the folder of a list, or where --root says" if "missing" in kinds else ""
        raise InputError(
            f"none of {result.rows:,} images could be scored ({kinds}); {result.path} says why in its column `error`"
            f"{start}"
        )


def _keywords(arguments: dict[str, Any], typed: set[str] | None) -> dict[str, Any]:
    """Return the options of the source and of the scoring: all, or those that were typed."""
    from dataclasses import fields

    from curate.engines.settings import ScoreSettings
    from curate.manifest import SourceOptions

    named = {"shard_rows": "shard_size", "scorers": "scorer"}
    values = {
        **arguments,
        "dtype": arguments["dtype"] if arguments["embedding"] else None,
        "white": options.white_argument(arguments["white"]),
        "scorers": tuple(dict.fromkeys(arguments["scorer"] or [])),
        "shard_rows": arguments["shard_size"],
    }
    names = {field.name for kind in (SourceOptions, ScoreSettings) for field in fields(kind)} - OF_PYTHON
    keywords = {name: values[name] for name in names}
    if typed is None:
        return keywords
    typed = {*typed, *(["dtype"] if "embedding" in typed else [])}
    return {name: value for name, value in keywords.items() if named.get(name, name) in typed}


def _report(result: Any) -> None:
    say(result.summary())
    say_table(result.by_status(), header=("status", "rows"), right=1)
    for note in result.notes:
        say(note)
    say(f"scores: {result.path}")


def _plain(result: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(result), "path": str(result.path), "failed": result.failed}
