"""What every format promises: how a batch goes out, and how labels come back."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from curate.export.batch import Batch
from curate.export.labels import ExpectedRows, Labels

ImageReader = Callable[[str], bytes]  # key -> the encoded image; raises ReadError


@dataclass(frozen=True)
class ExportOptions:
    """How a batch goes out, beside its rows.

    Attributes:
        images: key -> encoded image, for formats that carry images and for rows that no other tool can open
            (bytes inside a table, members of a tar file); None reads nothing.
        link: symbolic links to local files where images would be copied.
        classes: the names that annotators may choose from; empty where they are not known.
        overwrite: replace a file that is there, or a folder that holds an export of the same format.
    """

    images: ImageReader | None = None
    link: bool = False
    classes: tuple[str, ...] = ()
    overwrite: bool = False


@dataclass(frozen=True)
class Written:
    """What lies on the disk now.

    Attributes:
        paths: files, or the one folder, in the order written.
        n_rows: images in it.
        notes: notes for the user, one sentence each.
    """

    paths: tuple[Path, ...]
    n_rows: int
    notes: tuple[str, ...] = field(default=())


class Write(Protocol):
    """Writes a batch to a path that is not there yet, whole or not at all.

    Raises:
        InputError: if the place refuses, or an image that the format needs cannot be had; names the key.
    """

    def __call__(self, batch: Batch, out: Path, options: ExportOptions) -> Written:
        """Write."""


class Read(Protocol):
    """Reads labels; ``name`` says which column, control or field holds them where a file has several.

    Raises:
        InputError: if the file is no such format, is damaged, too large or ambiguous, or nothing in it can be used.
    """

    def __call__(self, path: Path, rows: ExpectedRows, name: str | None = None) -> Labels:
        """Read."""


@dataclass(frozen=True)
class Format:
    """One way to and from an annotation tool.

    Attributes:
        write: a batch -> files.
        read: files -> labels.
        out: what goes out, for people.
        back: what comes back, for people.
        folder: whether the output is a folder.
        reads_images: whether images may be read, not only named.
        suffix: how the name of a file ends; empty for folders.
    """

    write: Write
    read: Read
    out: str
    back: str
    folder: bool = False
    reads_images: bool = False
    suffix: str = ""

    def describe(self) -> str:
        """Return both directions in one line."""
        return f"out: {self.out}; back: {self.back}"
