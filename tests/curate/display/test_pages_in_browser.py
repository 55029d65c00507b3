"""The pages in a real browser: their scripts run, their policy holds, and what is saved is what came, filled in."""

import csv
import io
import json
import time
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deduplicated import HOSTILE, dropped, fact, kept, write
from headless import with_browser
from PIL import Image

from curate.display.audit_page import pair_page
from curate.display.groups import group_sheet
from curate.display.label_page import label_page
from curate.manifest.text import guarded, unguarded
from curate.policies.labels.review import COLUMNS as COLUMNS_OF_LABELS
from curate.policies.labels.verdicts import KEYS
from curate.tables.table import open_table
from scoring.errors import InputError

COUNT = "document.getElementById('count').textContent"
COLUMNS = ("pair", "key_a", "key_b", "similarity", "stratum", "weight", "answer")


def grey(key):
    """An image for every key but one."""
    return None if key == "lost" else np.full((20, 40, 3), 128, np.uint8)


def pairs(keys, answers=()):
    given = dict(enumerate(answers))
    return [
        {
            "pair": f"{at + 1} of {len(keys) - 1}",
            "key_a": a,
            "key_b": b,
            "similarity": repr(0.9 + at / 1000),
            "stratum": "signature: near 1, 0.9 to 0.95",
            "weight": "12.5",
            "answer": given.get(at, ""),
        }
        for at, (a, b) in enumerate(pairwise(keys))
    ]


# Without a browser


def test_a_page_of_pairs_shows_both_pictures_and_where_the_pair_comes_from():
    text = pair_page(pairs(["a", "b", "lost"]), grey, name="k.audit.csv")
    assert text.count("data:image/jpeg;base64,") == 3
    assert text.count("not readable") == 1
    assert "1 of 2 · similarity 0.9 · <bdi>signature: near 1, 0.9 to 0.95</bdi>" in text
    assert 'data-name="k.audit.csv"' in text


def test_the_second_picture_can_come_from_another_table():
    asked = []
    pair_page(
        pairs(["a", "b"]), lambda key: asked.append(("new", key)), read_other=lambda key: asked.append(("old", key))
    )
    assert asked == [("new", "a"), ("old", "b")]


def test_pairs_without_a_needed_column_are_the_callers_mistake():
    with pytest.raises(ValueError, match="every pair needs the columns key_a, key_b, similarity, stratum"):
        pair_page([{"key_a": "a", "key_b": "b"}], grey)


def test_more_pairs_than_anyone_could_judge_are_refused_before_any_is_read():
    read = []
    with pytest.raises(InputError, match=r"at most 2000 images, got 2002; ask for fewer"):
        pair_page(pairs([str(at) for at in range(1002)]), read.append)
    assert read == []


# With a browser


@with_browser
def test_keys_and_buttons_answer_and_the_saved_csv_is_the_one_that_came_filled_in(browser, tmp_path):
    keys = [*HOSTILE, "plain, with a comma", " spaces ", '=1+"1"']
    came = pairs(keys, ["", "same", "yes"])
    name = f"saved{time.time_ns()}"
    (tmp_path / f"{name}.html").write_text(pair_page(came, grey, name=f"{name}.csv"), "utf-8")
    browser.open(tmp_path / f"{name}.html")
    count = "document.getElementById('count').textContent"
    assert browser.run(count) == f"2 of {len(came)} pairs answered"
    current = "Array.from(document.querySelectorAll('section')).findIndex((s) => s.classList.contains('current'))"
    assert browser.run(current) == 0
    browser.press("n")
    assert browser.run(current) == 1
    browser.press("y")  # was the same already: taken back
    browser.press("ArrowDown")
    browser.press("ArrowDown")
    assert browser.run(current) == 3
    browser.press("u")
    browser.press("Y")
    browser.run("document.querySelectorAll('section')[6].querySelector('button[value=different]').click()")
    pressed = "document.querySelectorAll('section')[6].querySelectorAll('[aria-pressed=true]').length"
    assert browser.run(pressed) == 1
    browser.run("document.getElementById('save').click()")
    saved = browser.downloads / f"{name}.csv"
    for _ in range(100):
        if saved.exists() and saved.stat().st_size:
            break
        time.sleep(0.05)
    expected = {0: "different", 1: "", 2: "yes", 3: "unsure", 4: "same", 6: "different"}
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    safe = [row | {name: guarded(row[name]) for name in ("key_a", "key_b")} for row in came]
    assert safe != came  # some of the keys would be formulas
    writer.writerows([row | {"answer": expected.get(at, "")} for at, row in enumerate(safe)])
    assert saved.read_bytes() == text.getvalue().encode()
    assert browser.problems() == ([], [])


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


@with_browser
def test_answers_outlive_the_page_until_other_pairs_come(browser, tmp_path):
    (tmp_path / "one.html").write_text(pair_page(pairs(["a", "b", f"{time.time_ns()}"]), grey), "utf-8")
    browser.open(tmp_path / "one.html")
    browser.press("y")
    browser.open(tmp_path / "one.html")
    assert [event["method"] for event in browser.problems()[0]] == ["Page.javascriptDialogOpening"]  # not saved yet
    for _ in range(20):  # a busy browser hands what one page stored to the process of the next a moment later
        if browser.run(COUNT) != "0 of 2 pairs answered":
            break
        time.sleep(0.1)
        browser.open(tmp_path / "one.html")
    assert browser.run(COUNT) == "1 of 2 pairs answered"
    (tmp_path / "two.html").write_text(pair_page(pairs(["a", "b", "other"]), grey), "utf-8")
    browser.open(tmp_path / "two.html")
    assert browser.run(COUNT) == "0 of 2 pairs answered"


@with_browser
def test_a_page_without_pairs_says_so(browser, tmp_path):
    (tmp_path / "none.html").write_text(pair_page([], grey), "utf-8")
    browser.open(tmp_path / "none.html")
    browser.press("y")
    assert browser.run(COUNT) == "0 of 0 pairs answered"
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
