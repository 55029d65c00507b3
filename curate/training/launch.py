"""``--devices``: the command in several local processes, connected as by torchrun."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import NoReturn

from scoring.errors import InputError

GRACE = 5.0  # seconds for a process to clean up
LAST_STEP = 60.0  # seconds for the first process to finish a step and save the state
MOST = 1024


def is_silent() -> bool:
    """Return whether this is one of several processes but not the first, which prints for all."""
    return _n_started() > 1 and os.environ["RANK"] != "0"


def _n_started() -> int:
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1


def is_launcher(devices: int) -> bool:
    """Return whether this process starts others and was not started by one.

    Raises InputError for an invalid number of devices, or one that differs from ``torchrun``'s.
    """
    started = _n_started()
    if not 1 <= devices <= MOST:
        raise InputError(f"--devices is a number of processes from 1 to {MOST:,}, got {devices}")
    if started > 1 and devices not in (1, started):
        raise InputError(f"torchrun started {started} processes, got --devices {devices}; leave --devices out")
    return devices > started


def launch(devices: int) -> None:
    """Run this command in several processes and wait for them; if one ends early, stop the others.

    Raises:
        InputError: if a process ended without a message.
        SystemExit: with the status of a process that reported its error.
    """
    import torch.distributed as dist

    from trainers.ranks import claims, run_store

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    environment = {
        "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // devices)),
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        **os.environ,
        **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(devices)),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the store is here, and outlives each of them
    }
    workers: list[subprocess.Popen[bytes]] = []
    patience = LAST_STEP
    try:
        for rank in map(str, range(devices)):
            command = [sys.executable, "-m", "curate", *sys.argv[1:]]
            place = {"RANK": rank, "LOCAL_RANK": rank}
            # a separate group: Ctrl-C reaches the processes once, through this one
            workers.append(
                subprocess.Popen(command, env=environment | place, stdin=subprocess.DEVNULL, process_group=0)  # noqa: S603 - our own command
            )
        while any(worker.poll() is None for worker in workers) and not any(worker.returncode for worker in workers):
            time.sleep(0.05)
        ended = next((worker for worker in workers if worker.returncode), None)
        if ended is not None:
            patience = GRACE
            _raise(ended.returncode, f"process {workers.index(ended)} of {devices}", claims(run_store(store)))
    except BaseException:
        claims(run_store(store))  # the other processes end without a message
        raise
    finally:
        _stop(workers, patience)


def _raise(status: int, who: str, is_first: bool) -> NoReturn:
    if status > 0 or not is_first:
        raise SystemExit(abs(status))
    raise InputError(
        f"{who} was ended by {signal.Signals(-status).name}, perhaps for lack of memory; repeat the command "
        "to resume from the last saved state"
    )


def _stop(workers: list[subprocess.Popen[bytes]], patience: float) -> None:
    """Stop the processes: the first after ``patience`` seconds, the others ``GRACE`` later, or on a second Ctrl-C."""
    alive = [worker for worker in workers if worker.poll() is None]
    for worker in alive:
        worker.terminate()
    until = time.monotonic() + patience
    try:
        for worker in alive:
            with suppress(subprocess.TimeoutExpired):
                worker.wait(max(0.0, until - time.monotonic()))
            until = min(until, time.monotonic() + GRACE)
    finally:
        for worker in alive:
            worker.kill()
            worker.wait()
