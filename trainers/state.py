"""The saved state of a run: weights, optimiser state and step in one safetensors file."""

import json
import signal
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, Self

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from scoring.atomic import AtomicFile
from scoring.errors import InputError
from trainers import ranks

REMEMBERED = "optimizer."
EXTENDABLE = "epochs"
SCHEDULE = ("epochs", "lr")  # settings that a resumed run may change


@dataclass
class RunState:
    """The progress of a run.

    Attributes:
        step: number of steps done.
        sums: sum of each measure over the steps of the current epoch.
        n: number of these steps.
        failures: row number and status of each unusable image, if images are read in each epoch.
        diverged: the step at which the loss was not finite, if the run ended so; it can resume from here with a lower
            learning rate.
        scale: state of the float16 loss scaling; empty for other precisions.
        earlier: earlier values of ``epochs`` and ``lr`` of this run, each with the ``step`` up to which it applied, in
            order.
    """

    step: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    n: int = 0
    failures: list[tuple[int, str]] = field(default_factory=list)
    diverged: int | None = None
    scale: dict[str, Any] = field(default_factory=dict)
    earlier: list[dict[str, Any]] = field(default_factory=list)


def save_state(
    path: Path, identity: dict[str, Any], modules: nn.Module, optimizer: torch.optim.Optimizer, done: RunState
) -> None:
    """Save everything that the next step needs; random numbers are functions of seed and step."""
    tensors = {f"module.{name}": value.detach().cpu().contiguous() for name, value in modules.state_dict().items()}
    for index, parameter in enumerate(_parameters(optimizer)):
        for name, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                tensors[f"{REMEMBERED}{index}.{name}"] = value.detach().cpu().contiguous()
    _write(path, identity, done, tensors)


def load_state(path: Path, identity: dict[str, Any], modules: nn.Module, optimizer: torch.optim.Optimizer) -> RunState:
    """Restore modules and optimiser of a run and return its progress; step 0 if there is no state.

    ``identity`` (recipe, data and start) must equal the saved identity except for the number of epochs.

    Raises:
        InputError: if the state belongs to another run (the first difference is named), or is damaged.
    """
    if not path.exists():
        return RunState()
    before, done, tensors = _read(path)
    requested = json.loads(json.dumps(identity))
    schedule = {name: before.get(name) for name in SCHEDULE}
    if done.diverged is not None:
        _require_lower_rate(path, before, requested, done.diverged)
        before["lr"] = requested["lr"]
    for name in (name for name in {**requested, **before} if name != EXTENDABLE):
        if before.get(name) != requested.get(name):
            which, had, has = _difference(name, before.get(name), requested.get(name))
            raise InputError(
                f"{path} holds an unfinished run with {which} = {had!r}, this one has {has!r}; repeat the earlier "
                "command to resume it, or remove the file to start again"
            )
    prefix = "module."
    modules.load_state_dict({k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)})
    for index, parameter in enumerate(_parameters(optimizer)):
        start = f"{REMEMBERED}{index}."
        for name, value in ((k.removeprefix(start), v) for k, v in tensors.items() if k.startswith(start)):
            # state of a weight has its device and layout; a step count stays on the CPU
            is_count = name == "step"
            optimizer.state[parameter][name] = value if is_count else torch.empty_like(parameter).copy_(value)
    done.diverged = None
    if done.step and schedule != {name: requested.get(name) for name in SCHEDULE}:
        done.earlier.append({"step": done.step, **schedule})
    return done


def _difference(name: str, before: Any, requested: Any) -> tuple[str, Any, Any]:
    """Return the first differing name, such as ``settings.temperature``, and both values."""
    if isinstance(before, dict) and isinstance(requested, dict):
        for key in {**before, **requested}:
            if before.get(key) != requested.get(key):
                return _difference(f"{name}.{key}", before.get(key), requested.get(key))
    return name, before, requested


def kept_earlier(path: Path) -> list[dict[str, Any]]:
    """Return ``RunState.earlier`` of a saved state; empty if there is none."""
    if not path.exists():
        return []
    with safe_open(path, "pt") as file:
        return RunState(**json.loads(file.metadata()["done"])).earlier


def kept_identity(path: Path) -> dict[str, Any]:
    """Return the identity of a saved run; empty without a state, or if ``load_state`` would refuse it."""
    if not path.exists():
        return {}
    try:
        with safe_open(path, "pt") as file:
            return dict(json.loads((file.metadata() or {})["identity"]))
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError):
        return {}


