"""Planning of a pipeline: the inputs, outputs and command line of each step."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Protocol

from curate.manifest.schemes import scheme_of
from curate.manifest.store_path import path_on_disk
from curate.pipeline.file import FOLDER, FORMAT, Kind, Pipeline, Step, kind_of
from scoring.errors import InputError
from scoring.lookup import closest

# Options that the pipeline sets itself.
SET_FOR_ALL = frozenset({"help", "dry-run", "json", "overwrite", "quiet"})
TABLE = "table"
# Options with an output file.
WRITES = frozenset({"--out", "--apply", "--findings", "--log", "--plot", "--sheet"})
RESERVED = "pipeline"  # prefix of the pipeline's files; not allowed as the name of a step


@dataclass(frozen=True)
class Arguments:
    """The arguments of a step's command.

    Attributes:
        options: options of the command line, in the order of the file.
        places: positional arguments, such as the sources of ``score``.
        values: all values as text: the step depends on those that are files.
    """

    options: tuple[str, ...]
    places: tuple[str, ...]
    values: tuple[str, ...]


def arguments_of(pipeline: Pipeline, step: Step, parameters: list[Any], set_by_pipeline: set[str]) -> Arguments:
    """Return the arguments of a step's command, as text; InputError, with the line, for an invalid key or value.

    Args:
        pipeline: of the step.
        step: whose keys are option names, with - or _.
        parameters: of the command, as Typer knows them.
        set_by_pipeline: options set by the pipeline: the input table, or the output.
    """
    known = {_name(parameter): parameter for parameter in parameters}
    options: list[str] = []
    places: list[str] = []
    values: list[str] = []
    for key, value in step.options.items():
        name = key.replace("_", "-")
        if name in set_by_pipeline:
            continue
        if name in SET_FOR_ALL:
            raise InputError(
                f"{pipeline.place(step.name, key)}: {key} cannot be set for a step; curate run has its own options"
            )
        if name not in known:
            raise InputError(
                f"{pipeline.place(step.name, key)}: curate {step.command} has no option {key!r}"
                f"{closest(name, set(known) - SET_FOR_ALL)}"
            )
        try:
            texts = list(_texts(known[name], value))
        except InputError as error:
            raise InputError(f"{pipeline.place(step.name, key)}: {key}: {error}") from None
        values += texts
        options += list(_words(known[name], value, texts))
        places += texts if known[name].param_type_name == "argument" else []
    return Arguments(tuple(options), tuple(places), tuple(values))


def _name(parameter: Any) -> str:
    """Return the name of a parameter as typed, without dashes."""
    return _option(parameter).lstrip("-").replace("_", "-")


def _option(parameter: Any) -> str:
    """Return a parameter's longest name, as typed; the negative form of a flag that has no other (``--no-quality``)."""
    return str(max(parameter.opts or parameter.secondary_opts, key=len))


def _texts(parameter: Any, value: Any) -> Iterator[str]:
    """Yield a TOML value as texts for the command line; none for a flag."""
    flag = getattr(parameter, "is_flag", False)
    if isinstance(value, bool) or flag:
        if not (flag and isinstance(value, bool)):
            raise InputError(f"expected {'true or false' if flag else 'a text or a number'}, got {value!r}")
        return
    several = getattr(parameter, "multiple", False) or parameter.nargs == -1
    pairs = "=" in str(getattr(parameter, "metavar", "") or "")
    if isinstance(value, Mapping) and several and pairs:
        for name, each in value.items():
            yield f"{name}={_text(each)}"
    elif isinstance(value, list) and several:
        for each in value:
            yield _text(each)
    elif isinstance(value, Mapping | list):
        raise InputError(f"expected one value, got {value!r}")
    else:
        yield _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise InputError(f"expected a text or a number, got {value!r}")


def _words(parameter: Any, value: Any, texts: list[str]) -> Iterator[str]:
    """Yield the words of the command line for a parameter; none for a positional one."""
    if parameter.param_type_name == "argument":
        return
    option = _option(parameter)
    if value is True:
        yield option
    elif value is False and parameter.opts:
        yield from parameter.secondary_opts[:1]
    for text in texts:
        yield f"{option}={text}"  # one word, since a value with a dash would be read as an option


class Commands(Protocol):
    """The commands that steps run, as an interface."""

    def parameters(self, command: str) -> list[Any]:
        """Return the parameters of a command, as Typer knows them."""

    def check(self, command: str, words: list[str]) -> None:
        """Raise ``InputError`` if the command line is invalid."""

    def run(self, command: str, words: list[str]) -> int:
        """Run a command and return its exit code; the command prints its errors."""


