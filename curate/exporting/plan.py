"""What is known of all rows before the first goes out, how they go, and what is on the disk at the end."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from curate.exporting.names import FileNames, folder_names
from curate.exporting.sides import Sides
from curate.tables.classes import NO_CLASSES, ClassList

ImageReader = Callable[[str], bytes]  # key -> the encoded image; raises ReadError
COPY, HARD, SYMBOLIC = "copy", "hard", "symbolic"
LINKS = (COPY, HARD, SYMBOLIC)


@dataclass(frozen=True)
class ExportOptions:
    """How rows are exported.

    Attributes:
        images: key -> encoded image, for rows that no other tool can open (bytes inside a table, members of a tar
            file); None reads what the rows name.
        link: `copy`, or `hard` or `symbolic` links to local files where images would be copied.
        classes: the names that annotators may choose from; empty for the classes of the rows.
    """

    images: ImageReader | None = None
    link: str = COPY
    classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What is known of all rows before the first goes out.

    Attributes:
        name: of the file or folder.
        schema: of the columns that go out, `key` and where it is there `uri` among them.
        starts: row at which each part begins, among all rows of the table, shape (parts,).
        n_rows: exported rows.
        left_out: rows whose image could not be scored.
        label: column of the classes; None for none.
        labelled: rows that have one.
        class_list: what lists the classes, whichever rows are exported.
        classes: names of all of them, in the order that numbers them.
        lacking: classes without an exported row.
        predicted: names of the classes that are predicted, sorted.
        names: of the files of images.
        has_split_words: whether a name holds a word that some loader takes for a side's.
        sides: which of train, val and test each row is on.
        takes_uri: whether the column of places goes out with formats that hold the images.
        per: column whose values are folders; None for none.
        folders: value of it -> name of its folder.
        common: the folder that holds all local images; None without any.
        longest: most characters of a value, by column of text; where the format measures columns.
        nullable: columns with a null; the same.
        null: whether a NUL ends each entry of a list, instead of a line end.
    """

    name: str
    schema: pa.Schema
    starts: tuple[int, ...]
    n_rows: int
    left_out: int = 0
    label: str | None = None
    labelled: int = 0
    class_list: ClassList = NO_CLASSES
    classes: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    predicted: tuple[str, ...] = ()
    names: FileNames = field(default_factory=FileNames)
    has_split_words: bool = False
    sides: Sides = field(default_factory=Sides)
    takes_uri: bool = True
    per: str | None = None
    folders: Mapping[str | None, str] = field(default_factory=dict)
    common: bytes | None = None
    longest: Mapping[str, int] = field(default_factory=dict)
    nullable: frozenset[str] = frozenset()
    null: bool = False

    @cached_property
    def class_numbers(self) -> Mapping[str, int]:
        """Class -> its number, from 1; of predicted ones where none is known."""
        return {name: number for number, name in enumerate(self.classes or self.predicted, 1)}

    @cached_property
    def class_folders(self) -> Mapping[str | None, str]:
        """Class -> the name of its folder."""
        return folder_names(self.classes)

    @property
    def in_folder_order(self) -> list[str]:
        """Classes in the order of the names of their folders, by which loaders of folders number them."""
        return sorted(self.classes, key=self.class_folders.__getitem__)


@dataclass(frozen=True)
class Written:
    """What is on the disk now.

    Attributes:
        paths: files, or the one folder, in the order written.
        n_rows: images in it.
        notes: notes for the user, one sentence each.
        missing: rows left out because their image could not be had, as the user allowed.
        n_bytes: of all files.
        resumed: rows that an earlier run had written.
    """

    paths: tuple[Path, ...]
    n_rows: int
    notes: tuple[str, ...] = field(default=())
    missing: int = 0
    n_bytes: int = 0
    resumed: int = 0
