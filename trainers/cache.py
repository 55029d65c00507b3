"""The feature cache: one Parquet file per epoch, all with the same rows in the same order, and a JSON record.

An epoch's file has the columns ``key``, ``label`` (if there are labels), ``loss`` (if the user computed losses) and
``features``, the pooled output of the backbone, not normalised. Epoch 0 has features of the images as scored; every
other epoch features of one random view of each image.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from scoring.errors import InputError
from scoring.system import free_memory
from trainers.data import is_missing, loss_tensor, number_labels
from trainers.methods.settings import Augmentation

NONE = bytes(32)  # digest of a missing label
FORMAT = 1
ABOUT = "cache.json"
METADATA_KEY = b"curate"
PLAIN = 0  # the epoch without augmentation
DTYPES = {"float16": torch.float16, "float32": torch.float32}
MOST_EPOCHS = 100_000
ABOUT_BYTES = 64 << 20
STORED = {"PLAIN", "RLE", "RLE_DICTIONARY", "PLAIN_DICTIONARY", "BIT_PACKED"}  # encodings that `curate cache` writes
HELD_SHARE = 0.5  # share of free memory for epochs


class TargetsDigest:
    """An incremental digest of labels and losses by row, independent of the block size.

    Text and integer labels differ, and so do losses of 0 and -0. Null, NaN and empty text are equal as labels; null and
    NaN are equal as losses.
    """

    def __init__(self) -> None:
        self._labels, self._losses = hashlib.sha256(), hashlib.sha256()

    def update(self, labels: pa.Array | None, losses: pa.Array | None) -> None:
        """Add rows: labels as text or integers, dictionary-encoded or not, shape (B,); losses as float64, shape (B,).

        None means that the column is absent.
        """
        if labels is not None and len(labels):
            self._labels.update(_label_digests(labels))
        if losses is not None and len(losses):
            values = np.array(losses.to_numpy(zero_copy_only=False), np.float64)
            values[np.isnan(values)] = np.nan  # one bit pattern for all NaN
            self._losses.update(values.astype("<f8").tobytes())

    def hexdigest(self) -> str:
        """Return the digest of all rows added so far."""
        return hashlib.sha256(self._labels.digest() + self._losses.digest()).hexdigest()


def _label_digests(labels: pa.Array) -> bytes:
    """Return 32 bytes per row; each distinct label is hashed once."""
    coded = labels if pa.types.is_dictionary(labels.type) else labels.dictionary_encode()
    kind = "text" if pa.types.is_string(coded.type.value_type) else "number"
    of_value = [
        NONE if is_missing(value) else hashlib.sha256(f"{kind}:{value}".encode("utf-8", "surrogateescape")).digest()
        for value in coded.dictionary.to_pylist()
    ]
    table = np.frombuffer(b"".join([*of_value, NONE]), np.uint8).reshape(-1, 32)  # the last row is for null
    return table[coded.indices.fill_null(len(of_value)).to_numpy()].tobytes()


@dataclass(frozen=True)
class CachedFeatures:
    """An open, complete cache.

    Attributes:
        folder: path of the cache.
        about: its record: model, preprocessing, recipe, data.
        n: number of images, equal in every epoch.
        width: D, the feature width.
        labels: int64, shape (N,), or None.
        classes: the class names that labels index.
        losses: float64, shape (N,), computed by the user, or None.
        augmented: epochs with random views; [0] if there is no other epoch.
        augmentation: how those views were drawn.
        digest: of the record, the keys, the labels and the losses.
    """

    folder: Path
    about: dict[str, Any]
    n: int
    width: int
    labels: Tensor | None
    classes: list[str]
    losses: Tensor | None
    augmented: list[int]
    augmentation: Augmentation
    digest: str
    failures: dict[str, int] = field(default_factory=dict)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the stored features."""
        return DTYPES[self.about["recipe"]["dtype"]]

    @property
    def epoch_bytes(self) -> int:
        """Size of one epoch's features in memory, in bytes."""
        return self.n * self.width * self.dtype.itemsize

    def has_room(self, device: torch.device) -> bool:
        """Return whether another epoch fits in half of the device's free memory."""
        free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else free_memory()
        return free is None or self.epoch_bytes < HELD_SHARE * free

    def epoch(self, number: int) -> Tensor:
        """Read the features of one epoch, shape (N, D), in the stored dtype.

        Raises:
            InputError: if they do not fit in memory, or the file is damaged (page checksums are verified).
        """
        free = free_memory()
        if free is not None and self.epoch_bytes > 0.9 * free:
            raise InputError(
                f"an epoch of {self.folder} needs {self.epoch_bytes / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are "
                "free; build a cache of fewer images (--limit)"
            )
        path = self.folder / epoch_name(number)
        held = torch.empty(self.n, self.width, dtype=self.dtype)
        target = held.numpy()
        with _named_errors(path), _open(path) as file:
            start = 0
            for batch in file.iter_batches(batch_size=65536, columns=["features"], use_threads=False):
                if batch.column(0).null_count:
                    raise damaged(path, "rows without features")
                values = batch.column(0).flatten().to_numpy(zero_copy_only=False)
                target[start : start + len(batch)] = values.reshape(len(batch), self.width)
                start += len(batch)
        if start != self.n or not _all_finite(held):
            raise damaged(path, f"{start} of {self.n} rows" if start != self.n else "features that are not finite")
        return held


