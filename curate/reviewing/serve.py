"""The server of a review: groups of suspected images to decide, and the whole table to browse."""

import getpass
import json
import re
import shlex
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
from numpy.typing import NDArray

from curate.cleaning.steps import FILE, LABELS, LEAKS, REVIEW, SCORES, SUBSET, command_of, read_steps
from curate.columns import KEY, LABEL
from curate.manifest.store_path import path_on_disk
from curate.manifest.text import json_object
from curate.options.function import callable_of
from curate.options.values import several
from curate.policies.decided import KEEP, UNDECIDED
from curate.policies.receipts import state_of
from curate.policies.sampled import verdicts_beside
from curate.policies.verdicts import SUFFIX, VerdictFile
from curate.reporting.columns import Dataset, default_score, read_dataset, shown_columns
from curate.reporting.decided import Applied, Decided, decide_all, find_results
from curate.reporting.document import gather
from curate.reporting.findings import NEAR, Finding, findings_of, paired
from curate.reporting.options import ReportOptions, Results
from curate.reporting.review import LIKE, read_findings
from curate.reporting.served.images import RowImages
from curate.reporting.served.index import Index
from curate.reporting.served.server import HTML, JSON, Answer, Server, TableSite, new_token, problem
from curate.reviewing.clusters import unit_vectors
from curate.reviewing.options import ReviewOptions
from curate.reviewing.queue import Group, dropped_copies, groups_of
from curate.reviewing.samples import is_sample, sample_groups
from curate.reviewing.session import Review
from curate.tables.images import require_images
from curate.tables.table import Table, open_table
from scoring.atomic import require_folder
from scoring.errors import InputError

PICTURE = re.compile(r"(thumb|image)/([0-9]{1,12})\.jpg")
BROWSE = "browse"
MOST_NUMBERS = 100_000  # rows that are named in one decision
MOST_PAIRED = 20_000  # rows of a table in which near copies are looked for at the start
ABOUT = 2_000  # images of which the mean embedding is taken
MOST_NAME = 100  # characters of a reviewer
MOST_CLASSES = 1_000  # that are offered as new labels


class ReviewSite:
    """A review and, once opened, its table; see ``reporting.served.server.Site``.

    Args:
        review: the groups and decisions.
        images: of the rows.
        page: of the groups.
        token: the first part of every path.
        notes: remarks for the reader.
        start: the path of the first page.
        browse: creates the site of all rows.

    Attributes:
        next_command: the command line that applies the decisions.
    """

    next_command = ""

    def __init__(
        self,
        review: Review,
        images: RowImages,
        page: bytes,
        token: str,
        notes: list[str],
        start: str,
        browse: Callable[[], TableSite],
    ) -> None:
        self.review, self.images, self.page, self.token, self.notes = review, images, page, token, notes
        self.start = start
        self._browse, self._lock = browse, threading.Lock()
        self._table: TableSite | None = None

    @property
    def table(self) -> TableSite:
        """The site of all rows of the table, computed when it is first used."""
        with self._lock:
            if self._table is None:
                self._table = self._browse()
            return self._table

    def answer(self, path: str, query: str) -> Answer:
        """Return status, type and content for the path after the token."""
        if path == "":
            return HTTPStatus.OK, HTML, self.page
        if path == BROWSE:
            return HTTPStatus.OK, HTML, self.table.page
        if path == "rows":
            return self.table.rows(query)
        if path == "state":
            return _json(self.review.state())
        if path == "group":
            query_values = parse_qs(query)
            offset = query_values.get("offset", [""])[0]
            number = int(offset) if offset.isascii() and offset.isdigit() and len(offset) < 10 else None
            return _json(self._seen(self.review.group(query_values.get("id", [""])[0], number)))
        if path == "sample":
            return _json(self._seen(self.review.sample()))
        match = PICTURE.fullmatch(path)
        if match and int(match[2]) < self.review.dataset.n:
            made = (self.images if match[1] == "thumb" else self.images.large)(int(match[2]))
            return HTTPStatus.OK, made.type, made.data
        return HTTPStatus.NOT_FOUND, JSON, problem("there is nothing here")

    def change(self, path: str, body: bytes) -> Answer:
        """Apply a page's request; return the new state."""
        if path not in ("decide", "judge"):
            return HTTPStatus.NOT_FOUND, JSON, problem("there is nothing here")
        sent = _read(body)
        seq = sent.get("seq")
        if type(seq) is not int:
            raise InputError("expected the number of lines that the page had loaded; load it again")
        if path == "decide":
            action, group, label = (_text(sent, name) for name in ("action", "group", "label"))
            shown = self.review.act(seq, action, group, rows=_numbers(sent, "out"), label=label)
        else:
            shown = ""
            self.review.judge(seq, _numbers(sent, "good"), _numbers(sent, "bad"))
        return _json({**self.review.state(), "show": shown})

    def _seen(self, shown: dict[str, Any]) -> dict[str, Any]:
        """Read the image paths of a group together."""
        self.images.remember([item["row"] for item in shown["items"]])
        return shown


