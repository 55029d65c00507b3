"""What runs a network fastest on one core, and what that does to its features: eager torch, curate, compilers, int8.

    python benchmarks/backends.py [--models world timm:resnet50 timm:vit_small_patch16_224] [--rounds 5]
    python benchmarks/backends.py --models world --images photos/ --fit-on others/   # and what becomes of the scores

Every way goes from bytes to pooled features, one after another in each round, so that a machine that others use is
slow for all of them; images/s are of processor time on one thread, and the last column is the median over rounds of a
way's rate over eager bfloat16's. Networks of timm's have random weights, which cost the same. A way whose package
is not installed is left out and named: openvino, nncf (int8 of openvino), onnxruntime and onnx. With --images (any
source of `curate score`) a model's scores by each way are compared with eager float32's; int8 is calibrated on
512 images of --fit-on, which should be others.
"""

import argparse
import copy
import logging
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from backends_scores import BATCH, Features, read, scores
from torch import Tensor, nn

from scoring.backbones import create_backbone, published_preprocessing
from scoring.checkpoint import load_model
from scoring.folded import STEP, QuickBackbones, for_inference, has_bfloat16, with_quick
from scoring.model import ModelSpec, ScoringModel
from scoring.openvino_backbone import import_openvino, with_openvino

CPU = torch.device("cpu")


class LackingError(Exception):
    """A way cannot be had here; the text says why."""


@dataclass(frozen=True)
class Subject:
    """A network to run, and images to choose the ranges of int8 by."""

    name: str
    model: ScoringModel
    calibration: Tensor

    @property
    def size(self) -> int:
        return self.model.spec.preprocessing.size


def subject(name: str, images: Tensor | None = None) -> Subject:
    """Return a shipped model, or one of timm's with random weights."""
    if name.startswith("timm:"):
        torch.manual_seed(0)
        backbone = create_backbone(name.removeprefix("timm:"))
        spec = ModelSpec(name, preprocessing=published_preprocessing(backbone))
        model = ScoringModel(spec, backbone=backbone).eval()
    else:
        model = load_model(name)[0]
    return Subject(name, model, noise(512, model) if images is None else images)


