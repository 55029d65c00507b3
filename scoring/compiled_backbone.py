"""A backbone compiled by torch for the device where it runs: on a CPU by its C++ compiler, on a GPU by Triton.

Images are run in groups of one size, the last filled up with zeros, so that an image's features are the same
whatever else is in its batch, and nothing is compiled a second time. Kernels are not chosen by how long each took
(``max-autotune``): a run that goes on after a kill would choose others, with other last digits. CUDA graphs are not
used: they save the start of some hundred kernels, which is little next to a group of 256 images.
"""

import logging
import shlex
import subprocess
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from scoring.errors import InputError
from scoring.folded import folded_alike, has_bfloat16
from scoring.groups import in_groups, noise, require_alike
from scoring.model import ScoringModel
from scoring.quick import STEP, QuickBackbones, with_quick

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUPS = {"cpu": 16, "cuda": 256}  # images run at once, by the type of the device
MOST_COMPILED = 256  # in a process; torch counts all backbones as one function, and stops at 8 of them on its own


def with_compiled(model: ScoringModel, device: torch.device, precision: str) -> ScoringModel:
    """Return a model with the same heads whose backbones torch has compiled.

    Args:
        model: in evaluation mode, channels last, on the device, in float32.
        device: where it runs.
        precision: ``fp32`` or ``bf16``.

    Raises:
        InputError: if a CPU does not multiply in the precision, or a backbone cannot be compiled here (there may be no
            C++ compiler), or gives other features when it is.
    """
    if device.type == "cpu" and precision == "bf16" and not has_bfloat16():
        raise InputError("--backend compile --precision bf16 needs a CPU that multiplies in it; use --precision fp32")
    if device.type == "cpu":  # torch warns of missing CUDA tools where there is no GPU, which are not needed here
        logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
    size, group = model.spec.preprocessing.size, GROUPS[device.type]
    backbones = [
        CompiledBackbone(part.backbone, size // part.pool, precision, group) for part in model.backbone_parts()
    ]
    return with_quick(model, QuickBackbones(model, backbones, step=max(STEP, group), padded=group))


@cache
def cpp_compiler() -> str:
    """Return the C++ compiler that torch takes, and its version: on a CPU it decides the last digits of scores."""
    from torch._inductor.cpp_builder import get_cpp_compiler

    line = [*shlex.split(get_cpp_compiler()), "--version"]
    shown = subprocess.run(line, capture_output=True, text=True, check=True).stdout  # noqa: S603 - it compiled, too
    return shown.splitlines()[0]


class CompiledBackbone(nn.Module):
    """A backbone as torch compiled it: images (N, 3, S, S), float32 -> pooled features (N, D), float32.

    Args:
        backbone: in evaluation mode, channels last, on its device; it is held, not copied.
        side: S.
        precision: ``fp32`` or ``bf16``.
        group: images run at once.

    Raises:
        InputError: if it cannot be compiled here, or gives other features when it is.
    """

    def __init__(self, backbone: nn.Module, side: int, precision: str, group: int) -> None:
        super().__init__()
        self.group, self.low = group, precision == "bf16"
        try:
            # torch would fold normalisation into weights that are rounded to bfloat16 already
            with torch.inference_mode(False), torch.no_grad():
                folded = folded_alike(backbone, noise(backbone, side)) or backbone
            self.compiled: Any = torch.compile(OnlyCompiled(folded), fullgraph=True, dynamic=False)
            require_alike("torch.compile", backbone, self, side, precision)
        except InputError:
            raise
        except Exception as error:  # of any kind: what a compiler meets in an untrusted network
            raise InputError(
                f"torch.compile cannot run {type(backbone).__name__} ({_reason(error)}); leave out --backend"
            ) from None

    def forward(self, images: Tensor) -> Tensor:
        """Return pooled features."""
        features = []
        with compiling(images.device, low=self.low):
            for full, n in in_groups(images, self.group):
                # a copy that is no inference tensor and always laid out alike: else it would compile once more
                features.append(self.compiled(full.clone(memory_format=torch.channels_last))[:n])
            return torch.cat(features)


class OnlyCompiled(nn.Module):
    """A backbone that refuses to run but in compiled code, so that nothing slower runs unnoticed."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, images: Tensor) -> Tensor:
        """Return pooled features, float32."""
        if not torch.compiler.is_compiling():
            raise RuntimeError("it is switched off: is TORCH_COMPILE_DISABLE set?")
        return self.backbone(images).float()


@contextmanager
def compiling(device: torch.device, *, low: bool) -> "Iterator[None]":
    """Set what decides the code that a backbone becomes: constant weights, and bfloat16 for what gains by it."""
    import torch._dynamo.config as dynamo
    import torch._inductor.config as inductor

    with ExitStack() as settings:
        settings.enter_context(inductor.patch(freezing=True))  # weights laid out for the device
        settings.enter_context(dynamo.patch(recompile_limit=MOST_COMPILED))
        settings.enter_context(torch.inference_mode(False))  # weights are not made constants in it
        settings.enter_context(torch.no_grad())
        settings.enter_context(torch.autocast(device.type, torch.bfloat16, enabled=low))
        yield


def _reason(error: Exception) -> str:
    """Return the line of an error that says most: a compiler's own, else the first."""
    lines = [" ".join(line.split()) for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return next((line for line in lines if "error: " in line), lines[0])[:200]
