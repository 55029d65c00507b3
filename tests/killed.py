"""Kills a training run in the middle, for tests that it goes on as if it had not been."""

import pytest

from trainers import loop
from trainers.monitor import Monitor


def kill_at(step, run, monkeypatch):
    """Let ``run(monitor=...)`` go until it reports a step, and kill it there, its state saved."""

    def kill(progress):
        if progress.step >= step:
            raise KeyboardInterrupt

    clock = iter(range(0, 100_000, 10))  # every step is long enough to report and to save
    with monkeypatch.context() as patch:
        patch.setattr(loop.time, "monotonic", lambda: next(clock))
        with pytest.raises(KeyboardInterrupt):
            run(monitor=Monitor(save_every=1, report=kill))
