"""The installation: Python, packages, environment variables, decoders of image formats, and shipped models."""

import importlib.metadata
import io
import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec

import numpy as np
from PIL import Image, features

from curate.diagnosis.contract import NOTE, PROBLEM, MachineFact
from curate.version import __version__
from scoring.cards import parts_of, read_header, shipped_models
from scoring.errors import InputError
from scoring.images import Preprocessing, decode
from scoring.images.sniff import DECODED
from scoring.model_names import DEFAULT

SIDE = 64
_OF_PILLOW = {"pnm": "ppm"}  # formats with another name in Pillow
GREY = 8  # maximum mean difference of a decoded image from the original, of 255
DISTRIBUTION = "kappa-curate"
EXTRA = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")
NAME = re.compile(r"[\w.-]+")
FOR_DEVELOPERS = "dev"
# Settings that change speed or results; their values are numbers and switches, never secrets.
SHOWN = (
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "GOMP_SPINCOUNT", "POLARS_MAX_THREADS"),
    *("CUDA_VISIBLE_DEVICES", "PYTORCH_ALLOC_CONF", "HF_HUB_OFFLINE"),
)
PLAIN = re.compile(r"[\w.,:+-]{1,80}")


def decoders() -> Iterator[MachineFact]:
    """Yield the decoder of every format; a wrong or missing result is a problem."""
    pillow = f"Pillow {Image.__version__}"
    jpeg = f"libjpeg-turbo through simplejpeg; the rest by {pillow}"
    by = {"jpeg": jpeg, "avif": f"{pillow}, libavif {features.version('avif') or 'unknown'}", "heif": "pillow-heif"}
    for name in DECODED:
        if name == "heif" and find_spec("pillow_heif") is None:
            yield MachineFact("decoders", name, "not installed", advice="pip install 'kappa-curate[heif]'")
            continue
        fault = fault_of(name)
        advice = "pip install --force-reinstall pillow simplejpeg" if fault else ""
        yield MachineFact("decoders", name, fault or by.get(name, pillow), PROBLEM if fault else "ok", advice)


def fault_of(name: str) -> str:
    """Return the fault of the decoder of a format; empty if none."""
    original = ramp()
    try:
        data = encoded(original, name)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        return f"this Pillow has no support for it ({type(error).__name__})"
    image = decode(data, Preprocessing(SIDE, resize=SIDE))
    if image.pixels is None:
        return f"{image.status}: {image.error}"
    difference = np.abs(image.pixels.astype(float) - original.astype(float)).mean()
    return "" if difference <= GREY else f"decodes to another image (by {difference:.0f} of 255 on average)"


def ramp() -> np.ndarray:
    """Return an image with a smooth gradient, uint8, shape (64, 64, 3)."""
    y, x = np.mgrid[0:SIDE, 0:SIDE]
    return np.stack([x * 4, y * 4, (x + y) * 2], axis=2).astype(np.uint8)


def encoded(original: np.ndarray, name: str) -> bytes:
    """Return an image encoded in a format."""
    stream = io.BytesIO()
    image = Image.fromarray(original)
    if name == "heif":
        from pillow_heif import from_pillow

        from_pillow(image).save(stream, quality=90)
    else:
        image.save(
            stream, format=_OF_PILLOW.get(name, name), **({"quality": 90} if name in ("jpeg", "webp", "avif") else {})
        )
    return stream.getvalue()


def models() -> Iterator[MachineFact]:
    """Yield every shipped model; one with changed weights is a problem."""
    for name, path in shipped_models().items():
        try:
            packages = [part.packaged for part in parts_of(read_header(path)) if part.packaged is not None]
            for packaged in packages:
                packaged.read()
        except InputError as error:
            yield MachineFact("models", name, f"not usable: {error}", PROBLEM)
            continue
        where = f"its backbone in the package {packages[0].package}" if packages else "whole in this package"
        yield MachineFact("models", name, f"{where}{', the default' * (name == DEFAULT)}")


def packages() -> Iterator[MachineFact]:
    """Yield the versions of Python and required packages; a missing or old package is a problem."""
    yield MachineFact("software", "curate", __version__)
    yield MachineFact("software", "python", f"{platform.python_version()} ({platform.system()} {platform.machine()})")
    for requirement in _requirements().get("", []):
        name, state, value = _installed(requirement)
        advice = f"pip install '{requirement}'" if state == PROBLEM else ""
        yield MachineFact("software", name, value, state, advice)


def extras() -> Iterator[MachineFact]:
    """Yield, for every extra, whether its packages are installed; a missing one is not a problem."""
    for extra, requirements in sorted(_requirements().items()):
        if not extra or extra == FOR_DEVELOPERS:
            continue
        looked = [_installed(requirement) for requirement in requirements]
        value = ", ".join(f"{name} {version}" for name, _, version in looked)
        lacks = any(state == PROBLEM for _, state, _ in looked)
        yield MachineFact("extras", extra, value, advice=f"pip install '{DISTRIBUTION}[{extra}]'" if lacks else "")


def environment(variables: Mapping[str, str] = os.environ) -> Iterator[MachineFact]:
    """Yield the relevant environment variables of a fixed list; others are never shown."""
    for name in SHOWN:
        if name in variables:
            value = variables[name]
            yield MachineFact("environment", name, value if PLAIN.fullmatch(value) else "set, to no plain value")
    proxies = sorted(name.upper() for name in variables if name.lower() in ("http_proxy", "https_proxy", "no_proxy"))
    if proxies:
        yield MachineFact("environment", "proxy", f"{', '.join(dict.fromkeys(proxies))} set")
    encoding = (sys.stdout.encoding or "").lower()
    if encoding.replace("-", "") != "utf8":
        advice = "set PYTHONUTF8=1, or characters outside of it are shown as ?"
        yield MachineFact("environment", "terminal", f"writes {encoding or 'no known encoding'}", NOTE, advice)


def _requirements() -> dict[str, list[str]]:
    """Return the requirements of curate by extra; the key is empty for required ones."""
    grouped: dict[str, list[str]] = {"": []}
    for line in importlib.metadata.requires(DISTRIBUTION) or []:
        requirement, _, marker = line.partition(";")
        extra = EXTRA.search(marker)
        grouped.setdefault(extra[1] if extra else "", []).append(requirement.strip().replace(" ", ""))
    return grouped


def _installed(requirement: str) -> tuple[str, str, str]:
    """Return the name of a requirement, its state, and its version or what is missing."""
    match = NAME.match(requirement)
    name = match[0] if match else requirement
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return name, PROBLEM, "not installed"
    floor = re.search(r">=([\d.]+)", requirement)
    if floor and _numbers(version) < _numbers(floor[1]):
        return name, PROBLEM, f"{version}, older than {floor[1]}"
    return name, "ok", version


def _numbers(version: str) -> list[int]:
    """Return the leading numbers of a version, to compare it with a minimum."""
    return [int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3]]
