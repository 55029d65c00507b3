"""Commands with plain-text help, grouped by task; commands that keep the order of options, or have subcommands."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

import typer
from typer.core import TyperCommand, TyperGroup

from curate.commands.printing import say
from curate.options.texts import MEANS

LONGEST = 72  # characters of the first line of a command's help; a narrow terminal wraps it
USAGE: Any = typer.BadParameter.__base__  # all errors of parsing a command line

TYPED = "curate.typed"  # where the context has the options in order

# Options that many commands have: `curate --help` explains them once.
COMMON = {
    "--dry-run": "write nothing",
    "--overwrite": "replace existing outputs",
    "--json": "the result on stdout",
    "--quiet": "print only errors",
}
# Last word of an option's name -> word for its value, if the type is not specific.
TAKES = {
    **dict.fromkeys(("column", "key", "label", "per", "right", "votes"), "COLUMN"),
    **{"root": "FOLDER", "cached": "FOLDER", "out": "FILE", "dtype": "TYPE"},
}


class UsageMistake(USAGE):  # type: ignore[misc]  # a class that Typer does not export
    """A usage error, shown as one line like every error."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the error, and the help command."""
        say(f"error: {self.message}")


@contextmanager
def _briefly(ctx: Any = None) -> Iterator[None]:
    """Show usage errors as one line; ``ctx`` is the group's, for errors without a command."""
    try:
        yield
    except USAGE as error:
        text = error.format_message().rstrip(".")
        if "\n" in text:  # the help, since there were no arguments
            raise
        of_group = f"{ctx.command_path} {ctx.invoked_subcommand}" if ctx else "curate"
        path = error.ctx.command_path if error.ctx else of_group
        text = f"{text[:1].lower()}{text[1:]}{'' if text.endswith('?') else ';'} {path} --help lists what there is"
        raise UsageMistake(text, error.ctx) from None


class PlainCommand(TyperCommand):
    """A command whose help names option values as N, FILE or COLUMN instead of Python types."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        for param in self.params:
            if param.param_type_name == "argument":
                vars(param)["display_type_rich"] = lambda ctx: ""
            elif param.metavar is None and not getattr(param, "is_flag", False):
                param.metavar = _metavar(param)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options, then the names of the common options."""
        records = [(param, param.get_help_record(ctx)) for param in self.get_params(ctx)]
        specific = [(param, record) for param, record in records if record is not None and not is_common(param)]
        for heading, kind in (("Arguments", "argument"), ("Options", "option")):
            of_kind = [record for param, record in specific if param.param_type_name == kind and param.name != "help"]
            if of_kind:
                with formatter.section(heading):
                    formatter.write_dl(of_kind)
        common = ["/".join(sorted(param.opts)) for param, _ in records if is_common(param) or param.name == "help"]
        formatter.write_paragraph()
        formatter.write_text(f"Also {', '.join(common)}: see curate --help")


def is_common(param: Any) -> bool:
    """Return whether an option has the same meaning in every command."""
    return bool(param.opts) and param.opts[0] in COMMON and param.help == f"{MEANS[param.opts[0]]}."


def _metavar(param: Any) -> str:
    """Return a word for an option's value: by its type, and for text by its name."""
    word = str(param.name).strip("_").rpartition("_")[2]
    described = getattr(param, "type_descriptor", None)
    kind = str(getattr(param, "type", "") if described is None else described.annotation).lower()
    of_types = (takes for name, takes in (("path", "FILE"), ("int", "N"), ("float", "X")) if name in kind)
    return TAKES.get(word) or next(of_types, word.upper())


class OrderedCommand(PlainCommand):
    """Records every option with its value in command line order, before the usual parsing.

    The parser returns the values by option, and separately the order of the options: taking each option's next value in
    that order restores the line.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse twice: once for the order, once for the values as usual."""
        parsed, _, order = self.make_parser(ctx).parse_args(args=list(args))
        values = {name: iter(value) for name, value in parsed.items() if isinstance(value, list)}
        ctx.meta[TYPED] = [(param.name, next(values[param.name])) for param in order if param.name in values]
        return super().parse_args(ctx, args)


def typed(ctx: typer.Context) -> list[tuple[str, str]]:
    """Return (parameter, value) of the repeatable options, in command line order."""
    return list(ctx.meta.get(TYPED, []))


class PlainTyper(typer.Typer):
    """A ``typer.Typer`` whose commands are ``PlainCommand``."""

    def command(self, name: str | None = None, *, cls: type[TyperCommand] | None = None, **named: Any) -> Any:
        """Return the decorator of a command, as ``typer.Typer`` does."""
        return super().command(name, cls=cls or PlainCommand, **named)


def plain_app(*, add_completion: bool = False, **named: Any) -> typer.Typer:
    """Return an empty ``typer.Typer`` with plain text and Python's tracebacks."""
    return PlainTyper(
        rich_markup_mode=None,
        add_completion=add_completion,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        **named,
    )


def grouped(*headings: str, brief: Sequence[str] = ()) -> type[TyperGroup]:
    """Return a class for ``typer.Typer(cls=...)`` whose help lists commands under headings, as plain text.

    ``headings`` has every ``rich_help_panel``, in display order; ``brief`` those, at the end, that list names only.
    """

    class Grouped(TyperGroup):
        """Lists its commands by heading, and accepts ``help COMMAND`` for ``COMMAND --help``."""

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            """Parse the line, which may start with ``help``."""
            return super().parse_args(ctx, [*args[1:], "--help"] if args[:1] == ["help"] else args)

        def make_context(self, *args: Any, **named: Any) -> Any:
            """Read the start of the line."""
            with _briefly():
                return super().make_context(*args, **named)

        def invoke(self, ctx: Any) -> Any:
            """Read the rest of the line, and run its command."""
            with _briefly(ctx):
                return super().invoke(ctx)

        def list_commands(self, ctx: Any) -> list[str]:
            """Return the names of the commands by heading."""
            return sorted(self.commands, key=lambda name: headings.index(self._heading(name)))

        def _heading(self, name: str) -> str:
            return str(getattr(self.commands[name], "rich_help_panel", ""))

        def format_commands(self, ctx: Any, formatter: Any) -> None:
            """Write each heading with the commands below it."""
            names = self.list_commands(ctx)
            widest = max(map(len, names))
            for heading in headings[: len(headings) - len(brief)]:
                with formatter.section(heading):
                    formatter.write_dl(
                        [
                            (name.ljust(widest), self.commands[name].get_short_help_str(LONGEST))
                            for name in names
                            if self._heading(name) == heading
                        ]
                    )
            if brief:
                with formatter.section("More, each with its --help"):
                    of = {heading: [name for name in names if self._heading(name) == heading] for heading in brief}
                    formatter.write_dl([(heading, ", ".join(inside)) for heading, inside in of.items()])
            formatter.write_paragraph()
            formatter.write_text(f"Many commands take {', '.join(f'{name} ({what})' for name, what in COMMON.items())}")

    return Grouped


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
