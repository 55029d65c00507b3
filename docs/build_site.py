"""The documents as a static site, by Sphinx: every page of docs/, a page for each command and for the Python functions.

python docs/build_site.py [OUT]   OUT is build/site by default; `make site` does the same
"""

import inspect
import re
import runpy
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGES: dict[str, tuple[str, ...]] = {  # headings of the list at the side, with the pages below them
    "Get started": ("install", "first", "concepts"),
    "How to": (
        "clean",
        "review",
        "quality",
        "filter",
        "dedup",
        "copies",
        "labels",
        "select",
        "rounds",
        "stop",
        "interchange",
        "split",
        "balance",
        "compare",
        "report",
        "export",
        "fit",
        "evaluate",
        "subset",
        "selftest",
        "calibrate",
        "audit",
        "retrieve",
        "sources",
        "stores",
        "grow",
        "pipeline",
        "receipts",
        "storage",
        "scale",
        "models",
        "embeddings",
        "train",
        "papers",
        "stream",
        "train_python",
        "plots",
    ),
    "On real data": (
        "walkthroughs/clean_a_crawl",
        "walkthroughs/remove_leaks",
        "walkthroughs/choose_what_to_label",
        "walkthroughs/find_wrong_labels",
        "walkthroughs/fit_to_my_images",
    ),
    "Reference": (
        "commands",
        "table",
        "errors",
        "conditions",
        "formats",
        "measures",
        "reading",
        "verdicts",
        "decoding",
        "methods",
        "method_details",
        "limits",
        "security",
        "assistants",
    ),
    "Studies": (
        "studies/README",
        "studies/cleaning",
        "studies/dedup",
        "studies/labels",
        "studies/scores",
        "studies/active_learning",
        "studies/subset_training",
        "studies/rounds",
        "studies/retrieval",
        "studies/calibration",
        "studies/tables",
        "studies/reviewing",
        "studies/speed",
        "studies/export",
        "studies/training",
        "studies/cifar10h",
        "studies/controlled",
        "studies/url",
        "studies/metric_learning",
    ),
    "Inside": ("contributing", "design"),
}
API: dict[str, tuple[str, ...]] = {  # page of the Python reference -> modules, whose public names it shows
    "curate": ("curate",),
    "curate.torch": ("curate.torch",),
    "distributions": (
        "scoring.distributions.vmf",
        "scoring.distributions.vmf_sampler",
        "scoring.distributions.vmf_quantiles",
        "scoring.distributions.nivmf",
        "scoring.distributions.power_spherical",
        "scoring.distributions.distances",
    ),
    "metrics": ("curate.statistics.retrieval", "curate.statistics.weighted", "scoring.metrics.ranking"),
    "images": ("scoring.images",),
    "selectors": ("curate.policies.select.plan", "curate.selectors.contract"),
    "rounds": ("curate.exporting.batches", "curate.exporting.run"),
    "training": ("trainers.config", "trainers.loop", "trainers.monitor"),
}
TABLES = {  # tables of generate.py on a page of their own -> title, and what it is
    "strategies": (
        "Strategies of select",
        "N rows, D numbers an embedding, C classes, K picks, L labelled, M candidates. Prefix: the picks of a smaller "
        "budget are the first of a larger one's.",
    ),
    "issues": (
        "Kinds of issues",
        "Where a kind begins follows the dataset, between the two bounds. `--set KIND=VALUE` fixes it.",
    ),
    "recipes": ("Recipes of papers", "Each is typed as `--recipe NAME`; `--recipe help` shows what it stands for."),
    "compared": ("Training methods compared", "A step costs its views; low-resolution views count by their pixels."),
    "settings": ("Settings of training methods", "Each is typed as `--set NAME=VALUE`."),
    "rooms": ("Rooms of the code", "What each folder holds, by the first lines of its `__init__.py`."),
}
CONF = """
project = "curate"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "curate"
smartquotes = False
html_show_copyright = html_show_sphinx = False
html_show_search_summary = False  # they would be fetched, which a page from the disk may not
myst_heading_anchors = 4
myst_fence_as_directive = []
suppress_warnings = ["myst.xref_missing_download", "misc.highlighting_failure"]
"""


