"""A command that records the order of its options across different options."""

from typing import Any

import typer

from curate.commands.groups import PlainCommand

META = "curate.typed"


class OrderedCommand(PlainCommand):
    """Records every option with its value in command line order, before the usual parsing.

    The parser returns the values by option, and separately the order of the options: taking each option's next value in
    that order restores the line.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse twice: once for the order, once for the values as usual."""
        parsed, _, order = self.make_parser(ctx).parse_args(args=list(args))
        values = {name: iter(value) for name, value in parsed.items() if isinstance(value, list)}
        ctx.meta[META] = [(param.name, next(values[param.name])) for param in order if param.name in values]
        return super().parse_args(ctx, args)


def typed(ctx: typer.Context) -> list[tuple[str, str]]:
    """Return (parameter, value) of the repeatable options, in command line order."""
    return list(ctx.meta.get(META, []))
