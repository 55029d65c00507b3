"""Options that several commands share: one name, one thing, and one text that says what it is."""

import re
from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import typer

from curate.commands.complete import OFFERED
from curate.exchange.table import TOOLS

# What an option is, in every command that has it; a command may add what it does with it.
MEANS: dict[str, str] = {
    "--actors": "--engine ray: processes that score, at most; by default as many as fit",
    "--allow-unmatched": "Go on where the table has none of the keys of a file",
    "--against": "Another scored table",
    "--train": "Rows to train on",
    "--apply": "Also write the table with the columns",
    "--audit": "The verdicts on a sample",
    "--batch-size": "Images that the model reads at once",
    "--budget": "How many rows",
    "--classes": "All classes in the order that numbers them: a,b,c, a text file with one a line, or a table",
    "--clusters": "How many clusters",
    "--column": "Score column",
    "--confidence": "Confidence level of the guarantee, such as 95%",
    "--connections": "Requests at a time to stores and servers",
    "--device": "auto, cpu, cuda or cuda:1",
    "--discount": "Low quality lowers a row's rank or weight",
    "--dry-run": "Show what would be done; write nothing",
    "--dtype": "Type of stored values: float16 or float32",
    "--embedding": "Column of your embeddings, read at unit length instead of the model's",
    "--engine": "Where it runs, with the same result: local; ray, here; ray:auto or ray:HOST:PORT, on a cluster",
    "--epochs": "Passes over the images",
    "--fitted": "Apply what was fitted before, instead of fitting",
    "--format": ", ".join(TOOLS),
    "--link": "copy, or hard or symbolic: links to local images, where the format copies them",
    "--gate": "Leave out this share of the lowest quality",
    "--group": "Column of groups",
    "--graph": "Nearest neighbours: read from this file, or computed and written there",
    "--holdout": "Images held out to measure on: 0.1, 10% or 500",
    "--image-column": "Column that holds image bytes",
    "--judges": "Where several judge, bad is what any says, the majority or their share",
    "--json": "Print the result as JSON on stdout",
    "--key": "Column that holds the key",
    "--label": "Column of classes",
    "--label-from-folder": "Take the name of each image's folder as its class",
    "--labelled": "CSV or table of what is labelled, by key",
    "--limit": "Use the first N images only",
    "--licence": "Licence of the training data, for the model card",
    "--log": "Append what happens to this file, as JSON lines: the start, every part, the end",
    "--loss-column": "losspred: predict the losses in this column instead",
    "--model": "A shipped model, or a .safetensors file",
    "--noise-guard": "Leave out the worst fifth by quality, and let the rest weigh less",
    "--num-gpus": "--engine ray: GPUs of each actor; a fraction puts several on one",
    "--out": "What to write",
    "--overwrite": "Replace what is there",
    "--path-column": "Column that holds paths or URLs",
    "--per": "Column whose values are groups",
    "--plot": "Chart to draw, NAME.png, .svg or .pdf",
    "--precision": "auto, fp32 or bf16; auto is bf16 on a GPU, and on a CPU what suits the model",
    "--probe": "What learns from embeddings",
    "--quality": "Quality: kappa_*, unc_*, or max:COLUMN, min:COLUMN",
    "--quiet": "Nothing on stderr but errors",
    "--repeats": "Number of random draws",
    "--root": "Where relative paths start",
    "--sample": "Look at N rows, chosen by a hash of their keys",
    "--score": "What --strategy score ranks by, least certain first: kappa_*, unc_*, or max:COLUMN, min:COLUMN",
    "--seed": "The same seed gives the same result",
    "--seeds": "How many draws, each with its own seed",
    "--set": "Set a parameter (repeatable)",
    "--sheet": "Image to draw",
    "--source": "What was scored, or the folder that its files are in now",
    "--stop": "Report stop when this is shown: 'accuracy >= 90%', 'lift <= 1%' (repeatable)",
    "--strategy": "What picks",
    "--subset": "What a policy made of the table",
    "--table": "Where the table is now, if it was moved",
    "--test": "Share to measure on",
    "--to": "What to arrive at",
    "--top": "How many of the highest are shown",
    "--verdicts": "What was decided in curate review, NAME.verdicts.jsonl",
    "--white": "Value of 16-bit images that is white, such as 4095 for 12 bits; auto finds it in a sample of them",
    "--workers": "Decoding threads; by default one a core",
}
_URL_AS_PATH = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):/")  # what pathlib leaves of `s3://`
_SINGLE_SLASH = re.compile(r"(s3a?|gc?s|hf):/(?!/)", re.IGNORECASE)
# Second spellings: short ones, and what everybody tries first for a folder that moved.
ALSO = {"--out": "-o", "--quiet": "-q", "--budget": "-b", "--source": "--root"}