def main() -> None:
    """Write the sources of the site next to it, and build it; a warning is an error."""
    out = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "site")
    source = out.with_name(out.name + "-source")
    shutil.rmtree(source, ignore_errors=True)
    stage(source)
    build = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q", str(source), str(out)]
    subprocess.run(build, check=True)  # noqa: S603 (our own words)
    for page in out.rglob("*.html"):
        page.write_text(accessible(page.read_text()))
    print(f"site: {out / 'index.html'}")


def accessible(page: str) -> str:
    """Return a page whose headings have a level, and whose code and tables scroll by the keyboard as well."""
    page = page.replace('<p class="caption" role="heading">', '<p class="caption" role="heading" aria-level="2">')
    return re.sub(r'<(pre|div class="table-wrapper[^"]*")>', r'<\1 tabindex="0">', page)


def stage(source: Path) -> None:
    """Lay the pages out as Sphinx reads them: README as the index, the rest where it is, with links as they are."""
    for part in ("docs", "examples"):
        shutil.copytree(ROOT / part, source / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "LICENSE", source)
    for name in ("CHANGELOG.md", "llms.txt"):
        shutil.copy(ROOT / name, source)
    (source / "conf.py").write_text(CONF)
    for page in (source / "docs").rglob("*.md"):
        page.write_text(re.sub(r"\]\((?:\.\./)+README\.md", lambda link: link[0][:-9] + "index.md", page.read_text()))
    commands = source / "docs" / "commands"
    commands.mkdir()
    names = dict(command_pages())
    for name, text in names.items():
        (commands / f"{name}.md").write_text(text)
    python = source / "docs" / "python"
    python.mkdir()
    for name, text in (*api_pages(), *table_pages()):
        (python / f"{name}.md").write_text(text)
    side = [tree(heading, [f"docs/{page}" for page in pages]) for heading, pages in PAGES.items()]
    side.append(tree("Commands", [f"docs/commands/{name}" for name in names]))
    side.append(tree("Python", [f"docs/python/{name}" for name in (*API, *TABLES)]))
    others = tree("", ["examples/README", "examples/photos/README", "CHANGELOG"])
    (source / "index.md").write_text("\n".join([(ROOT / "README.md").read_text(), *side, others]))


def tree(caption: str, pages: list[str]) -> str:
    """Return the list of pages below a heading at the side."""
    return "\n".join(
        ["```{toctree}", ":hidden:", *([f":caption: {caption}"] if caption else []), "", *pages, "```", ""]
    )


def command_pages() -> Iterator[tuple[str, str]]:
    """Yield every command with its page: its help as text, examples and options set apart."""
    import typer

    from curate.cli import app

    group: Any = typer.main.get_command(app)
    for name in group.list_commands(None):
        yield name, command_page(f"curate {name}", group.commands[name])


def command_page(name: str, command: Any, level: int = 1) -> str:
    """Return the page of a command, its own and commands below it."""
    from curate.commands.groups import is_common

    parts = [f"{'#' * level} {name}", words(command.help or "")]
    shown = [param for param in command.params if not getattr(param, "hidden", False) and not is_common(param)]
    if shown:
        parts.append(options(shown))
    common = [f"`{name}`" for param in command.params if is_common(param) for name in param.opts]
    if common:
        parts.append(f"Also {', '.join(common)}: see [Commands](../commands.md)")
    for inner, each in getattr(command, "commands", {}).items():
        parts.append(command_page(f"{name} {inner}", each, level + 1))
    return "\n\n".join(parts) + "\n"


def words(text: str) -> str:
    """Return a help text as Markdown: paragraphs, and examples as code."""
    paragraphs = []
    for paragraph in text.replace("\b\n", "").split("\n\n"):
        lines = paragraph.splitlines()
        is_code = all(line.startswith("    ") for line in lines if line.strip()) and any(map(str.strip, lines))
        paragraphs.append("\n".join(["```console", *map(str.strip, lines), "```"]) if is_code else escaped(paragraph))
    return "\n\n".join(paragraphs)


def options(params: list[Any]) -> str:
    """Return the arguments and options as a table."""
    rows = ["| option | meaning |", "| --- | --- |"]
    for param in params:
        names = ", ".join(f"`{name}`" for name in (*param.opts, *param.secondary_opts) if name.startswith("-"))
        value = param.metavar if param.metavar and not getattr(param, "is_flag", False) else ""
        cell = f"{names} {value}".strip() if names else f"`{(param.metavar or param.name).upper()}`"
        rows.append(f"| {escaped(cell)} | {escaped(param.help or '')} |")
    return "\n".join(rows)


