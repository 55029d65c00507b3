"""What the documents say is so: tables, examples, command lines, links, numbers."""

import importlib.util
import re
import shlex
import shutil
from itertools import zip_longest
from pathlib import Path

import click
import pytest
import typer
from typer.testing import CliRunner

from curate.cli import app

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
FIRST = ROOT / "docs" / "first.md"
DOCUMENTS = [
    README,
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
GROUP = typer.main.get_command(app)
PLACEHOLDER = "TBD-" + "NUMBER"


def script(path):
    """A script of this repository as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def generate():
    """The script that makes the tables."""
    return script("docs/generate.py")


@pytest.fixture
def newcomer(tmp_path, monkeypatch):
    """A folder with the photographs in it, and the folder that the demonstration makes of them."""
    shutil.copytree(ROOT / "examples" / "photos", tmp_path / "examples" / "photos")
    (tmp_path / "demo" / "images").mkdir(parents=True)
    script("examples/demo.py").make_dataset(tmp_path / "demo" / "images")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def numbered_lines(text):
    """Every line that a reader could paste, by its number: indented, in a fence, after a prompt, or in backticks."""
    for number, line in enumerate(text.splitlines(), 1):
        typed = re.match(r"(?:    | *\$ )(curate .*)", line) or re.fullmatch(r"(curate [a-z]+ .*)", line)
        found = ([typed[1]] if typed else []) + re.findall(r"`(curate [a-z]+ [^`]*)`", line)
        whole = [re.sub(r"\s+#.*", "", each) for each in found if "──" not in each]  # a diagram is no command line
        yield from ((number, each) for each in whole if len(each.split()) > 2)


def command_lines(text):
    return [line for _, line in numbered_lines(text)]


def parse(line):
    """Parse a command line as `curate` would, without running it; optional parts count as typed."""
    typed = re.split(r" 2>&1| \| ", line)[0]  # what it prints may go to another program
    words = shlex.split(re.sub(r"[\[\]](?!\w+\])", "", typed))
    command = GROUP.commands[words[1]]
    return command.make_context(words[1], words[2:])


ALL_LINES = [
    (f"{path.relative_to(ROOT)}:{number}", line)
    for path in DOCUMENTS
    for number, line in numbered_lines(path.read_text())
]
HELP_LINES = [
    (name, line)
    for name, command in GROUP.commands.items()
    for line in command_lines(re.sub(r"\n {2,}curate", "\n    curate", command.help))
]


def test_no_number_is_left_to_be_filled_in():
    counts = {str(path.relative_to(ROOT)): path.read_text().count(PLACEHOLDER) for path in DOCUMENTS}
    left = {name: n for name, n in counts.items() if n}
    assert not left, f"measure, and write the numbers instead of {PLACEHOLDER}: {left}"


def test_the_tables_are_what_the_code_says_and_each_occurs_once(generate):
    pages = [page.read_text() for page in generate.PAGES]
    stale = [
        f"{page.relative_to(ROOT)}:{number}"
        for page, text in zip(generate.PAGES, pages, strict=True)
        for number, (line, new) in enumerate(zip_longest(text.split("\n"), generate.renew(text).split("\n")), 1)
        if line != new
    ]
    assert not stale, f"run: make docs; stale from {stale[0]} on"
    whole = "".join(pages)
    in_pages = sorted(set(generate.TABLES) - set(generate.ON_THE_SITE))  # tests of the site find the others
    assert sorted(re.findall(r"<!-- table: (\w+), by make docs -->", whole)) == in_pages
    assert whole.count("<!-- end -->") == len(in_pages)


def test_a_stale_table_is_noticed(generate):
    page = (ROOT / "docs" / "table.md").read_text()
    text = page.replace("| `sha256` |", "| `sha1` |")
    assert generate.renew(text) == page != text


def test_every_command_source_rule_method_and_column_has_its_page():
    from curate.columns import COLUMNS
    from curate.manifest.sources import KINDS
    from curate.policies.filter.table import RULES
    from scoring.images.outcome import STATUSES
    from trainers.methods.table import METHODS

    named = {
        "commands": [f"curate {name}" for name in GROUP.commands],
        "filter": [f"--{name} " for name in RULES],
        "methods": METHODS,
        "table": COLUMNS,
        "decoding": STATUSES,
        "sources": [f"`.{suffix}`" for suffix in KINDS],
    }
    pages = {page: (ROOT / "docs" / f"{page}.md").read_text() for page in named}
    assert [(page, name) for page, names in named.items() for name in names if name not in pages[page]] == []


def test_the_readme_is_short_and_leads_to_every_page():
    text = README.read_text()
    assert text.count("\n") <= 150
    changes = (ROOT / "CHANGELOG.md").read_text().splitlines()
    assert len(changes) <= 200
    assert max(map(len, changes)) <= 120
    pages = set((ROOT / "docs").rglob("*.md"))
    reached, todo = set(), [README]
    while todo:
        page = todo.pop()
        for target in re.findall(r"\]\(([^)#:]+\.md)", page.read_text()):
            found = (page.parent / target).resolve()
            if found in pages and found not in reached:
                reached.add(found)
                todo.append(found)
    assert pages - reached == set()


def test_there_are_command_lines_of_every_command_to_check():
    words = {line.split()[1] for _, line in ALL_LINES}
    assert words == set(GROUP.commands)
    assert len(ALL_LINES) > 15
    assert {name for name, _ in HELP_LINES} == set(GROUP.commands)


@pytest.mark.parametrize(("place", "line"), [*ALL_LINES, *HELP_LINES], ids=lambda value: value)
def test_a_command_line_that_a_document_shows_parses(place, line):
    try:
        context = parse(line)
    except (click.ClickException, KeyError) as error:
        pytest.fail(f"{place}: {getattr(error, 'message', error)}: {line}")
    assert context.info_name.split()[0] == line.split()[1]


def test_a_command_line_with_an_unknown_option_would_not_parse():
    with pytest.raises(Exception, match="--keep-tip"):
        parse("curate filter scores.parquet --keep-tip 5")


def comparable(text):
    """Lines without what differs from run to run: seconds, rates, threads, precision and device."""
    text = re.sub(r"\([0-9]+ threads, (fp32|bf16)", "(N threads, P", text)
    text = re.sub(r"in [0-9.]+ s \([0-9,]+ images/s\)", "in S s (R images/s)", text)
    text = re.sub(r"on cpu in (fp32|bf16)", "on cpu in P", text)  # bf16 where the CPU has it
    text = re.sub(r"(?m)^[0-9]+ of 70 images.*\n", "", text)  # of a slow machine
    # images near the threshold of p_junk, which bf16 moves
    text = re.sub(r"(p_junk above [0-9.]+:) [0-9]+ of", r"\1 N of", text)
    text = re.sub(r": [0-9]+ of ([0-9]+) that were scored with an issue.*", r": N of \1 with an issue", text)
    text = re.sub(r"(?m)^(junk) +[0-9]+ +.*$", r"\1 N", text)
    text = re.sub(r"(?m)^(most junk): .*$", r"\1: KEYS", text)
    text = re.sub(r"(?m)^to review +[0-9]+  junk [0-9]+", "to review N  junk N", text)
    text = re.sub(r"(?m)^(.*junk.*)$", lambda line: re.sub(r"[0-9]*\.[0-9]+", "X", line[0]), text)  # of its last digits
    return [line.rstrip() for line in text.splitlines() if line.strip()]


@pytest.mark.usefixtures("newcomer")
def test_the_first_page_prints_what_it_shows():
    import torch

    shown = [block for block in blocks(FIRST.read_text(), "console") if block.startswith("$ ")]
    printed = []
    for line in (line for block in shown for line in re.findall(r"^\$ (.*)$", block, re.MULTILINE)):
        result = CliRunner().invoke(app, shlex.split(line)[1:])
        assert result.exit_code == 0, result.output
        printed.append(f"$ {line}\n{result.stdout if ' clean ' in line else result.output}")  # progress is on stderr
    if torch.cuda.is_available():
        pytest.skip("the page shows a machine without a GPU")
    assert [comparable(text) for text in printed] == [comparable(text) for text in shown]


def test_pages_show_one_output_of_the_first_command():
    first = next(block for block in blocks(FIRST.read_text(), "console") if block.startswith("$ curate clean"))
    assert first in blocks(README.read_text(), "console")
    assert first.partition("\n")[2] in blocks((ROOT / "docs" / "clean.md").read_text(), "console")


def test_the_python_example_runs_and_keeps_what_it_requests(newcomer, capsys):
    import polars as pl

    (code,) = blocks(README.read_text(), "python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 8
    exec(compile(code, str(README), "exec"), {})
    scores, kept = pl.read_parquet(newcomer / "scores.parquet"), pl.read_parquet(newcomer / "kept.parquet")
    large = [key for key, width in scores.select("key", "width").iter_rows() if width >= 400]
    assert kept["key"].to_list() == large
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "12 {'ok': 12} scores.parquet"
    assert printed[-1] == f"{len(large)} kept of 12 in kept.parquet"
    dropped = set(scores["key"]) - set(kept["key"])
    assert dropped
    assert all(any(key in line for line in printed[1:-1]) for key in dropped)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_link_leads_to_a_file(path):
    for number, line in enumerate(path.read_text().split("\n"), 1):
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", line):
            there = target.startswith("https://") or (path.parent / target).exists()
            assert there, f"{path.relative_to(ROOT)}:{number}: nothing at {target}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_make_verbs_and_benchmarks_that_a_document_names_exist(path):
    verbs = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for verb in re.findall(r"(?:`|    )make (\w+)", path.read_text()):
        assert verb in verbs
    for script in re.findall(r"`(?:python )?((?:benchmarks|examples|docs)/\w+\.py)", path.read_text()):
        assert (ROOT / script).is_file(), script


def test_a_link_into_a_page_names_a_heading_there():
    def anchor(heading):
        return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")

    pages = [README, *(ROOT / "docs").rglob("*.md")]
    anchors = {
        page.resolve(): {anchor(line) for line in re.findall(r"(?m)^#+ (.*)$", page.read_text())} for page in pages
    }
    lost = [
        f"{page.relative_to(ROOT)}:{number}: no heading #{name} in {target or page.name}"
        for page in pages
        for number, line in enumerate(page.read_text().split("\n"), 1)
        for target, name in re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", line)
        if name not in anchors.get((page.parent / target).resolve() if target else page.resolve(), {name})
    ]
    assert lost == []