def noise(n: int, model: ScoringModel) -> Tensor:
    side = model.spec.preprocessing.size
    drawn = torch.randint(0, 256, (n, side, side, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return drawn.permute(0, 3, 1, 2)


def eager(subject: Subject, *, low: bool = False, channels_last: bool = True) -> Features:
    model = copy.deepcopy(subject.model)
    if channels_last:
        model.to(memory_format=torch.channels_last)

    def run(pixels: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            return model.features(pixels if channels_last else pixels.contiguous()).float()

    return run


def compiled(subject: Subject, precision: str) -> Features:
    model = copy.deepcopy(subject.model).to(memory_format=torch.channels_last)
    backbones = [torch.compile(part.backbone, dynamic=False) for part in model.backbone_parts()]
    quick = with_quick(model, QuickBackbones(model, backbones, step=BATCH, padded=BATCH))

    def run(pixels: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            return quick.features(pixels).float()

    return run


def curates(subject: Subject, precision: str) -> Features:
    if precision == "bf16" and not has_bfloat16():
        raise LackingError("this CPU does not multiply in bfloat16")
    model = for_inference(copy.deepcopy(subject.model).to(memory_format=torch.channels_last), CPU, precision)

    def run(pixels: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            return model.features(pixels)

    return run


def openvinos(subject: Subject, precision: str) -> Features:
    need("openvino")
    return with_openvino(subject.model, CPU, precision).features


class Exported(nn.Module):
    """A backbone run by a function of NumPy arrays of one size, (B, 3, S, S) -> (B, D)."""

    def __init__(self, function: Callable[[np.ndarray], np.ndarray], group: int) -> None:
        super().__init__()
        self.function, self.group = function, group

    def forward(self, pictures: Tensor) -> Tensor:
        features = []
        for some in pictures.contiguous().split(self.group):
            n = len(some)
            full = torch.cat([some, some.new_zeros(self.group - n, *some.shape[1:])]) if n < self.group else some
            features.append(torch.from_numpy(np.array(self.function(full.numpy())[:n])))
        return torch.cat(features)


def inputs_of(subject: Subject, at: int, group: int) -> list[np.ndarray]:
    """Return what a backbone reads of the images for calibration, in groups."""
    inputs = QuickBackbones(subject.model, [each.backbone for each in subject.model.backbone_parts()]).inputs
    return [inputs(part)[at].contiguous().numpy() for part in subject.calibration.split(group) if len(part) == group]


def openvino_int8(subject: Subject, group: int = 16) -> Features:
    need("openvino", "nncf")
    openvino = import_openvino()
    import nncf

    nncf.set_log_level(logging.ERROR)
    trunks = []
    for at, part in enumerate(subject.model.backbone_parts()):
        side = subject.size // part.pool
        graph = openvino.convert_model(part.backbone, example_input=torch.zeros(1, 3, side, side))
        graph.reshape({0: [group, 3, side, side]})
        seen = nncf.Dataset(inputs_of(subject, at, group))
        more = {"model_type": nncf.ModelType.TRANSFORMER} if "vit" in subject.name else {"fast_bias_correction": False}
        n = len(subject.calibration) // group
        graph = nncf.quantize(graph, seen, subset_size=n, preset=nncf.QuantizationPreset.MIXED, **more)
        settings = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}
        request = openvino.Core().compile_model(graph, "CPU", settings).create_infer_request()
        trunks.append(Exported(lambda x, request=request: request.infer({0: x}, share_inputs=True)[0], group))
    return with_quick(subject.model, QuickBackbones(subject.model, trunks)).features


def onnxruntimes(subject: Subject, *, low: bool, group: int = 16) -> Features:
    need("onnxruntime", "onnx")
    import onnxruntime
    from onnxruntime.quantization import CalibrationDataReader, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self, groups: list[np.ndarray]) -> None:
            self.groups = iter(groups)

        def get_next(self) -> dict[str, np.ndarray] | None:
            some = next(self.groups, None)
            return None if some is None else {"x": some}

    onnxruntime.set_default_logger_severity(3)
    logging.disable(logging.WARNING)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    trunks = []
    with tempfile.TemporaryDirectory() as folder:
        for at, part in enumerate(subject.model.backbone_parts()):
            side, path = subject.size // part.pool, Path(folder) / f"{at}.onnx"
            example = torch.zeros(group, 3, side, side)
            torch.onnx.export(part.backbone, (example,), path, input_names=["x"], output_names=["y"], dynamo=False)
            if low:
                path, plain = path.with_suffix(".int8.onnx"), path
                quantize_static(plain, path, Reader(inputs_of(subject, at, group)[:8]), per_channel=True)
            session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
            trunks.append(Exported(lambda x, session=session: session.run(["y"], {"x": x})[0], group))
    return with_quick(subject.model, QuickBackbones(subject.model, trunks)).features


def need(*packages: str) -> None:
    for name in packages:
        if find_spec(name) is None:
            raise LackingError(f"{name} is not installed")


WAYS: dict[str, Callable[[Subject], Features]] = {
    "eager fp32": lambda case: eager(case, channels_last=False),
    "eager fp32, channels last": eager,
    "eager bf16, channels last": lambda case: eager(case, low=True),
    "curate fp32": lambda case: curates(case, "fp32"),
    "curate bf16": lambda case: curates(case, "bf16"),
    "curate openvino fp32": lambda case: openvinos(case, "fp32"),
    "curate openvino bf16": lambda case: openvinos(case, "bf16"),
    "torch.compile fp32": lambda case: compiled(case, "fp32"),
    "torch.compile bf16": lambda case: compiled(case, "bf16"),
    "openvino int8": openvino_int8,
    "onnxruntime fp32": lambda case: onnxruntimes(case, low=False),
    "onnxruntime int8": lambda case: onnxruntimes(case, low=True),
}
BASE = "eager bf16, channels last"


def built(subject: Subject, names: list[str]) -> dict[str, Features]:
    """Return the ways that can be had, warm, with the seconds that each took to begin."""
    ways = {}
    pixels = noise(BATCH, subject.model)
    for name in names:
        started = time.process_time()
        try:
            with torch.inference_mode():
                way = WAYS[name](subject)
                way(pixels)
        except LackingError as reason:
            print(f"  {name:<28} left out: {reason}", flush=True)
            continue
        ways[name] = way
        print(f"  {name:<28} ready after {time.process_time() - started:.1f} s", file=sys.stderr, flush=True)
    return ways


def speeds(subject: Subject, ways: dict[str, Features], rounds: int) -> None:
    """Print images a second of processor time, and the ratio to eager bfloat16."""
    pixels = noise(BATCH, subject.model)
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            with torch.inference_mode():
                started = time.process_time()
                way(pixels)
                rates[name].append(BATCH / (time.process_time() - started))
    print(f"{subject.name}, {subject.size} pixels, one thread, batches of {BATCH} in steps of {STEP}, {rounds} rounds")
    for name, values in rates.items():
        against = statistics.median(v / b for v, b in zip(values, rates.get(BASE, values), strict=True))
        spread = f"({min(values):,.1f} to {max(values):,.1f})"
        print(f"  {name:<28} {statistics.median(values):8,.1f} images/s {spread:<22} {against:5.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["world", "timm:resnet50", "timm:vit_small_patch16_224"])
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS), metavar="WAY")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", help="a source of images to compare scores on")
    parser.add_argument("--fit-on", help="a source of other images, for the ranges of int8")
    parser.add_argument("--limit", type=int, default=1500)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name in arguments.models:
        case = subject(name)
        if arguments.images and arguments.fit_on:
            case = subject(name, read(arguments.fit_on, case.model, 512).pixels[:512])
        ways = built(case, arguments.ways)
        if arguments.rounds:
            speeds(case, ways, arguments.rounds)
        if arguments.images:
            scores(case.model, eager(case), ways, read(arguments.images, case.model, arguments.limit))


if __name__ == "__main__":
    main()
