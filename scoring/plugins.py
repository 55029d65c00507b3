"""Plug-ins of other packages by entry point: training methods, backbones, filter rules and commands."""

import sys
from functools import cache
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

from scoring.errors import InputError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

METHODS, BACKBONES, RULES, COMMANDS = "curate.methods", "curate.backbones", "curate.rules", "curate.commands"


def plugins(group: str) -> "dict[str, EntryPoint]":
    """Return the entry points of a group by name, without importing them; InputError if two packages share a name."""
    points: dict[str, EntryPoint] = {}
    for point in _entry_points(group, tuple(sys.path)):
        if (other := points.setdefault(point.name, point)) != point:
            raise InputError(
                f"{package_of(other)} and {package_of(point)} both add {point.name!r} to {group}; remove one of them"
            )
    return points


@cache
def _entry_points(group: str, paths: tuple[str, ...]) -> "EntryPoints":
    """Return the entry points of a group from the packages on ``sys.path``; takes 15 ms."""
    from importlib.metadata import entry_points  # imported on use: most commands need no plug-ins

    return entry_points(group=group)


def package_of(point: "EntryPoint") -> str:
    """Return the package of an entry point, for messages."""
    return f"the package {point.dist.name if point.dist is not None else point.module}"


def load_plugin(point: "EntryPoint") -> Any:
    """Return the object of an entry point; InputError if its package raises on import, or lacks the attribute."""
    try:
        return point.load()
    except (Exception, SystemExit) as error:  # code of another package can raise any exception
        text = str(error).splitlines()[0] if str(error) else "no message"
        raise InputError(
            f"{point.name!r} of {package_of(point)} cannot be loaded ({type(error).__name__}: {text}); repair or "
            "remove that package"
        ) from None


def package_in(error: BaseException) -> str:
    """Return the entry point, and its package, whose code raised or passed an exception; empty if none.

    For inherited code, or other functions of the package, only the package is known.
    """
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    places = {(str(frame.f_globals.get("__name__")), frame.f_code.co_qualname.partition(".")[0]) for frame in frames}
    modules = {module.partition(".")[0] for module, _ in places} - {"curate", "scoring", "trainers"}
    paths = tuple(sys.path)
    points = [point for group in (METHODS, BACKBONES, RULES, COMMANDS) for point in _entry_points(group, paths)]
    of_package = [point for point in points if point.module.partition(".")[0] in modules]
    exact = [point for point in of_package if (point.module, point.attr) in places]
    if exact:
        return f"{exact[-1].name!r} of {package_of(exact[-1])}"
    return package_of(of_package[0]) if of_package else ""
