"""What an export format consists of: writing rows in parts, joining them, and reading labels back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from curate.exporting.labels import ExpectedRows, Labels
from curate.exporting.names import FileNames, folder_names
from curate.exporting.parts import AllParts, Part
from curate.exporting.rows import Rows
from curate.exporting.shards import Shard
from curate.exporting.sides import TRAIN, Sides
from curate.tables.classes import NO_CLASSES, ClassList

LINES = "lines"  # the piece of formats that are one line a row


@dataclass(frozen=True)
class ExportRequest:
    """What is known of an export before its rows are read.

    Attributes:
        kind: the format.
        columns: that go out in addition to key and uri.
        label: column of the classes; None for none.
        per: column whose values are folders; None for none.
        shard: size of a part.
        names: of the files of images.
        takes_uri: whether the column of places goes out with formats that hold the images.
        looks: whether local files are looked for.
        replaced: a folder that will be replaced, in which no image may lie.
        null: whether a NUL ends each entry of a list, instead of a line end.
        class_list: what lists the classes, whichever rows are exported.
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
        schema: of the columns that go out, `key` and where it is there `uri` among them.
        starts: row at which each part begins, among all rows of the table, shape (parts,).
        n_rows: exported rows.
        left_out: rows whose image could not be scored.
        labelled: rows that have one.
        classes: names of all of them, in the order that numbers them.
        lacking: classes without an exported row.
        predicted: names of the classes that are predicted, sorted.
        has_split_words: whether a name holds a word that some loader takes for a side's.
        sides: which of train, val and test each row is on.
        folders: value of it -> name of its folder.
        common: the folder that holds all local images; None without any.
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
        """Map each class to its number, from 1; predicted classes if no label is known."""
        return {name: number for number, name in enumerate(self.classes or self.predicted, 1)}

    @cached_property
    def class_folders(self) -> Mapping[str | None, str]:
        """Map each class to the name of its folder."""
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
    """Joins the pieces of all parts and writes files that describe them all; returns notes for the user."""

    def __call__(self, parts: AllParts, plan: Plan) -> tuple[str, ...]:
        """Join the parts."""


class Read(Protocol):
    """Reads labels; ``name`` is the column, control or field that holds them if a file has several.

    Raises:
        InputError: if the file is no such format, is damaged, too large or ambiguous, or nothing in it can be used.
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
        part: rows -> files and pieces.
        finish: joins the parts.
        out: what is exported, for display.
        back: what comes back, for display; nothing by default.
        read: files -> labels; None where none come back.
        folder: whether the output is a folder.
        reads_images: whether images may be read, not only named.
        links: whether images are their own files, which can be links.
        shards: whether a part is a file that users size.
        per: whether images can be in folders by a column.
        sides: whether that column says which rows are train, val and test.
        splits: whether rows are held out where no column says.
        nested: whether the folders of keys are folders.
        minimal: whether no column but key and label goes along unless it is requested.
        suffix: how the name of a file ends; empty for folders.
        load: lines of Python that read it back, with ``{out}`` for its path as a literal, ``{train}`` for the path
            of the training side where there are sides, ``{empty}`` for what lets a folder of a class be empty, and
            ``{end}`` for what ends an entry of paths.
        load_classes: such lines for rows with classes alone.
    """

    part: WritePart
    finish: Finish
    out: str
    back: str = "nothing"
    read: Read | None = None
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
        # with ./ before it, for `datasets` takes names such as csv for its own those loaders
        texts = {
            name: repr(str(path) if path.is_absolute() else f"./{path.as_posix()}") for name, path in places.items()
        }
        return tuple(line.format(**texts, empty=empty, end=end) for line in lines)
