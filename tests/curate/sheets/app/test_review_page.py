"""The page of ``curate review`` in a real browser: by the keyboard alone, in two windows, and over a kill."""

import json
import os
import signal
import subprocess
import sys

import pytest
from headless import with_browser
from reviewed_table import GREY, HOSTILE, RED, serving, write_table

import curate
from curate.policies.verdicts import read_verdicts

ABOUT = "(document.getElementById('about')?.textContent ?? '')"
TILES = "document.querySelectorAll('[data-row]').length"
ENDS_SHOWN = """Array.from(document.querySelectorAll('.key')).every((key) => {
    const text = document.createRange();
    text.selectNodeContents(key);
    return text.getBoundingClientRect().bottom <= key.getBoundingClientRect().bottom + 1;
})"""
PROBLEM = "document.getElementById('problem').textContent"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reviewed")
    write_table(folder)
    return folder


@pytest.fixture
def table(folder):
    yield folder / "scores.parquet"
    (folder / "scores.verdicts.jsonl").unlink(missing_ok=True)


def verdicts(table):
    path = table.with_name("scores.verdicts.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()][1:] if path.exists() else []


def show(browser, url, *, tiles=GREY):
    browser.ask("Page.navigate", url=url)
    browser.until(f"{TILES} === {tiles}")


def until_about(browser, words):
    browser.until(f"{ABOUT}.includes({json.dumps(words)})")


@with_browser
def test_everything_works_by_the_keyboard_alone_and_hostile_names_are_text(browser, table):
    browser.size(1200, 900)
    browser.events.clear()
    with serving(table, reviewer="<b>ann</b>") as server:
        show(browser, server.url)
        until_about(browser, f"2 groups, {GREY + RED} images to decide")
        assert HOSTILE in browser.run("Array.from(document.querySelectorAll('.key'), (key) => key.title)")
        assert browser.run(ENDS_SHOWN)
        browser.press("ArrowRight")
        browser.press("ArrowRight")
        browser.press("x")
        browser.until("document.querySelectorAll('li.out').length === 1")
        browser.press("d")
        until_about(browser, f"{GREY - 1} dropped")
        browser.until(f"{TILES} === {RED}")  # what was taken out comes last
        browser.press("s")
        until_about(browser, "3 groups")
        browser.press("u")
        until_about(browser, "2 groups")
        browser.until(f"{TILES} === {RED}")
        browser.press("r")
        browser.ask("Input.insertText", text="owl & <i>")
        browser.ask(
            "Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", text="\r", windowsVirtualKeyCode=13
        )
        until_about(browser, f"{RED} relabelled")
        browser.until(f"{TILES} === 1")
        browser.press("k")
        browser.until("document.querySelector('#group h2').textContent.startsWith('Nothing')")
        browser.press("a")
        browser.until(f"{TILES} > 20")
        browser.press("k")
        browser.until("document.getElementById('audit').textContent.includes('95 % confidence')")
        browser.press("?")
        browser.until("document.getElementById('help').open")
        problems, sent = browser.problems()
        assert problems == []
        assert [url for url in sent if not url.startswith(server.url)] == []
    lines = verdicts(table)
    assert [line["verdict"] for line in lines] == ["drop", "split", "undo", "relabel", "keep", "audit"]
    assert lines[3]["label"] == "owl & <i>"
    assert len(lines[0]["keys"]) == GREY - 1


@with_browser
def test_a_second_window_shows_what_the_first_decided_and_a_reload_loses_nothing(browser, table):
    with serving(table) as server:
        show(browser, server.url)
        from reviewed_table import act, queue

        act(server, "drop", queue(server)[0]["id"])  # in another window
        browser.press("k")
        browser.until(f"{PROBLEM}.includes('another window')")
        browser.until(f"{TILES} === {RED}")
        assert [line["verdict"] for line in verdicts(table)] == ["drop"]
        browser.press("k")
        until_about(browser, "0 groups")
        browser.ask("Page.reload")
        until_about(browser, f"0 groups, 0 images to decide · {GREY} dropped, {RED} kept")
        browser.ask("Page.navigate", url="about:blank")


@with_browser
@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.slow
def test_a_server_that_is_killed_between_decisions_loses_none(browser, table):
    def start():
        words = [sys.executable, "-m", "curate", "review", str(table), "--no-open", "--quiet"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        return process, process.stdout.readline().strip()

    process, url = start()
    show(browser, url)
    browser.press("d")
    until_about(browser, f"{GREY} dropped")
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    browser.press("d")
    browser.until(f"{PROBLEM}.includes('the server is gone')")
    process, url = start()
    try:
        show(browser, url, tiles=RED)
        until_about(browser, f"1 group, {RED} images to decide · {GREY} dropped")
        browser.press("d")
        until_about(browser, f"{GREY + RED} dropped")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert [line["verdict"] for line in verdicts(table) if line["verdict"] != "begin"] == ["drop", "drop"]
    browser.ask("Page.navigate", url="about:blank")


@with_browser
def test_of_a_drawn_sample_the_images_that_are_taken_out_are_bad_in_the_same_decision(browser, table):
    sample = table.with_name("kept.audit.csv")
    curate.review_plan(table, sample, "p_junk", max_bad_rate="20%", images=20, overwrite=True)
    browser.events.clear()
    with serving(table, results=[sample], reviewer="ann") as server:
        show(browser, server.url, tiles=20)
        browser.press("ArrowRight")
        browser.press("x")
        browser.until("document.querySelector('[data-key=k]').textContent.includes('bad')")
        browser.press("k")
        until_about(browser, "0 groups")
    (line, bad) = read_verdicts(table.with_name("kept.audit.verdicts.jsonl")).live()[1:]
    assert [(decision.verdict, len(decision.keys)) for decision in (line, bad)] == [("keep", 19), ("drop", 1)]
    assert browser.problems()[0] == []
