"""All checks, in the order in which they are shown."""

from collections.abc import Callable, Iterator
from pathlib import Path

from curate.doctor import decoders, machine, models, software, speed
from curate.doctor.contract import Finding

SECONDS = 10.0  # that the speed test takes


def examine(folder: Path, *, seconds: float = SECONDS) -> Iterator[Finding]:
    """Yield what every check finds, as it is found.

    Args:
        folder: where output would go; a small file is written to it and removed.
        seconds: of the speed test; 0 leaves it out.
    """
    checks: tuple[Callable[[], Iterator[Finding]], ...] = (
        software.packages,
        software.environment,
        machine.processors,
        machine.memory,
        machine.cards,
        lambda: machine.disks(folder),
        decoders.decoders,
        models.models,
        software.extras,
    )
    for check in checks:
        yield from check()
    if seconds > 0:
        yield from speed.speed(seconds)
