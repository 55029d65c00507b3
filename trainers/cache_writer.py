"""Writer of the feature cache: a folder locked by one process, and one file per epoch, written atomically."""

import hashlib
import json
import math
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from scoring.atomic import AtomicFile
from scoring.errors import InputError
from scoring.images import Preprocessing
from scoring.lock import LOCK, HeldFolder
from scoring.marks import DECODING, Marks
from scoring.model import ScoringModel
from scoring.temporaries import sweep
from trainers import cache
from trainers.data import decode_all
from trainers.extract import CacheRecipe, Images, Pixels, features

GROUP_ROWS = 8192


HOW = "way of reading images"
OPTIONS = {  # recorded setting -> its option, if named differently
    **dict.fromkeys(("model", "width"), "--model"),
    "preprocessing": HOW,
    **dict.fromkeys(("input", "data"), "source of images"),
    "loss": "--loss-column",
}


@dataclass(frozen=True)
class CacheProgress:
    """Number of images done over all epochs."""

    done: int
    total: int
    epoch: int


class CacheFolder(HeldFolder):
    """Context manager that locks the folder of a cache being written to one live process.

    If nothing is cached, a folder that it created is removed.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._is_ours = self._is_new = False  # the folder; the cache in it

    def __enter__(self) -> Self:
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"expected a folder for --out, and {self.folder} is a file; choose another --out")
        self._is_ours = not self.folder.exists()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        if len(error) > 1 and isinstance(error[1], InputError) and self._is_new:
            self._undo()
        super().__exit__(*error)

    def _undo(self) -> None:
        """Remove a cache without epochs, and its folder if this run created it."""
        if any(self.folder.glob("epoch-*.parquet")):
            return
        (self.folder / cache.ABOUT).unlink(missing_ok=True)
        if self._is_ours:
            (self.folder / LOCK).unlink(missing_ok=True)
            with suppress(OSError):  # another process created it
                self.folder.rmdir()

    def begin(self, about: dict[str, Any]) -> list[int]:
        """Start or resume the cache described by ``about``; return the numbers of the missing epochs.

        More epochs than before extend a cache; fewer leave it unchanged.

        Raises:
            InputError: if the folder holds another cache (the first difference is named) or other files.
        """
        before = cache.read_about(self.folder)
        if before is None:
            others = [path.name for path in self.folder.iterdir() if path.name != LOCK and not path.match(".*.tmp.*")]
            if others:
                raise InputError(
                    f"{self.folder} holds {others[0]!r} and no cache; it was not changed: choose another --out"
                )
        else:
            _refuse_difference(self.folder, cache.fingerprint(before), cache.fingerprint(about))
            about = {**about, "epochs": max(before["epochs"], about["epochs"])}
        for leftover in self.folder.glob(".epoch-*.parquet.tmp.*"):
            sweep(self.folder, leftover.name)  # of existing epochs; the caller checks those that it writes
        if before is None or before["epochs"] != about["epochs"]:
            with AtomicFile(self.folder / cache.ABOUT, overwrite=True) as file:
                file.write(json.dumps(about, indent=1, sort_keys=True).encode())
            self._is_new = before is None
        todo = [at for at in range(about["epochs"]) if not (self.folder / cache.epoch_name(at)).exists()]
        for mark in () if todo else self.folder.glob(f"{DECODING}*"):  # left by a process killed at its end
            mark.unlink()
        return todo


def make_cache(
    folder: Path,
    about: dict[str, Any],
    images: Images,
    model: ScoringModel,
    recipe: CacheRecipe,
    *,
    workers: int | None = None,
    report: Callable[[CacheProgress], None] = lambda progress: None,
    announce: Callable[[str], None] = lambda text: None,
) -> dict[str, int]:
    """Write every missing epoch, each atomically; return the number of images left out by status.

    Args:
        folder: created if missing; its parent must exist.
        about: the record as JSON values; ``epochs``, ``width``, ``recipe`` and ``columns`` are filled in or checked.
        images: the images to cache.
        model: on its device, in evaluation mode.
        recipe: augmentation, batch size, precision and dtype.
        workers: decoding threads; by default one per core.
        report: called with the progress about once per batch.
        announce: called with a line before a long operation.

    Raises:
        InputError: if the folder belongs to another cache, a readable image has no loss where there are losses, an
            image can be read in one epoch but not in another, or a feature overflows the dtype.
    """
    workers = workers or os.cpu_count() or 1
    require_losses(images, model.spec.preprocessing, workers)
    with CacheFolder(folder) as place, Marks(folder) as marks:
        todo = place.begin(about)
        about = cache.read_about(folder) or about
        expected = None if cache.PLAIN in todo else cache.read_footer(folder, cache.PLAIN, about)
        if not todo:
            announce(f"{folder} is complete already: {about['epochs']} epochs; nothing to do")
            return dict(expected["failures"]) if expected else {}
        if len(todo) < about["epochs"]:
            announce(f"resuming: {about['epochs'] - len(todo)} of {about['epochs']} epochs are done")
        pixels = Pixels(images, model.spec.preprocessing, workers, passes=len(todo), marks=marks)
        announce(pixels.description)
        for at, number in enumerate(todo):
            writer = EpochWriter(folder, number, about, images)
            try:
                for rows, block in pixels:
                    writer.write(rows, features(model, block, recipe, number, writer.n))
                    report(
                        CacheProgress(at * len(images.keys) + int(rows[-1]) + 1, len(todo) * len(images.keys), number)
                    )
                footer = writer.finish(pixels.failures, expected)
            finally:
                writer.discard()
            expected = expected or footer
        return dict(pixels.failures)


def require_losses(images: Images, preprocessing: Preprocessing, workers: int) -> None:
    """Raise ``InputError`` if a readable image has no finite loss; reads only images without one."""
    losses = images.losses or []
    missing = [row for row, loss in enumerate(losses) if loss is None or not math.isfinite(loss)]
    if not missing:
        return
    lacking = set(missing)
    readers = (read for row, read in enumerate(images.readers()) if row in lacking)
    decoded = decode_all(readers, preprocessing, workers, white=images.white)
    for row, image in zip(missing, decoded, strict=True):
        if not isinstance(image, str):
            raise InputError(
                f"{len(missing):,} of {len(losses):,} images have no finite loss in the column of losses (null, NaN or "
                f"infinite), the first that can be read is {images.keys[row]!r}; drop them first"
            )


class EpochWriter:
    """Writes the file of one epoch in blocks; ``finish`` renames it to its final name."""

    def __init__(self, folder: Path, number: int, about: dict[str, Any], images: Images) -> None:
        self._number, self._about, self._images = number, about, images
        fields = [pa.field("key", pa.string(), nullable=False)]
        if images.labels is not None:
            fields.append(pa.field("label", images.labels.type))
        if images.losses is not None:
            fields.append(pa.field("loss", pa.float64()))
        dtype = about["recipe"]["dtype"]
        fields.append(pa.field("features", cache.features_type(about["width"], dtype), nullable=False))
        self._schema = pa.schema(fields)
        self._numpy = np.float16 if dtype == "float16" else np.float32
        self._keys, self._targets = hashlib.sha256(), cache.TargetsDigest()
        self.n = 0
        self.file = AtomicFile(folder / cache.epoch_name(number))
        names = [field.name for field in fields]
        self._writer = pq.ParquetWriter(
            self.file,
            self._schema,
            compression={name if name != "features" else "features.list.element": "NONE" for name in names},
            use_dictionary=[name for name in names if name == "label"] or False,
            write_statistics=False,
            write_page_checksum=True,
            store_schema=True,
        )

    def write(self, rows: np.ndarray, block: Tensor) -> None:
        """Append features (B, D) of the images with these row numbers.

        Raises:
            InputError: if a feature is not finite in the cache's dtype; names the image.
        """
        keys = [self._images.keys[row] for row in rows]
        with np.errstate(over="ignore"):
            values = block.numpy().astype(self._numpy)
        if not np.isfinite(values).all():
            worst = int((~np.isfinite(values)).any(1).argmax())
            size = block[worst].abs().max().item()
            advice = "store float32 (--dtype float32)" if np.isfinite(size) else "the model is broken"
            raise InputError(
                f"the features of {keys[worst]!r} do not fit {self._about['recipe']['dtype']} (the largest is "
                f"{size:.4g}) in epoch {self._number}; {advice}"
            )
        of = self._images
        labels = None if of.labels is None else of.labels.take(pa.array(rows))
        losses = None if of.losses is None else pa.array([of.losses[row] for row in rows], pa.float64())
        arrays = [pa.array(keys, pa.string()), *(column for column in (labels, losses) if column is not None)]
        flat = pa.array(values.ravel())
        arrays.append(pa.FixedSizeListArray.from_arrays(flat, type=self._schema.field("features").type))
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema), row_group_size=GROUP_ROWS)
        self._targets.update(labels, losses)
        self._keys.update("".join(f"{len(key)}:{key}" for key in keys).encode("utf-8", "surrogateescape"))
        self.n += len(keys)

    def discard(self) -> None:
        """Remove the temporary file unless ``finish`` renamed it."""
        self._writer.is_open = False  # otherwise its destructor writes a footer to a closed file
        self.file.discard()

    def finish(self, failures: dict[str, int], expected: dict[str, Any] | None) -> dict[str, Any]:
        """Write the footer and rename the file; return its record.

        Raises:
            InputError: if fewer than two images are readable, or images, labels or losses differ from earlier epochs.
        """
        digests = {"keys": self._keys.hexdigest(), "targets": self._targets.hexdigest()}
        footer = {"rows": self.n, **digests, "failures": failures}
        if self.n < 2:
            kinds = "".join(f", {count} {status}" for status, count in sorted(failures.items()))
            raise InputError(f"a cache needs at least 2 readable images, got {self.n}{kinds}; pass more")
        if expected is not None and (expected["rows"], expected["keys"]) != (footer["rows"], footer["keys"]):
            raise InputError(
                f"other images can be read now than in epoch 0 ({self.n:,}, then {expected['rows']:,}); the data "
                "changed, or a disk fails: build the cache again in another folder"
            )
        if expected is not None and expected["targets"] != footer["targets"]:
            raise InputError(
                "the labels or losses of these images differ from epoch 0; build the cache again in another folder"
            )
        note = {"kind": "cache", "epoch": self._number, "cache": cache.fingerprint(self._about), **footer}
        self._writer.add_key_value_metadata({cache.METADATA_KEY: json.dumps(note, sort_keys=True).encode()})
        self._writer.close()
        self.file.publish()
        return footer


def _refuse_difference(folder: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    difference = _difference(before, now)
    if difference is None:
        return
    place, old, new = difference
    typed = f"--set {place[-1]}" if "augmentation" in place else f"--{place[-1].replace('_', '-')}"
    option = OPTIONS.get(place[0]) or OPTIONS.get(place[-1], typed)
    digests = place[0] in ("model", "input") or option == HOW
    got = "" if digests else f": {old!r}, this one has {new!r}"
    raise InputError(
        f"{folder} holds a cache with another {option}{got}; repeat the earlier command, or choose another --out"
    )


def _difference(before: dict[str, Any], now: dict[str, Any]) -> tuple[tuple[str, ...], Any, Any] | None:
    """Return the path of the first difference of two records, with both values; None if they are equal."""
    for name in {**now, **before}:
        old, new = before.get(name), now.get(name)
        if old == new:
            continue
        inner = _difference(old, new) if isinstance(old, dict) and isinstance(new, dict) else None
        return ((name, *inner[0]), *inner[1:]) if inner else ((name,), old, new)
    return None
