"""Weights inside another installed package, read without running its code.

The package's file is hashed at every load. Its tensors are converted once to safetensors in a cache folder; if the
cached file does not have the digest in the model's card, it is converted again.
"""

import hashlib
import io
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from scoring.atomic import AtomicFile
from scoring.cards import PackagedWeights, Stored, add_tensors
from scoring.errors import InputError

CACHE_FOLDER = "CURATE_CACHE"  # the environment's name for another cache folder
COUNTER = "num_batches_tracked"  # a counter of batch normalisation, which some files lack
HEADER_ROOM = 1 << 20  # bytes that the names and shapes in a converted file may take


def packaged_weights(packaged: PackagedWeights, expected: Mapping[str, torch.Size]) -> dict[str, Tensor]:
    """Return a backbone's weights by timm's names, float32.

    Args:
        packaged: the package with the weights.
        expected: timm's names and shapes, in the order of its state dict, with the classifier's at the end.

    Raises:
        InputError: if the package is not installed, its file differs, or the weights do not fit.
    """
    data = packaged.read()
    place = cached_path(packaged)
    weights = None if place is None else _read_cached(place, packaged.tensors, expected)
    if weights is not None:
        return weights
    weights = convert_weights(data, expected, name=packaged.file)
    if tensors_digest(weights) != packaged.tensors:
        raise InputError(f"the weights in {packaged.file} of {packaged.package} differ from the model's card")
    if place is not None:
        _write_cached(place, weights)
    return weights


def convert_weights(data: bytes, expected: Mapping[str, torch.Size], *, name: str) -> dict[str, Tensor]:
    """Return a PyTorch file's tensors by timm's names, matched in order without batch counters.

    Args:
        data: a mapping of tensors from ``torch.save``, read with torch's restricted unpickler.
        expected: timm's names and shapes in the order of its state dict.
        name: of the file, for errors.

    Raises:
        InputError: if it has other content, or its tensors do not fit.
    """
    try:
        state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        values = [value for key, value in state.items() if not str(key).endswith(COUNTER)]
    except Exception as error:  # untrusted bytes can raise any exception
        text = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise InputError(f"{name} cannot be read safely ({text}); expected tensors by name") from None
    ours = {key: shape for key, shape in expected.items() if not key.endswith(COUNTER)}
    if not all(isinstance(value, Tensor) and value.layout == torch.strided for value in values):
        raise InputError(f"{name} holds other things than plain tensors; expected weights alone")
    shapes = [value.shape for value in values]
    if shapes != list(ours.values()):
        pairs = list(zip(ours.items(), shapes, strict=False))
        wrong = next(
            (f"{key} is {tuple(got)}, expected {tuple(want)}" for (key, want), got in pairs if got != want), ""
        )
        raise InputError(f"the weights in {name} do not fit: {wrong or f'{len(shapes)} tensors, expected {len(ours)}'}")
    return {key: value.float().contiguous().clone() for key, value in zip(ours, values, strict=True)}


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of tensors by name."""
    total = hashlib.sha256()
    add_tensors(total, stored(tensors))
    return total.hexdigest()


def stored(tensors: Mapping[str, Tensor]) -> Iterator[Stored]:
    """Yield the name, dtype, shape and bytes of tensors, sorted by name."""
    for name in sorted(tensors):
        value = tensors[name].detach().cpu().contiguous()
        dtype = str(value.dtype).removeprefix("torch.")
        yield name, dtype, tuple(value.shape), value.view(-1).view(torch.uint8).numpy().data


def cache_folder() -> Path | None:
    """Return the folder of converted weights: ``CURATE_CACHE``, else the user's cache folder; None without a home."""
    folder = os.environ.get(CACHE_FOLDER)
    if folder:
        return Path(folder)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "curate"
    except RuntimeError:
        return None


def cached_path(packaged: PackagedWeights) -> Path | None:
    """Return the path of the converted file of these weights, whether or not it exists."""
    folder = cache_folder()
    name = hashlib.sha256(f"{packaged.sha256} {packaged.tensors}".encode()).hexdigest()[:32]
    return None if folder is None else folder / "weights" / f"{name}.safetensors"


def _read_cached(path: Path, digest: str, expected: Mapping[str, torch.Size]) -> dict[str, Tensor] | None:
    """Return cached converted weights; None if the file is missing or differs."""
    most = HEADER_ROOM + sum(4 * shape.numel() for shape in expected.values())
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
        tensors = load(data) if len(data) <= most else {}
    except (OSError, SafetensorError, ValueError, KeyError):
        return None
    return tensors if tensors and tensors_digest(tensors) == digest else None


def _write_cached(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Store converted weights for the next load, atomically; errors are ignored, since they only cost time."""
    with suppress(OSError, InputError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with AtomicFile(path, overwrite=True) as file:
            file.write(save(dict(weights)))
