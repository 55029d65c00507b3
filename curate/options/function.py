"""A Python function built from a request, whose fields are its keywords."""

import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from numbers import Integral, Real
from pathlib import Path
from reprlib import repr as short
from types import NoneType, UnionType
from typing import Any, ParamSpec, TypeVar, get_args, get_origin

from curate.options.option import Option, declared
from scoring.lookup import closest

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
_TAKEN: dict[Any, tuple[Any, str]] = {  # type -> what is accepted for it, and in words
    bool: (bool, "True or False"),
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    str: (str, "a text"),
    Path: ((str, os.PathLike), "a path"),
    Sequence: (Iterable, "a list"),
    Iterable: (Iterable, "a list"),
    Set: (Set, "a set"),
    Mapping: (Mapping, "a mapping"),
    Callable: (Callable, "a function"),
}


def callable_of(request: Callable[P, R], run: Callable[[R], T]) -> Callable[P, T]:
    """Return a function that takes the fields of a request as keywords, and calls ``run`` with the request.

    Args:
        request: a frozen dataclass whose fields each have an ``Option`` or a ``Note``; a field ``explicit`` gets the
            names of the given keywords.
        run: a function ``run_NAME``; the result is called NAME, with its docstring and one argument per field.

    Raises:
        TypeError: from the function, for an unknown keyword; the text suggests the nearest one.
    """
    name = run.__name__.removeprefix("run_")
    kinds = {field.name: field.kind for field in declared(request)}
    signature = inspect.signature(request)
    signature = signature.replace(
        parameters=[each.replace(annotation=kinds[each.name]) for each in signature.parameters.values()],
        return_annotation=inspect.signature(run).return_annotation,
    )

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        for unknown in (each for each in kwargs if each not in kinds):
            taken_names = {*[*signature.parameters][: len(args)], *kwargs}
            near = closest(unknown, [each for each in kinds if each not in taken_names])
            near = near or f"; help(curate.{name}) lists them"
            raise TypeError(f"{name}() got an unexpected keyword argument {unknown!r}{near}")
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}() {error}") from None
        for each, value in bound.arguments.items():
            bound.arguments[each] = checked(kinds[each], value, f"{name}()", repr(each))
        made = request(*bound.args, **bound.kwargs)
        if "explicit" in kinds and "explicit" not in bound.arguments:
            made = replace(made, explicit=frozenset(bound.arguments))  # type: ignore[type-var]
        return run(made)

    call.__name__ = call.__qualname__ = name
    call.__module__ = run.__module__
    call.__doc__ = _with_arguments(inspect.cleandoc(run.__doc__ or ""), request)
    call.__dict__["__signature__"] = signature
    return call


def checked(kind: Any, value: Any, name: str, of: str) -> Any:
    """Return the value of a keyword as plain Python types, so that NumPy values and generators can be recorded.

    A bool is not accepted as a number, nor a text or mapping as a list. Raises TypeError, with the names of function
    and keyword, for a value of another type.

    >>> checked(Sequence[int] | None, range(2), "bake()", "'trays'")
    [0, 1]
    """
    try:
        value = _plain(value)
    except OverflowError:
        raise TypeError(f"{name} expected a number of at most 1.8e308 for {of}, got {short(value)}") from None
    parts = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    kinds = [get_origin(part) or part for part in parts]
    refused: list[Any] = [Integral, Real] if isinstance(value, bool) else []
    refused += [Iterable] if isinstance(value, str | bytes | Mapping) else []
    accepted = [(part, *_accepted_types(each)) for part, each in zip(parts, kinds, strict=True)]
    fits = [part for part, taken, _ in accepted if taken not in refused and isinstance(value, taken)]
    if not fits:
        words = [
            words for part, _, words in accepted if part is not NoneType and (part is not str or Path not in kinds)
        ]
        raise TypeError(f"{name} expected {' or '.join(words)} for {of}, got {' '.join(short(value).split())}")
    inner, origin = get_args(fits[0]), get_origin(fits[0])
    if origin is Mapping:
        return {
            checked(inner[0], key, name, f"a key of {of}"): checked(inner[1], each, name, f"{key!r} of {of}")
            for key, each in value.items()
        }
    if origin in (Sequence, Iterable):
        each_of = f"each of {of}"
        items = sorted(value, key=str) if isinstance(value, Set) else value
        return [checked(inner[0], each, name, each_of) for each in items]
    return value


def _plain(value: Any) -> Any:
    """Return a NumPy number, text or path as a plain Python value; other values unchanged."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):  # of numpy or torch
        return value.item()
    if isinstance(value, bool | Path):
        return value
    if isinstance(value, Integral | Real):
        return int(value) if isinstance(value, Integral) else float(value)
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    return str.__str__(value) if isinstance(value, str) else value


def _accepted_types(kind: Any) -> tuple[Any, str]:
    """Return the accepted types of an annotation, and their names; all types for a protocol."""
    if kind in _TAKEN:
        return _TAKEN[kind]
    comparable = isinstance(kind, type) and kind is not Any and not getattr(kind, "_is_protocol", False)
    return (kind, f"a {kind.__name__}") if comparable else (object, "")


def _with_arguments(text: str, request: Any) -> str:
    """Return a docstring with an "Args" section of the fields, before "Returns" and "Raises"."""
    lines = ["Args:"]
    for field in declared(request):
        about = field.about
        in_python = isinstance(about, Option) and about.python
        lines.append(f"    {field.name}: {in_python or _python_text(about.text)}")
    place = next((text.index(f"\n\n{each}:") for each in ("Returns", "Raises") if f"\n\n{each}:" in text), len(text))
    return text[:place] + "\n\n" + "\n".join(lines) + text[place:]


def _python_text(text: str) -> str:
    """Return the help text of an option, for a Python keyword.

    >>> _python_text("Drop this kind (repeatable); see --drop-group.")
    'Drop this kind; one or several; see ``drop_group``.'
    """
    text = text.replace(" (repeatable)", "; one or several")
    return re.sub(r"--([a-z][a-z-]*)", lambda match: f"``{match[1].replace('-', '_')}``", text)
