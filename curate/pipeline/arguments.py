"""The options of a step as command-line arguments, checked against the command before anything runs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from curate.pipeline.file import Pipeline, Step
from scoring.errors import InputError
from scoring.lookup import closest

# What the pipeline itself gives every command.
SET_FOR_ALL = frozenset({"help", "dry-run", "json", "overwrite", "quiet"})
TABLE = "table"


@dataclass(frozen=True)
class Arguments:
    """The arguments of a step's command.

    Attributes:
        options: the words of the command line, in the order of the file.
        places: what stands instead of an argument without a name, such as the sources of ``score``.
        values: every value alone, as text: where it is a file, the step depends on it.
    """

    options: tuple[str, ...]
    places: tuple[str, ...]
    values: tuple[str, ...]


def arguments_of(
    pipeline: Pipeline,
    step: Step,
    parameters: list[Any],
    set_by_pipeline: set[str],
) -> Arguments:
    """Return the arguments of a step's command, as text.

    Args:
        pipeline: whose step it is.
        step: with keys that name options, with - or _.
        parameters: of the command, as Typer knows them.
        set_by_pipeline: names that the pipeline gives itself: the table that is read, or what is written.

    Raises:
        InputError: for a key that is no option, or a value that it cannot have; says the line and the nearest word.
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
    """The name of a parameter as typed, without dashes."""
    return _option(parameter).lstrip("-").replace("_", "-")


def _option(parameter: Any) -> str:
    """A parameter's longest name, as typed; of a flag with only a negative form (``--no-quality``), that one."""
    return str(max(parameter.opts or parameter.secondary_opts, key=len))


def _texts(parameter: Any, value: Any) -> Iterator[str]:
    """A TOML value as texts of the command line; none for a flag."""
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
    """The words of the command line for a parameter; none for a positional one."""
    if parameter.param_type_name == "argument":
        return
    option = _option(parameter)
    if value is True:
        yield option
    elif value is False and parameter.opts:
        yield from parameter.secondary_opts[:1]
    for text in texts:
        yield f"{option}={text}"  # one word, or a value with a dash before it would be an option
