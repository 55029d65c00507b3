"""Shell completion of option values: names in curate's tables, and the user's columns."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module

import typer


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