def _json(value: Any) -> Answer:
    return HTTPStatus.OK, JSON, json.dumps(value, allow_nan=False).encode()


def _read(body: bytes) -> dict[str, Any]:
    value = json_object(body)
    if value is None:
        raise InputError("expected a decision as a JSON object; load the page again")
    return value


def _text(sent: dict[str, Any], name: str) -> str:
    value = sent.get(name, "")
    if not isinstance(value, str):
        raise InputError(f"expected text for {name}; load the page again")
    return value


def _numbers(sent: dict[str, Any], name: str) -> list[int]:
    value = sent.get(name, [])
    if not isinstance(value, list) or len(value) > MOST_NUMBERS or not all(type(each) is int for each in value):
        raise InputError(f"expected numbers of rows for {name}; load the page again")
    return value


@dataclass(frozen=True)
class Reviewed:
    """The input of a review.

    Attributes:
        table: scored.
        results: applied policies.
        subset: the table that verdicts are applied to.
        verdicts: file of the decisions.
        source: the scored source; None if the table has the paths of images.
        label: column of labels; None for ``label``, if it exists.
        listed: folder of findings with the near copies, or None.
        sample: random sample to judge; None to review suspected images.
    """

    table: Table
    results: Results
    subset: str
    verdicts: Path
    source: str | None
    label: str | None
    listed: Path | None = None
    sample: Path | None = None

    def next_command(self) -> str:
        """Return the command that applies the decisions, or reports the results of a sample."""
        if self.sample is not None:
            return shlex.join(["curate", "review", "verdicts", str(self.sample)])
        words = None if self.listed is None else command_of(self.listed.parent)
        if words is not None:
            return shlex.join(words)
        final = Path(self.subset).with_name("final.parquet")
        return shlex.join(["curate", "filter", self.subset, "--verdicts", str(self.verdicts), "-o", str(final)])


def run_review(options: ReviewOptions) -> Server:
    """Return a server of the groups of suspected images of a table, ready for ``serve_forever``.

    Its ``url`` is the address of the page, on 127.0.0.1 only, with a random token. Decisions are appended to one file
    and flushed before the page continues; nothing else is written. Memory: about 150 bytes per row, including sorted
    and filtered columns.

    Raises:
        InputError: for an unusable table, file, column or port, or verdicts of another table.
    """
    from curate.sheets.app.assemble import review_page, served_page

    about = _reviewed(options)
    opened, state = about.table, state_of(about.table)
    if options.column is not None:
        default_score(opened, options.column, shown_columns(opened, about.label)[0])  # the table's page comes later
    request = ReportOptions(
        options.table, about.results, column=options.column, label=about.label, points=options.points
    )
    server, token = Server(options.port), new_token()
    try:
        images = RowImages(opened, source=about.source)
        if not options.browse:
            require_folder(about.verdicts)
        under_review = _under_review(about, options.reviewer or _user())
    except BaseException:
        server.server_close()
        raise

    def table_site() -> TableSite:
        facts = gather(opened, request)
        page = served_page(facts.served(), token).encode("utf-8", "backslashreplace")
        return TableSite(Index(facts), images, page, state, [*facts.counted["overview"]["notes"]])

    notes = [*under_review.notes(), *_without_images(opened, about.source)]
    facts = {
        "title": Path(about.subset).parent.name if Path(about.subset).name == SUBSET else opened.path.stem,
        "next": about.next_command(),
        "sampled": about.sample is not None,
        "classes": under_review.dataset.classes.names[:MOST_CLASSES],
    }
    page = review_page(facts, token).encode("utf-8", "backslashreplace")
    server.site = site = ReviewSite(
        under_review, images, page, token, notes, BROWSE if options.browse else "", table_site
    )
    site.next_command = about.next_command()
    if options.browse:
        notes += site.table.notes
    return server


review = callable_of(ReviewOptions, run_review)


