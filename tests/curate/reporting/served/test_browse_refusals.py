"""What the server of `curate review --browse` refuses: other hosts, paths without its token, and odd questions."""

import json
import re
import socket
from contextlib import suppress
from urllib.parse import quote

import pytest
from browsed import N, get, rows, view
from typer.testing import CliRunner

from curate.cli import app


@pytest.mark.parametrize("token", ["", "x", "é", "%00", "..", "A" * 22])
def test_without_the_token_there_is_nothing(server, token):
    for path in ("", "browse", "rows", "thumb/20.jpg"):
        answer, content = get(server, path, token=quote(token))
        assert (answer.status, json.loads(content)) == (404, {"error": "there is nothing here"})


@pytest.mark.parametrize("path", ["/", "/rows", "/favicon.ico", "//", "/../../etc/passwd", "*"])
def test_paths_that_do_not_begin_with_the_token_have_nothing(server, path):
    assert get(server, path, token=False)[0].status == 404


@pytest.mark.parametrize(
    "path",
    [
        "../scores.parquet",
        "thumb/../20.jpg",
        "thumb/-1.jpg",
        "thumb/1e3.jpg",
        "thumb/٣.jpg",
        "thumb/20.png",
        "thumb/" + "9" * 400 + ".jpg",
        "thumb/20.jpg/../../x",
        "%2e%2e/%2e%2e/etc/passwd",
        "rows/",
        "x",
    ],
)
def test_unknown_paths_are_not_found(server, path):
    assert get(server, quote(path, safe="/%"))[0].status == 404


@pytest.mark.parametrize("host", ["example.org", "127.0.0.1", "localhost:1", "example.org:80", ""])
def test_another_host_is_refused(server, host):
    for path in ("", "browse", "rows", "thumb/20.jpg"):
        assert get(server, path, headers={"Host": host})[0].status == 403


def test_localhost_is_this_host_and_two_hosts_are_refused(server):
    assert get(server, "rows", headers={"Host": f"localhost:{server.server_port}"})[0].status == 200
    assert (
        raw(
            server, f"GET /{server.site.token}/rows HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}\r\nHost: x\r\n\r\n"
        )[:12]
        == b"HTTP/1.1 403"
    )
    assert raw(server, f"GET /{server.site.token}/rows HTTP/1.1\r\n\r\n")[:12] == b"HTTP/1.1 403"


def raw(server, text):
    """What comes back; nothing where the server hung up on more than it wanted to read."""
    received = b""
    with suppress(OSError), socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as connection:
        connection.sendall(text.encode("latin-1"))
        connection.shutdown(socket.SHUT_WR)
        while piece := connection.recv(65536):
            received += piece
    return received


@pytest.mark.parametrize("method", ["PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "BREW"])
def test_nothing_but_get_and_post_is_answered(server, method):
    answer, _ = get(server, "rows", method=method)
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, POST")


def test_a_body_is_refused(server):
    assert get(server, "rows", body=b"x" * 1000)[0].status == 400


@pytest.mark.parametrize(
    ("query", "said"),
    [
        *((text, "limit") for text in ("limit=1001", "limit=-1", "limit=1e9", "limit=")),
        *((text, "offset") for text in ("offset=٣", "offset=99999999999999")),
        *((text, "sort") for text in ("sort=nothing", "sort=embedding")),
        *((text, "number") for text in ("min.width=nan", "max.width=inf", "min.width=1_0", "min.width=x")),
        *((text, "row") for text in ("row=300", "row=1,x", "row=-1", "row=" + "1," * 1000 + "1")),
        *((text, "min: ") for text in ("min.label=1", "min.=1")),
        ("descending=2", "descending"),
        ("decision=maybe", "decision"),
        ("gallery=../x", "gallery"),
        ("x=1", "not a parameter"),
        ("sort=width&sort=key", "once"),
        ("search=" + "x" * 1001, "characters"),
        ("search=%ff", "UTF-8"),
        ("nothing", "NAME=VALUE"),
        ("&".join(f"min.width{i}=1" for i in range(70)), "at most"),
    ],
)
def test_invalid_queries_are_refused_in_one_sentence(server, query, said):
    answer, content = get(server, "rows?" + quote(query, safe="=&%."))
    assert answer.status == 400
    assert said in json.loads(content)["error"]
    assert len(content) < 300


def test_a_giant_question_is_refused(server):
    assert get(server, "rows?search=" + "x" * 9_000)[0].status == 414
    assert raw(server, "GET /" + "x" * 100_000 + " HTTP/1.1\r\n\r\n")[:12] in (b"HTTP/1.1 414", b"")
    many = "".join(f"X-{i}: 1\r\n" for i in range(500))
    assert raw(server, f"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n{many}\r\n")[:12] in (b"HTTP/1.1 431", b"")
    assert rows(server, limit=1)[0] == N


@pytest.mark.parametrize(
    "text", ["", "\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "\x00\xff" * 50 + "\r\n\r\n"]
)
def test_what_is_no_http_does_not_stop_it(server, text):
    raw(server, text)
    assert rows(server, limit=1)[0] == N


def test_every_answer_is_restricted_to_this_page(server):
    for path in ("", "browse", "rows", "thumb/20.jpg", "nothing"):
        headers = get(server, path)[0].headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert "Access-Control-Allow-Origin" not in headers


def test_tokens_differ_and_only_this_machine_is_listened_to(server, browsed):
    other = view(browsed / "scores.parquet", points=0)
    other.server_close()
    assert other.site.token != server.site.token
    assert len(server.site.token) >= 22
    assert server.server_address[0] == "127.0.0.1"


def test_a_port_that_is_taken_is_one_line(server, browsed):
    result = CliRunner().invoke(
        app, ["review", str(browsed / "scores.parquet"), "--points", "0", "--port", str(server.server_port)]
    )
    assert result.exit_code == 1
    assert re.fullmatch(
        rf"error: --port {server.server_port}: .*choose another, or leave it out for a free one\n", result.output
    )
