"""Where the searches of a command run that works on a table."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from curate.engines.contract import Cluster
from curate.engines.table import SEARCHES
from scoring.lookup import lookup


@contextmanager
def searching(
    engine: str, address: str | None, out: str | Path | None, announce: Callable[[str], None] = lambda text: None
) -> Iterator[None]:
    """Have the large searches inside run by an engine.

    Args:
        engine: a name in ``SEARCHES``.
        address: of its cluster; None for one that is started for this.
        out: what the command writes; None in a dry run.
        announce: told in words what is done.

    Raises:
        InputError: for an unknown engine, or one that cannot be had.
    """
    with lookup(SEARCHES, engine, kind="engine")(Cluster(address), None if out is None else Path(out), announce):
        yield
