"""`curate train METHOD --help`: a method, its paper, and its settings."""

from itertools import pairwise
from typing import Any

import typer

from curate.commands.groups import PlainCommand
from scoring.errors import InputError


class MethodCommand(PlainCommand):
    """A command whose first argument is a method, and whose help describes the method if one is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Show the help of a method if the line names one before `--help`; else parse as usual."""
        if args and not args[0].startswith("-") and _asks_for_recipes(args):
            typer.echo(recipes_help(args[0]))
            raise typer.Exit
        asks = any(name in args for name in self.get_help_option_names(ctx))
        if asks and not args[0].startswith("-"):
            typer.echo(method_help(ctx.command_path, args[0]))
            raise typer.Exit
        return super().parse_args(ctx, args)


def _asks_for_recipes(args: list[str]) -> bool:
    return "--recipe=help" in args or any(pair == ("--recipe", "help") for pair in pairwise(args))


def recipes_help(name: str) -> str:
    """Return the recipes of a method as lines: their source, and the options they set."""
    from trainers.named_recipes import recipes_of

    kind_of(name)
    lines = []
    for each in recipes_of(name).values():
        lines += [f"{each.name}: {each.source}", f"  {each.command}"]
        lines += [f"  Reached there: {each.paper}"] if each.paper else []
        lines += [f"  Not in the source, or different here: {each.ours}"] if each.ours else []
        lines.append("")
    return "\n".join([*lines, "Options you type override it."] if lines else [f"{name} has no recipes."])


def kind_of(name: str) -> Any:
    """Return a method by name; BadParameter if it does not exist."""
    from scoring.lookup import lookup
    from trainers.methods.table import METHODS

    try:
        return lookup(METHODS, name, kind="method")
    except InputError as error:
        raise typer.BadParameter(str(error)) from None


def method_help(command: str, name: str) -> str:
    """Return the help of a method as lines, the last with ``command`` as typed; BadParameter if it is unknown."""
    from trainers.methods.settings import shown
    from trainers.named_recipes import recipes_of

    kind = kind_of(name)
    lines = [f"{name}: {' '.join((kind.__doc__ or '').split())}", *([kind.paper] if kind.paper else []), ""]
    rows = [(f"{each.name}={each.default}", each.meaning) for each in shown(kind.Settings)]
    options, of_all = _shared(name)
    width = max(len(typed) for typed, _ in (*rows, *of_all))
    lines.append("Settings and their defaults, each for --set:" if rows else "It has no settings.")
    lines += [f"  {typed:{width}}  {meaning}" for typed, meaning in rows]
    lines += ["", "Settings of every method, with its defaults, also for --set:"]
    lines += [f"  {typed:{width}}  {meaning}" for typed, meaning in of_all]
    return "\n".join(
        [
            *lines,
            "",
            f"Its defaults of options: {options}",
            *(
                ["", f"Recipes, by --recipe (help shows them): {', '.join(recipes)}"]
                if (recipes := recipes_of(name))
                else []
            ),
            "",
            f"More: {command} --help",
        ]
    )


def _shared(name: str) -> tuple[str, list[tuple[str, str]]]:
    """Return a method's defaults of common options, and the common settings with their meaning."""
    from dataclasses import fields

    from curate.training.recipe import SHARED, SharedSettings, recipe

    config = recipe(name, {})
    of_views = config.augmentation
    values = {**vars(of_views), "scale": of_views.scale[0], "blur_sigma": of_views.blur_sigma[1]}
    values |= {each: getattr(config, each) for each in SHARED}
    of_all = [(f"{each.name}={values.pop(each.name)}", each.metadata["meaning"]) for each in fields(SharedSettings)]
    options = [each for each in SHARED if each in values and each != "seed"]
    return " ".join(f"--{each.replace('_', '-')} {values[each]}" for each in options), of_all
