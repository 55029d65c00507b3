"""Registry of engines by name, for scoring and for searches on tables; an engine is imported when it is used."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from scoring.errors import InputError
from scoring.lookup import Lazy, lookup

if TYPE_CHECKING:
    from curate.engines.contract import Cluster, Engine
    from curate.engines.settings import ScoreSettings
    from curate.manifest.store_path import AnyPath

# To add an engine, add a line: a context manager that checks its options before anything is opened, and ends
# everything it started when the run ends.
WHERE: dict[str, str] = {"local": "curate.engines.local:on_this_machine", "ray": "curate.engines.on_ray:on_ray"}
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


@contextmanager
def searching(
    engine: str, out: "str | AnyPath | None", announce: Callable[[str], None] = lambda text: None
) -> Iterator[None]:
    """Run the large searches inside by an engine.

    Args:
        engine: a name in ``SEARCHES``, or NAME:ADDRESS of its cluster; by default a new one is started.
        out: output path of the command; None in a dry run.
        announce: called with a line on the cluster.

    Raises:
        InputError: for an unknown or unavailable engine; for a cluster with an ``out`` in a store.
    """
    from curate.engines.contract import Cluster
    from curate.manifest.store_path import StorePath, path_or_store

    name, address = engine_of(engine)
    run_by = lookup(SEARCHES, name, kind="engine")
    place = None if out is None else path_or_store(out)
    if isinstance(place, StorePath) and name != "local":
        raise InputError(
            f"--engine {engine} keeps arrays next to the output, on a disk that all nodes share, and {place} "
            "is in a store; write to a shared disk and copy it"
        )
    with run_by(Cluster(address), place if isinstance(place, Path) else None, announce):
        yield
