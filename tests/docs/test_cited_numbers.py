"""Numbers of a page that cites a CSV file are in it, rounded as printed: a study that changed is found by its line.

A number is cited in the sentence before ``[...](data/NAME.csv)``, and in the table before ``[All of the table]``, where
the numbers of a row are looked for in the rows of the file that have a cell like the row's first.
"""

import csv
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if "data/" in page.read_text()]
LINK = re.compile(r"\[([^\]]*)\]\(((?:[\w./]*/)?data/[\w.-]+\.csv)\)")
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)")
SCALES = (1, 100, 0.01)  # shares are printed as percent, and percent as shares


def numbers(text):
    """Yield each number of a text as printed, its size and its decimals; code is left out."""
    for found in NUMBER.finditer(re.sub(r"`[^`]*`|\]\([^)]*\)", " ", text)):
        printed = found[0].rstrip(",")
        yield printed, abs(float(printed.replace(",", ""))), len(printed.partition(".")[2])


def unknown(text, rows):
    """Return the numbers of a text that no cell of the rows rounds to."""
    values = [value for row in rows for cell in row for _, value, _ in numbers(cell)]
    return [
        printed
        for printed, value, decimals in numbers(text)
        if not any(abs(each * scale - value) <= 0.5001 * 10**-decimals for each in values for scale in SCALES)
    ]


def like(cell):
    return re.sub(r"[*`\s]", "", cell).lower()


def cited(page):
    """Yield line, text and the rows that have to hold its numbers."""
    line, table = 1, []
    for block in page.read_text().split("\n\n"):
        begin = 0
        for link in LINK.finditer(block):
            rows = list(csv.reader((page.parent / link[2]).open(encoding="utf-8", newline="")))
            sentence = re.split(r"[.:]\s", block[begin : link.start()])[-1]
            yield line + block[: link.start()].count("\n"), sentence, rows
            for at, printed in table if link[1] == "All of the table" else ():
                first, *others = printed.strip("| ").split("|")
                same = [row for row in rows if like(first) in map(like, row)]
                yield at, "|".join(others), same or rows
            begin = link.end()
        table = [(line + at, row) for at, row in enumerate(block.split("\n")) if row.startswith("|")][2:]
        line += block.count("\n") + 2


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_numbers_next_to_a_file_are_in_it(page):
    name = page.relative_to(ROOT)
    wrong = [f"{name}:{line}: {number}" for line, text, rows in cited(page) for number in unknown(text, rows)]
    assert not wrong, "not in the file that is cited there; read it again:\n" + "\n".join(wrong)


def test_a_number_that_changed_is_found(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.csv").write_text("set,share\na,0.1234\nb,0.5\n")
    page = tmp_path / "p.md"
    page.write_text(
        "# P\n\n| set | share |\n|---|---|\n| **a** | 12.3 % |\n| b | .12 |\n\n[All of the table](data/x.csv)\n"
    )
    assert [(line, unknown(text, rows)) for line, text, rows in cited(page)] == [(8, []), (5, []), (6, [".12"])]
    page.write_text("In 1 run. One\nhas .51 of `9` ([table](data/x.csv)).\n")
    assert [(line, unknown(text, rows)) for line, text, rows in cited(page)] == [(2, [".51"])]
