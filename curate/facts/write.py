"""A report as a file: the facts of a table, inside the page that shows them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.columns import KEY
from curate.facts.document import POINTS, SAMPLE, THUMBS, FactsRequest, gather, listed
from curate.facts.findings import findings_of, of_findings
from curate.facts.results import Results
from curate.facts.review import check_folder, decisions_on, undecided, write_findings
from curate.tables.table import open_table
from scoring.atomic import AtomicFile, refuse_existing, require_folder
from scoring.errors import InputError

SUFFIXES = (".html", ".htm")


@dataclass(frozen=True)
class Report:
    """A report that was made.

    Attributes:
        document: all its facts, as plain JSON.
        path: of the page; None where none was written.
        n_bytes: of the page.
    """

    document: dict[str, Any]
    path: Path | None
    n_bytes: int

    def facts(self) -> dict[str, Any]:
        """Return the document without its thumbnails."""
        return {name: value for name, value in self.document.items() if name != "thumbs"}

    def notes(self) -> list[str]:
        """Return what a reader has to know of what the report does not show."""
        sampled, missing = self.document["sampled"], self.document["thumbs"]["words"]
        return [
            *([sampled["words"]] if sampled else []),
            *([missing] if missing else []),
            *self.document["overview"]["notes"],
        ]


def report(
    table: str | Path,
    results: Results = None,
    out: str | Path | None = None,
    *,
    column: str | None = None,
    label: str | None = None,
    source: str | None = None,
    sample: int = SAMPLE,
    thumbs: int = THUMBS,
    points: int = POINTS,
    measured: str | Path | None = None,
    findings: str | Path | None = None,
    overwrite: bool = False,
) -> Report:
    """Make one page of what the scores and policies of a table found; it needs nothing but a browser.

    Counts, histograms and the funnel are of all rows; what is listed row by row is drawn by a hash of the keys. Memory:
    some 110 bytes a row and 0.8 GB.

    Args:
        table: Parquet file or folder of ``part-*.parquet`` with a unique ``key``.
        results: of policies: subsets, decisions, receipts, receipts of pipelines, one or several; those between them
            and the table are found.
        out: page to write, a name ending in ``.html``; None only gathers the facts.
        column: score that certain and uncertain rows are sorted by; by default the table's own.
        label: column of classes; by default ``label``, where there is one.
        source: what was scored, where the table holds no paths.
        sample: rows that are listed, next to the rows of galleries.
        thumbs: the most thumbnails.
        points: rows on the map; 0 leaves it out.
        measured: what ``curate evaluate`` wrote.
        findings: folder to write too: the kept rows with a finding as a table, and a contact sheet of each kind.
        overwrite: replace the page, and the findings, that are there.

    Raises:
        InputError: for a table, file, column or output that cannot be used; nothing is written then.
    """
    where = None if out is None else Path(out)
    if where is not None:
        _check_out(where, overwrite=overwrite)
    review = None if findings is None else Path(findings)
    if review is not None:
        check_folder(review, overwrite=overwrite)
        require_folder(review)
    for name, value, least in (("sample", sample, 1), ("thumbs", thumbs, 0), ("points", points, 0)):
        if value < least:
            raise InputError(f"--{name}: expected {least} or more, got {value}")
    request = FactsRequest(results, column, label, sample, points, measured)
    opened = open_table(table, require=[KEY])
    if where is not None and where.resolve() in {file.resolve() for file in opened.files}:
        raise InputError(f"{where} is the table, which is never changed; choose another name")
    facts = gather(opened, request)
    if review is not None:
        kinds = findings_of(facts.dataset, facts.decided, facts.results)
        said = decisions_on(facts.results)
        write_findings(review, opened, kinds, source, said, overwrite=overwrite)
        left = [finding for kind in kinds if len((finding := undecided(kind, opened, said)).rows)]
        if left:
            facts.galleries.insert(0, of_findings(left))
    made = listed(facts, source, thumbs=thumbs)
    return Report(made, where, 0 if where is None else _write(made, where, overwrite=overwrite))


def _check_out(out: Path, *, overwrite: bool) -> None:
    if out.suffix.lower() not in SUFFIXES:
        raise InputError(f"the report is a page: expected a name like report.html, got {out}")
    refuse_existing(out, overwrite=overwrite)
    require_folder(out)


def _write(made: dict[str, Any], out: Path, *, overwrite: bool) -> int:
    from curate.display.app.assemble import page_pieces

    with AtomicFile(out, overwrite=overwrite) as file:
        for piece in page_pieces(made):
            file.write(piece.encode("utf-8", "backslashreplace"))
    return file.n_bytes
