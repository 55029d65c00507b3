"""The answers of a review's server: its page, groups, images and rows, and the address for decisions."""

import json
import re
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

from curate.reporting.served.images import RowImages
from curate.reporting.served.server import HTML, JSON, Answer, TableSite, problem
from curate.reviewing.session import Review
from scoring.errors import InputError

PICTURE = re.compile(r"(thumb|image)/([0-9]{1,12})\.jpg")
BROWSE = "browse"
MOST_NUMBERS = 100_000  # rows that are named in one decision


class ReviewSite:
    """A review and, once it is opened, the table behind it; see ``facts.served.server.Site``.

    Args:
        review: the groups and decisions.
        images: of the rows.
        page: of the groups.
        token: the first part of every path.
        notes: what a reader has to know.
        start: the path of the page that is opened first.
        browse: makes the site of all rows.
    """

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
        """The rows of the table; they are counted when this is first opened."""
        with self._lock:
            if self._table is None:
                self._table = self._browse()
            return self._table

    def answer(self, path: str, query: str) -> Answer:
        """Return status, type and content for a path behind the token."""
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
        """Apply what a page sent; return the new state."""
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
        """Look up the places of a group's images, all at once."""
        self.images.remember([item["row"] for item in shown["items"]])
        return shown


def _json(value: Any) -> Answer:
    return HTTPStatus.OK, JSON, json.dumps(value, allow_nan=False).encode()


def _read(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
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