@dataclass(frozen=True)
class Planned:
    """A step with its inputs, outputs and arguments.

    Attributes:
        step: as in the file.
        kind: how its command takes part.
        table: the table it reads; None if it starts from images.
        out: its output.
        arguments: its other arguments.
    """

    step: Step
    kind: Kind
    table: str | None
    out: str
    arguments: Arguments

    def words(self) -> list[str]:
        """Return the command line after the command's name."""
        return self._words(self.table, self.out, self.arguments.options)

    def trial(self, table: str | None, out: str) -> list[str]:
        """Return the command line for another table and output, without any other output."""
        options = [word for word in self.arguments.options if word.partition("=")[0] not in WRITES]
        return self._words(table, out, options)

    def writes(self) -> list[str]:
        """Return the files it writes in addition to its output; a step that read one would depend on itself."""
        return [value for _, value in self.written()]

    def written(self) -> list[tuple[str, str]]:
        """Return the options for these files, with their values."""
        pairs = (word.partition("=") for word in self.arguments.options)
        return [(option, value) for option, _, value in pairs if option in WRITES]

    def _words(self, table: str | None, out: str, words: Iterable[str]) -> list[str]:
        places = [*([table] if table is not None else []), *self.arguments.places]
        options = [*words, f"--{self.kind.out}={out}"]
        return [*options, "--", *places] if any(place.startswith("-") for place in places) else [*places, *options]

    def reads(self) -> Iterator[str]:
        """Yield every text that may be a path the step depends on."""
        yield from self.arguments.values
        if self.table is not None:
            yield self.table


def plan(pipeline: Pipeline, commands: Commands, *, allow_outside: bool = False) -> list[Planned]:
    """Return every step with its command line, checked as far as possible before the first step runs.

    Args:
        pipeline: from ``read_pipeline``.
        commands: to parse the command lines.
        allow_outside: let steps write outside of the folder of the pipeline's file.

    Raises:
        InputError: with the line, for an invalid option or value, a step without a table to read, two steps with the
            same output, or an output outside of the folder of the file.
    """
    if not allow_outside:
        _refuse_outside(pipeline, pipeline.folder, pipeline.place(None, FOLDER))
    made: dict[str, str] = {}
    written: dict[str, str] = {}
    last: str | None = None
    steps = []
    for step in pipeline.steps:
        kind = kind_of(step.command)
        if step.name == RESERVED:
            raise InputError(f"{pipeline.place(step.name)}: a step cannot be called {RESERVED!r}; choose another name")
        out = _out(pipeline, step, kind)
        if out in written:
            raise InputError(f"{pipeline.place(step.name)}: {step.name} would write {out}, as {written[out]} does")
        table = _table(pipeline, step, made, last) if kind.reads_table else None
        set_by_pipeline = {kind.out, TABLE} if kind.reads_table else {kind.out}
        parameters = commands.parameters(step.command)
        planned = Planned(step, kind, table, out, arguments_of(pipeline, step, parameters, set_by_pipeline))
        if not allow_outside:
            _refuse_outside(pipeline, out, pipeline.place(step.name, kind.out))
            for option, value in planned.written():
                _refuse_outside(pipeline, value, pipeline.place(step.name, option.lstrip("-")))
        try:
            commands.check(step.command, planned.words())
        except InputError as error:
            raise InputError(f"{pipeline.place(step.name)}: {error}") from None
        steps.append(planned)
        written[out] = step.name
        if kind.makes_table:
            made[step.name] = last = out
    return steps


def _refuse_outside(pipeline: Pipeline, path: str, place: str) -> None:
    """Raise InputError for an output outside of the folder of the pipeline's file; links are followed."""
    base = pipeline.path.parent.resolve()
    if scheme_of(path) is not None or not (base / path).resolve().is_relative_to(base):
        raise InputError(
            f"{place}: expected an output below {base}, the folder of the pipeline, got {path!r}; choose a path in "
            "it, or run with --allow-outside"
        )


def _out(pipeline: Pipeline, step: Step, kind: Kind) -> str:
    chosen = step.options.get(kind.out)
    if chosen is None:
        try:
            return str(PurePath(pipeline.folder) / kind.name_of(step.name, step.options))
        except InputError as error:
            raise InputError(f"{pipeline.place(step.name, FORMAT)}: {error}") from None
    if not isinstance(chosen, str) or not chosen:
        raise InputError(f"{pipeline.place(step.name, kind.out)}: {kind.out}: expected a path, got {chosen!r}")
    try:
        path_on_disk(chosen, "what a step writes")
    except InputError as error:
        raise InputError(f"{pipeline.place(step.name, kind.out)}: {kind.out}: {error}") from None
    return chosen


def _table(pipeline: Pipeline, step: Step, made: Mapping[str, str], last: str | None) -> str:
    """Return the table that a step reads: the output of a named step, a path, or the output of the previous step."""
    chosen = step.options.get(TABLE)
    if chosen is None:
        if last is None:
            raise InputError(
                f"{pipeline.place(step.name)}: {step.name} has no table to read; put a step score before it, or "
                'table = "scores.parquet" into it'
            )
        return last
    if not isinstance(chosen, str) or not chosen:
        raise InputError(f"{pipeline.place(step.name, TABLE)}: table: expected a step or a path, got {chosen!r}")
    if chosen in made:
        return made[chosen]
    if chosen not in made.values() and not (pipeline.path.parent / chosen).exists():
        raise InputError(
            f"{pipeline.place(step.name, TABLE)}: {chosen!r} is neither a table that an earlier step writes nor a "
            f"path{closest(chosen, made)}"
        )
    return chosen
