"""A command with its own commands: `curate models NAME`, and `curate models convert FILE`."""

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand

from curate.commands.groups import plain_app


def with_subcommand(name: str, run: Callable[..., None]) -> type[TyperCommand]:
    """Return a class for ``app.command(cls=...)``: its first argument may be the name of another command.

    Args:
        name: of the other command; a file of that name is written ``./name``.
        run: its function, which Typer reads as usual.
    """
    app = plain_app()
    app.command(name, no_args_is_help=True)(run)

    class WithSubcommand(TyperCommand):
        """Hands the rest of the line on where it starts with the other command's name."""

        def make_context(self, info_name: Any, args: list[str], parent: Any = None, **extra: Any) -> Any:
            """Return the context of whichever command the line is for."""
            if args[:1] == [name]:
                return typer.main.get_command(app).make_context(f"{info_name} {name}", args[1:], parent=parent, **extra)
            return super().make_context(info_name, args, parent=parent, **extra)

    return WithSubcommand
