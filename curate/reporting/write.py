"""A report as a file: the facts on a table inside the page that shows them."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.columns import KEY
from curate.options.function import callable_of
from curate.reporting.document import gather
from curate.reporting.findings import findings_of, of_findings
from curate.reporting.options import ReportOptions
from curate.reporting.review import check_folder, decisions_on, undecided, write_findings
from curate.tables.table import open_table
from scoring.atomic import Atomic, AtomicFile, commit_together, refuse_existing, require_folder, undo_unfinished
from scoring.atomic_folder import AtomicFolder
from scoring.errors import InputError

SUFFIXES = (".html", ".htm")


@dataclass(frozen=True)
class Report:
    """The result of making a report.

    Attributes:
        document: all facts, as plain JSON.
        path: of the page; None if not written.
        n_bytes: size of the page.
    """

    document: dict[str, Any]
    path: Path | None
    n_bytes: int

    def facts(self) -> dict[str, Any]:
        """The document without its thumbnails."""
        return {name: value for name, value in self.document.items() if name != "thumbs"}

    def notes(self) -> list[str]:
        """Notes on what the report omits."""
        sampled, missing = self.document["sampled"], self.document["thumbs"]["words"]
        return [
            *([sampled["words"]] if sampled else []),
            *([missing] if missing else []),
            *self.document["overview"]["notes"],
        ]


def run_report(options: ReportOptions) -> Report:
    """Write one HTML page with the scores and policies of a table; it needs only a browser.

    Counts, histograms and the funnel include all rows; listed rows are sampled by a hash of the keys. Memory: about 110
    bytes per row and 0.8 GB.

    Raises:
        InputError: for an unusable table, file, column or output; nothing is written.
    """
    where = None if options.out is None else Path(options.out)
    review = None if options.findings is None else Path(options.findings)
    if not options.overwrite and (paths := [path for path in (where, review) if path is not None]):
        undo_unfinished(paths)
    if where is not None and review is not None and review.resolve() in (where.resolve(), *where.resolve().parents):
        raise InputError(f"the page cannot be in the folder of findings, or be it, got {where}; choose another place")
    if where is not None:
        if where.suffix.lower() not in SUFFIXES:
            raise InputError(f"the report is a page: expected a name like report.html, got {where}")
        refuse_existing(where, overwrite=options.overwrite)
        require_folder(where)
    if review is not None:
        check_folder(review, overwrite=options.overwrite)
        require_folder(review)
    for name, least in (("sample", 1), ("thumbs", 0), ("points", 0)):
        value = getattr(options, name)
        if value < least:
            raise InputError(f"--{name}: expected {least} or more, got {value}")
    opened = open_table(options.table, require=[KEY])
    if where is not None and where.resolve() in {file.resolve() for file in opened.files}:
        raise InputError(f"{where} is the table, which is never overwritten; choose another name")
    facts = gather(opened, options)
    with ExitStack() as discards:
        files: list[Atomic] = []
        if review is not None:
            kinds = findings_of(facts.dataset, facts.decided, facts.results)
            decisions = decisions_on(opened, facts.results)
            check_folder(review, overwrite=options.overwrite)  # checked again after the work
            folder = AtomicFolder(review, overwrite=options.overwrite)
            discards.callback(folder.discard)
            files.append(folder)
            write_findings(folder, opened, kinds, options.source, decisions)
            left = [finding for kind in kinds if len((finding := undecided(kind, opened, decisions)).rows)]
            if left:
                facts.galleries.insert(0, of_findings(left))
        made, n_bytes = facts.full_document(options.source, thumbs=options.thumbs), 0
        if where is not None:
            page = AtomicFile(where, overwrite=options.overwrite)
            discards.callback(page.discard)
            files.insert(0, page)  # the folder last: a page without it can be taken back
            n_bytes = _write(made, page)
        if files:
            commit_together(files)
    return Report(made, where, n_bytes)


report = callable_of(ReportOptions, run_report)


def _write(made: dict[str, Any], page: AtomicFile) -> int:
    from curate.sheets.app.assemble import page_pieces

    for piece in page_pieces(made):
        page.write(piece.encode("utf-8", "backslashreplace"))
    return page.n_bytes
