"""A command with subcommands: `curate models NAME`, and `curate models convert FILE`."""

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand

from curate.commands.groups import PlainCommand, plain_app


def with_subcommands(**runs: Callable[..., None]) -> type[TyperCommand]:
    """Return a class for ``app.command(cls=...)`` whose first argument may name one of the commands ``runs``.

    A file with such a name is written ``./name``.
    """
    apps = {}
    for name, run in runs.items():
        apps[name] = plain_app()
        apps[name].command(name, no_args_is_help=True)(run)

    class WithSubcommands(PlainCommand):
        """Passes the rest of the line on if it starts with the other command's name."""

        def make_context(self, info_name: Any, args: list[str], parent: Any = None, **extra: Any) -> Any:
            """Return the context of the command that the line is for."""
            name = args[0] if args else ""
            if name in apps:
                inner = typer.main.get_command(apps[name])
                return inner.make_context(f"{info_name} {name}", args[1:], parent=parent, **extra)
            return super().make_context(info_name, args, parent=parent, **extra)

    return WithSubcommands
