"""From a pipeline's file to command lines: the inputs, outputs and arguments of each step."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Protocol

from curate.manifest.schemes import scheme_of
from curate.manifest.store_path import path_on_disk
from curate.pipeline.arguments import TABLE, Arguments, arguments_of
from curate.pipeline.file import FOLDER, Pipeline, Step
from curate.pipeline.steps import FORMAT, Kind, kind_of
from scoring.errors import InputError
from scoring.lookup import closest

# Options whose file a command makes.
WRITES = frozenset({"--out", "--apply", "--findings", "--log", "--plot", "--sheet"})
RESERVED = "pipeline"  # begins the names of the files of the pipeline itself; no step may have it


class Commands(Protocol):
    """The commands behind steps, for every caller."""

    def parameters(self, command: str) -> list[Any]:
        """Return the parameters of a command, as Typer knows them."""

    def check(self, command: str, words: list[str]) -> None:
        """Raise ``InputError`` where a command cannot read a line."""

    def run(self, command: str, words: list[str]) -> int:
        """Run a command and return its exit code; the command prints its errors."""


@dataclass(frozen=True)
class Planned:
    """A step, ready to run.

    Attributes:
        step: as in the file.
        kind: how its command takes part.
        table: what it reads of an earlier step, or a path; None where it starts from images.
        out: what it writes.
        arguments: what else it says to its command.
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
        """Return the command line for another table and output, which writes nothing else."""
        options = [word for word in self.arguments.options if word.partition("=")[0] not in WRITES]
        return self._words(table, out, options)

    def writes(self) -> list[str]:
        """Return the files it writes in addition to its output; a step reading one would depend on itself."""
        return [value for _, value in self.written()]

    def written(self) -> list[tuple[str, str]]:
        """Return the options for such files, with their values."""
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
    """Return every step with its command line, checked as far as can be before the first one runs.

    Args:
        pipeline: from ``read_pipeline``.
        commands: what reads a command's line.
        allow_outside: let steps write outside of the folder that holds the pipeline's file.

    Raises:
        InputError: for an invalid option, a value that an option cannot have, a step without a table to read,
            two that write the same, or an output outside of the folder of the file; says the line.
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
    """Refuse an output outside of the folder that holds the pipeline's file; links are followed."""
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
    """The table that a step reads: the output of a named step, a path, or the output of the step before it."""
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
    if not (pipeline.path.parent / chosen).exists():
        raise InputError(
            f"{pipeline.place(step.name, TABLE)}: {chosen!r} is neither a table that an earlier step writes nor a "
            f"path{closest(chosen, made)}"
        )
    return chosen
