"""The state of a run that was cut off: weights, momentum and step in one safetensors file."""

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from scoring.atomic import AtomicFile
from scoring.errors import InputError
from trainers.config import TrainConfig


def save_state(path: Path, config: TrainConfig, modules: nn.Module, optimizer: torch.optim.SGD, step: int) -> None:
    """Write everything that the next step needs; random numbers are functions of seed and step, and need no room."""
    tensors = {f"module.{name}": value.detach().cpu().contiguous() for name, value in modules.state_dict().items()}
    for at, parameter in enumerate(p for group in optimizer.param_groups for p in group["params"]):
        momentum = optimizer.state.get(parameter, {}).get("momentum_buffer")
        if momentum is not None:
            tensors[f"momentum.{at}"] = momentum.detach().cpu().contiguous()
    header = {"recipe": json.dumps(config.to_json(), sort_keys=True), "step": str(step)}
    with AtomicFile(path, overwrite=True) as file:
        file.write(save(tensors, header))


def load_state(path: Path, config: TrainConfig, modules: nn.Module, optimizer: torch.optim.SGD) -> int:
    """Restore a run, and return how many steps it had done; 0 where there is no state.

    Raises:
        InputError: if the state is of another recipe (the first difference is named), or damaged.
    """
    if not path.exists():
        return 0
    try:
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a mapping)
        recipe, step = json.loads(header["recipe"]), int(header["step"])
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise InputError(f"{path} is not the state of a training run ({error}); remove it to start anew") from None
    wanted = json.loads(json.dumps(config.to_json()))
    for name in wanted:
        if recipe.get(name) != wanted[name]:
            raise InputError(
                f"{path} holds an unfinished run with {name} = {recipe.get(name)!r}, this one has {wanted[name]!r}; "
                "repeat the earlier command to go on with it, or remove the file to start anew"
            )
    prefix = "module."
    modules.load_state_dict({k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)})
    for at, parameter in enumerate(p for group in optimizer.param_groups for p in group["params"]):
        if f"momentum.{at}" in tensors:
            buffer = tensors[f"momentum.{at}"].to(parameter.device)
            optimizer.state[parameter]["momentum_buffer"] = torch.empty_like(parameter).copy_(buffer)
    return step
