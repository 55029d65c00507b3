"""Every table of a study has the command that repeats it, in its section or at the top of the page; and it parses."""

import argparse
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STUDIES = [page for page in sorted((ROOT / "docs" / "studies").glob("*.md")) if page.stem != "README"]
BLOCK, INLINE = r"^    (python .*|curate .*)$", r"`(python (?:benchmarks|examples)/\w+\.py[^`]*|curate [a-z]+ [^`]+)`"
COMMAND = re.compile(f"{BLOCK}|{INLINE}", re.MULTILINE)


def sections(text):
    """The parts of a page, each from a heading of the second level to the next; the first is the top."""
    return re.split(r"(?m)^(?=## )", text)


def commands(text):
    """The command lines of a part, in a block or in backticks."""
    found = COMMAND.findall(re.sub(r"\\\n\s+", "", text))  # lines that go on in the next are one
    return [" ".join((block or inline).removeprefix("python ").split()) for block, inline in found]


LINES = {line for page in STUDIES for line in commands(page.read_text())}
SCRIPTS = sorted(line for line in LINES if line.startswith(("benchmarks/", "examples/")))


class ParsedError(Exception):
    """A script has read its arguments."""


@pytest.mark.parametrize("page", STUDIES, ids=lambda page: page.stem)
def test_every_table_has_a_command_that_repeats_it(page):
    top, *others = sections(page.read_text())
    bare = [part.partition("\n")[0] for part in others if "\n|" in part and not commands(top) and not commands(part)]
    assert not bare, f"{page.relative_to(ROOT)}: a table without the command that repeats it, below {bare}"


@pytest.mark.study
@pytest.mark.parametrize("line", SCRIPTS)
def test_a_command_of_a_study_parses(line, monkeypatch):
    script, *words = shlex.split(line)
    parse = argparse.ArgumentParser.parse_args

    def parse_and_end(self, *args, **kwargs):
        parse(self, *args, **kwargs)
        raise ParsedError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_end)
    monkeypatch.setattr(sys, "argv", [script, *words])
    monkeypatch.syspath_prepend(ROOT / Path(script).parent)
    with pytest.raises(ParsedError):
        runpy.run_path(str(ROOT / script), run_name="__main__")
