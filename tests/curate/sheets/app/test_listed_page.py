"""Listed crops on the pages of ``curate report`` and ``curate review``, in a real browser."""

import csv

import pytest
from cropped_table import CROP, WHOLE, write_cropped
from headless import with_browser
from reviewed_table import serving

import curate


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    """The table, and the subset of its deduplication."""
    folder = tmp_path_factory.mktemp("listed")
    table = write_cropped(folder)
    return table, curate.dedup(table, folder / "unique.parquet", keep="max:rank").subset


@with_browser
def test_a_report_shows_a_listed_crop_among_the_findings(browser, listed, tmp_path):
    table, subset = listed
    curate.report(table, [subset], tmp_path / "report.html", points=0, findings=tmp_path / "findings")
    (sheet,) = (tmp_path / "findings").glob("*.csv")
    lines = {line["key"]: line for line in csv.DictReader(sheet.open()) if line["kind"] == "near-copy"}
    assert set(lines) == {CROP, WHOLE}
    assert WHOLE in lines[CROP]["finding"]
    assert "crop (cosine" in lines[CROP]["finding"]
    browser.size(1200, 900)
    browser.open(tmp_path / "report.html")
    browser.until("document.querySelectorAll('[data-gallery=review]').length")
    browser.run("document.querySelector('[data-gallery=review]').click(); 0")
    tile = f"Array.from(document.querySelectorAll('.gallery .tile')).findLast((tile) => tile.row.key === '{CROP}')"
    browser.until(f"{tile} !== undefined")
    assert "near-copy" in browser.run(f"{tile}.closest('.group').querySelector('h3').textContent")
    browser.run(f"{tile}.querySelector('.look').click(); 0")
    browser.until("document.querySelector('dialog[open]')?.textContent.includes('by crop (cosine')")
    assert browser.problems() == ([], [])


@with_browser
def test_a_review_shows_a_listed_crop_next_to_its_image(browser, listed):
    table, subset = listed
    words = "(document.getElementById('group')?.textContent ?? '')"
    with serving(table, results=[subset]) as server:
        browser.ask("Page.navigate", url=server.url)
        browser.until(f"{words}.includes('label')")  # of two labels
        browser.press("n")
        browser.until("document.querySelectorAll('[data-row] img').length === 2")
        why = browser.run("document.querySelector('li:has([data-row]) .why').textContent")
        assert WHOLE in why
        assert "crop (cosine" in why
        browser.ask("Page.navigate", url="about:blank")
