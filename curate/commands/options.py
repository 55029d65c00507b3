"""Options shared by several commands: one name, one meaning, one help text."""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from curate.options.option import shared

_URL_AS_PATH = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):/")  # `s3://` after pathlib's normalisation
_SINGLE_SLASH = re.compile(r"(s3a?|gc?s|hf):/(?!/)", re.IGNORECASE)


def columns(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the columns of the table on the line that start with a text; empty if it cannot be read."""
    from curate.tables.table import open_table
    from scoring.errors import InputError

    # If the line ends in an option without a value, unparsed words are in ``args``.
    for place in [ctx.params.get("table"), ctx.params.get("first"), *ctx.args]:
        with suppress(InputError):
            if place:
                return _begin(open_table(place).schema.names, incomplete)
    return []


def names_of(place: str) -> Callable[[str], list[str]]:
    """Return a completion of the names in ``module:TABLE``, which is imported when Tab is pressed."""
    module, table = place.split(":")

    def names(incomplete: str) -> list[str]:
        return _begin(getattr(import_module(module), table), incomplete)

    return names


def _begin(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


OFFERED: dict[str, Callable[..., list[str]]] = {  # by option
    "--column": columns,
    "--label": columns,
    "--per": columns,
    "--group": columns,
    "--strategy": names_of("curate.selectors.table:SELECTORS"),
    "--finder": names_of("curate.policies.dedup.finders.table:FINDERS"),
    "--format": names_of("curate.exporting.table:TOOLS"),
    "--to": names_of("curate.exporting.table:FORMATS"),
    "KIND": names_of("curate.reporting.plots.table:KINDS"),
    "--decode": names_of("curate.engines.settings:DECODERS"),
    "--backend": names_of("scoring.backends:BACKENDS"),
    "--engine": names_of("curate.engines.table:ENGINES"),
}


def typed(context: typer.Context, arguments: Mapping[str, Any]) -> set[str]:
    """Return the names of the parameters that were typed, whether or not they equal the defaults."""
    sources = {name: context.get_parameter_source(name) for name in arguments}
    return {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}


def path_argument(text: str) -> Path:
    """Return a path as typed; an empty text, which would be the current folder, is refused."""
    if not str(text):
        raise typer.BadParameter("expected the path of a file or a folder, got an empty text")
    return Path(text)


def table_argument(text: str) -> Any:
    """Return an input path as typed, or a `StorePath` with the same attributes."""
    from curate.manifest.store_path import path_to_read

    return _place(text, path_to_read)


def output_argument(text: str) -> Any:
    """Return an output path as typed, or a `StorePath` of a writable store."""
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


def refuse_urls(arguments: Mapping[str, Any]) -> None:
    """Raise ``InputError`` for a URL given as a local path: it would create a folder named `s3:`."""
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
                    f"expected a local path for {name}, got {url}; write it here, and copy it to or from the "
                    "store (aws s3 cp, gcloud storage cp)"
                )


Json = Annotated[bool, shared("--json")]
Quiet = Annotated[bool, shared("--quiet")]
Everything = Annotated[Path | None, shared("--out", ": all results, NAME.json")]
SheetSource = Annotated[str | None, shared("--source", ", for --sheet, if the table has no paths")]
