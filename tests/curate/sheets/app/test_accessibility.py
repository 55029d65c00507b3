"""The site and the tool's pages have no serious finding of axe: on a phone and a desk, in light and dark."""

import importlib.util
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from headless import with_browser
from reported import document
from reviewed_table import GREY, serving, write_table

from curate.reviewing.serve import review
from curate.sheets.app.assemble import page_pieces

ROOT = Path(__file__).parents[4]
PACKAGE = importlib.util.find_spec("axe_core_python")
AXE = Path(os.environ.get("AXE") or (Path(PACKAGE.origin).with_name("axe.min.js") if PACKAGE else "none"))
FINDINGS = """
window.found = null;
axe.run(document, { resultTypes: ["violations"], ...only }).then((result) => {
    window.found = result.violations
        .filter((each) => ["serious", "critical"].includes(each.impact))
        .map((each) => [each.id, each.nodes.length, each.nodes[0].target.join(" "), each.nodes[0].failureSummary]);
    if (document.documentElement.scrollWidth > innerWidth + 1) window.found.push("wider than the window");
});
"""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not AXE.is_file(), reason="no axe: pip install axe-core-python, or AXE=path/to/axe.min.js"),
    with_browser,
]


def findings(browser):
    """What axe finds on the open page: (width, dark?) -> rule, places, the first place, what to do."""
    browser.run(AXE.read_text() + "; 0")
    found = {}
    for width in (390, 1280):
        for dark in (False, True):
            browser.size(width, 900, dark=dark)
            only = {"runOnly": ["color-contrast"]} if dark else {}  # nothing else depends on the colours
            browser.run(f"{{ const only = {json.dumps(only)};{FINDINGS}}}")
            browser.until("window.found !== null")
            found[f"{width} px, {'dark' if dark else 'light'}"] = browser.run("window.found")
    return {state: each for state, each in found.items() if each}


def test_a_page_with_faults_is_found_out(browser, tmp_path):
    (tmp_path / "bad.html").write_text("<p style='color: #ccc; width: 2000px'>grey<img src='data:,'>")
    browser.open(tmp_path / "bad.html")
    found = json.dumps(findings(browser))
    assert all(word in found for word in ("color-contrast", "image-alt", "wider"))


def test_the_pages_of_the_site(browser, tmp_path):
    site = tmp_path / "site"
    subprocess.run([sys.executable, ROOT / "docs" / "build_site.py", site], check=True, capture_output=True)
    found = {}
    for page in sorted(site.rglob("*.html")):
        browser.open(page)
        found[str(page.relative_to(site))] = findings(browser)
    assert len(found) > 100
    assert {page: each for page, each in found.items() if each} == {}


def test_the_report(browser, tmp_path):
    (tmp_path / "report.html").write_text("".join(page_pieces(document())), encoding="utf-8")
    browser.size(1280, 900)
    browser.open(tmp_path / "report.html")
    browser.until("document.querySelectorAll('.gallery .tile').length")
    assert findings(browser) == {}
    browser.run("document.querySelector('.gallery .tile button, .gallery .tile').click(); 0")
    assert findings(browser) == {}


def test_the_pages_of_a_review(browser, tmp_path):
    table = write_table(tmp_path)
    with serving(table) as server:
        browser.ask("Page.navigate", url=server.url)
        browser.until(f"document.querySelectorAll('[data-row]').length === {GREY}")
        assert findings(browser) == {}
        browser.press("?")
        browser.until("document.getElementById('help').open")
        assert findings(browser) == {}
        browser.ask("Page.navigate", url="about:blank")


def test_the_page_that_browses_a_table(browser, tmp_path):
    server = review(write_table(tmp_path), browse=True, points=0)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        browser.ask("Page.navigate", url=server.url)
        browser.until("document.querySelectorAll('.gallery .tile').length")
        assert findings(browser) == {}
        browser.ask("Page.navigate", url="about:blank")
    finally:
        server.shutdown()
        server.server_close()
