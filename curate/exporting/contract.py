"""What every format promises: how rows are exported, part by part, and how labels are read back."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from curate.exporting.labels import ExpectedRows, Labels
from curate.exporting.parts import AllParts, Part
from curate.exporting.plan import Plan
from curate.exporting.rows import Rows
from curate.exporting.sides import TRAIN


class WritePart(Protocol):
    """Writes some rows: images and shards as files, text as pieces that are joined when all parts are there."""

    def __call__(self, rows: Rows, part: Part, plan: Plan) -> None:
        """Write."""


class Finish(Protocol):
    """Joins the pieces of all parts, and writes what needs to know of all; returns notes for the user."""

    def __call__(self, parts: AllParts, plan: Plan) -> tuple[str, ...]:
        """Write."""


class Read(Protocol):
    """Reads labels; ``name`` says which column, control or field holds them where a file has several.

    Raises:
        InputError: if the file is no such format, is damaged, too large or ambiguous, or nothing in it can be used.
    """

    def __call__(self, path: Path, rows: ExpectedRows, name: str | None = None) -> Labels:
        """Read."""


def nothing_more(parts: AllParts, plan: Plan) -> tuple[str, ...]:
    """Finish a format that needs nothing but its parts."""
    return ()


@dataclass(frozen=True)
class Format:
    """One way to and from another tool.

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
        measures: whether lengths of text and nulls of numbers must be known before.
        per: whether images can be in folders by a column.
        sides: whether that column says which rows are train, val and test.
        splits: whether rows are held out where no column says.
        nested: whether the folders of keys are folders.
        minimal: whether no column but key and label goes along unless it is requested.
        suffix: how the name of a file ends; empty for folders.
        load: lines of Python that read it back, with ``{out}`` for its path as a literal, ``{train}`` for the path
            of the training side where there are sides, and ``{empty}`` for what lets a folder of a class be empty.
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
    measures: bool = False
    per: bool = False
    sides: bool = False
    splits: bool = False
    nested: bool = False
    minimal: bool = False
    suffix: str = ""
    load: tuple[str, ...] = ()
    load_classes: tuple[str, ...] = ()

    def load_lines(self, out: Path, plan: Plan | None = None) -> tuple[str, ...]:
        """Return the lines of Python that load what was written at ``out``; without a plan those for classes."""
        train = out / TRAIN if plan is not None and TRAIN in plan.sides.names else out
        empty = ", allow_empty=True" if plan is not None and plan.lacking else ""
        lines = (*self.load_classes, *self.load) if plan is None or plan.labelled else self.load
        places = {"out": out, "train": train}
        # with ./ before it, for `datasets` takes names such as csv for its own those loaders
        texts = {
            name: repr(str(path) if path.is_absolute() else f"./{path.as_posix()}") for name, path in places.items()
        }
        return tuple(line.format(**texts, empty=empty) for line in lines)
