"""Running batches through a model: device, precision, and smaller steps when memory runs out."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from scoring.backends import BACKENDS, TORCH
from scoring.errors import InputError
from scoring.folded import has_bfloat16
from scoring.lookup import lookup, require_known
from scoring.model import Outputs, ScoringModel, require_needs
from scoring.scorers import Scorer, columns_of

PRECISIONS = ("auto", "fp32", "bf16")
BATCH_SIZE = {"cpu": 64, "cuda": 256}


def select_device(name: str = "auto") -> torch.device:
    """Return the device to run on; ``auto`` prefers a GPU; InputError if the requested device is missing."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"expected a device such as auto, cpu, cuda or cuda:1, got {name!r}") from None
    if device.type == "cuda":
        count = torch.cuda.device_count()
        if (device.index or 0) >= count:
            raise InputError(
                f"there is no {name}: torch {torch.__version__} sees {count} GPUs; use --device cpu or auto"
            )
    elif device.type != "cpu":
        raise InputError(f"expected a device such as auto, cpu, cuda or cuda:1, got {name!r}")
    return device


def select_precision(name: str, device: torch.device, on_cpu: str = "fp32") -> str:
    """Return ``fp32`` or ``bf16``.

    Args:
        name: one of the two, or ``auto``: bf16 on a GPU; on a CPU ``on_cpu``, if the CPU supports it.
        device: from ``select_device``.
        on_cpu: the model's ``spec.cpu_precision``.
    """
    require_known(name, PRECISIONS, "unknown precision")
    if name != "auto":
        return name
    return "bf16" if device.type == "cuda" or (on_cpu == "bf16" and has_bfloat16()) else "fp32"


def model_columns(model: ScoringModel, scorers: Mapping[str, Scorer]) -> tuple[str, ...]:
    """Return the names of the columns of a ``Runner``, in order; InputError if the model lacks what a scorer needs."""
    require_needs(model, scorers)
    return tuple(columns_of({**model.spec.heads, **scorers}))


@dataclass(frozen=True)
class Scores:
    """The scores of N images, in host memory.

    Attributes:
        embedding: shape (N, D), float32, rows of unit length.
        columns: name of a column of the table -> shape (N,), float32.
    """

    embedding: np.ndarray
    columns: dict[str, np.ndarray]


class Pending:
    """A batch that the device may still be processing."""

    def __init__(self, parts: list[Outputs]) -> None:
        self._parts = parts

    def result(self) -> Scores:
        """Wait for the device and return the scores."""
        parts = self._parts
        return Scores(
            torch.cat([part.embedding for part in parts]).cpu().numpy(),
            {name: torch.cat([part.columns[name] for part in parts]).cpu().numpy() for name in parts[0].columns},
        )


class Runner:
    """Runs a model over batches of decoded images.

    Args:
        model: from ``load_model``.
        device: see ``select_device``.
        precision: ``fp32`` or ``bf16``; the heads run in float32 either way.
        scorers: scorers in addition to the model's heads, by name.
        backend: a key of ``BACKENDS``.

    Raises:
        InputError: if the backend does not support the model, device or precision.

    Attributes:
        columns: names of its columns, in order.
        step: maximal number of images at once; halved when memory runs out.
    """

    def __init__(
        self,
        model: ScoringModel,
        device: torch.device,
        precision: str = "fp32",
        *,
        scorers: Mapping[str, Scorer] | None = None,
        backend: str = TORCH,
    ) -> None:
        run_by = lookup(BACKENDS, backend, kind="backend")
        self.scorers = dict(scorers or {})
        self.columns = model_columns(model, self.scorers)
        if precision not in ("fp32", "bf16"):
            raise ValueError(f"precision is fp32 or bf16 here, got {precision!r}")
        if device.type == "cuda" and precision == "fp32":
            torch.backends.cudnn.allow_tf32 = False  # else convolutions would use TF32 (10 instead of 23 bits)
        drops = next((name for name, scorer in self.scorers.items() if scorer.passes), None)
        if drops and backend != TORCH:
            raise InputError(f"{drops} runs the network with dropout, which {backend} leaves out; leave out --backend")
        ready = model.to(device).to(memory_format=torch.channels_last).eval()
        self.model = run_by(ready, device, precision)
        self.group: int = getattr(self.model.quick, "padded", 1)  # fixed batch size, padded
        self.backend = backend
        self.device = device
        self.precision = precision
        self.step = 1 << 30

    def submit(self, pixels: np.ndarray) -> Pending:
        """Start a batch of RGB pixels (N >= 1, S, S, 3), uint8; on a GPU this returns before the work is done."""
        images = torch.from_numpy(pixels)
        while True:
            try:
                return self._run(images)
            except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                if min(self.step, len(images)) == 1:
                    raise InputError(
                        f"memory on {self.device} is not enough for a single image; free some, or use --device cpu"
                    ) from None
                if min(self.step, len(images)) <= self.group:
                    raise InputError(
                        f"memory on {self.device} is not enough for {self.group} images at once, as --backend "
                        f"{self.backend} takes them; free some, or leave out --backend"
                    ) from None
            # outside the except clause, where the error would keep the tensors of the failed attempt alive
            self.step = max(1, min(self.step, len(images)) // 2)
            if self.device.type == "cuda":
                torch.cuda.empty_cache()

    @torch.inference_mode()
    def _run(self, images: Tensor) -> Pending:
        parts = []
        for start in range(0, len(images), self.step):
            part = images[start : start + self.step]
            if self.device.type == "cuda":
                part = part.pin_memory()
            # NHWC bytes seen as NCHW are channels-last already
            part = part.to(self.device, non_blocking=True).permute(0, 3, 1, 2)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
                parts.append(self.model(part, self.scorers))
        return Pending(parts)


OUT_OF_MEMORY = (
    "out of memory",
    "not enough memory",
    "can't allocate memory",
    "cannot allocate memory",
    "alloc_failed",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means out of memory, in any of torch's and CUDA's wordings."""
    text = str(error).lower()
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(words in text for words in OUT_OF_MEMORY)
