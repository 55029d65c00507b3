"""What other packages add by entry point: training methods (``curate.methods``), backbones (``curate.backbones``)."""

from typing import TYPE_CHECKING, Any

from scoring.errors import InputError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

METHODS, BACKBONES = "curate.methods", "curate.backbones"


def plugins(group: str) -> "dict[str, EntryPoint]":
    """Return the entry points of a group by name; nothing of theirs is imported."""
    from importlib.metadata import entry_points  # takes 15 ms, and most commands need none

    return {point.name: point for point in entry_points(group=group)}


def load_plugin(point: "EntryPoint") -> Any:
    """Return what an entry point names.

    Raises:
        InputError: if its package raises on import, or has no such attribute.
    """
    try:
        return point.load()
    except Exception as error:  # of any kind: the code is another package's
        package = point.dist.name if point.dist is not None else point.module
        text = str(error).splitlines()[0] if str(error) else "no message"
        raise InputError(
            f"{point.name!r} of the package {package} cannot be loaded ({type(error).__name__}: {text}); repair or "
            "remove that package"
        ) from None