def shared(name: str, more: str = "", *, alone: bool = False, **named: Any) -> Any:
    """Return the option of that name as Typer takes it.

    Args:
        name: a name in ``MEANS``.
        more: what this command does with it, said after what it is.
        alone: without its second spelling, which means something else in this command.
        named: anything else that ``typer.Option`` takes.
    """
    text = MEANS[name] + more
    names = (name, ALSO[name]) if name in ALSO and not alone else (name,)
    named = {"show_default": False, "autocompletion": OFFERED.get(name), **named}
    return typer.Option(*names, help=text if text.endswith("]") else f"{text}.", **named)


def accepted(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return, of what a command was given, by name, what a function of the library takes under the same name."""
    return {name: arguments[name] for name in signature(function).parameters if name in arguments}


def typed(context: typer.Context, arguments: Mapping[str, Any]) -> set[str]:
    """Return the names of what a command was given that were typed, whether or not they are the defaults."""
    sources = {name: context.get_parameter_source(name) for name in arguments}
    return {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}


def path_argument(text: str) -> Path:
    """Return a path as typed; an empty text, which would mean the folder one is in, is refused."""
    if not str(text):
        raise typer.BadParameter("expected the path of a file or a folder, got an empty text")
    return Path(text)


def table_argument(text: str) -> Any:
    """Return a path of what is read, as typed, or a `StorePath`, which has the same names."""
    from curate.manifest.store_path import path_to_read

    return _place(text, path_to_read)


def output_argument(text: str) -> Any:
    """Return a path of what is written, as typed, or a `StorePath` of a store that can be written to."""
    from curate.manifest.store_path import path_or_store

    return _place(text, path_or_store)


def _place(text: str, parse: Callable[[str], Any]) -> Any:
    from scoring.errors import InputError

    if (match := _SINGLE_SLASH.match(str(text))) and not Path(f"{match[1]}:").exists():
        raise typer.BadParameter(f"a URL has two slashes: expected {match[1]}://{text[match.end() :]}, got {text}")
    if "://" not in str(text):
        return path_argument(text)
    try:
        return parse(text)
    except InputError as error:
        raise typer.BadParameter(str(error)) from None


def white_argument(text: str | None) -> int | None:
    """Return the white of 16-bit images as typed; None for auto."""
    if text is None or text == "auto":
        return None
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"expected auto or a whole number for --white, got {text!r}") from None


def read_from(name: str, more: str = "", *, metavar: str = "FILE", **named: Any) -> Any:
    """Return the option of that name, as ``shared``, with a path to read that may be a URL of a store."""
    return shared(name, more, parser=table_argument, metavar=metavar, **named)


def written_to(name: str, more: str = "", *, metavar: str = "FILE", **named: Any) -> Any:
    """Return the option of that name, as ``shared``, with a path to write that may be a URL of a store."""
    return shared(name, more, parser=output_argument, metavar=metavar, **named)


def refuse_urls(arguments: Mapping[str, Any]) -> None:
    """Refuse a URL where a path of this machine is read or written: it would name a folder here, called `s3:`.

    Args:
        arguments: what a command was given, by name.

    Raises:
        InputError: naming the first one, and what to do.
    """
    for name, value in arguments.items():
        for path in value if isinstance(value, list | tuple) else [value]:
            match = _URL_AS_PATH.match(str(path)) if isinstance(path, Path) else None
            if match is None:
                continue
            from curate.manifest.schemes import SCHEMES, shown
            from scoring.errors import InputError

            if match[1].lower() in SCHEMES:
                url = shown(f"{match[1]}://{str(path)[match.end() :]}")
                raise InputError(
                    f"expected a path of this machine for {name}, got {url}; read and write it here, and copy "
                    "it from or to the store (aws s3 cp, gcloud storage cp)"
                )


Table = Annotated[
    Path,
    typer.Argument(
        parser=table_argument,
        help="Scored table: a Parquet file, or a folder of part-*.parquet; here, or s3://, gs:// or hf://.",
    ),
]

LocalTable = Annotated[
    Path,
    typer.Argument(parser=path_argument, help="Scored table: a Parquet file, or a folder of part-*.parquet."),
]
RoundsFolder = Annotated[Path, typer.Argument(help="Folder of the rounds.")]

Backbone = Annotated[
    str | None,
    typer.Option(
        "--backbone",
        help="timm:NAME (published weights), a checkpoint, a shipped model, or a timm name (random weights); "
        "by default resnet18. For images of 32 pixels: resnet18_cifar, resnet50_cifar, resnet_simvae, mlp.",
        show_default=False,
    ),
]
BackboneSet = Annotated[
    list[str] | None,
    typer.Option(
        "--backbone-set",
        metavar="NAME=VALUE",
        help="Set an option of the network (repeatable), such as drop_path_rate=0.1.",
        show_default=False,
    ),
]
Label = Annotated[str, shared("--label", ", for methods that read labels", show_default=True)]
LabelFromFolder = Annotated[bool, shared("--label-from-folder")]
Labelled = Annotated[Path | None, shared("--labelled")]
Log = Annotated[Path | None, shared("--log", metavar="FILE")]
LossColumn = Annotated[str | None, shared("--loss-column")]
Licence = Annotated[str, shared("--licence", show_default=True)]
Limit = Annotated[int | None, shared("--limit")]
Embedding = Annotated[str | None, shared("--embedding", metavar="COLUMN")]
Seed = Annotated[int, shared("--seed", show_default=True)]
Device = Annotated[str, shared("--device", show_default=True)]
Precision = Annotated[str, shared("--precision", show_default=True)]
White = Annotated[str | None, shared("--white", metavar="auto|N", show_default=True)]
Workers = Annotated[int | None, shared("--workers", min=1, max=1024)]

Engine = Annotated[str, shared("--engine", metavar="NAME", show_default=True)]

AllowUnmatched = Annotated[bool, shared("--allow-unmatched")]
DryRun = Annotated[bool, shared("--dry-run")]
Json = Annotated[bool, shared("--json")]
Link = Annotated[str, shared("--link", metavar="HOW", show_default=True)]
Overwrite = Annotated[bool, shared("--overwrite")]
Quiet = Annotated[bool, shared("--quiet")]

Source = Annotated[str | None, shared("--source", "; needed where the table holds no path to an image")]
Key = Annotated[str | None, shared("--key")]
PathColumn = Annotated[str | None, shared("--path-column", "; by default found by name")]
ImageColumn = Annotated[str | None, shared("--image-column", "; by default found by type")]
Root = Annotated[str | None, shared("--root", "; by default in the list's folder")]

Connections = Annotated[int, shared("--connections", show_default=True, min=1, max=512)]

MovedTable = Annotated[Path | None, shared("--table")]

Discount = Annotated[bool, shared("--discount")]
Gate = Annotated[float, shared("--gate", metavar="SHARE")]
Graph = Annotated[Path | None, shared("--graph")]
NoiseGuard = Annotated[bool, shared("--noise-guard")]
Quality = Annotated[str | None, shared("--quality", ". [default: the model's own score]", metavar="COLUMN")]
Score = Annotated[str | None, shared("--score", metavar="COLUMN")]
Verdicts = Annotated[
    Path | None, shared("--verdicts", ": drop, keep and relabel rows by it", metavar="FILE", parser=path_argument)
]
Settings = Annotated[list[str] | None, shared("--set", metavar="NAME=VALUE")]
