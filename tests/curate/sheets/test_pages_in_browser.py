"""The pages in a real browser: their scripts run, their policy holds, and what is saved is what came, filled in."""

import json
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deduplicated import HOSTILE, dropped, fact, kept, write
from headless import with_browser
from PIL import Image

from curate.sheets.groups import group_sheet
from curate.tables.table import open_table


@pytest.fixture
def groups_page(tmp_path):
    """Two groups, hostile in every word; the second carries different labels."""
    keys = [*HOSTILE, "harmless"]
    Image.new("RGB", (30, 30)).save(tmp_path / "i.png")
    table = pa.table({"key": keys, "uri": [str(tmp_path / "i.png")] * len(keys), "label": keys})
    pq.write_table(table, tmp_path / "t.parquet")
    rows = [kept(keys[0], 1), *(dropped(key, keys[0], 1, 0.95, reason=key) for key in keys[1:-2])]
    rows += [kept("harmless", 2), dropped(keys[-2], "harmless", 2, 0.99)]
    facts = [fact(1, keys[0], 2, 0.9, labels=["cat"], margin=0.1)]
    facts += [fact(2, "harmless", 2, 0.9, finders=keys, labels=keys, conflict=True)]
    group_sheet(open_table(tmp_path / "t.parquet"), *write(tmp_path, rows, facts), tmp_path / "p.html", label="label")
    return tmp_path / "p.html"


SHOWN = "Array.from(document.querySelectorAll('section')).map((section) => section.offsetHeight > 0)"


@with_browser
def test_groups_are_filtered_by_text_and_by_conflict(browser, groups_page):
    browser.open(groups_page)
    assert browser.run(SHOWN) == [True, True]

    def filter_by(text):
        browser.run(f"filter.value = {json.dumps(text)}; filter.dispatchEvent(new Event('input')); 0")
        return browser.run(SHOWN), browser.run("count.textContent")

    assert filter_by("HARMLESS") == ([False, True], "1 of 2 groups")
    assert filter_by("<script>") == ([True, True], "2 of 2 groups")
    assert filter_by("nowhere") == ([False, False], "0 of 2 groups")
    filter_by("")
    browser.run("conflicts.click()")
    assert browser.run(SHOWN) == [False, True]
    assert browser.problems() == ([], [])


@with_browser
def test_the_policy_lets_pictures_show_and_nothing_else_run_or_leave(browser, groups_page):
    browser.open(groups_page)
    assert browser.run("Array.from(document.images).every((image) => image.complete && image.naturalWidth > 0)")
    assert browser.problems() == ([], [])
    for attack in (
        "document.body.insertAdjacentHTML('beforeend', `<img src='http://127.0.0.1:9/x'>`)",
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.broken = 1'}))",
        "document.body.insertAdjacentHTML('beforeend', `<img src='data:,' onerror='window.broken = 1'>`)",
    ):
        browser.events.clear()
        browser.run(attack + "; 0")
        for _ in range(40):
            seen, _ = browser.problems()
            if seen:
                break
            time.sleep(0.05)
        assert any("Content Security Policy" in json.dumps(event) for event in seen), attack
    assert browser.run("window.broken === undefined")
