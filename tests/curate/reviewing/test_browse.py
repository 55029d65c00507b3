"""``curate review --browse``: pages of rows and thumbnails over HTTP, checked against polars; what others may ask."""

import hashlib
import http.client
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from urllib.parse import quote, urlencode
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from choosing import columns_of, write
from PIL import Image
from typer.testing import CliRunner

import curate
from curate.cli import app
from curate.reporting.served import pictures as pictures_module
from curate.reporting.served.query import Query
from curate.reviewing.serve import review

N = 300
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "\u202egnp.elif",
    "ÄRGER/ß.png",
    "100%&x=y",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("view")
    keys = [HOSTILE[row] if row < len(HOSTILE) else f"img/{row:03}.png" for row in range(N)]
    columns = columns_of(N, seed=5, key=keys)
    score = [None if row % 50 == 7 else float(np.round(v, 1)) for row, v in enumerate(columns["unc_losspred"].tolist())]
    for row in range(0, N, 2):
        Image.new("RGB", (60, 40), (row % 256, 50, 100)).save(folder / f"{row}.png")
    columns |= {
        "unc_losspred": pa.array(score, pa.float32()),
        "uri": [str(folder / f"{row}.png") if row != 9 else None for row in range(N)],
        "width": list(range(N)),
        "status": ["truncated" if row % 50 == 7 else "ok" for row in range(N)],
    }
    write(folder / "scores.parquet", columns)
    curate.filter(folder / "scores.parquet", folder / "kept.parquet", keep_top=200, column="unc_losspred")
    return folder


