"""The documents as a static site, by Sphinx: every page of docs/, and one page a command, made from its help.

python docs/build_site.py [OUT]   OUT is build/site by default; `make site` does the same
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGES: dict[str, tuple[str, ...]] = {  # headings of the list at the side, with the pages below them
    "Begin": ("install", "commands", "table", "sources", "storage", "decoding", "scale", "security", "limits"),
    "Walk through": (
        "walkthroughs/clean_a_crawl",
        "walkthroughs/remove_leaks",
        "walkthroughs/choose_what_to_label",
        "walkthroughs/find_wrong_labels",
        "walkthroughs/fit_to_my_images",
    ),
    "Score": ("grow", "models", "performance", "embeddings", "intervals", "fit", "evaluate", "selftest"),
    "Curate": (
        "clean",
        "filter",
        "audit",
        "calibrate",
        "quality",
        "dedup",
        "labels",
        "select",
        "balance",
        "split",
        "subset",
        "compare",
        "pipeline",
        "receipts",
    ),
    "Label in rounds": ("rounds", "interchange"),
    "Look and take along": ("report", "plots", "retrieve", "export"),
    "Train": ("train", "methods"),
    "Evidence": (
        "harm",
        "transfer",
        "active_learning",
        "subset_training",
        "cifar10h",
        "controlled",
        "metric_learning",
        "url",
    ),
    "Inside": ("design",),
}
CONF = """
project = "curate"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "curate"
smartquotes = False
html_show_copyright = html_show_sphinx = False
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
    print(f"site: {out / 'index.html'}")


def stage(source: Path) -> None:
    """Lay the pages out as Sphinx reads them: README as the index, the rest where it is, with links as they are."""
    for part in ("docs", "examples"):
        shutil.copytree(ROOT / part, source / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "LICENSE", source)
    shutil.copy(ROOT / "CHANGELOG.md", source)
    (source / "conf.py").write_text(CONF)
    for page in (source / "docs").glob("*.md"):
        page.write_text(re.sub(r"\]\(\.\./README\.md", "](../index.md", page.read_text()))
    commands = source / "docs" / "commands"
    commands.mkdir()
    names = dict(command_pages())
    for name, text in names.items():
        (commands / f"{name}.md").write_text(text)
    side = [tree(heading, [f"docs/{page}" for page in pages]) for heading, pages in PAGES.items()]
    side.append(tree("Commands", [f"docs/commands/{name}" for name in names]))
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
    parts = [f"{'#' * level} {name}", words(command.help or "")]
    shown = [param for param in command.params if not getattr(param, "hidden", False)]
    if shown:
        parts.append(options(shown))
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


def escaped(text: str) -> str:
    """Return text in which Markdown finds nothing to do but code between backticks."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else re.sub(r"([*_<>|\[\]])", r"\\\1", part) for part in parts)


if __name__ == "__main__":
    main()
