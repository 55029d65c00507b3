"""The options of ``curate issues``: kinds to find, and kinds to drop."""

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from curate.options import fields
from curate.options.option import Option, shared

Kinds = str | Iterable[str] | None


@dataclass(frozen=True, eq=False, repr=False)
class IssuesOptions:
    """The options of ``curate issues``."""

    table: fields.Table
    out: Annotated[
        str | Path | None,
        shared(
            "--out",
            ": the kept rows, such as clean.parquet",
            path="output",
            python="Subset to write, with the decisions, which hold the kinds of every row; None only counts.",
        ),
    ] = None
    _: KW_ONLY
    drop: Annotated[
        Kinds, Option("Drop these kinds, unusable, or all (repeatable).", metavar="KIND,...", default=False)
    ] = None
    drop_group: Annotated[
        Iterable[int] | None,
        Option("Drop this group of images unlike the rest (repeatable).", metavar="N", default=False),
    ] = None
    only: Annotated[Kinds, Option("Look only for this kind (repeatable).", metavar="KIND", default=False)] = None
    without: Annotated[Kinds, Option("Skip this kind (repeatable).", metavar="KIND", default=False)] = None
    force: Annotated[
        Kinds, Option("Flag this kind even in more than 10% of the images (repeatable).", metavar="KIND", default=False)
    ] = None
    set: Annotated[
        Mapping[str, object] | None,
        shared("--set", ": the threshold of a kind", metavar="KIND=VALUE", example="dark=0.2"),
    ] = None
    show: Annotated[int, Option("Number of worst rows to name and draw for each kind.", least=0)] = 3
    overwrite: fields.Overwrite = False
