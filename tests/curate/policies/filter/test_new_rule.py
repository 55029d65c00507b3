"""A rule that a package outside the project adds by an entry point is a rule everywhere."""

import json
import sys

import numpy as np
import polars as pl
import pytest
from other_packages import ROOT, install, python

from curate.policies.filter.options import with_rules
from curate.policies.filter.rules import rule_from_json
from curate.policies.filter.table import OF_RULES, RULES
from scoring import plugins
from scoring.errors import InputError

CODE = '''
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar
import numpy as np
from curate.policies.filter.rule import Reasons, Rule
from curate.policies.filter.rule import Ruling
from curate.policies.filter.table import rule_option
from scoring.errors import InputError

@dataclass(frozen=True)
class EveryNth(Rule):
    """Keep every n-th row of the table, from a row on."""

    n: int
    first: int = 0
    column: str | None = field(default=None, init=False)
    per: str | None = field(default=None, init=False)
    name = "every-nth"
    option = Annotated[int | None, rule_option("Keep every N-th row.", "N")]
    settings = {"from-row": Annotated[int | None, rule_option("Count from this row.", "ROW")]}

    @classmethod
    def read(cls, value, arguments):
        if not str(value).isdecimal():
            raise InputError(f"--{cls.name} takes a whole number, got {value}")
        return cls(int(value), int(arguments.settings.get("from-row", [0])[0]))

    def judge(self, table_rows, rows, inside):
        places = np.arange(rows.start, rows.start + len(inside))
        return Ruling(places % self.n == self.first, np.ones(len(inside), bool), None)

    def reasons(self, result, rows, dropped):
        return Reasons([f"row {row} is {'left out' if out else 'taken'}" for row, out in zip(rows, dropped)])

    def notes(self, result):
        return [f"one of {self.n} rows is taken"]

@dataclass(frozen=True)
class Label(EveryNth):
    name = "label"

@dataclass(frozen=True)
class Help(EveryNth):
    name = "help"

@dataclass(frozen=True)
class Judges(EveryNth):
    name = "judges"

@dataclass(frozen=True)
class Bare(EveryNth):
    name = "bare"
    option = int

class Half(Rule):
    name = "half"

class Spaced(Half):
    name = "every nth"

class Upper(EveryNth):
    name = "Every_Nth"

class Listed(EveryNth):
    name = "listed"
    settings = ["a"]

class Word(EveryNth):
    name = "word"
    settings = {"class": EveryNth.option}

class Short(EveryNth):
    name = "short"
    def judge(self, table_rows, rows, inside):
        return Ruling(np.ones(2, bool), np.ones(len(inside), bool), None)

class Whole(EveryNth):
    name = "whole"
    def judge(self, table_rows, rows, inside):
        return Ruling(np.ones(len(inside), int), np.ones(len(inside), bool), None)

class Silent(EveryNth):
    name = "silent"
    def judge(self, table_rows, rows, inside):
        return None

class Needless(EveryNth):
    name = "needless"
    def needs(self, table):
        return None

class Raises(EveryNth):
    name = "raises"
    def judge(self, table_rows, rows, inside):
        return 1 // 0

class Exits(EveryNth):
    name = "exits"
    def needs(self, table):
        raise SystemExit

class Wordless(EveryNth):
    name = "wordless"
    def judge(self, table_rows, rows, inside):
        raise InputError

class Lost(EveryNth):
    name = "lost"
    @classmethod
    def read(cls, value, arguments):
        open("nowhere")

class Noted(EveryNth):
    name = "noted"
    def notes(self, result):
        return "text"

class Terse(EveryNth):
    name = "terse"
    def reasons(self, result, rows, dropped):
        return Reasons(["one"])

class Nulls(EveryNth):
    name = "nulls"
    def reasons(self, result, rows, dropped):
        return Reasons([None] * len(rows))

class Absent(EveryNth):
    name = "absent"
    @classmethod
    def read(cls, value, arguments):
        return None
'''
EVERY_LINE = """
import sys
from curate.cli import main
sys.stderr = sys.stdout
for line in sys.argv[1:]:
    sys.argv[1:] = line.split()
    try:
        main()
    except SystemExit as stop:
        print("END", stop.code)
"""
IN_PYTHON = """
import inspect, curate
from curate.policies.filter.rules import rule_from_json
print(inspect.signature(curate.filter).parameters["every_nth"])
print([line for line in curate.filter.__doc__.splitlines() if "every_nth:" in line])
result = curate.filter("s.parquet", "python.parquet", from_row=1, keep_top=2, every_nth=3)
print(result.kept, result.dropped_by)
curate.filter("s.parquet", "listed.parquet", [("every_nth", 3), ("from_row", 1), ("keep_top", 2)])
try:
    curate.filter("s.parquet", every_nth="x")
except TypeError as error:
    print(error)
"""