@pytest.fixture(scope="module")
def server(folder):
    server = view(folder / "scores.parquet", [folder / "kept.parquet"], column="unc_losspred", points=0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def frame(folder):
    decisions = pl.read_parquet(folder / "kept.decisions.parquet").select("key", "decision")
    return (
        pl.read_parquet(folder / "scores.parquet")
        .with_row_index("row")
        .join(decisions, on="key", maintain_order="left")
    )


def view(*args, **options):
    return review(*args, browse=True, **options)


def get(server, path="", *, token=None, method="GET", headers=None, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    token = server.site.token if token is None else token
    connection.request(method, f"/{token}/{path}" if token is not False else path, body, headers or {})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


def rows(server, **query):
    answer, content = get(server, "rows" + (f"?{urlencode(query)}" if query else ""))
    assert answer.status == 200, content
    page = json.loads(content)
    assert page["rows"]["n"] == len(page["rows"]["row"])
    return page["total"], page["rows"]["row"], page["rows"]


def test_the_page_is_that_of_the_report_without_rows(server):
    answer, content = get(server, "browse")
    text = content.decode()
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
    assert "Content-Security-Policy" in text
    assert "<script>alert" not in text
    assert server.site.token in text


def test_the_served_document_knows_rows_by_their_number(server, frame):
    facts = server.site.table.index.facts
    served = facts.served()
    assert served["served"] is True
    assert not {"rows", "thumbs"} & set(served)
    json.dumps(served, allow_nan=False)
    least = next(each for each in served["galleries"] if each["id"] == "least-certain")["items"]
    known = frame.filter(pl.col("status") == "ok").sort("unc_losspred", maintain_order=True)
    assert frame["unc_losspred"][least].to_list() == known["unc_losspred"].to_list()[::-1][:48]
    total, numbers, _ = rows(server, gallery="least-certain", limit=1000)
    assert (total, numbers) == (48, least)


def test_pages_follow_one_another_in_the_order_of_the_table(server, frame):
    total, first, values = rows(server)
    assert (total, first) == (N, list(range(100)))
    assert values["key"] == frame["key"].to_list()[:100]
    assert values["decision"] == frame["decision"].to_list()[:100]
    assert rows(server, offset=250, limit=100)[1] == list(range(250, N))
    assert rows(server, offset=10_000)[1] == []
    assert rows(server, limit=0)[:2] == (N, [])


@pytest.mark.parametrize("column", ["unc_losspred", "width", "key", "label", "photographer", "aesthetic"])
@pytest.mark.parametrize("descending", [0, 1])
def test_sorted_pages_are_those_of_polars(server, frame, column, descending):
    expected = frame.sort(column, descending=bool(descending), nulls_last=True, maintain_order=True)["row"].to_list()
    assert rows(server, sort=column, descending=descending, limit=1000)[1] == expected
    assert rows(server, sort=column, descending=descending, offset=37, limit=11)[1] == expected[37:48]


def test_the_order_of_the_table_can_be_turned_around(server):
    assert rows(server, sort="row", descending=1, limit=3)[1] == [N - 1, N - 2, N - 3]


def single(value):
    return pl.lit(value, pl.Float32)


@pytest.mark.parametrize(
    ("query", "condition"),
    [
        ({"class": "class 3"}, pl.col("label") == "class 3"),
        ({"class": "no such class"}, pl.lit(False)),
        ({"decision": "drop"}, pl.col("decision") == "drop"),
        ({"decision": "undecided"}, pl.col("decision") == "undecided"),
        (
            {"min.unc_losspred": "0.3", "max.unc_losspred": "0.5"},
            pl.col("unc_losspred").is_between(single(0.3), single(0.5)),
        ),
        ({"min.width": "17"}, pl.col("width") >= 17),
        ({"search": "IMG/01"}, pl.col("key").str.contains("img/01", literal=True)),
        ({"search": "ärger"}, pl.col("key") == "ÄRGER/ß.png"),
        ({"search": "%&x="}, pl.col("key") == "100%&x=y"),
        ({"search": "(.*"}, pl.lit(False)),
        (
            {"search": "img", "class": "class 1", "decision": "keep", "max.width": "200"},
            pl.all_horizontal(
                pl.col("key").str.contains("img"),
                pl.col("label") == "class 1",
                pl.col("decision") == "keep",
                pl.col("width") <= 200,
            ),
        ),
    ],
)
def test_filtered_pages_are_those_of_polars(server, frame, query, condition):
    expected = frame.filter(condition)
    total, numbers, _ = rows(server, **query, limit=1000)
    assert (total, numbers) == (len(expected), expected["row"].to_list())
    ordered = expected.sort("aesthetic", descending=True)["row"].to_list()
    assert rows(server, **query, sort="aesthetic", descending=1, limit=7)[:2] == (len(expected), ordered[:7])


def test_a_gallery_can_be_filtered_and_sorted(server, frame):
    _, shown, _ = rows(server, gallery="cut", limit=1000)
    kept = [row for row in shown if frame["decision"][row] == "keep"]
    assert rows(server, gallery="cut", decision="keep", limit=1000)[1] == kept
    width = rows(server, gallery="cut", sort="width", descending=1, limit=1000)[1]
    assert width == sorted(shown, reverse=True)


def test_rows_are_given_by_their_numbers(server):
    assert rows(server, row="7,3,299")[:2] == (3, [7, 3, 299])
    assert rows(server, row="")[:2] == (0, [])
    assert rows(server, row="5,6", sort="width", descending=1)[1] == [6, 5]


def test_thumbnails_are_made_on_demand_and_a_missing_image_is_said_to_be(server):
    answer, content = get(server, "thumb/20.jpg")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "image/webp")
    picture = Image.open(io.BytesIO(content)).convert("RGB")
    assert max(picture.size) <= 128
    assert np.abs(np.asarray(picture, int).mean((0, 1)) - (20, 50, 100)).max() < 4
    assert get(server, "thumb/20.jpg")[1] == content
    for name in ("thumb/21.jpg", "thumb/9.jpg", "image/21.jpg"):
        answer, content = get(server, name)
        assert (answer.status, answer.headers["Content-Type"]) == (200, "image/svg+xml")
        assert [text.text for text in ElementTree.fromstring(content).iter(f"{SVG}text")] == [
            "no",
            "image:",
            "missing",
        ]
        assert answer.headers["Cache-Control"] == "no-store"
    for row in (N, 10**11):
        assert get(server, f"thumb/{row}.jpg")[0].status == get(server, f"image/{row}.jpg")[0].status == 404


def test_an_image_is_shown_large_and_one_that_changed_since_it_was_scored_is_said_to_have(tmp_path):
    files = [tmp_path / f"{row}.png" for row in range(3)]
    for row, file in enumerate(files):
        Image.new("RGB", (3_000, 1_500), (80 * row, 90, 0)).save(file)
    scored = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files[:2]] + [None]
    table = {"key": ["a", "b", "c"], "uri": [str(file) for file in files], "sha256": scored, "unc_x": [0.1, 0.2, 0.3]}
    pl.DataFrame(table).write_parquet(tmp_path / "scores.parquet")
    for file in files[1:]:
        Image.new("RGB", (50, 50), (0, 0, 250)).save(file)
    server = view(tmp_path / "scores.parquet", points=0)
    server.server_close()
    pictures = server.site.pictures
    assert Image.open(io.BytesIO(pictures.large(0).data)).size == (1_024, 512)
    assert Image.open(io.BytesIO(pictures(0).data)).size == (128, 64)
    assert pictures(1).problem == pictures.large(1).problem == "changed since it was scored"
    assert b"changed" in pictures(1).data
    assert pictures(2).problem == ""  # nothing says what was scored


def test_the_images_of_a_table_without_paths_come_from_its_source(folder, tmp_path):
    data = pl.read_parquet(folder / "scores.parquet").with_columns(uri=pl.lit(None, pl.String))
    data.write_parquet(tmp_path / "scores.parquet")
    images = [(folder / f"{row}.png").read_bytes() for row in range(0, 40, 2)]
    source = pl.DataFrame({"key": data["key"].to_list()[0:40:2][::-1], "image": images[::-1]})
    source.write_parquet(tmp_path / "images.parquet")
    server = view(tmp_path / "scores.parquet", source=str(tmp_path / "images.parquet"), points=0)
    try:
        picture = Image.open(io.BytesIO(server.site.pictures(30).data)).convert("RGB")
        assert abs(np.asarray(picture, int)[..., 0].mean() - 30) < 4
        assert server.site.pictures(31).problem == "no image: missing"
    finally:
        server.server_close()
    without = view(tmp_path / "scores.parquet", points=0)
    without.server_close()
    assert any("--source" in note for note in without.site.notes)