def table_pages() -> Iterator[tuple[str, str]]:
    """Yield the pages of the long tables that no other page has."""
    tables = runpy.run_path(str(ROOT / "docs" / "generate.py"))["TABLES"]
    for name, (title, about) in TABLES.items():
        yield name, f"# {title}\n\n{about}\n\n{tables[name]()}"


def api_pages() -> Iterator[tuple[str, str]]:
    """Yield the pages of the Python reference: signatures and docstrings of what the modules define."""
    for page, modules in API.items():
        parts = [f"# Python: {page}"]
        for name in modules:
            module = import_module(name)
            parts += [*([f"## {name}"] if len(modules) > 1 else []), documented(inspect.getdoc(module) or "")]
            for member, value in public(module):
                parts.append(described(f"{name}.{member}", value, "###" if len(modules) > 1 else "##"))
        yield page, "\n\n".join(parts) + "\n"


def public(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the functions and classes that a module exports: those of ``__all__``, else those that it defines."""
    names = getattr(module, "__all__", None) or [
        name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__
    ]
    if module.__name__ == "curate":
        names = sorted({*names, *module._MODULES})
    for name in names:
        value = getattr(module, name)
        if not name.startswith("_") and (inspect.isfunction(value) or inspect.isclass(value)):
            yield name, value


def described(name: str, value: Any, heading: str) -> str:
    """Return a function or a class as Markdown: heading, signature, docstring, and the methods of a class."""
    try:
        signature = str(inspect.signature(value))
    except (TypeError, ValueError):
        signature = "(...)"
    short = name.rpartition(".")[2]
    parts = [
        f"{heading} {short}",
        f"```python\n{short}{wrapped(signature)}\n```",
        documented(inspect.getdoc(value) or ""),
    ]
    if inspect.isclass(value):
        for member, method in vars(value).items():
            if inspect.isfunction(method) and not member.startswith("_") and inspect.getdoc(method):
                parts.append(described(f"{name}.{member}", method, f"{heading}#"))
    return "\n\n".join(parts)


def wrapped(signature: str) -> str:
    """Return a signature with a parameter a line where it is long."""
    if len(signature) < 80:
        return signature
    lines, depth, start = [], 0, 1
    for place, letter in enumerate(signature):
        depth += (letter in "([{") - (letter in ")]}")
        if (letter == "," and depth == 1) or (letter == ")" and depth == 0):
            lines.append(f"    {signature[start:place].strip()},")
            start = place + 1
        if depth == 0:
            return "\n".join(["(", *lines, signature[place:]])
    return signature


def documented(text: str) -> str:
    """Return a docstring as Markdown: sections as lists in bold, examples as code, all else as text."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", text.replace("``", "`")):
        lines = paragraph.splitlines()
        section = re.fullmatch(r"(Args|Returns|Raises|Attributes|Yields|Source|Sources):(.*)", lines[0])
        if any(line.strip().startswith(">>>") for line in lines):
            parts.append("\n".join(["```python", *inspect.cleandoc(paragraph).splitlines(), "```"]))
        elif section and not section[1].startswith("Source"):
            parts.append("\n".join([f"**{section[1]}**", "", *entries("\n".join(lines[1:]))]))
        else:
            parts.append(escaped(paragraph))
    return "\n\n".join(parts)


def entries(text: str) -> Iterator[str]:
    """Yield the entries of a section of a docstring as a list; a line indented further belongs to the entry before."""
    entry: list[str] = []
    for line in textwrap.dedent(text).splitlines():
        if entry and line.startswith(" "):
            entry.append(line.strip())
            continue
        if entry:
            yield f"- {escaped(' '.join(entry))}"
        entry = [re.sub(r"^([\w*, ]+): ", r"`\1`: ", line)]
    if entry:
        yield f"- {escaped(' '.join(entry))}"


def escaped(text: str) -> str:
    """Return text in which Markdown finds nothing to do but code between backticks."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else re.sub(r"([*_<>|\[\]])", r"\\\1", part) for part in parts)


if __name__ == "__main__":
    main()
