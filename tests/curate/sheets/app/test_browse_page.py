"""The page that ``curate review --browse`` serves, in a real browser: rows and images come as they are requested."""

import json
import threading

import polars as pl
import pytest
from headless import with_browser
from PIL import Image

from curate.reviewing.serve import review

N = 250
GONE = 3
HOSTILE = "</script><img src=x onerror=alert(1)>\u202e.png"
SHOWN = "Array.from(document.querySelectorAll('.gallery .tile .key'), (key) => key.textContent)"
PICTURES = "Array.from(document.querySelectorAll('.gallery .tile img')).filter((i) => i.naturalWidth > 0).length"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    Image.new("RGB", (600, 400), (200, 80, 40)).save(folder / "one.png")
    frame = pl.DataFrame(
        {
            "key": [HOSTILE, *(f"img/{row:03}.png" for row in range(1, N))],
            "uri": [str(folder / ("gone.png" if row == GONE else "one.png")) for row in range(N)],
            "status": ["ok"] * N,
            "label": [("cat", "dog", "<b>owl</b>")[row % 3] for row in range(N)],
            "unc_made_up": [(row * 37 % N) / N for row in range(N)],
        }
    )
    frame.write_parquet(folder / "scores.parquet")
    return folder / "scores.parquet", frame


@pytest.fixture(scope="module")
def opened(browser, table):
    server = review(table[0], browse=True, points=0)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    browser.size(1440, 1000)
    browser.events.clear()
    browser.ask("Page.navigate", url=server.url)
    browser.until("document.readyState === 'complete' && document.querySelectorAll('.gallery .tile').length")
    yield browser
    problems, sent = browser.problems()
    browser.ask("Page.navigate", url="about:blank")
    server.shutdown()
    server.server_close()
    assert problems == []
    assert [url for url in sent if not url.startswith(server.url.removesuffix("browse"))] == []


def field(browser, name, value):
    event = "input" if name == "search" else "change"
    browser.run(
        f"(f => {{ f.value = {json.dumps(value)}; f.dispatchEvent(new Event('{event}')); }})"
        f"(document.querySelector('[data-field={name}]'))"
    )


def total(browser, words):
    browser.until(f"document.querySelector('.total').textContent === {json.dumps(words)}")


@with_browser
def test_galleries_rows_and_images_come_from_the_server(opened, table):
    frame = table[1]
    least = frame.sort("unc_made_up", descending=True)["key"].to_list()
    opened.until(f"{SHOWN}[0] === {json.dumps(least[0])}")
    opened.until(f"{PICTURES} > 0")
    opened.run("document.querySelector('[data-gallery=all]').click(); 0")
    total(opened, f"{N} images")
    opened.until(f"{SHOWN}[0].includes('onerror=alert(1)')")
    field(opened, "klass", "<b>owl</b>")
    owls = frame.filter(pl.col("label") == "<b>owl</b>")
    total(opened, f"{len(owls)} images, filtered")
    field(opened, "sort", "unc_made_up")
    first = owls.sort("unc_made_up")["key"].to_list()
    opened.until(f"{SHOWN}[0] === {json.dumps(first[0])}")
    assert opened.run(SHOWN)[:20] == first[:20]
    field(opened, "search", "IMG/02")
    keys = [key for key in first if "img/02" in key]
    total(opened, f"{len(keys)} images, filtered")
    opened.until(f"{SHOWN}.length === {len(keys)}")
    assert opened.run(SHOWN) == keys


@with_browser
def test_an_image_that_is_clicked_is_larger_than_its_thumbnail_and_one_that_is_gone_makes_no_noise(opened):
    opened.run("document.querySelector('[data-gallery=all]').click(); 0")
    for name in ("klass", "search"):
        field(opened, name, "")
    field(opened, "search", "IMG/00")
    opened.until(f"document.querySelector('.tile[data-number=\"{GONE}\"]')")
    image = "document.querySelector('#detail .portrait img')"
    opened.run("document.querySelector('.tile[data-number=\"1\"] .look').click(); 0")
    opened.until(f"{image} && {image}.naturalWidth === 600")
    opened.run("document.querySelector('#detail [aria-label=Close]').click(); 0")
    opened.run(f"document.querySelector('.tile[data-number=\"{GONE}\"] .look').click(); 0")
    opened.until(f"{image} && {image}.src.includes('/image/{GONE}.jpg') && {image}.naturalWidth === 128")
    opened.run("document.querySelector('#detail [aria-label=Close]').click(); 0")
