"""The speed of `curate score` here: decoding alone, the model alone, and the bottleneck."""

import io
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import numpy as np
import torch
from PIL import Image

from curate.diagnosis.contract import NOTE, PROBLEM, MachineFact
from scoring.backends import BACKENDS, TORCH
from scoring.checkpoint import load_model
from scoring.errors import InputError
from scoring.images import Preprocessing
from scoring.images.decoders import closing_decoders, decoder_for
from scoring.model import ScoringModel
from scoring.model_names import DEFAULT
from scoring.runner import BATCH_SIZE, PRECISIONS, Runner, select_device, select_precision
from scoring.system import usable_cores

WIDTH, HEIGHT = 500, 375
N_PICTURES = 128
NOTABLE = 1.15  # times as fast
MILLION = 1_000_000
OF_A_CPU = "a GPU; pip install 'kappa-curate[openvino]' and --backend openvino; or --model trio, of small images alone"


def speed(seconds: float) -> Iterator[MachineFact]:
    """Yield images per second of decoding, of the default model in each precision, and of both together.

    ``seconds`` is the duration of the measurement, without loading the model.
    """
    try:
        model, _ = load_model(DEFAULT)
    except InputError as error:
        yield MachineFact("speed", f"model {DEFAULT}", f"not usable: {error}", PROBLEM)
        return
    jpegs = photographs(N_PICTURES)
    preprocessing = model.spec.preprocessing
    cores = usable_cores()
    decoding = decode_rate(jpegs, preprocessing, cores, seconds / 3)
    yield MachineFact("speed", "decoding", f"{decoding:,.0f} images/s on {cores} cores, JPEG of {WIDTH} x {HEIGHT}")

    device = select_device()
    usual = select_precision("auto", device, model.spec.cpu_precision)
    ways = _precision_options(usual, device)
    rates: dict[str, float] = {}
    for option, (precision, backend) in ways.items():
        rates[option] = model_rate(model, device, precision, backend, seconds * 2 / 3 / len(ways))
        by = "" if backend == TORCH else f" by {backend}"
        rate = f"{rates[option]:,.0f} images/s on {device} in {precision}{by}"
        is_usual = (precision, backend) == (usual, TORCH)
        yield MachineFact("speed", f"model {DEFAULT}", f"{rate}, as curate score takes it" if is_usual else rate)
    yield together(decoding, rates, f"--precision {usual}", on_gpu=device.type == "cuda")


def together(decoding: float, rates: dict[str, float], usual: str, *, on_gpu: bool) -> MachineFact:
    """Return the expected overall speed, its bottleneck, and what would be faster.

    Args:
        decoding: images per second of decoding alone, on all cores.
        rates: images per second of the model alone, by option.
        usual: the option that `curate score` uses by default.
        on_gpu: the model runs in parallel with decoding; else both share the cores, and their times add up.
    """
    model = rates[usual]
    rate = min(decoding, model) if on_gpu else 1 / (1 / decoding + 1 / model)
    limit = "decoding" if decoding < model else "the model"
    value = f"about {rate:,.0f} images/s, a million in {_duration(MILLION / rate)}; {limit} is the limit"
    best = max(rates, key=lambda name: rates[name])
    if rates[best] > NOTABLE * model:
        return MachineFact("speed", "curate score", value, NOTE, f"{best}: {rates[best] / model:.1f} x the model")
    if limit == "decoding":
        advice = "more cores: the model waits for images" if on_gpu else "more cores, or smaller images"
    else:
        advice = "a larger or second GPU" if on_gpu else OF_A_CPU
    return MachineFact("speed", "curate score", value, advice=f"to go faster: {advice}")


def photographs(n: int) -> list[bytes]:
    """Return n different JPEGs of 500 x 375 with the compression of photographs, the same at every call."""
    generator = np.random.default_rng(0)
    return [_photograph(generator) for _ in range(n)]


def decode_rate(jpegs: list[bytes], preprocessing: Preprocessing, threads: int, seconds: float) -> float:
    """Return the images per second that this many threads decode."""
    decode, threads = decoder_for(threads, MILLION)
    with closing_decoders(), ThreadPoolExecutor(threads) as pool:

        def once() -> int:
            images = list(pool.map(lambda data: decode(data, preprocessing, with_quality=True), jpegs))
            return sum(image.pixels is not None for image in images)

        return _rate(once, seconds)


def model_rate(model: ScoringModel, device: torch.device, precision: str, backend: str, seconds: float) -> float:
    """Return the images per second of the model alone."""
    runner = Runner(model, device, precision, backend=backend)
    side = model.spec.preprocessing.size
    pixels = np.random.default_rng(0).integers(0, 256, (BATCH_SIZE[device.type], side, side, 3), dtype=np.uint8)

    def once() -> int:
        runner.submit(pixels).result()
        return len(pixels)

    return _rate(once, seconds)


def _rate(once: Callable[[], int], seconds: float) -> float:
    """Return the items per second of ``once``, called until the time is over; the first call is a warm-up."""
    once()
    started = time.perf_counter()
    done = 0
    while (passed := time.perf_counter() - started) < seconds or not done:
        done += once()
    return done / passed


def _precision_options(usual: str, device: torch.device) -> dict[str, tuple[str, str]]:
    """Return precision and backend of the available options."""
    ways = {f"--precision {name}": (name, TORCH) for name in PRECISIONS if name in (usual, "fp32")}
    others = [name for name in BACKENDS if name != TORCH and find_spec(name) is not None]
    return ways | {f"--backend {name}": (usual, name) for name in others if device.type == "cpu"}


def _photograph(generator: np.random.Generator) -> bytes:
    coarse = generator.integers(0, 256, (12, 16, 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC), dtype=np.float32)
    grain = generator.normal(0, 9, (HEIGHT, WIDTH, 1)).astype(np.float32)
    stream = io.BytesIO()
    Image.fromarray(np.clip(smooth + grain, 0, 255).astype(np.uint8)).save(stream, format="jpeg", quality=90)
    return stream.getvalue()


def _duration(seconds: float) -> str:
    """Return a duration in a suitable unit.

    >>> _duration(90), _duration(5400), _duration(200000)
    ('1.5 min', '1.5 h', '2.3 days')
    """
    for limit, unit, name in ((3600, 60, "min"), (86400, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds / 86400:.1f} days"
