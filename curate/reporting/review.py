"""Findings as a folder for review: a table of all findings, and a contact sheet of each kind."""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from curate.counted import counted
from curate.manifest.text import guarded, read_text, unguarded
from curate.policies.issues.kinds import GROUPS
from curate.policies.reviewed import RULE, VerdictLines
from curate.policies.verdicts import IMAGE, SHORT, ImageDecision, answer_of
from curate.reporting.decided import Applied
from curate.reporting.findings import QUESTIONS, Finding
from curate.sheets.captions import plain_line
from curate.sheets.tiles import Tile, contact_sheet, tile_of
from curate.tables.images import Images
from curate.tables.keys import named, rows_with_keys
from curate.tables.needs import SHA256
from curate.tables.table import Table
from scoring.atomic_folder import AtomicFolder
from scoring.errors import InputError

TABLE = "findings.csv"
LIKE = "like"  # the key that a near copy is like
DECIDED = "decided"  # what a reviewer decided about it
COLUMNS = ("kind", "key", "value", "finding", LIKE, DECIDED)
OURS = re.compile(r"findings\.csv|\d\d-[a-z-]+\.png")
MEASURED = re.compile(r" (\S+) is (above|below) (\S+)$")
ALIKE = re.compile(r" by signature \((cosine [\d.]+)\)")
MOST, EACH = 40, 10  # images of a sheet, and of each group on it


def check_folder(folder: Path, *, overwrite: bool) -> None:
    """Raise InputError for a findings folder that exists and was not written by this command; before the work."""
    if not folder.is_dir() or folder.is_symlink():
        if folder.exists() or folder.is_symlink():
            raise InputError(f"expected a folder for the findings, or nothing, at {folder}; choose another name")
        return
    if not overwrite:
        raise InputError(f"{folder} exists already; choose another name, or replace it with --overwrite")
    other = next((each.name for each in folder.iterdir() if not OURS.fullmatch(each.name)), None)
    if other is not None:
        raise InputError(f"{folder} holds {other}, which is not a finding and would be lost; move it elsewhere")


def decisions_on(table: Table, results: Sequence[Applied]) -> dict[str, ImageDecision]:
    """Return reviewers' decisions by key, from the existing verdicts that the policies used.

    Decisions on images that have changed are omitted.
    """
    decisions: dict[str, ImageDecision] = {}
    for applied in results:
        for rule in applied.rules:
            verdicts = VerdictLines.from_json(rule) if rule.get("rule") == RULE else VerdictLines.in_rule(rule)
            places = [] if verdicts is None else [Path(verdicts.file), applied.path.with_name(Path(verdicts.file).name)]
            place = next((place for place in places if place.is_file()), None)
            if verdicts is not None and place is not None:
                decisions |= replace(verdicts, file=str(place)).read.decisions()
    return on_images(table, decisions)


def on_images(table: Table, decisions: Mapping[str, ImageDecision]) -> dict[str, ImageDecision]:
    """Return the decisions without those on keys whose image changed."""
    rows = rows_with_keys(table, list(decisions)) if SHA256 in table.schema.names else {}
    images = table.take(np.array([*rows.values()], np.int64), [SHA256]).column(0).to_pylist() if rows else []
    now = {key: str(image)[:SHORT] for key, image in zip(rows, images, strict=True) if image is not None}
    return {key: each for key, each in decisions.items() if not each.image or now.get(key, each.image) == each.image}


def undecided(finding: Finding, table: Table, decisions: Mapping[str, ImageDecision]) -> Finding:
    """Return the rows of a finding without a reviewer's decision."""
    return finding.of(np.array([not each for each in _decided(finding, table, decisions)], bool))


def _decided(finding: Finding, table: Table, decisions: Mapping[str, ImageDecision]) -> list[str]:
    """Return the verdict on each row of a finding; an empty text without one."""
    question = QUESTIONS.get(finding.kind, IMAGE)
    pairs = zip(named(table, finding.rows), _like(finding, table), strict=True)
    return [answer_of(decisions, question, key, like) for key, like in pairs]


def _like(finding: Finding, table: Table) -> list[str]:
    """Return the key of the image that each row of a finding resembles; an empty text for none."""
    beside = finding.beside if len(finding.beside) else np.full(len(finding.rows), -1)
    others = iter(named(table, beside[beside >= 0]))
    return [next(others) if other >= 0 else "" for other in beside.tolist()]


