"""A command that remembers the order of its options, across different options."""

from typing import Any

import typer

from curate.commands.groups import PlainCommand

META = "curate.typed"


class OrderedCommand(PlainCommand):
    """Records every option with its value in command line order, before the usual parsing.

    The parser hands each option its own values in order but not how options interleave. It does say which
    option came when; taking the next value of that option each time gives the whole line back.
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
