"""A backbone run by OpenVINO on a CPU: any traceable network, in float32 or bfloat16.

Images are run in groups of one size, the last padded with zeros, so that an image's features do not depend on its
batch. OpenVINO is imported when a backbone is created.
"""

import sys
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from scoring.errors import InputError, MissingExtraError
from scoring.folded import ALIKE, NEAR, QuickBackbones, has_bfloat16, relative_error, with_quick
from scoring.model import ScoringModel

GROUP = 16  # images; 8 is as fast for small backbones, 32 slower
HINTS = {"fp32": "f32", "bf16": "bf16"}


def import_openvino() -> Any:
    """Import OpenVINO with its telemetry disabled; no effect if the process has already imported it."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # fails to import: OpenVINO has a stub
    import openvino

    return openvino


def with_openvino(model: ScoringModel, device: torch.device, precision: str) -> ScoringModel:
    """Return a model with the same heads whose backbones OpenVINO runs.

    Args:
        model: in evaluation mode, on the CPU, in float32.
        device: must be the CPU.
        precision: ``fp32`` or ``bf16``.

    Raises:
        InputError: if OpenVINO is not installed, does not support the device, precision or a backbone, gives other
            features, or if the model uses dropout.
    """
    if find_spec("openvino") is None:
        raise MissingExtraError("--backend openvino", "openvino")
    if device.type != "cpu":
        raise InputError(f"--backend openvino runs on the CPU, got the device {device}; add --device cpu")
    if precision == "bf16" and not has_bfloat16():
        raise InputError("--backend openvino --precision bf16 needs a CPU that multiplies in it; use --precision fp32")
    size = model.spec.preprocessing.size
    backbones = [OpenvinoBackbone(part.backbone, size // part.pool, precision) for part in model.backbone_parts()]
    return with_quick(model, QuickBackbones(model, backbones, padded=GROUP))


class OpenvinoBackbone(nn.Module):
    """A backbone compiled by OpenVINO: images (N, 3, S, S), float32 -> pooled features (N, D), float32.

    Args:
        backbone: the torch module, in evaluation mode.
        side: S.
        precision: ``fp32`` or ``bf16``.

    Raises:
        InputError: if OpenVINO cannot run it, or gives other features.
    """

    def __init__(self, backbone: nn.Module, side: int, precision: str) -> None:
        super().__init__()
        openvino = import_openvino()
        shape = [GROUP, side, side, 3]
        settings = {
            "INFERENCE_PRECISION_HINT": HINTS[precision],
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
            "NUM_STREAMS": 1,
            "ENABLE_CPU_PINNING": False,  # decoding threads use the same cores
        }
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # tracing is what OpenVINO's converter does, deprecated or not
                example = torch.zeros(1, *shape[1:])
                traced = torch.jit.trace(
                    ChannelsLast(backbone), example, check_trace=False
                )  # the features are compared below
                graph = openvino.convert_model(traced, example_input=example)
            graph.reshape({0: shape})
            self.request: Any = openvino.Core().compile_model(graph, "CPU", settings).create_infer_request()
        except Exception as error:  # tracing untrusted networks can raise any exception
            text = " ".join(str(error).split())[:200]
            raise InputError(f"openvino cannot run {type(backbone).__name__} ({text}); leave out --backend") from None
        require_alike(backbone, self, side, precision)

    def forward(self, images: Tensor) -> Tensor:
        """Return pooled features, shape (N, D), float32."""
        features = []
        for full, n in in_groups(images.permute(0, 2, 3, 1).contiguous(), GROUP):
            self.request.infer({0: full.numpy()}, share_inputs=True)
            features.append(torch.from_numpy(self.request.get_output_tensor(0).data[:n].copy()))
        return torch.cat(features)


class ChannelsLast(nn.Module):
    """A wrapper that lets a backbone read (N, S, S, 3), the memory order of images."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, images: Tensor) -> Tensor:
        """Return pooled features, shape (N, D), float32."""
        return self.backbone(images.permute(0, 3, 1, 2)).float()


def in_groups(images: Tensor, size: int) -> Iterator[tuple[Tensor, int]]:
    """Yield groups of ``size`` images of (N, ...), the last padded with zeros, each with its number of images.

    A fixed size makes an image's features independent of its batch.
    """
    for some in images.split(size):
        n = len(some)
        yield some if n == size else torch.cat([some, some.new_zeros(size - n, *some.shape[1:])]), n


def require_alike(backbone: nn.Module, run: nn.Module, side: int, precision: str) -> None:
    """Raise ``InputError`` unless OpenVINO reproduces a backbone's features on a noise image.

    Args:
        backbone: the torch module, in evaluation mode, on the CPU.
        run: images (N, 3, S, S), float32 -> pooled features (N, D), float32.
        side: S.
        precision: ``fp32``, for a relative error of .001 at most, or ``bf16``, for .1.
    """
    image = torch.randn(1, 3, side, side, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        error = relative_error(run(image), backbone(image))
    if not error <= (NEAR if precision == "bf16" else ALIKE):
        raise InputError(
            f"openvino gives other features of {type(backbone).__name__} (by {error:.2g}); leave out --backend"
        )