IN_DOCS = "import sys; sys.path.insert(0, sys.argv[1]); import generate; print(generate.rules())"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rule")
    install(folder / "site", "acme_rules", "every-nth = acme_rules:EveryNth", CODE)
    columns = {"key": [f"{row:02d}" for row in range(10)], "kappa_visimsiam": np.arange(10.0)}
    pl.DataFrame(columns).write_parquet(folder / "s.parquet")
    return folder


def test_every_command_accepts_it(folder):
    said_by_line = {
        "filter s.parquet --every-nth 3 -o k.parquet": "one of 3 rows is taken",
        "filter --help": "--every-nth N",
        "help filter": "--from-row ROW",
        "verify k.parquet": "identical",
        "explain k.parquet 04": "row 4 is left out",
        "report s.parquet k.receipt.json --points 0 -o r.html": "r.html",
        "filter s.parquet --every-nth x -o no.parquet": "error: --every-nth takes a whole number",
        "filter s.parquet --from-row 1 --min 1 -o no.parquet": "error: --from-row needs --every-nth",
        "filter s.parquet --every-nht 3 -o no.parquet": "--every-nth",
    }
    result = python("-c", EVERY_LINE, *said_by_line, folder=folder)
    texts = result.stdout.split("END")
    for (line, said), text in zip(said_by_line.items(), texts, strict=False):
        assert said in text, (line, result.stdout, result.stderr)
    assert pl.read_parquet(folder / "k.parquet")["key"].to_list() == ["00", "03", "06", "09"]
    decisions = pl.read_parquet(folder / "k.decisions.parquet")
    assert decisions.filter(key="01").select("reason", "rule").row(0) == ("row 1 is left out", "--every-nth 3")
    [noted] = json.loads((folder / "k.receipt.json").read_text())["policy"]
    assert noted == {"rule": "every-nth", "n": 3, "first": 0, "column": None, "per": None}
    assert "--every-nth 3" in (folder / "r.html").read_text()


def test_it_is_a_keyword_that_applies_before_amounts(folder):
    result = python("-c", IN_PYTHON, folder=folder)
    signature, text, done, wrong = result.stdout.splitlines()
    assert signature == "every_nth: int | None = None"
    assert "Keep every N-th row." in text
    assert done == "2 {'--every-nth 3': 7, '--keep-top 2': 1}"
    assert "'every_nth'" in wrong
    for name in ("python", "listed"):
        assert pl.read_parquet(folder / f"{name}.parquet")["key"].to_list() == ["04", "07"]


def use_all_rules():
    with_rules(OF_RULES | RULES.added())
    for error in RULES.broken().values():
        raise error


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ("min = acme_rules:EveryNth", "a rule 'min'"),
        ("broken = acme_missing:Rule", "acme_rules .*ModuleNotFoundError"),
        ("nothing = acme_rules:CODE", "acme_rules .*AttributeError"),
        ("other = acme_rules:EveryNth", "'other' is not a rule"),
        ("label = acme_rules:Label", "--label"),
        ("help = acme_rules:Help", "--help"),
        ("judges = acme_rules:Judges", "--judges"),
        ("bare = acme_rules:Bare", "it lacks bare"),
        ("half = acme_rules:Half", "it lacks judge"),
        ("every nth = acme_rules:Spaced", "'every nth'"),
        ("Every_Nth = acme_rules:Upper", "'Every_Nth'"),
        ("listed = acme_rules:Listed", "'listed' .* dict"),
        ("word = acme_rules:Word", "'word' .* 'class'"),
    ],
)
def test_a_package_whose_rule_cannot_be_used_is_named_in_one_line(tmp_path, monkeypatch, entries, words):
    monkeypatch.syspath_prepend(install(tmp_path, "acme_rules", entries, CODE))
    try:
        with pytest.raises(InputError, match=words) as error:
            use_all_rules()
        assert len(str(error.value).splitlines()) == 1
    finally:
        sys.modules.pop("acme_rules", None)