def write_findings(
    folder: AtomicFolder,
    table: Table,
    findings: Sequence[Finding],
    source: str | None,
    decisions: Mapping[str, ImageDecision],
) -> None:
    """Write the findings to a folder: ``findings.csv``, and ``NN-KIND.png`` of each kind.

    Args:
        folder: to write.
        table: the table of the findings.
        findings: most consequential first.
        source: the scored source; no sheet is drawn if there are no paths of images.
        decisions: reviewers' decisions by key; decided findings are marked, and not on a sheet.

    Raises:
        InputError: if the source cannot be opened or the folder not written.
    """
    folder.write(TABLE, _table(table, findings, decisions))
    for number, finding in enumerate(findings, 1):
        left = undecided(finding, table, decisions)
        drawn = _sheet(table, left, source) if len(left.rows) else None
        if drawn is not None:
            folder.write(f"{number:02}-{finding.kind}.png", drawn)


def read_findings(folder: Path) -> list[dict[str, str]]:
    """Read ``findings.csv`` of a folder; InputError if it was changed."""
    path = folder / TABLE
    lines = list(csv.DictReader(io.StringIO(read_text(path, what="the findings of curate report"))))
    if any(set(line) != set(COLUMNS) or None in line.values() for line in lines):
        raise InputError(f"{path} was changed after curate report wrote it; write it again with --overwrite")
    return [{name: unguarded(cell) for name, cell in line.items()} for line in lines]


def _table(table: Table, findings: Iterable[Finding], decisions: Mapping[str, ImageDecision]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for finding in findings:
        for key, value, words, like, decided in zip(
            named(table, finding.rows),
            finding.value.tolist(),
            finding.texts,
            _like(finding, table),
            _decided(finding, table, decisions),
            strict=True,
        ):
            writer.writerow([finding.kind, guarded(key), f"{value:.6g}", guarded(words), guarded(like), decided])
    return text.getvalue().encode("utf-8" if text.getvalue().isascii() else "utf-8-sig")


def _sheet(table: Table, finding: Finding, source: str | None) -> bytes | None:
    """Return the worst images of a kind as PNG; None if there are none to show."""
    sections = list(_sections(finding))
    rows = [row for _, part in sections for row in finding.rows[part].tolist()]
    images = Images.of(table, rows, source=source, partial=True)
    if not images.named:
        return None
    tiles = [(words, [_tile(images, finding, at) for at in part.tolist()]) for words, part in sections]
    data = io.BytesIO()
    contact_sheet(tiles).save(data, "PNG", compress_level=1)  # photographs hardly shrink further
    return data.getvalue()


def _sections(finding: Finding) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Yield headings, each with the positions of its rows in the finding."""
    n = counted(len(finding.rows), "row")
    if finding.kind != GROUPS:
        shown = np.arange(min(MOST, len(finding.rows)))
        yield f"{finding.kind}: {finding.words}; the worst {len(shown)} of {n}", shown
        return
    for group in np.unique(finding.value)[: MOST // EACH]:
        inside = np.flatnonzero(finding.value == group)
        shown = inside[:EACH]
        yield f"{finding.kind}: group {group:.0f}, {len(shown)} of {counted(len(inside), 'row')}", shown


def _tile(images: Images, finding: Finding, at: int) -> Tile:
    row, text = int(finding.rows[at]), finding.texts[at]
    if finding.current:
        label, rather = finding.current[at], finding.labels[at]
        return tile_of(images, row, plain_line(label, 60), f"rather {plain_line(rather, 60)}" if rather else "doubtful")
    return tile_of(images, row, caption(text))


def caption(text: str) -> str:
    """Return the numbers of a finding as an image caption, or its text if it has none.

    >>> caption("quality_entropy 1.202 is below 1.5"), caption("like a/b.jpg by signature (cosine 0.9888)")
    ('1.202 < 1.5', 'cosine 0.9888')
    """
    if measured := MEASURED.search(text):
        return f"{measured[1]} {'<' if measured[2] == 'below' else '>'} {measured[3]}"
    return alike[1] if (alike := ALIKE.search(text)) else plain_line(text, 60)
