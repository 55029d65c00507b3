"""The walk-throughs: their commands are run in order, and their pages show what came out."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "walkthroughs"
DATA = ROOT.parent / "shared" / "data"


@pytest.fixture(scope="module")
def walk():
    """The script that renews the pages."""
    spec = importlib.util.spec_from_file_location("walkthroughs", ROOT / "examples" / "walkthroughs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_begins_with_a_separate_folder(walk):
    assert sorted(walk.BEGINNINGS) == sorted(page.stem for page in PAGES.glob("*.md"))


def test_what_a_page_shows_is_replaced_and_its_words_stay(walk):
    page = "# A\n\n```console\n$ one\nold\n$ two\n```\n\nwords\n\n```console\n$ three\nold\n```\n"
    ran = []
    renewed = walk.renew(page, lambda line: ran.append(line) or f"new {line}\n")
    assert ran == ["one", "two", "three"]
    assert renewed == page.replace("$ one\nold\n$ two\n", "$ one\nnew one\n$ two\nnew two\n").replace(
        "$ three\nold\n", "$ three\nnew three\n"
    )


def test_a_line_is_run_as_a_shell_would_with_notes_and_the_exit_code(walk, tmp_path):
    assert walk.run("curate --version | tr a-z A-Z", tmp_path).startswith("CURATE ")
    failed = walk.run("curate info none.parquet", tmp_path)
    assert failed.startswith("error: ")
    assert failed.endswith("\n(exit code 1)\n")


def test_no_page_shows_a_mistake(walk):
    for page in PAGES.glob("*.md"):
        for block in walk.BLOCK.findall(page.read_text()):
            assert not re.search(r"^(error|Traceback|Usage)", block, re.MULTILINE), page


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="no data sets next to the checkout")
def test_the_pages_show_what_the_commands_print(walk, tmp_path):
    for name, begin in walk.BEGINNINGS.items():
        folder = tmp_path / name
        folder.mkdir()
        begin(DATA, folder)
        shown = (PAGES / f"{name}.md").read_text()
        renewed = walk.renew(shown, lambda line, folder=folder: walk.run(line, folder))
        assert steady(renewed) == steady(shown)


UNSTEADY = re.compile(r" in [0-9.]+ s \([0-9,]+ images/s\)|\([0-9]+ threads|\bbytes +[0-9,]+$|[0-9,]+ bytes$")


def steady(text):
    """The lines of a page without what differs from run to run: seconds, rates, progress, threads, bytes (of paths)."""
    lines = [line for line in text.splitlines() if not re.search(r" images, .*/s, ", line)]
    return [UNSTEADY.sub("", line) for line in lines]
