"""The state of a run that was cut off: weights, momentum and step in one safetensors file."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from scoring.atomic import AtomicFile
from scoring.errors import InputError


@dataclass
class Done:
    """How far a run has come.

    Attributes:
        step: steps done.
        sums: name -> sum of a measure over the steps of the current epoch.
        n: steps that the sums are over.
    """

    step: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    n: int = 0


def save_state(
    path: Path, identity: dict[str, Any], modules: nn.Module, optimizer: torch.optim.SGD, done: Done
) -> None:
    """Write everything that the next step needs; random numbers are functions of seed and step, and need no room."""
    tensors = {f"module.{name}": value.detach().cpu().contiguous() for name, value in modules.state_dict().items()}
    for at, parameter in enumerate(p for group in optimizer.param_groups for p in group["params"]):
        momentum = optimizer.state.get(parameter, {}).get("momentum_buffer")
        if momentum is not None:
            tensors[f"momentum.{at}"] = momentum.detach().cpu().contiguous()
    header = {"identity": json.dumps(identity, sort_keys=True), "done": json.dumps(asdict(done))}
    with AtomicFile(path, overwrite=True) as file:
        file.write(save(tensors, header))


def load_state(path: Path, identity: dict[str, Any], modules: nn.Module, optimizer: torch.optim.SGD) -> Done:
    """Restore a run, and return how far it had come; nowhere, where there is no state.

    Args:
        path: of the state.
        identity: what the run is made of: recipe, data, start; it must be what the state was saved with.
        modules: whose weights to restore.
        optimizer: whose momentum to restore.

    Raises:
        InputError: if the state is of another run (the first difference is named), or damaged.
    """
    if not path.exists():
        return Done()
    try:
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a mapping)
        before, done = json.loads(header["identity"]), Done(**json.loads(header["done"]))
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is not the state of a training run ({error}); remove it to start anew") from None
    wanted = json.loads(json.dumps(identity))
    for name in {**wanted, **before}:
        if before.get(name) != wanted.get(name):
            raise InputError(
                f"{path} holds an unfinished run with {name} = {before.get(name)!r}, "
                f"this one has {wanted.get(name)!r}; repeat the earlier command to go on with it, "
                "or remove the file to start anew"
            )
    prefix = "module."
    modules.load_state_dict({k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)})
    for at, parameter in enumerate(p for group in optimizer.param_groups for p in group["params"]):
        if f"momentum.{at}" in tensors:
            buffer = tensors[f"momentum.{at}"].to(parameter.device)
            optimizer.state[parameter]["momentum_buffer"] = torch.empty_like(parameter).copy_(buffer)
    return done
