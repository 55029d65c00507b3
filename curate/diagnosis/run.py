"""All checks, in display order."""

from collections.abc import Callable, Iterator
from pathlib import Path

from curate.diagnosis import machine, software, speed
from curate.diagnosis.contract import MachineFact
from curate.diagnosis.options import SECONDS, DoctorOptions
from curate.options.function import callable_of
from scoring.errors import InputError


def run_doctor(options: DoctorOptions) -> list[MachineFact]:
    """Return the abilities of this machine and installation, their speed, and what to change.

    A small file is written to the folder and removed.

    Raises:
        InputError: for an invalid folder.
    """
    require_target(Path(options.folder))
    return list(examine(Path(options.folder), seconds=options.seconds))


doctor = callable_of(DoctorOptions, run_doctor)


def require_target(folder: Path) -> None:
    """Raise ``InputError`` for an invalid folder."""
    if not folder.is_dir():
        raise InputError(f"expected a folder for output, got {folder}, which is not a folder; choose another")


def examine(folder: Path, *, seconds: float = SECONDS) -> Iterator[MachineFact]:
    """Yield the results of every check as they arrive; a small file is written to ``folder`` and removed.

    ``seconds`` is the duration of the speed test; 0 skips it.
    """
    checks: tuple[Callable[[], Iterator[MachineFact]], ...] = (
        software.packages,
        software.environment,
        machine.processors,
        machine.memory,
        machine.cards,
        lambda: machine.disks(folder),
        software.decoders,
        software.models,
        software.extras,
    )
    for check in checks:
        yield from check()
    if seconds > 0:
        yield from speed.speed(seconds)
