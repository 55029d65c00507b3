"""Ctrl-C and SIGTERM in a training run: the state is saved, and nothing is lost."""

import json
import signal

import pytest
import torch
from safetensors import safe_open
from small_training import CPU, recipe, weights

from trainers.loop import train
from trainers.methods.table import METHODS
from trainers.monitor import Monitor
from trainers.state import HeldSignals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_a_step_saves_the_state_after_it_and_loses_nothing(blobs, tmp_path, monkeypatch, number):
    class End(Exception):
        pass

    def end(*unused):
        raise End

    own = METHODS["visimsiam"].after_step

    def after(self, step):
        own(self, step)
        if step == 3:
            signal.raise_signal(number)

    whole, _ = train(recipe(), blobs, state=tmp_path / "whole", device=CPU)
    before = signal.signal(number, end)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(METHODS["visimsiam"], "after_step", after)
            with pytest.raises(End):
                train(recipe(), blobs, state=tmp_path / "cut", device=CPU, monitor=Monitor(save_every=1e9))
        assert signal.getsignal(number) is end
    finally:
        signal.signal(number, before)
    with safe_open(tmp_path / "cut", "pt") as file:
        assert json.loads(file.metadata()["done"])["step"] == 4
    resumed, _ = train(recipe(), blobs, state=tmp_path / "cut", device=CPU)
    assert torch.equal(weights(resumed), weights(whole))


@pytest.fixture
def interruptible():
    """Ctrl-C as in the foreground: a job in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_second_signal_is_not_held_back_and_an_ignored_one_stays_ignored():
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with HeldSignals() as held:
            signal.raise_signal(signal.SIGTERM)
            assert held.caught is None
            signal.raise_signal(signal.SIGINT)
            assert held.caught == signal.SIGINT
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            held.caught = None
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("interruptible")
def test_a_signal_after_the_last_state_is_delivered_at_the_end():
    held = HeldSignals().__enter__()
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        held.__exit__(None)
    assert held.caught is None
