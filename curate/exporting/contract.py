"""The parts of an export format: writing rows in parts, joining them, and reading labels back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from curate.exporting.labels import ExpectedRows, Labels
from curate.exporting.names import FileNames, folder_names
from curate.exporting.parts import AllParts, Part
from curate.exporting.rows import Rows, is_plain
from curate.exporting.sides import TRAIN, Shard, Sides
from curate.tables.classes import NO_CLASSES, ClassList

LINES = "lines"  # piece name of formats with one line per row


@dataclass(frozen=True)
class ExportRequest:
    """What is known of an export before its rows are read.

    Attributes:
        kind: the format.
        columns: exported in addition to key and uri.
        label: class column; None for none.
        per: column whose values become folders; None for none.
        shard: maximum size of a part.
        names: image file names.
        takes_uri: whether the uri column is exported by formats that contain the images.
        looks: whether the existence of local files is checked.
        replaced: a folder that will be replaced, in which no source image may be.
        null: whether a NUL ends each entry of a list, instead of a line end.
        class_list: the full list of classes, independent of the exported rows.
    """

    kind: "Format"
    columns: tuple[str, ...]
    label: str | None
    per: str | None = None
    shard: Shard = field(default_factory=Shard)
    names: FileNames = field(default_factory=FileNames)
    takes_uri: bool = True
    looks: bool = False
    replaced: Path | None = None
    null: bool = False
    class_list: ClassList = NO_CLASSES


@dataclass(frozen=True, kw_only=True)
class Plan(ExportRequest):
    """What is known of all rows before the first is written.

    Attributes:
        name: of the file or folder.
        schema: of the exported columns, including `key` and, if present, `uri`.
        starts: row number of the table at which each part begins, shape (parts,).
        n_rows: exported rows.
        left_out: rows whose image could not be scored.
        labelled: rows with a label.
        classes: names of all classes; their order defines the class numbers.
        lacking: classes without an exported row.
        predicted: names of the predicted classes, sorted.
        has_split_words: whether a name contains a word that some loader interprets as a split.
        sides: split (train, val or test) of each row.
        folders: folder name of each value of ``per``.
        common: the folder that contains all local images; None without any.
    """

    name: str
    schema: pa.Schema
    starts: tuple[int, ...]
    n_rows: int
    left_out: int = 0
    labelled: int = 0
    classes: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    predicted: tuple[str, ...] = ()
    has_split_words: bool = False
    sides: Sides = field(default_factory=Sides)
    folders: Mapping[str | None, str] = field(default_factory=dict)
    common: bytes | None = None

    @cached_property
    def class_numbers(self) -> Mapping[str, int]:
        """Class numbers by name, from 1; of predicted classes if no label is known."""
        return {name: number for number, name in enumerate(self.classes or self.predicted, 1)}

    @cached_property
    def class_folders(self) -> Mapping[str | None, str]:
        """Folder name by class."""
        return folder_names(self.classes)

    @property
    def in_folder_order(self) -> list[str]:
        """Return classes sorted by folder name, the order in which folder loaders number them."""
        return sorted(self.classes, key=self.class_folders.__getitem__)


class WritePart(Protocol):
    """Writes some rows: images and shards as files, text as pieces that are joined when all parts are written."""

    def __call__(self, rows: Rows, part: Part, plan: Plan) -> None:
        """Write one part."""


class Finish(Protocol):
    """Joins the pieces of all parts and writes files about all of them; returns notes for the user."""

    def __call__(self, parts: AllParts, plan: Plan) -> tuple[str, ...]:
        """Join the parts."""


class Read(Protocol):
    """Reads labels; ``name`` is the column, control or field that contains them if a file has several.

    Raises:
        InputError: if the file has another format, is damaged, too large or ambiguous, or has no usable label.
    """

    def __call__(self, path: Path, rows: ExpectedRows, name: str | None = None) -> Labels:
        """Read the labels."""


def nothing_more(parts: AllParts, plan: Plan) -> tuple[str, ...]:
    """Do nothing: for formats without files beyond their parts."""
    return ()


def lines_alone(parts: AllParts, plan: Plan) -> tuple[str, ...]:
    """Join the lines of all parts into one file."""
    parts.join(parts.target(parts.out), LINES)
    return ()


@dataclass(frozen=True)
class Format:
    """One export format.

    Attributes:
        part: writes rows as files and pieces.
        finish: joins the parts.
        out: what is exported, for display.
        back: what is read back, for display; nothing by default.
        read: reads labels from files; None if not supported.
        takes: whether columns of an Arrow type can be exported.
        folder: whether the output is a folder.
        reads_images: whether images may be read, not only named.
        links: whether images are separate files, which can be links.
        shards: whether a part is a file whose size users choose.
        per: whether images can be sorted into folders by a column.
        sides: whether that column contains the splits.
        splits: whether rows are held out if no column contains splits.
        nested: whether folders in keys become folders.
        minimal: whether only key, label and requested columns are exported.
        suffix: of the output file; empty for folders.
        load: lines of Python that load it, with ``{out}`` for its path as a literal, ``{train}`` for the path of the
            training split, ``{empty}`` for the argument that allows empty class folders, and ``{end}`` for the end of a
            path entry.
        load_classes: such lines for rows with classes only.
    """

    part: WritePart
    finish: Finish
    out: str
    back: str = "nothing"
    read: Read | None = None
    takes: Callable[[pa.DataType], bool] = is_plain
    folder: bool = False
    reads_images: bool = False
    links: bool = False
    shards: bool = False
    per: bool = False
    sides: bool = False
    splits: bool = False
    nested: bool = False
    minimal: bool = False
    suffix: str = ""
    load: tuple[str, ...] = ()
    load_classes: tuple[str, ...] = ()

    def load_lines(self, out: Path, plan: Plan | None = None) -> tuple[str, ...]:
        """Return the Python lines that load an export at ``out``; without a plan, those for data with classes."""
        train = out / TRAIN if plan is not None and TRAIN in plan.sides.names else out
        empty = ", allow_empty=True" if plan is not None and plan.lacking else ""
        end = repr("\0" if plan is not None and plan.null else "\n")
        lines = (*self.load_classes, *self.load) if plan is None or plan.labelled else self.load
        places = {"out": out, "train": train}
        # with ./ before it, since `datasets` interprets names such as csv as its loaders
        texts = {
            name: repr(str(path) if path.is_absolute() else f"./{path.as_posix()}") for name, path in places.items()
        }
        return tuple(line.format(**texts, empty=empty, end=end) for line in lines)
