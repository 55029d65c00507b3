"""Sources over HTTP from a server that is slow, fails, throttles or stops in the middle."""

import threading
import time
from http.server import BaseHTTPRequestHandler
from types import SimpleNamespace

import pyarrow as pa
import pytest
from buckets import Server, proxy
from packed import a_parquet, a_tar
from reading import outcomes

from curate.manifest import remote, schemes
from curate.manifest.contract import ReadError, SourceOptions
from curate.manifest.memory import read_uri
from curate.manifest.reach import VARIABLE
from curate.manifest.sources import open_manifest
from scoring.errors import InputError

pytest.importorskip("aiohttp", reason="the http extra is not installed")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    files: dict[str, bytes] = {}  # noqa: RUF012

    def do_GET(self):
        data = self.files.get(self.path)
        span = self.headers.get("Range", "").removeprefix("bytes=")
        start, _, stop = span.partition("-")
        self.send_response(404 if data is None else 206 if span else 200)
        part = b"" if data is None else data[int(start) : int(stop) + 1] if span else data
        if span and data is not None:
            self.send_header("Content-Range", f"bytes {start}-{stop}/{len(data)}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(part)

    do_HEAD = do_GET

    def log_message(self, *_):
        return


@pytest.fixture
def web(monkeypatch):
    """A server of files behind a proxy of faults: its URL, `put` and the faults."""
    monkeypatch.setattr(remote, "PAUSE", 0.01)
    monkeypatch.setenv(VARIABLE, "1")
    monkeypatch.setattr(schemes, "_SHARED", {})
    bound = type("Bound", (Handler,), {"files": {}})
    server = Server(("127.0.0.1", 0), bound)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    with proxy(("127.0.0.1", server.server_port)) as (url, faults):
        yield SimpleNamespace(url=url, faults=faults, put=bound.files.__setitem__)
    server.shutdown()
    server.server_close()


def answer(status, headers, pieces=(), pause=0.0):
    """What a fault does: its own answer, piece after piece."""

    def do(handler):
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        for piece in pieces:
            handler.wfile.write(piece)
            time.sleep(pause)
        handler.close_connection = True

    return do


CHUNK_MISSING = answer(200, {"Transfer-Encoding": "chunked"}, [b"6\r\nbytes \r\n"])


@pytest.mark.parametrize("fault", [500, 503, 429, "cut", "reset", CHUNK_MISSING])
def test_a_fault_that_passes_is_tried_again_and_one_that_lasts_is_its_row(web, tmp_path, fault):
    for name in "ab":
        web.put(f"/{name}.jpg", b"bytes of an image")
    web.faults.add("/a.jpg", fault, times=2)
    web.faults.add("/b.jpg", fault)
    (tmp_path / "l.txt").write_text(f"{web.url}/a.jpg\n{web.url}/b.jpg\n")
    assert outcomes(open_manifest(tmp_path / "l.txt")) == [b"bytes of an image", "io_error"]
    tries = web.faults.count("/b.jpg")  # aiohttp asks again on its own where a connection that it kept is gone
    assert tries == remote.TRIES or (fault == "reset" and tries == 2 * remote.TRIES)


@pytest.mark.parametrize("fault", [400, 418, 501])
def test_an_answer_that_will_not_change_is_requested_once(web, fault):
    web.faults.add("/a.jpg", fault)
    with pytest.raises(ReadError, match=f"HTTP status {fault}"):
        read_uri(f"{web.url}/a.jpg")
    assert web.faults.count("/a.jpg") == 1


def test_a_server_gets_the_time_that_it_requests_and_no_more_than_half_a_minute(web, monkeypatch):
    waits = []
    monkeypatch.setattr(remote, "time", SimpleNamespace(sleep=waits.append))
    web.put("/a.jpg", b"a")
    for wait in ("7", "900", "Wed, 21 Oct 2026 07:28:00 GMT"):
        web.faults.add("/a.jpg", answer(429, {"Retry-After": wait, "Content-Length": "0"}), times=1)
    assert read_uri(f"{web.url}/a.jpg") == b"a"
    assert waits[:2] == [7, 30]
    assert waits[2] <= 4 * remote.PAUSE  # a date uses a clock, and ours is not the server's
    web.faults.add("/a.jpg", answer(503, {"Retry-After": "5", "Content-Length": "0"}))
    with pytest.raises(ReadError, match="HTTP status 503"):
        read_uri(f"{web.url}/a.jpg")
    assert waits[3:] == [5, 5, 5]
    web.put("/s.tar", a_tar({"a.jpg": b"A"}))
    web.faults.add("/s.tar", answer(429, {"Retry-After": "11", "Content-Length": "0"}), times=1)  # of a part of it
    assert outcomes(open_manifest(f"{web.url}/s.tar")) == [b"A"]
    assert waits[6:] == [11]


@pytest.mark.parametrize("slow", ["hang", answer(200, {"Content-Length": "99"}, [b"x"] * 30, pause=0.1)])
def test_a_server_that_is_silent_or_sends_drops_is_cut_off(web, monkeypatch, slow):
    monkeypatch.setattr(remote, "TIME_LIMIT", 0.3)
    monkeypatch.setattr(remote, "TRIES", 2)
    web.faults.add("/a.jpg", slow)
    started = time.monotonic()
    with pytest.raises(ReadError, match=r"within 0\.3 s") as caught:
        read_uri(f"{web.url}/a.jpg")
    assert caught.value.status == "io_error"
    assert time.monotonic() - started < 2
    assert web.faults.count("/a.jpg") == 2


@pytest.mark.parametrize("fault", [503, "cut"])
def test_parquet_tar_and_lists_are_read_through_faults_that_pass(web, fault):
    web.put("/t.parquet", a_parquet(pa.table({"id": ["p", "q"], "image": [b"1", b"2"]})))
    web.put("/s.tar", a_tar({"a.jpg": b"A" * 300, "b.jpg": b"B"}))
    web.put("/l.txt", b"a.jpg\ngone.jpg\n")
    web.put("/a.jpg", b"a")
    for name, expected in (("t.parquet", [b"1", b"2"]), ("s.tar", [b"A" * 300, b"B"]), ("l.txt", [b"a", "missing"])):
        web.faults.add(name, fault, times=2)
        if fault == 503:
            web.faults.add(name, fault, times=2, method="HEAD")
        options = SourceOptions(key="id" if name == "t.parquet" else None)
        assert outcomes(open_manifest(f"{web.url}/{name}", options)) == expected
        assert web.faults.count(name) >= 3
    web.faults.clear()
    web.faults.add("t.parquet", fault)
    with pytest.raises(InputError, match=r"t\.parquet") as caught:
        open_manifest(f"{web.url}/t.parquet")
    assert "\n" not in str(caught.value)


def test_a_server_that_gives_no_parts_of_files_is_one_line(web):
    data = a_parquet(pa.table({"image": [bytes(5000)]}))
    web.put("/t.parquet", data)
    web.faults.add("t.parquet", answer(200, {"Content-Length": str(len(data))}, [data]))
    with pytest.raises(InputError, match="parts of files"):
        open_manifest(f"{web.url}/t.parquet")
