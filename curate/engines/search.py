"""Where the searches of a command on a table run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from curate.engines.contract import Cluster
from curate.engines.table import SEARCHES, engine_of
from curate.manifest.store_path import AnyPath, StorePath, path_or_store
from scoring.errors import InputError
from scoring.lookup import lookup

LOCAL = "local"


@contextmanager
def searching(
    engine: str, out: str | AnyPath | None, announce: Callable[[str], None] = lambda text: None
) -> Iterator[None]:
    """Run the large searches inside by an engine.

    Args:
        engine: a name in ``SEARCHES``, or NAME:ADDRESS of its cluster; by default a new one is started.
        out: output path of the command; None in a dry run.
        announce: called with a line on the cluster.

    Raises:
        InputError: for an unknown or unavailable engine; for a cluster with an ``out`` in a store.
    """
    name, address = engine_of(engine)
    run_by = lookup(SEARCHES, name, kind="engine")
    place = None if out is None else path_or_store(out)
    if isinstance(place, StorePath) and name != LOCAL:
        raise InputError(
            f"--engine {engine} keeps arrays next to the output, on a disk that all nodes share, and {place} "
            "is in a store; write to a shared disk and copy it"
        )
    with run_by(Cluster(address), place if isinstance(place, Path) else None, announce):
        yield