def note_divergence(path: Path, step: int) -> int | None:
    """Record in the saved state that the run diverged at ``step``, and return its step; None without a state."""
    if not path.exists():
        return None
    identity, done, tensors = _read(path)
    done.diverged = step
    _write(path, identity, done, tensors)
    return done.step


class HeldSignals:
    """Delays the first Ctrl-C or SIGTERM until a step is complete; a second one ends the process at once.

    Signals that the process ignores stay ignored. Does nothing outside the main thread.
    """

    def __init__(self) -> None:
        self.caught: int | None = None
        self._has_waited = False
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) not in (signal.SIG_IGN, None):  # None: not set by Python
                    self._handlers[number] = signal.signal(number, self._catch)
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        self._restore()
        if kind is None:  # a signal after the last save
            self.deliver()

    def _restore(self) -> None:
        while self._handlers:
            signal.signal(*self._handlers.popitem())

    def _catch(self, number: int, frame: FrameType | None) -> None:
        self.caught = number
        self._restore()

    def deliver(self) -> None:
        """Send the process the delayed signal."""
        if self.caught is not None:
            number, self.caught = self.caught, None
            signal.raise_signal(number)

    def deliver_later(self) -> None:
        """Deliver after one more step: the first process needs the others until it has saved the state."""
        if self._has_waited:
            self.deliver()
        self._has_waited = self.caught is not None


class Keeper:
    """Saves the state of a run at intervals and on a signal, and reports how to resume when the run must stop.

    Args:
        path: of the state; an existing one is loaded.
        identity: recipe, data and start of the run.
        modules: everything with weights.
        optimizer: optimiser whose state is saved.
        every: seconds between two saves.
        cause: likely cause of a divergence and its remedy, if known; see ``small_map``.
    """

    def __init__(
        self,
        path: Path,
        identity: dict[str, Any],
        modules: nn.Module,
        optimizer: torch.optim.Optimizer,
        every: float,
        cause: str | None = None,
    ) -> None:
        self.path, self.identity, self.modules, self.optimizer, self.every = path, identity, modules, optimizer, every
        self.cause = cause
        self.parameters = [value for group in optimizer.param_groups for value in group["params"]]
        self.done = load_state(path, identity, modules, optimizer)
        self.signals = HeldSignals()
        self._saved = time.monotonic()

    def is_due(self, now: float) -> bool:
        """Return whether it is time to save, or a signal waits."""
        return now - self._saved > self.every or self.signals.caught is not None

    def keep(self, done: RunState, now: float, rate: float) -> None:
        """Save the state and deliver a delayed signal; weights that are not finite end the run as in ``stop``."""
        if not all(value.isfinite().all() for value in self.modules.parameters()):
            self.stop(done.step - 1, "the weights are no longer finite", rate)
        save_state(self.path, self.identity, self.modules, self.optimizer, done)
        self._saved = now
        self.signals.deliver()

    def stop(self, step: int, what: str, rate: float) -> NoReturn:
        """Raise the ``InputError`` of a diverged run; the last good state is kept, for a lower learning rate."""
        advice = ranks.first("diverged", lambda: self._diverged(step))
        raise InputError(f"{what} at step {step}, with lr {rate:g}; expected a number{advice}")

    def _diverged(self, step: int) -> str:
        """Record the divergence in the saved state; return the next step for the user."""
        kept = note_divergence(self.path, step)
        if self.cause is not None:
            return f": {self.cause}"
        if kept is None:
            return ". No state was saved yet: start again with a lower --lr"
        return (
            f". The last good state, of step {kept}, is saved in {self.path}: repeat the command with a "
            "lower --lr to resume from there"
        )


def _require_lower_rate(path: Path, before: dict[str, Any], requested: dict[str, Any], step: int) -> None:
    if not isinstance(before.get("lr"), int | float):
        raise InputError(f"{path} is not the state of a training run (no lr in it); remove it to start again")
    if not requested["lr"] < before["lr"]:
        raise InputError(
            f"{path} holds a run that diverged at step {step} with lr {before['lr']:g}; expected a lower --lr "
            f"to resume from its last good state, got {requested['lr']:g}; or remove the file to start again"
        )


def _read(path: Path) -> tuple[dict[str, Any], RunState, dict[str, Tensor]]:
    try:
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a mapping)
        return json.loads(header["identity"]), RunState(**json.loads(header["done"])), tensors
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is not the state of a training run ({error}); remove it to start again") from None


def _write(path: Path, identity: dict[str, Any], done: RunState, tensors: dict[str, Tensor]) -> None:
    header = {"identity": json.dumps(identity, sort_keys=True), "done": json.dumps(asdict(done))}
    with AtomicFile(path, overwrite=True) as file:
        file.write(save(tensors, header))


def _parameters(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
