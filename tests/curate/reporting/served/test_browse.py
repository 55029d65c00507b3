"""``curate review --browse``: pages of rows and thumbnails over HTTP, checked against polars."""

import hashlib
import http.client
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest
from browsed import N, get, rows, view
from PIL import Image

from curate.reporting.served import images as images_module
from curate.reporting.served.index import Query

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def frame(browsed):
    decisions = pl.read_parquet(browsed / "kept.decisions.parquet").select("key", "decision")
    return (
        pl.read_parquet(browsed / "scores.parquet")
        .with_row_index("row")
        .join(decisions, on="key", maintain_order="left")
    )


def test_the_page_is_the_report_without_rows(server):
    answer, content = get(server, "browse")
    text = content.decode()
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
    assert "Content-Security-Policy" in text
    assert "<script>alert" not in text
    assert server.site.token in text


def test_the_served_document_refers_to_rows_by_number(server, frame):
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
def test_sorted_pages_equal_polars(server, frame, column, descending):
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
def test_filtered_pages_equal_polars(server, frame, query, condition):
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


def test_thumbnails_are_made_on_demand_and_a_missing_image_is_reported(server):
    answer, content = get(server, "thumb/20.jpg")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "image/webp")
    picture = Image.open(io.BytesIO(content)).convert("RGB")
    assert max(picture.size) <= 128
    assert np.abs(np.asarray(picture, int).mean((0, 1)) - (20, 50, 100)).max() < 4
    assert get(server, "thumb/20.jpg")[1] == content
    for name in ("thumb/21.jpg", "thumb/9.jpg", "image/21.jpg"):
        answer, content = get(server, name)
        assert (answer.status, answer.headers["Content-Type"]) == (200, "image/svg+xml")
        assert [text.text for text in ElementTree.fromstring(content).iter(f"{SVG}text")] == ["no", "image:", "missing"]
        assert answer.headers["Cache-Control"] == "no-store"
    for row in (N, 10**11):
        assert get(server, f"thumb/{row}.jpg")[0].status == get(server, f"image/{row}.jpg")[0].status == 404


def test_an_image_is_shown_large_and_one_that_changed_since_it_was_scored_is_marked(tmp_path):
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
    images = server.site.images
    assert Image.open(io.BytesIO(images.large(0).data)).size == (1_024, 512)
    assert Image.open(io.BytesIO(images(0).data)).size == (128, 64)
    assert images(1).problem == images.large(1).problem == "changed since it was scored"
    assert b"changed" in images(1).data
    assert images(2).problem == ""  # nothing says what was scored


def test_the_images_of_a_table_without_paths_come_from_its_source(browsed, tmp_path):
    data = pl.read_parquet(browsed / "scores.parquet").with_columns(uri=pl.lit(None, pl.String))
    data.write_parquet(tmp_path / "scores.parquet")
    images = [(browsed / f"{row}.png").read_bytes() for row in range(0, 40, 2)]
    source = pl.DataFrame({"key": data["key"].to_list()[0:40:2][::-1], "image": images[::-1]})
    source.write_parquet(tmp_path / "images.parquet")
    server = view(tmp_path / "scores.parquet", source=str(tmp_path / "images.parquet"), points=0)
    try:
        picture = Image.open(io.BytesIO(server.site.images(30).data)).convert("RGB")
        assert abs(np.asarray(picture, int)[..., 0].mean() - 30) < 4
        assert server.site.images(31).problem == "no image: missing"
    finally:
        server.server_close()
    without = view(tmp_path / "scores.parquet", points=0)
    without.server_close()
    assert any("--source" in note for note in without.site.notes)


def test_few_thumbnails_are_kept(server, monkeypatch):
    monkeypatch.setattr(images_module, "KEPT", 3)
    images = images_module.RowImages(server.site.images.table, source=None)
    for row in range(0, 20, 2):
        images(row)
    assert images._small.cache_info().currsize == 3


def test_many_requests_at_once_are_answered(server, frame):
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


def test_a_table_that_changes_is_noticed(browsed, tmp_path):
    (tmp_path / "scores.parquet").write_bytes((browsed / "scores.parquet").read_bytes())
    server = view(tmp_path / "scores.parquet", points=0)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        pl.read_parquet(browsed / "scores.parquet").head(3).write_parquet(tmp_path / "scores.parquet")
        answer, content = get(server, "rows")
        assert answer.status == 409
        assert "has changed" in json.loads(content)["error"]
        (tmp_path / "scores.parquet").unlink()
        assert get(server, "rows")[0].status == 409
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize(
    ("number", "code"), [pytest.param(signal.SIGINT, 0, marks=pytest.mark.slow), (signal.SIGTERM, 143)]
)
def test_the_command_prints_the_address_and_ends_on_request(browsed, number, code):
    words = [
        sys.executable,
        "-m",
        "curate",
        "review",
        "--browse",
        str(browsed / "scores.parquet"),
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
        assert said == ("" if number == signal.SIGINT else "terminated; repeat the command to resume\n")
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
