"""A command built from a request, whose fields are its options."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar, get_args, get_origin

import typer

from curate.commands import options
from curate.commands.printing import NextCommand, Output
from curate.options.option import Field, Option, declared, field_of, is_required
from curate.options.texts import ALSO
from scoring.errors import InputError

R = TypeVar("R")
Extras = ParamSpec("Extras")
CODE = re.compile(r"\n\n(?=        \S)")  # before an indented paragraph of a docstring
UNWRAPPED = "\n\n    \b\n"  # how Typer keeps its lines in help
LAST = ("dry_run", "overwrite", "json_", "quiet")  # of every command
PRINTED = {"json_": options.Json, "quiet": options.Quiet}  # of a command with a parameter ``output``
PATHS = {"table": options.table_argument, "output": options.output_argument, "local": options.path_argument}


def command_of(
    request: Callable[..., R], **after: str
) -> Callable[[Callable[Concatenate[R, Extras], NextCommand]], Callable[..., None]]:
    """Return a decorator with which Typer sees the options of a request, and the command receives the request.

    Other options are parameters with an ``Option``. A parameter ``output`` is an ``Output``, from the options --json
    and --quiet. The command returns its ``NextCommand``, which is shown last, unless --json or --quiet is given.

    Args:
        request: a frozen dataclass whose fields each have an ``Option`` or a ``Note``.
        **after: option -> the option that it follows in help; by default, options of the command alone are last.

    Raises:
        TypeError: by the decorator, for a name that is an option of both.
    """
    known = [field for field in declared(request) if isinstance(field.about, Option)]

    def decorate(run: Callable[Concatenate[R, Extras], NextCommand]) -> Callable[..., None]:
        alone = list(inspect.signature(run).parameters.values())[1:]
        extras = {each.name: _extra(each.name, each.annotation, each.default) for each in alone}
        prints = extras.pop("output", None) is not None
        extras |= {name: _extra(name, kind, False) for name, kind in PRINTED.items()} if prints else {}
        fields = {field.name: parameter(field) for field in known}
        if both := sorted({*extras} & {*fields}):
            raise TypeError(f"{both[0]} is an option of {getattr(request, '__name__', '')} already; rename one")
        parameters = _in_order(fields, extras, after)

        def command(**values: Any) -> None:
            of_command = {name: values.pop(name) for name in extras}
            silent = any(of_command.get(name) for name in PRINTED)
            for field in known:
                if field.kind == Mapping[str, object] | None and values[field.name] is not None:
                    values[field.name] = _settings(field, values[field.name])
            if prints:
                of_command["output"] = Output(of_command.pop("json_"), of_command.pop("quiet"))
            following = run(request(**values), **of_command)  # type: ignore[call-arg]
            if not isinstance(following, NextCommand):  # of another package
                return
            if not silent:
                following.show()
            if following.code:
                raise typer.Exit(following.code)

        command.__name__, command.__module__ = run.__name__, run.__module__
        command.__doc__ = CODE.sub(UNWRAPPED, run.__doc__ or "")
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        command.__dict__["__signature__"] = inspect.Signature(parameters)
        return command

    return decorate


def _in_order(
    parameters: dict[str, inspect.Parameter], extras: Mapping[str, inspect.Parameter], after: Mapping[str, str]
) -> list[inspect.Parameter]:
    """Return all parameters in help order."""
    names = [name for name in (*parameters, *extras) if name not in LAST and name not in after]
    for name, place in reversed([*after.items()]):
        names.insert(names.index(place) + 1, name)
    every = {**parameters, **extras}
    return [every[name] for name in (*names, *(name for name in LAST if name in every))]


def _extra(name: str, kind: Any, default: Any) -> inspect.Parameter:
    """Return an option of the command alone as a Typer parameter."""
    field = field_of(name, kind, default)
    if field is not None:
        return parameter(field)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def parameter(field: Field) -> inspect.Parameter:
    """Return a field as a Typer parameter."""
    about = field.about
    if not isinstance(about, Option):
        raise TypeError(f"{field.name} is no option")
    kind = (str | None) if about.commas else typed_as(field.kind, by_name=about.path == "name")
    kind = (list[str] | None) if about.repeats else kind
    named: dict[str, Any] = {"help": about.text, "metavar": about.metavar, "show_default": about.default}
    if about.path in PATHS:
        named["parser"] = PATHS[about.path]
        named["metavar"] = about.metavar or (None if about.argument else "FILE")
    if about.parse is not None:
        named["parser"] = partial(_parsed, about.parse)
    named |= {"min": about.least, "max": about.most}
    if about.argument:
        known = typer.Argument(autocompletion=options.OFFERED.get(field.name.upper()), **named)
    else:
        names = (field.option, ALSO[field.option]) if field.option in ALSO and not about.alone else (field.option,)
        offered = options.OFFERED.get(field.option) if about.offers else None
        known = typer.Option(*names, autocompletion=offered, **named)
    default = inspect.Parameter.empty if about.required or is_required(field) else field.default
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, known]
    )


def typed_as(kind: Any, *, by_name: bool = False) -> Any:
    """Return the command line type for a keyword's type; with ``by_name``, a path is a text.

    >>> typed_as(str | Path | None), typed_as(str | Sequence[str] | None)
    (pathlib.Path | None, list[str] | None)
    """
    kinds = [each for each in (get_args(kind) or (kind,)) if each is not NoneType] if _is_union(kind) else [kind]
    none = _is_union(kind) and NoneType in get_args(kind)
    several = [each for each in kinds if get_origin(each) in (Sequence, Iterable, tuple, list)]
    typed: Any = kinds[0] if len(kinds) == 1 else str
    if several:
        typed = list[typed_as(get_args(several[0])[0], by_name=by_name)]  # type: ignore[misc]
    elif any(get_origin(each) is Mapping for each in kinds):
        typed = list[str]
    elif Path in kinds and not by_name:
        typed = Path
    return typed | None if none else typed


def _is_union(kind: Any) -> bool:
    return isinstance(kind, type(int | str))


def _settings(field: Field, texts: Iterable[str]) -> dict[str, str]:
    from scoring.settings import parse_settings

    example = field.about.example if isinstance(field.about, Option) else ""
    return parse_settings(texts, flag=field.option, **({"example": example} if example else {}))


def _parsed(parse: Callable[[str], Any], text: str) -> Any:
    try:
        return parse(text)
    except (InputError, ValueError) as error:
        raise typer.BadParameter(str(error)) from None
