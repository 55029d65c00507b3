"""The site: every page has its place at the side, and every command its page."""

import importlib.util
import re
from pathlib import Path

import pytest
import typer

import curate
from curate.cli import app

ROOT = Path(__file__).parents[2]
GROUP = typer.main.get_command(app)


@pytest.fixture(scope="module")
def site():
    """The script that builds the site."""
    spec = importlib.util.spec_from_file_location("build_site", ROOT / "docs" / "build_site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_listed_once_at_the_side(site):
    pages = [path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(page for pages in site.PAGES.values() for page in pages) == sorted(pages)


def test_every_option_of_every_command_is_on_its_page(site):
    pages = dict(site.command_pages())
    assert list(pages) == list(GROUP.list_commands(None))
    for name, page in pages.items():
        commands = [GROUP.commands[name], *getattr(GROUP.commands[name], "commands", {}).values()]
        options = {flag for command in commands for param in command.params for flag in param.opts if flag[0] == "-"}
        assert {flag for flag in options if f"`{flag}`" not in page} == set(), name
        assert re.search(rf"```console\ncurate {name}\b", page), name


def test_the_python_reference_has_every_function_of_the_package(site):
    pages = dict(site.api_pages())
    assert list(pages) == list(site.API)
    missing = [name for name in curate.__all__ if not name.startswith("_") and f"\n## {name}\n" not in pages["curate"]]
    assert missing == []
    assert "- `keep_top`: " in pages["curate"] or "keep_top" in pages["curate"]
    assert "```python\n>>> " in pages["distributions"]


def test_long_tables_are_on_the_site_alone(site):
    pages = dict(site.table_pages())
    assert "| `latent_dim` |" in pages["settings"]
    assert "| `scoring/metrics/` |" in pages["rooms"]


def test_a_docstring_is_text_lists_and_code(site):
    text = "Return ``x``.\n\nArgs:\n    x: a number,\n        at least 0.\n    y: another.\n\n>>> 1 + 1\n2"
    assert site.documented(text) == (
        "Return `x`.\n\n**Args**\n\n- `x`: a number, at least 0.\n- `y`: another.\n\n```python\n>>> 1 + 1\n2\n```"
    )


def test_markdown_in_a_help_text_stays_text(site):
    assert site.escaped("a *b* <c> `unc_*` [d] | e_f") == r"a \*b\* \<c\> `unc_*` \[d\] \| e\_f"


def test_headings_have_levels_and_what_scrolls_is_reached_by_the_keyboard(site):
    page = '<p class="caption" role="heading">A</p><pre>b</pre><div class="table-wrapper colwidths container"><table>'
    once = site.accessible(page)
    assert 'role="heading" aria-level="2">A' in once
    assert once.count('tabindex="0"') == 2
    assert site.accessible(once) == once


def test_how_tos_have_600_words_of_prose_at_most_and_all_pages_55_000(site):
    code = re.compile(r"^```.*?^```|<!-- table.*?<!-- end -->|^    .*?$", re.DOTALL | re.MULTILINE)
    pages = {page: (ROOT / "docs" / f"{page}.md").read_text() for page in site.PAGES["How to"]}
    long = {page: n for page, text in pages.items() if (n := len(code.sub("", text).split())) > 600}
    assert not long, f"move details to the reference or a study, or cut repetition: {long}"
    assert sum(len(path.read_text().split()) for path in (ROOT / "docs").rglob("*.md")) <= 55_000