def test_a_rule_that_does_not_judge_each_row_is_refused_in_one_line(folder):
    said_of = {  # what is typed -> words of the message
        "short": "keep .* got shape (2,) of bool",
        "whole": "keep .* got shape (10,) of int64",
        "silent": "Ruling, got NoneType",
        "terse": "each of 10 rows, got 1",
        "nulls": "a reason .* nulls",
        "absent": "Rule, got NoneType",
        "noted": "notes .* got 'text'",
        "needless": "Needs, got NoneType",
    }
    entries = "\n".join(f"{name} = acme_rules:{name.capitalize()}" for name in said_of)
    install(folder / "wrong", "acme_rules", entries, CODE.replace("settings = {", "others = {", 1))
    lines = [f"filter s.parquet --{name} 3 -o wrong.parquet" for name in said_of]
    result = python("-c", EVERY_LINE, *lines, folder=folder, packages="wrong")
    texts = result.stdout.split("END 1")
    for (name, said), text in zip(said_of.items(), texts, strict=False):
        assert text.strip().startswith(f"error: --{name}"), (text, result.stderr)
        assert all(word in text for word in said.split(" .* ")), text
        assert text.strip().count("\n") == 0, text
    assert not list(folder.glob("wrong.*"))


def test_what_the_code_of_a_rule_raises_is_one_line_with_its_package(folder):
    raised = {
        "raises": "ZeroDivisionError",
        "lost": "FileNotFoundError",
        "exits": "SystemExit",
        "wordless": "InputError",
    }
    entries = "\n".join(f"{name} = acme_rules:{name.capitalize()}" for name in raised)
    install(folder / "raising", "acme_rules", entries, CODE.replace("settings = {", "others = {", 1))
    lines = [f"filter s.parquet --{name} 3 -o raised.parquet" for name in raised]
    result = python("-c", EVERY_LINE, *lines, folder=folder, packages="raising")
    *texts, _ = result.stdout.split("END 1")
    for text, (name, said) in zip(texts, raised.items(), strict=True):
        assert text.strip().startswith(f"error: '{name}' of the package acme_rules"), text
        assert (said in text, "CURATE_TRACEBACK=1" in text, text.strip().count("\n")) == (True, True, 0)
    code = "import os; os.environ['CURATE_TRACEBACK'] = '1'" + EVERY_LINE
    result = python("-c", code, lines[0], folder=folder, packages="raising")
    assert "in judge" not in texts[0]
    assert "in judge" in result.stdout + result.stderr


def test_a_package_that_cannot_be_loaded_ends_only_what_uses_it(folder):
    install(folder / "broken", "acme_rules", "every-nth = acme_rules:EveryNth", "raise SystemExit")
    lines = {
        "filter s.parquet --max 1 -o whole.parquet": "kept",
        "filter --help": "--max",
        "filter s.parquet --every-nth=3 -o no.parquet": "error: 'every-nth' of the package acme_rules",
        "filter s.parquet --label x --max 1 -o no.parquet": "--keep-top and --drop-bottom",
        "verify nth.receipt.json": "error: nth.receipt.json: 'every-nth' of the package acme_rules",
    }
    python("-m", "curate", "filter", "s.parquet", "--every-nth", 3, "-o", "nth.parquet", folder=folder)
    result = python("-c", EVERY_LINE, *lines, folder=folder, packages="broken")
    for said, text in zip(lines.values(), result.stdout.split("END"), strict=False):
        assert said in text, (said, result.stdout, result.stderr)
        assert not said.startswith("error") or text.strip().count("\n") == 1


def test_two_packages_with_one_rule_end_a_filter_and_nothing_else(folder):
    for name in ("acme_rules", "brush_rules"):
        install(folder / "both", name, f"every-nth = {name}:EveryNth", CODE)
    lines = ["filter s.parquet --max 1 -o no.parquet", "--help"]
    result = python("-c", EVERY_LINE, *lines, folder=folder, packages="both")
    ended, shown, _ = result.stdout.split("END")
    assert ended.startswith("error: the package acme_rules and the package brush_rules both add 'every-nth'")
    assert ended.count("\n") == 1
    assert "filter" in shown


def test_a_receipt_with_a_rule_that_no_package_here_adds_is_refused():
    with pytest.raises(InputError, match=r"'every-nth'.* install"):
        rule_from_json({"rule": "every-nth", "n": 3})


def test_installed_packages_are_searched_once(monkeypatch):
    plugins.plugins(plugins.RULES)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: pytest.fail("searched again"))
    plugins.plugins(plugins.RULES)


def test_the_rule_is_in_the_generated_reference(folder):
    done = python("-c", IN_DOCS, ROOT / "docs", folder=folder)
    assert "| `--every-nth N` | Keep every N-th row. |" in done.stdout.splitlines(), done.stderr
