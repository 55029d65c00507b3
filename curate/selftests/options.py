"""The options of ``curate selftest``."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Any

from curate.options import fields
from curate.options.option import Note, Option, shared


@dataclass(frozen=True, eq=False, repr=False)
class SelftestOptions:
    """The options of ``curate selftest``."""

    images_of: Annotated[
        str | Path,
        Option(
            "Scored table; or a folder, list, table or tar of images, of which a sample is scored.",
            metavar="TABLE|SOURCE",
            path="name",
            argument=True,
        ),
    ]
    _: KW_ONLY
    images: Annotated[int, Option("Number of images to test, chosen by a hash of their keys.")] = 100
    column: Annotated[
        str | Sequence[str] | None, shared("--column", " to test (repeatable). [default: all that can be tested]")
    ] = None
    change: Annotated[
        str | Sequence[str] | None,
        Option(
            "Kind of corruption: zoom, blur, noise, 'grey box', recompression or darkness (repeatable). [default: all]"
        ),
    ] = None
    label: Annotated[str | None, shared("--label", ", to test scores against chance level")] = None
    labelled: fields.Labelled = None
    label_from_folder: fields.LabelFromFolder = False
    source: fields.Source = None
    model: Annotated[
        str | Path | None, shared("--model", "; by default the one that scored the table", path="name")
    ] = None
    device: fields.Device = "auto"
    seed: fields.Seed = 0
    repeats: Annotated[int, Note("Of the bootstrap of what labels show.")] = 1000
    ways: Annotated[Sequence[Any] | None, Note("Settings in which scores must be equal; all by default.")] = None
    announce: fields.Announce = lambda text: None
