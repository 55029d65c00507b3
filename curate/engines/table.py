"""Registry of engines by name; an engine is imported when it is used."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from scoring.lookup import Lazy

if TYPE_CHECKING:
    from curate.engines.contract import Cluster, Engine
    from curate.engines.settings import ScoreSettings

# To add an engine, add a line: a context manager that checks its options before anything is opened, and ends
# everything it started when the run ends.
WHERE: dict[str, str] = {
    "local": "curate.engines.local:on_this_machine",
    "ray": "curate.engines.on_ray:on_ray",
}
ENGINES: "Mapping[str, Callable[[Cluster, ScoreSettings], AbstractContextManager[Engine]]]" = Lazy(WHERE)


# The same engines for searches on tables: context managers inside which searches use the engine.
SEARCHING: dict[str, str] = {
    "local": "curate.engines.local:searching_locally",
    "ray": "curate.engines.ray_tasks:searching_on_ray",
}
SEARCHES: "Mapping[str, Callable[[Cluster, Path | None, Callable[[str], None]], AbstractContextManager[None]]]" = Lazy(
    SEARCHING
)


def engine_of(typed: str) -> tuple[str, str | None]:
    """Return the name of an engine and the address of its cluster, from ``NAME`` or ``NAME:ADDRESS``."""
    name, colon, address = typed.partition(":")
    return name, address if colon else None
