"""The pages in a real browser: their scripts run, their policy holds, and what is saved is what came, filled in."""

import csv
import json
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deduplicated import HOSTILE, dropped, fact, kept, write
from headless import with_browser
from PIL import Image

from curate.display.groups import group_sheet
from curate.display.label_page import label_page
from curate.manifest.text import unguarded
from curate.policies.labels.review import COLUMNS as COLUMNS_OF_LABELS
from curate.policies.labels.verdicts import KEYS
from curate.tables.table import open_table

COUNT = "document.getElementById('count').textContent"


@with_browser
def test_labels_are_judged_by_keys_and_saved_as_what_verdicts_reads(browser, tmp_path):
    Image.new("RGB", (30, 20), "red").save(tmp_path / "p.png")
    labels = ["cat", "<script>document.title = 1</script>", *HOSTILE[:2]]
    keys = [f"k{at}" for at in range(len(labels))]
    table = pa.table({"key": keys, "uri": [str(tmp_path / "p.png")] * len(keys), "status": ["ok"] * len(keys)})
    pq.write_table(table, tmp_path / "t.parquet")
    rows = [
        dict(zip(COLUMNS_OF_LABELS, (f"{at} of 4", key, label, "dog", "0.1", "suspected", "4", ""), strict=True))
        for at, (key, label) in enumerate(zip(keys, labels, strict=True), 1)
    ]
    name = f"labels{time.time_ns()}"
    page = label_page(open_table(tmp_path / "t.parquet"), rows, None, answers=KEYS, name=f"{name}.csv")
    (tmp_path / f"{name}.html").write_text(page, "utf-8")
    browser.open(tmp_path / f"{name}.html")
    for key in "gsou":
        browser.press(key)
    assert browser.run(COUNT) == "4 of 4 labels answered"
    texts = browser.run("Array.from(document.querySelectorAll('section'), (s) => s.textContent)")
    assert all("suggested" in text for text in texts)
    assert labels[1] in texts[1]
    browser.run("document.getElementById('save').click()")
    saved = browser.downloads / f"{name}.csv"
    for _ in range(100):
        if saved.exists() and saved.stat().st_size:
            break
        time.sleep(0.05)
    with saved.open(newline="", encoding="utf-8") as file:
        back = list(csv.DictReader(file))
    assert [row["answer"] for row in back] == ["given", "suggested", "other", "unsure"]
    assert [{name: unguarded(cell) for name, cell in row.items()} | {"answer": ""} for row in back] == rows
    assert browser.problems() == ([], [])


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
