"""A subset as a PyTorch dataset that reads the original images, without an export."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import Dataset

from curate.columns import KEY, LABEL, OK, STATUS, URI
from curate.manifest.contract import Manifest, ReadError
from curate.manifest.local import local_path
from curate.manifest.memory import read_uri
from curate.manifest.schemes import scheme_of
from curate.manifest.sources import open_manifest
from curate.tables.classes import class_list
from curate.tables.digests import key_array, key_texts, tie_breaks
from curate.tables.images import Located, require_images
from curate.tables.needs import refuse_other_status, signal
from curate.tables.provenance import reading_of, white_of
from curate.tables.table import Table, open_table
from scoring.errors import InputError
from scoring.images.decoding import decode_rgb
from scoring.images.outcome import DecodeError

UNLABELLED = -1
RAISE, SKIP = "raise", "skip"


class SubsetDataset(Dataset[dict[str, Any]]):
    """The images of a subset, in the order of its table; rows whose image could not be scored are left out.

    An item is a dictionary: `image` (RGB, upright PIL image, or the output of ``transform``), `label` (class number, -1
    for none), `key`, and `row` (row number in the table). It can be pickled to workers.

    Args:
        table: a Parquet file, or a folder of `part-*.parquet`.
        label: class column, text or numbers; None for `label` if it exists.
        classes: all classes in the order that numbers them; see ``read_classes``. None for the table's list, which all
            subsets of one table share.
        transform: applied to each image.
        source: location of the images, for tables without file paths; rows are found by key.
        missing: `raise` when an image that cannot be read is requested; `skip` leaves out rows whose local file, or key
            in the source, is missing now.

    Attributes:
        classes: names of all classes; their indices are the labels.
        lacking: classes without an image in the subset.
        targets: label of each item, shape (N,), int64.
        missing: keys of the rows left out.

    Raises:
        InputError: for a table without keys, images or rows, a label that is not in the list of classes, or another
            value of ``missing``.
    """

    def __init__(
        self,
        table: str | Path,
        *,
        label: str | None = None,
        classes: str | Path | Sequence[str] | None = None,
        transform: Callable[[Image.Image], Any] | None = None,
        source: str | None = None,
        missing: str = RAISE,
    ) -> None:
        if missing not in (RAISE, SKIP):
            raise InputError(f"missing: expected 'raise' or 'skip', got {missing!r}")
        self.path = Path(table)
        self.transform = transform
        self._manifest: tuple[int, Manifest] | None = None
        opened = open_table(table, require=[KEY, *([label] if label else [])])
        require_images(opened, source)
        self._source = (source, reading_of(opened))
        label = label or (LABEL if LABEL in opened.schema.names else None)
        if label is None and classes is not None:
            raise InputError(f"classes: expected a column of labels in {table}, got none named label; pass label=")
        refuse_other_status(opened.schema, opened.path)
        self._white = white_of(opened)
        self._read(opened, label, classes)
        self.missing = self._leave_out(missing == SKIP)
        if not len(self):
            raise InputError(f"expected rows with an image in {table}, got none; pass another table")

    def _read(self, table: Table, label: str | None, classes: str | Path | Sequence[str] | None) -> None:
        columns = [name for name in (KEY, URI, STATUS, label) if name is not None and name in table.schema.names]
        rows = table.read(columns)
        ok = np.ones(rows.num_rows, bool)
        if STATUS in columns:
            ok = pc.fill_null(pc.equal(rows[STATUS], OK), False).to_numpy().astype(bool)
        self.rows: NDArray[np.int64] = np.flatnonzero(ok)
        rows = rows.filter(pa.array(ok))
        if self._source[0] is None and table.moved is not None:
            rows = table.moved.current_rows(rows)
        self._keys = pa.array(key_texts(rows[KEY], table.path), pa.large_string())
        self._uris = rows[URI].combine_chunks().cast(pa.large_string()) if URI in columns else None
        self.classes: tuple[str, ...] = ()
        self.lacking: tuple[str, ...] = ()
        self.targets: NDArray[np.int64] = np.full(len(self.rows), UNLABELLED, np.int64)
        if label is not None:
            listed = class_list(table, label, classes)
            names = listed.texts(rows[label])
            labels = set(names.unique().drop_null().to_pylist())
            self.classes = listed.complete(labels, rows[label].type)
            self.lacking = tuple(name for name in self.classes if name not in labels)
            places = pc.index_in(names, value_set=pa.array(self.classes, names.type))
            self.targets = pc.fill_null(places, UNLABELLED).to_numpy(zero_copy_only=False).astype(np.int64)
        self._places: NDArray[np.int64] | None = None
        if self._source[0] is not None:
            hashes = tie_breaks(key_array(self._keys, self.path))
            self._places = Located(hashes, *self._source).places_of(hashes)  # type: ignore[arg-type]

    def _leave_out(self, skips: bool) -> tuple[str, ...]:
        if not skips:
            return ()
        gone = np.zeros(len(self.rows), bool)
        if self._places is not None:
            gone = self._places < 0
        elif self._uris is not None:
            gone = np.array([uri is None or _is_gone(uri) for uri in self._uris.to_pylist()], bool)
        keys = tuple(self._keys.filter(pa.array(gone)).to_pylist())
        self._keys = self._keys.filter(pa.array(~gone))
        self._uris = self._uris if self._uris is None else self._uris.filter(pa.array(~gone))
        self.rows, self.targets = self.rows[~gone], self.targets[~gone]
        self._places = None if self._places is None else self._places[~gone]
        return keys

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return an item.

        Raises:
            IndexError: if it does not exist.
            InputError: if its image cannot be read or decoded; names the key.
        """
        index = range(len(self))[index]
        key = self._keys[index].as_py()
        try:
            image = Image.fromarray(decode_rgb(self._bytes(index), white=self._white))
        except (ReadError, DecodeError) as error:
            raise InputError(
                f"cannot read the image of {key!r} ({self.path}, row {self.rows[index]}): {error}; restore "
                "it, or remove the row"
            ) from None
        shown = image if self.transform is None else self.transform(image)
        return {"image": shown, "label": int(self.targets[index]), "key": key, "row": int(self.rows[index])}

    def weights(self, column: str) -> torch.Tensor:
        """Return weights for `WeightedRandomSampler`: the rank of each item's score, higher for more certain items.

        Args:
            column: a score of known direction (`kappa_*`, `unc_*`), or `max:COLUMN`, `min:COLUMN`.

        Returns:
            Shape (N,), float64, in (0, 1]; equal for equal scores, 0 without a score.

        Raises:
            InputError: for a column that the table lacks, or of unknown direction.
        """
        table = open_table(self.path)
        chosen = signal(column, table, certain_first=True, flag="weights")
        values = table.read([chosen.column])[chosen.column].cast(pa.float64()).to_numpy()[self.rows] * chosen.sign
        known = ~np.isnan(values)
        ordered = np.sort(values[known])
        ranks = np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right") + 1
        return torch.from_numpy(np.where(known, ranks / 2 / max(1, len(ordered)), 0.0))

    def _bytes(self, index: int) -> bytes:
        if self._places is None:
            uri = None if self._uris is None else self._uris[index].as_py()
            if uri is None:
                raise ReadError("missing", "the table names no file for it")
            return read_uri(uri)
        place = int(self._places[index])
        if place < 0:
            raise ReadError("missing", f"{self._source[0]} has no image of that key")
        return next(self._opened().readers(place, place + 1))()

    def _opened(self) -> Manifest:
        """Return the source, opened by this process: a forked process must not share its parent's files."""
        if self._manifest is None or self._manifest[0] != os.getpid():
            self._manifest = (os.getpid(), open_manifest(str(self._source[0]), self._source[1]))
        return self._manifest[1]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_manifest": None}


def _is_gone(uri: str) -> bool:
    """Return whether a local file is missing; False if only reading can show it."""
    scheme = scheme_of(uri)
    if ".tar::" in uri or scheme not in (None, "file"):
        return False
    return not os.path.exists(local_path(uri) if scheme else os.fsencode(uri))  # noqa: PTH110 (a bytes path)