def _reviewed(options: ReviewOptions) -> Reviewed:
    """Return the input of a review: a table, or the table in a folder of ``curate clean``."""
    table, results, verdicts, source = options.table, options.results, options.verdicts, options.source
    label = options.label
    path = Path(table) if isinstance(table, str) and "://" not in table else table
    if isinstance(path, Path) and (path / FILE).is_file():
        if results:
            raise InputError(f"{path} contains its results; leave them out, or pass {path / SCORES} instead")
        step = read_steps(path).get("report", {})
        noted = step.get("source")
        if source is None and isinstance(noted, str):
            source = noted if "://" in noted else str(path / noted)
        if label is None and isinstance(step.get("label"), str):
            label = step["label"]
        results = [path / name for name in (SUBSET, LEAKS, LABELS) if (path / name).is_file()]
        subset = path / SUBSET
        table = path / SCORES
        beside: Any = subset
        listed = path / REVIEW
    elif is_sample(next(iter(several(results)), "")):
        return _sampled(open_table(table, require=[KEY]), [*several(results)], verdicts, source, label)
    else:
        listed = None
        last = several(results)
        subset = Path(last[-1]) if last and str(last[-1]).endswith(".parquet") else path  # type: ignore[assignment]
        beside = path
    opened = open_table(table, require=[KEY])
    if verdicts is None and not isinstance(beside, Path):
        raise InputError(f"{beside} is in a store; pass a local file for decisions as --verdicts")
    file = path_on_disk(verdicts, "--verdicts") if verdicts else beside.with_name(f"{beside.stem}{SUFFIX}")
    return Reviewed(opened, results, str(subset), file, source, label, listed)


def _sampled(
    table: Table, named: list[str | Path], verdicts: str | Path | None, source: str | None, label: str | None
) -> Reviewed:
    """Return the input for reviewing random samples."""
    if len(named) > 1:
        raise InputError(f"expected one sample to judge, got {len(named):,} files; pass only {named[0]}")
    sample = path_on_disk(named[0], "a sample")
    file = path_on_disk(verdicts or verdicts_beside(sample), "--verdicts")
    return Reviewed(table, None, str(table.path), file, source, label, sample=sample)


def _user() -> str:
    try:
        return getpass.getuser()[:MOST_NAME]
    except (OSError, KeyError, ImportError):  # a user without a name, as in containers and on Windows
        return "reviewer"


def _under_review(about: Reviewed, reviewer: str) -> Review:
    if not reviewer.strip() or len(reviewer) > MOST_NAME:
        raise InputError(f"--reviewer takes a name of 1 to {MOST_NAME} characters, got {len(reviewer)}")
    table = about.table
    label = about.label or (LABEL if LABEL in table.schema.names else None)
    applied = find_results(table, about.results)
    dataset = read_dataset(table, label)
    decided = decide_all(dataset, applied)
    begin = {"table": str(table.path), "digest": dataset.digest, "rows": dataset.n}
    file = VerdictFile(about.verdicts, reviewer, begin)
    if about.sample is not None:
        review = Review(dataset, dataset.ok, sample_groups(about.sample, dataset), file, label)
        review.refuse_other()
        return review
    kept = decided.outcome == KEEP if decided.policies else dataset.ok
    near = None if about.listed is None else _listed_copies(about.listed, dataset)
    if near is None and dataset.n > MOST_PAIRED:
        near = []
    review = Review(dataset, kept, suspected_groups(dataset, decided, applied, near), file, label)
    if about.listed is None:  # in a cleaned folder all images may have changed since
        review.refuse_other()
    return review


def _listed_copies(folder: Path, dataset: Dataset) -> list[Finding]:
    """Return the near copies listed by ``curate clean``, each with the image it resembles."""
    pairs = [line for line in read_findings(folder) if line["kind"] == NEAR and line[LIKE]]
    value = np.array([float(line["value"]) for line in pairs], np.float64)
    by = [line["finding"].removeprefix(f"like {line[LIKE]}, by ") for line in pairs]
    return (
        [paired(dataset, [line["key"] for line in pairs], [line[LIKE] for line in pairs], value, by)] if pairs else []
    )


def suspected_groups(
    dataset: Dataset, decided: Decided, applied: list[Applied], near: list[Finding] | None = None
) -> list[Group]:
    """Return the groups of a review, most consequential first.

    Args:
        dataset: the table.
        decided: the decisions on its rows.
        applied: the policies.
        near: the near copies, if known; None to compute them.
    """
    findings = findings_of(dataset, decided, applied, near=near)
    undecided = np.flatnonzero(decided.outcome == UNDECIDED)
    parts: list[NDArray[np.int64]] = [undecided, *(finding.rows for finding in findings)]
    rows = np.unique(np.concatenate(parts))
    scored = dataset.drawn(ABOUT)
    vectors = unit_vectors(dataset.table, rows, scored[dataset.ok[scored]])
    places = {row: place for place, row in enumerate(rows.tolist())}
    return groups_of([*findings, *dropped_copies(dataset, decided)], decided, dataset, places, vectors)


def _without_images(table: Table, source: str | None) -> list[str]:
    try:
        require_images(table, source)
    except InputError as error:
        return [str(error)]
    return []