def test_few_thumbnails_are_kept(server, monkeypatch):
    monkeypatch.setattr(pictures_module, "KEPT", 3)
    pictures = pictures_module.Pictures(server.site.pictures.table, source=None)
    for row in range(0, 20, 2):
        pictures(row)
    assert pictures._small.cache_info().currsize == 3


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
def test_paths_that_are_none_have_nothing(server, path):
    assert get(server, quote(path, safe="/%"))[0].status == 404


@pytest.mark.parametrize("host", ["example.org", "127.0.0.1", "localhost:1", "example.org:80", ""])
def test_another_host_is_refused(server, host):
    for path in ("", "browse", "rows", "thumb/20.jpg"):
        assert get(server, path, headers={"Host": host})[0].status == 403


def test_localhost_is_this_host_and_two_hosts_are_none(server):
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
        ("x=1", "no parameter"),
        ("sort=width&sort=key", "once"),
        ("search=" + "x" * 1001, "characters"),
        ("search=%ff", "UTF-8"),
        ("nothing", "NAME=VALUE"),
        ("&".join(f"min.width{i}=1" for i in range(70)), "at most"),
    ],
)
def test_questions_that_make_no_sense_are_told_so_in_one_sentence(server, query, said):
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


def test_every_answer_says_that_it_is_for_this_page_alone(server):
    for path in ("", "browse", "rows", "thumb/20.jpg", "nothing"):
        headers = get(server, path)[0].headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert "Access-Control-Allow-Origin" not in headers


def test_tokens_differ_and_only_this_machine_is_listened_to(server, folder):
    other = view(folder / "scores.parquet", points=0)
    other.server_close()
    assert other.site.token != server.site.token
    assert len(server.site.token) >= 22
    assert server.server_address[0] == "127.0.0.1"


def test_many_ask_at_once(server, frame):
    expected = frame.sort("aesthetic")["row"].to_list()
    as_expected = []

    def ask(at):
        as_expected.append(rows(server, sort="aesthetic", offset=at, limit=10)[1] == expected[at : at + 10])

    threads = [threading.Thread(target=ask, args=(at,)) for at in range(0, 240, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert as_expected == [True] * 24


def test_a_table_that_changes_is_noticed(folder, tmp_path):
    (tmp_path / "scores.parquet").write_bytes((folder / "scores.parquet").read_bytes())
    server = view(tmp_path / "scores.parquet", points=0)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        pl.read_parquet(folder / "scores.parquet").head(3).write_parquet(tmp_path / "scores.parquet")
        answer, content = get(server, "rows")
        assert answer.status == 409
        assert "has changed" in json.loads(content)["error"]
        (tmp_path / "scores.parquet").unlink()
        assert get(server, "rows")[0].status == 409
    finally:
        server.shutdown()
        server.server_close()


def test_a_port_that_is_taken_is_one_line(server, folder):
    result = CliRunner().invoke(
        app, ["review", str(folder / "scores.parquet"), "--points", "0", "--port", str(server.server_port)]
    )
    assert result.exit_code == 1
    assert re.fullmatch(
        rf"error: --port {server.server_port}: .*choose another, or leave it out for a free one\n", result.output
    )


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize(
    ("number", "code"), [pytest.param(signal.SIGINT, 0, marks=pytest.mark.slow), (signal.SIGTERM, 143)]
)
def test_the_command_says_where_the_page_is_and_ends_when_it_is_told_to(folder, number, code):
    words = [
        sys.executable,
        "-m",
        "curate",
        "review",
        "--browse",
        str(folder / "scores.parquet"),
        "--points",
        "0",
        "--quiet",
    ]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        url = process.stdout.readline().strip()
        port, token = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/([\w-]{22})/browse", url).groups()
        connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=10)
        connection.request("GET", f"/{token}/rows?limit=1")
        assert json.loads(connection.getresponse().read())["total"] == N
        process.send_signal(number)
        assert process.wait(10) == code
        said = process.stderr.read()
        assert said == ("" if number == signal.SIGINT else "terminated; repeat the command to go on\n")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def test_classes_of_long_names_are_found_by_what_is_shown_of_them(tmp_path):
    labels = ["a" * 300, "a" * 299 + "b", "c"] * 10
    pl.DataFrame({"key": [str(row) for row in range(30)], "label": labels}).write_parquet(tmp_path / "t.parquet")
    server = view(tmp_path / "t.parquet", points=0)
    server.server_close()
    served = server.site.table.index
    name = served.facts.counted["overview"]["classes"]["shown"][0][0]
    assert len(name) == 200
    total, numbers = served.rows(Query(of_class=name))
    assert (total, numbers.tolist()) == (20, [row for row in range(30) if row % 3 < 2])
    assert served.page(Query(of_class=name))["rows"]["label"] == [name] * 20
