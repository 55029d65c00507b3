"""Checks of a source before its images are read, and some rows of a source as a source."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from functools import cached_property
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.columns import LABEL
from curate.counted import counted, listed
from curate.manifest.classes import missing_note
from curate.manifest.contract import Manifest, Reader, ReadError, SourceOptions, check_range
from curate.manifest.folder import folder_label
from curate.tables.classes import class_columns, lists_from_values
from curate.tables.images import readers_in_order
from curate.tables.table import Table
from scoring.errors import InputError

OF_SCORES = {"uri", "status", "sha256", "phash"}  # columns of a scored table
FEWEST_IN_A_CLASS = 2  # mean images per sub-folder from which sub-folders may be classes
N_NAMED = 3
N_COUNTED = 8  # classes listed in a line
WIDEST = 4096  # maximum gap between rows read in one piece
STEP = 65_536  # rows of columns at a time


def notes_on(manifest: Manifest, options: SourceOptions) -> Iterator[str]:
    """Yield notes on a source: renamed columns, and folders that may be classes.

    Raises:
        InputError: for a scored table without image paths.
    """
    if manifest.renamed.keys() >= OF_SCORES:
        _refuse_without_images(manifest)
        yield (
            "this is a scored table already, which filter, dedup and select read directly; its images are "
            f"scored again, and {counted(len(manifest.renamed), 'column')} of the table kept under a new name "
            "(source_...)"
        )
    else:
        for name, kept in manifest.renamed.items():
            yield f"your column {name!r} is kept as {kept!r}: curate writes a column of that name"
    if LABEL in manifest.schema.names:
        labels = {label for piece in manifest.columns([LABEL]) for label in pc.unique(piece[LABEL]).to_pylist()}
        yield from filter(None, [missing_note(labels - {None}, f"column {LABEL!r}")])
    if options.label_from_folder:
        yield from _counted_classes(manifest)
    elif folders := class_folders(manifest):
        named = f"{len(folders):,}: {listed(folders, N_NAMED)}"
        yield f"class folders found ({named}): --label-from-folder keeps them as the column label"


def _counted_classes(manifest: Manifest) -> Iterator[str]:
    """Yield the classes from folders, largest first, and a warning if there is only one."""
    labels = Counter(manifest.rows(0, manifest.n_rows).column("label").to_pylist())
    without = labels.pop(None, 0)
    named = [f"{name} {n:,}" for name, n in labels.most_common(N_COUNTED)]
    more = [f"{len(labels) - N_COUNTED:,} more"] if len(labels) > N_COUNTED else []
    rest = [f"no class {without:,}"] if without else []
    yield f"classes from folders: {', '.join([*named, *more, *rest])}"
    if len(labels) == 1:
        yield "warning: only one class; the label is the name of the image's folder: is this the right source?"


def class_folders(manifest: Manifest) -> list[str]:
    """Return the folders of images if they look like classes: every image in one, several in each."""
    if "label" in manifest.schema.names or manifest.schema.names != ["key", "uri"]:
        return []
    keys = manifest.rows(0, manifest.n_rows).column("key").to_pylist()
    folders = {"".join(key.rpartition("/")[:2]) for key in keys}
    labels = {folder_label(folder.encode("utf-8", "surrogateescape")) for folder in folders}
    classes = {label for label in labels if label is not None}
    if None in labels or len(classes) < 2 or len(keys) < FEWEST_IN_A_CLASS * len(classes):
        return []
    return sorted(classes)


def other_input(table: Table, manifest: Manifest) -> str:
    """Return the option that would explain why a table was scored from another input; empty if none."""
    was, is_ = "label" in table.schema.names, "label" in manifest.schema.names
    if was != is_:
        with_, without = ("there", "here") if was else ("here", "there")
        return f"with a column label {with_} and without {without}, so --label-from-folder or the source differs"
    if table.n_rows != manifest.n_rows:
        return f"{counted(table.n_rows, 'image')} there and {manifest.n_rows:,} here, so --limit or the images differ"
    missing = [name for name in manifest.schema.names if name not in table.schema.names]
    if missing:
        return f"with a column {missing[0]} only here, so --key, --path-column or the source differ"
    return ""


def classes_of(manifest: Manifest) -> dict[str, list[str]]:
    """Return the class names of every column that may contain classes, for all rows."""
    # columns with listed classes are read too, so that an invalid number fails before the run
    columns = [*class_columns(manifest.schema, manifest.classes), *manifest.classes]
    lists = {**lists_from_values(manifest.columns(columns) if columns else ()), **manifest.classes}
    return {name: list(names) for name, names in lists.items()}


def _refuse_without_images(manifest: Manifest) -> None:
    readers = islice(manifest.readers(0, 1), 1)
    uris: pa.ChunkedArray = manifest.rows(0, manifest.n_rows).column("uri")
    if uris.null_count < len(uris):
        return
    for read in readers:
        try:
            read()
        except ReadError:
            raise InputError(
                f"expected images, got a scored table without paths ({manifest.description}); filter, dedup "
                "and select read it directly; to score again, pass the source of its images"
            ) from None


class ManifestRows:
    """Some rows of a source, by their numbers, shape (N,); see `Manifest` for each member."""

    def __init__(self, manifest: Manifest, numbers: NDArray[np.int64]) -> None:
        self._manifest, self._numbers = manifest, numbers
        self.n_rows = len(numbers)
        self.description, self.schema = manifest.description, manifest.schema
        self.renamed, self.classes, self.connections = manifest.renamed, manifest.classes, manifest.connections

    @cached_property
    def digest(self) -> str:
        """Hex sha256 over the digest of the source and the chosen rows."""
        return self._digest(self._manifest.digest)

    def digest_without(self, absent: Set[int]) -> str:
        """Return `digest` as if the files of these rows were missing."""
        return self._digest(self._manifest.digest_without({int(self._numbers[row]) for row in absent}))

    def _digest(self, of_source: str) -> str:
        return hashlib.sha256(of_source.encode() + self._numbers.astype("<i8").tobytes()).hexdigest()

    def rows(self, start: int, stop: int) -> pa.Table:
        """Return rows [start, stop)."""
        pieces = [
            self._manifest.rows(int(piece[0]), int(piece[-1]) + 1).take(pa.array(piece - piece[0]))
            for piece in self._pieces(start, stop, WIDEST)
        ]
        return pa.concat_tables(pieces) if pieces else self.schema.empty_table()

    def columns(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield some of the user's columns."""
        for start in range(0, self.n_rows, STEP):
            yield self.rows(start, min(start + STEP, self.n_rows)).select(list(names))

    def files(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the size in bytes and the modification time of each row's file, -1 if unknown."""
        for piece in self._pieces(start, stop, WIDEST):
            yield from kept_of(self._manifest.files(int(piece[0]), int(piece[-1]) + 1), piece - piece[0])

    def readers(self, start: int, stop: int) -> Iterator[Reader]:
        """Yield a reader of each row."""
        for piece in self._pieces(start, stop, self._manifest.n_rows):
            yield from readers_in_order(self._manifest, piece)

    def _pieces(self, start: int, stop: int, widest: int) -> Iterator[NDArray[np.int64]]:
        """Yield row numbers in increasing pieces without a gap wider than ``widest``."""
        check_range(start, stop, self.n_rows)
        numbers = self._numbers[start:stop]
        step = np.diff(numbers)
        cuts = np.flatnonzero((step <= 0) | (step > widest)) + 1
        yield from (piece for piece in np.split(numbers, cuts) if len(piece))


def kept_of(values: Iterable[tuple[int, int]], places: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield the values at ascending positions."""
    remaining = iter(places.tolist())
    at = next(remaining, None)
    for place, value in enumerate(values):
        if place == at:
            yield value
            at = next(remaining, None)


def in_shards(numbers: NDArray[np.int64], kept: dict[int, NDArray[np.int64]], shard_rows: int) -> NDArray[np.int64]:
    """Return rows in scoring order, given shards of them that are already scored.

    Args:
        numbers: of the rows, increasing, shape (N,).
        kept: rows of each scored shard, as many as the shard has.
        shard_rows: rows of a shard; the last may have fewer.

    >>> in_shards(np.array([0, 3, 4, 7, 9]), {0: np.array([4, 9])}, 2).tolist()
    [4, 9, 0, 3, 7]
    """
    order = np.empty_like(numbers)
    is_free = np.ones(len(numbers), bool)
    for shard, rows in kept.items():
        span = slice(shard * shard_rows, shard * shard_rows + len(rows))
        order[span], is_free[span] = rows, False
    order[is_free] = np.setdiff1d(numbers, np.concatenate([np.zeros(0, np.int64), *kept.values()]), assume_unique=True)
    return order
