"""Plain words: terms that readers stumble over may only become fewer."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("curate", "scoring", "trainers", "examples", "benchmarks")
# term that stumbles -> what to write
TERMS = {
    r"heaps?": "dataset, table or pool",
    r"trunks?": "backbone",
    r"pictures?": "image",
    r"tells?|told": "reports, shows, separates",
    r"asked": "requested, given",
    r"chances?(?! level)(?<!than chance)(?<!by chance)(?<!beyond chance)": "probability",
    r"luck": "chance level",
    r"likewise|anew": "the same, again",
    r"in place of|beside|besides": "instead of, next to, in addition to",
    r"(?:go|goes|went|going) by": "uses, is ranked by",
    r"sure(?:r|st)": "more certain",
    r"(?:that|those) of": "the noun again",
    r"a person|people|somebody|nobody|whoever": "you, annotator, reviewer, the process",
    r"of (?:its|their|your) own": "its, their, your",
    r"bears? out|foretold|deals?|strangers?": "confirms, predicted, permutations, untrusted",
}
MOST_IN_1000 = {"code": 0.09, "docs": 0.17, "names of tests": 0.25}  # what was reached; only to be lowered
EMPTY = {
    "found",
    "asked",
    "told",
    "theirs",
    "odd",
    "wanted",
    "given",
    "there",
    "whole",
    "own",
    "one",
    "here",
    "worth",
    "trunk",
}
MOST_SENTENCES = 45  # patterns of messages in tests with five words or more; only to be lowered
MOST_EMPTY = 0  # names with such a part, at every place where they are bound; only to be lowered


@cache
def nodes_of(path):
    return list(ast.walk(ast.parse(path.read_text())))


def prose_of(path):
    """Texts of a Python file: strings with spaces, and comments."""
    for node in nodes_of(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.value
    yield from re.findall(r"(?m)(?:^|\s)# .*$", path.read_text())


def names_of(path):
    """Names that a Python file binds: functions, classes, variables and parameters."""
    for node in nodes_of(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def rate(texts):
    """Return stumbling terms in 1,000 words, and how often each occurs."""
    text = "\n".join(texts)
    words = len(re.findall(r"[A-Za-z']+", text))
    counts_by_term = {term: len(re.findall(rf"\b(?:{term})\b", text, re.IGNORECASE)) for term in TERMS}
    return 1000 * sum(counts_by_term.values()) / words, counts_by_term


def test_a_text_of_stumbling_words_has_a_high_rate():
    assert rate(["A picture in a heap is told from that of people by luck"])[0] > 300
    assert rate(["An image of the dataset is reported"])[0] == 0


@pytest.mark.parametrize("part", sorted(MOST_IN_1000))
def test_stumbling_words_do_not_increase(part):
    if part == "docs":
        texts = [path.read_text() for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))]
    elif part == "names of tests":
        names = [name for path in (ROOT / "tests").rglob("test_*.py") for name in names_of(path)]
        texts = [name.replace("_", " ") for name in names if name.startswith("test_")]
    else:
        texts = [text for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") for text in prose_of(path)]
    counts_by_term, counts = rate(texts)
    most = MOST_IN_1000[part]
    often = sorted(counts, key=counts.get)[-3:]
    assert counts_by_term <= most, (
        f"{counts_by_term:.2f} in 1,000 words, most often {often}: write {[TERMS[term] for term in often]}"
    )


def test_empty_names_do_not_increase():
    named = [
        f"{path.relative_to(ROOT)}: {name}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name in names_of(path)
        if EMPTY & set(name.lower().split("_"))
    ]
    assert len(named) <= MOST_EMPTY, f"name what the value is, such as `rows` or `label`: {named}"


def test_tests_match_key_words_instead_of_sentences():
    patterns = [
        f"{path.relative_to(ROOT)}:{node.value.lineno}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for node in nodes_of(path)
        if isinstance(node, ast.keyword) and node.arg == "match" and len(ast.unparse(node.value).split()) >= 5
    ]
    assert len(patterns) <= MOST_SENTENCES, f"match a name, a number or an option: {patterns}"
