"""The options of ``curate dedup``."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from curate.options import fields
from curate.options.option import Note, Option, shared

KEEP = "labelled,no-junk,least-lost,least-lossy,least-compressed,certain"
Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class DedupParameters:
    """The options of ``curate dedup`` that the receipt records."""

    mirrored: fields.Mirrored = False
    rotated: Annotated[bool, Option("Also find copies rotated by 90, 180 or 270 degrees (signature, crop).")] = False
    cropped: Annotated[bool, Option("Drop crops of at least 70 % of each side; the default only lists them.")] = False
    report_only: Annotated[bool, Option("Keep and list rows that are also in --against (leaks).")] = False
    only_against: Annotated[bool, Option("Compare only with --against, not within the table.")] = False
    keep: Annotated[str, Option("Criteria for the kept image, in order, separated by commas.", metavar="LIST")] = KEEP
    prefer: Annotated[
        str | Sequence[str] | None,
        Option("Prefer rows whose key matches, such as 'sorted/*' (repeatable, most preferred first).", metavar="GLOB"),
    ] = None
    protect: Annotated[str | None, Option("Rows that are never dropped.", metavar="CONDITION")] = None
    label: Annotated[
        str | None,
        shared("--label", ", to list groups that disagree. [default: label, if it exists]", metavar="COLUMN"),
    ] = None
    source: fields.Source = None
    against_source: Annotated[str | None, Option("The scored source of --against.")] = None


@dataclass(frozen=True, eq=False, repr=False)
class DedupOptions(DedupParameters, fields.TableOptions):
    """The options of ``curate dedup``."""

    out: Annotated[str | Path | None, shared("--out", ": the subset, such as unique.parquet", path="output")] = None
    finder: fields.Finder = None
    _: KW_ONLY
    against: Annotated[
        str | Path | None,
        shared("--against", ": rows that are already in it are dropped", metavar="TABLE", path="table"),
    ] = None
    verdicts: fields.Verdicts = None
    estimate_recall: Annotated[
        int | None,
        Option(
            "Edit N of the images, search for the copies, and report the recall; 200 is usual.", metavar="N", least=1
        ),
    ] = None
    audit: Annotated[
        int | None, shared("--audit", ": write N pairs near the threshold to judge", metavar="N", least=1)
    ] = None
    model: Annotated[str | None, shared("--model", ": the table's, for --estimate-recall, if it does not ship")] = None
    embedding: fields.Embedding = None
    seed: fields.Seed = 0
    engine: fields.Engine = "local"
    dry_run: fields.DryRun = False
    overwrite: fields.Overwrite = False
    report: Annotated[Progress, Note("Called with images edited, of all.")] = lambda done, total: None
    compared: Annotated[Progress, Note("Called with rows compared, of all.")] = lambda done, total: None
    announce: fields.Announce = lambda text: None