def open_cache(folder: str | Path) -> CachedFeatures:
    """Open a cache; reads labels, losses and footers, and features only when an epoch is requested.

    Raises:
        InputError: if the folder is not a cache, has another version, is incomplete or damaged.
    """
    folder = Path(folder)
    about = read_about(folder)
    if about is None:
        raise InputError(f"{folder} is not a cache of features; expected a folder that `curate cache` wrote")
    missing = [number for number in range(about["epochs"]) if not (folder / epoch_name(number)).is_file()]
    if missing:
        raise InputError(
            f"{folder} is incomplete: it holds {about['epochs'] - len(missing)} of {about['epochs']} epochs (the first "
            f"missing is {missing[0]}); repeat its `curate cache` command, which resumes where it stopped"
        )
    footers = [read_footer(folder, number, about) for number in range(about["epochs"])]
    first = footers[0]
    for number, footer in enumerate(footers):
        if (footer["rows"], footer["keys"]) != (first["rows"], first["keys"]):
            raise damaged(folder / epoch_name(number), "other images than in epoch 0")
    if not first["rows"]:
        raise damaged(folder / epoch_name(0), "no rows")
    labels, classes, losses, targets = _targets(folder / epoch_name(0), about)
    for number, footer in enumerate(footers):
        if footer["targets"] != targets:
            raise damaged(folder / epoch_name(number), "other labels or losses than in epoch 0")
    made_of = [fingerprint(about), about["epochs"], first["keys"], targets]
    total = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode())
    return CachedFeatures(
        folder,
        about,
        first["rows"],
        about["width"],
        labels,
        classes,
        losses,
        list(range(1, about["epochs"])) or [PLAIN],
        _augmentation(folder / ABOUT, about),
        total.hexdigest(),
        first["failures"],
    )


def epoch_name(number: int) -> str:
    """Return the file name of an epoch."""
    return f"epoch-{number:06d}.parquet"


