"""The HTTP server of a page: on the loopback interface only, with a secret token in the path."""

import hmac
import json
import secrets
import threading
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from curate.policies.receipts import FileState, state_of
from curate.reporting.served.images import RowImages
from curate.reporting.served.index import BadQuery, Index, read_query
from curate.reporting.thumbs import TYPE
from curate.version import __version__
from scoring.errors import InputError

HOST = "127.0.0.1"
MOST_PATH = 8_192  # bytes of a path with its query
TIMEOUT = 30  # seconds that a connection may be silent
MOST_CONNECTIONS = 64
LOOK_AGAIN = 1.0  # seconds between checks for changes of the table
HTML, JSON = "text/html; charset=utf-8", "application/json"
POLICY = "default-src 'none'; frame-ancestors 'none'"
# The page has a content security policy with digests; directives that need a header are set here.
POLICY_OF_PAGE = "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
MOST_BODY = 4 << 20  # bytes of what a page sends
Answer = tuple[HTTPStatus, str, bytes]


class Site(Protocol):
    """The served content; thread-safe.

    Attributes:
        token: the first part of every path.
        start: the path of the first page.
        notes: remarks on content that is not shown.
    """

    token: str
    start: str
    notes: list[str]

    def answer(self, path: str, query: str) -> Answer:
        """Return status, type and content for the path after the token."""

    def change(self, path: str, body: bytes) -> Answer:
        """Return the same for a POST request."""


@dataclass
class TableSite:
    """The rows of a table, and the page for browsing them.

    Attributes:
        index: of the table.
        images: of its rows.
        page: the HTML page.
        state: state of the table's files when read.
        notes: remarks on content that is not shown.
    """

    index: Index
    images: RowImages
    page: bytes
    state: list[FileState]
    notes: list[str]
    _looked: float = field(default=0.0, init=False)

    def rows(self, query: str) -> Answer:
        """Return rows as JSON for a query string."""
        columns = self.index.columns
        numbers = [name for name, each in columns.items() if each.is_number]
        try:
            n, galleries = self.index.facts.dataset.n, self.index.galleries
            query_read = read_query(query, n, sortable=columns, numbers=numbers, galleries=galleries)
        except BadQuery as error:
            return HTTPStatus.BAD_REQUEST, JSON, problem(str(error))
        if self._has_changed():
            table = self.index.facts.dataset.table.path
            return HTTPStatus.CONFLICT, JSON, problem(f"{table} has changed; stop curate review and start it again")
        answer = self.index.page(query_read)
        self.images.remember(answer["rows"]["row"])
        return HTTPStatus.OK, JSON, json.dumps(answer, allow_nan=False).encode()

    def _has_changed(self) -> bool:
        now = time.monotonic()
        if now - self._looked < LOOK_AGAIN:
            return False
        try:
            changed = state_of(self.index.facts.dataset.table) != self.state
        except OSError:
            return True
        self._looked = 0.0 if changed else now
        return changed


def new_token() -> str:
    """Return a token of 128 random bits."""
    return secrets.token_urlsafe(16)


class Server(ThreadingHTTPServer):
    """Serves a site on the loopback interface; the port is open before the site is ready.

    Args:
        port: 0 for any free port.

    Attributes:
        site: the served content.

    Raises:
        InputError: if the port is taken or not allowed.
    """

    site: Site

    daemon_threads = True
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, port: int = 0) -> None:
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise InputError(
                f"--port {port}: {error.strerror}; choose another, or leave it out for a free one"
            ) from None
        self.hosts = {f"{name}:{self.server_port}" for name in (HOST, "localhost")}

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{HOST}:{self.server_port}/{self.site.token}/{self.site.start}"

    def close(self) -> None:
        """Close the port."""
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle the request in a free thread, or close the connection."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Handle the request, then free its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a browser that disconnected."""


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_version = f"curate/{__version__}"
    sys_version = ""
    timeout = TIMEOUT
    server: Server

    def do_GET(self) -> None:
        """Answer a GET request."""
        self._send(*(self._refusal() or self._answer(None)))

    def do_POST(self) -> None:
        """Accept a decision from the page itself; other origins are refused."""
        self._send(*(self._refusal() or self._sent()))

    def __getattr__(self, name: str) -> Any:
        """Return a handler that refuses any other method without reading the body."""
        if name.startswith("do_"):
            return self._refuse_method
        raise AttributeError(name)

    def _refuse_method(self) -> None:
        self.close_connection = True
        self._send(HTTPStatus.METHOD_NOT_ALLOWED, JSON, problem("only GET and POST"), {"Allow": "GET, POST"})

    def _refusal(self) -> Answer | None:
        """Return the error for a request without the token; None for valid requests."""
        if self.headers.get_all("Host", []) not in [[host] for host in self.server.hosts]:
            return HTTPStatus.FORBIDDEN, JSON, problem("this server only answers on 127.0.0.1")
        if len(self.path) > MOST_PATH:
            return HTTPStatus.REQUEST_URI_TOO_LONG, JSON, problem("the request is too long")
        has_body = self.headers.get("Content-Length", "0") != "0"
        if (has_body and self.command == "GET") or "Transfer-Encoding" in self.headers:
            self.close_connection = True
            return HTTPStatus.BAD_REQUEST, JSON, problem("a request must not have a body here")
        token, slash, _ = self.path.partition("?")[0].removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode("utf-8", "replace"), self.server.site.token.encode()) or not slash:
            self.close_connection = has_body
            return HTTPStatus.NOT_FOUND, JSON, problem("there is nothing here")
        return None

    def _sent(self) -> Answer:
        origin, length = self.headers.get("Origin"), self.headers.get("Content-Length", "")
        kind = self.headers.get("Content-Type", "")
        if origin not in (None, *(f"http://{host}" for host in self.server.hosts)) or kind != JSON:
            self.close_connection = True
            return HTTPStatus.FORBIDDEN, JSON, problem("decisions are only accepted from this page")
        if not (length.isascii() and length.isdigit() and int(length) <= MOST_BODY):
            self.close_connection = True
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, JSON, problem("expected a decision of at most 4 MB")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            self.close_connection = True
            return HTTPStatus.BAD_REQUEST, JSON, problem("the decision was cut off")
        return self._answer(body)

    def _answer(self, body: bytes | None) -> Answer:
        path, _, query = self.path.partition("?")
        rest = path.removeprefix("/").partition("/")[2]
        try:
            return self.server.site.answer(rest, query) if body is None else self.server.site.change(rest, body)
        except InputError as error:
            return HTTPStatus.CONFLICT, JSON, problem(str(error))

    def _send(self, status: HTTPStatus, kind: str, content: bytes, more: dict[str, str] | None = None) -> None:
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(content)),
            "Content-Security-Policy": POLICY_OF_PAGE if kind == HTML else POLICY,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cache-Control": "private, max-age=3600" if kind == TYPE else "no-store",
            **(more or {}),
        }
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, since the path contains the token."""


def problem(text: str) -> bytes:
    """Return an error as JSON."""
    return json.dumps({"error": text}).encode()