def fingerprint(about: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of the record that determine the features: all but number of epochs and versions."""
    return {name: value for name, value in about.items() if name not in ("epochs", "versions", "made_from")}


def read_about(folder: Path) -> dict[str, Any] | None:
    """Return the record of a cache; None if there is no cache.

    Raises:
        InputError: if the record has another version or is damaged.
    """
    path = folder / ABOUT
    if not path.is_file():
        return None
    if path.stat().st_size > ABOUT_BYTES:
        raise damaged(path, f"more than {ABOUT_BYTES >> 20} MB")
    try:
        about = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise damaged(path, "no JSON") from None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        got = about.get("format") if isinstance(about, dict) else type(about).__name__
        raise InputError(f"{folder} has cache format {got!r}; this version of curate reads {FORMAT}: build it again")
    types: dict[str, type] = {"epochs": int, "width": int, "data": str}
    types |= dict.fromkeys(("model", "made_from", "recipe", "preprocessing", "columns"), dict)
    wrong = [name for name, kind in types.items() if type(about.get(name)) is not kind]
    if wrong or not 1 <= about["epochs"] <= MOST_EPOCHS or not 1 <= about["width"] <= 1 << 20:
        raise damaged(path, f"no good value for {(wrong or ['epochs or width'])[0]}")
    if about["recipe"].get("dtype") not in list(DTYPES):  # of any type
        raise damaged(path, "no good value for recipe")
    return about


def read_footer(folder: Path, number: int, about: dict[str, Any]) -> dict[str, Any]:
    """Return the record of an epoch's file: row count, digests of keys and targets, failures by status.

    Raises:
        InputError: if the file is damaged or belongs to another cache.
    """
    path = folder / epoch_name(number)
    with _named_errors(path), _open(path) as file:
        rows, schema, notes = file.metadata.num_rows, file.schema_arrow, file.metadata.metadata or {}
    try:
        note = json.loads(notes.get(METADATA_KEY, b""))
        footer = {"rows": rows, "keys": note["keys"], "failures": note["failures"], "targets": note["targets"]}
        same = (note["kind"], note["epoch"], note["cache"]) == ("cache", number, fingerprint(about))
        counts = footer["failures"].values()
        digests = isinstance(footer["keys"], str) and isinstance(footer["targets"], str)
        is_complete = digests and all(type(count) is int for count in counts)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise damaged(path, "no note of what it is") from None
    if not same:
        raise InputError(f"{path} belongs to another cache or epoch; expected epoch {number} of {folder}: remove it")
    if not is_complete or "features" not in schema.names:
        raise damaged(path, "no good note of its images" if not is_complete else "no features")
    if schema.field("features").type != features_type(about["width"], about["recipe"]["dtype"]):
        raise damaged(path, f"features of type {schema.field('features').type}")
    # features are uncompressed, so a footer with more rows than fit the file is invalid
    if rows * about["width"] * DTYPES[about["recipe"]["dtype"]].itemsize > path.stat().st_size:
        raise damaged(path, f"{rows:,} rows claimed in {path.stat().st_size:,} bytes")
    return footer


def features_type(width: int, dtype: str) -> pa.DataType:
    """Return the Arrow type of the features column: a list of ``width`` numbers of ``dtype``."""
    kind = pa.float16() if dtype == "float16" else pa.float32()
    return pa.list_(pa.field("element", kind, nullable=False), width)


def damaged(path: Path, what: str) -> InputError:
    """Return the error for a file that changed after it was written."""
    gone = "the whole folder" if path.name == ABOUT else "it"  # epochs without a record belong to no cache
    return InputError(f"{path} is damaged ({what}); remove {gone}, and repeat the `curate cache` command")


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    """Convert errors of pyarrow and the operating system to a one-line InputError that names the file."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError, KeyError) as error:
        raise damaged(path, str(error).splitlines()[0].strip() if str(error) else type(error).__name__) from None


def _open(path: Path, **how: Any) -> pq.ParquetFile:
    return pq.ParquetFile(path, pre_buffer=False, page_checksum_verification=True, **how)


def _augmentation(path: Path, about: dict[str, Any]) -> Augmentation:
    try:
        return Augmentation(**about["recipe"]["augmentation"])
    except (KeyError, TypeError, ValueError, InputError) as error:
        raise damaged(path, f"no good value for the augmentation: {error}") from None


def _targets(path: Path, about: dict[str, Any]) -> tuple[Tensor | None, list[str], Tensor | None, str]:
    """Return labels, classes, losses and their digest; memory is bounded by the file size."""
    names = [name for name in ("label", "loss") if about["columns"].get(name)]
    with _named_errors(path), _open(path, read_dictionary=[name for name in names if name == "label"]) as file:
        for name in names:
            _check_plain(path, file, name)
        table = file.read(columns=names)
        columns = {name: table.column(name) for name in names}
    digest = TargetsDigest()
    for batch in table.to_batches():
        digest.update(*(batch.column(name) if name in names else None for name in ("label", "loss")))
    labels, classes = _label_indices(columns["label"]) if "label" in columns else (None, [])
    losses = loss_tensor(columns["loss"].to_pylist()) if "loss" in columns else None
    return labels, classes, losses, digest.hexdigest()


def _check_plain(path: Path, file: pq.ParquetFile, name: str) -> None:
    """Raise ``InputError`` unless a column is stored uncompressed, which bounds its size in memory."""
    kind = file.schema_arrow.field(name).type
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    fits = pa.types.is_float64(value) if name == "loss" else pa.types.is_string(value) or pa.types.is_integer(value)
    groups = (file.metadata.row_group(index) for index in range(file.metadata.num_row_groups))
    every = (group.column(index) for group in groups for index in range(group.num_columns))
    chunks = [chunk for chunk in every if chunk.path_in_schema == name]
    if not fits or any(chunk.compression != "UNCOMPRESSED" or set(chunk.encodings) - STORED for chunk in chunks):
        raise damaged(path, f"a column {name!r} that was not written so")


def _label_indices(labels: pa.ChunkedArray) -> tuple[Tensor | None, list[str]]:
    """Return the class index of each label and the class names; empty if a label is missing."""
    coded = labels if pa.types.is_dictionary(labels.type) else labels.dictionary_encode()
    if coded.null_count or not len(coded):
        return None, []
    unified = coded.unify_dictionaries().combine_chunks()
    used, codes = np.unique(unified.indices.to_numpy(), return_inverse=True)
    values = unified.dictionary.take(pa.array(used)).to_pylist()
    if any(map(is_missing, values)):
        return None, []
    numbers, classes = number_labels(values)
    return numbers[torch.from_numpy(codes)], classes


def _all_finite(values: Tensor) -> bool:
    """Return whether all values are finite, by their exponent bits: fast for float16 on a CPU."""
    bits, exponent = (np.uint16, 0x7C00) if values.dtype == torch.float16 else (np.uint32, 0x7F800000)
    return all(not ((part.numpy().view(bits) & exponent) == exponent).any() for part in values.split(65536))
