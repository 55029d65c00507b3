"""The tables of README.md and docs/*.md, made from the code.

python docs/generate.py           write them between their markers
python docs/generate.py --check   exit 1 where a page and the code disagree
"""

import argparse
import ast
import re
import sys
import tomllib
from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # pages describe the tree that they lie in, whatever is installed
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
ON_THE_SITE = (
    "issues",
    "compared",
    "recipes",
    "settings",
    "strategies",
    "rooms",
)  # long tables that only the site has, on pages of its reference (build_site.py)
BLOCK = re.compile(r"(<!-- table: (\w+), by make docs -->\n).*?(<!-- end -->)", re.DOTALL)

# What a source is, and its rows; the suffixes come from the code.
SOURCES: dict[str, str] = {
    "list": "one path or URL a line",
    "csv": "one row each, with a path or URL column",
    "jsonl": "one row each, with a path or URL column",
    "parquet": "one row each, with the bytes, a `{bytes, path}` struct, or a path or URL column",
    "tar": "WebDataset: one row an image; `.cls`, `.txt` and `.json` members become columns",
}
EXTRAS: dict[str, str] = {
    "heif": "HEIC and HEIF images",
    "s3": "`s3://` sources",
    "gcs": "`gs://` sources",
    "http": "`https://` sources",
    "ray": "`--engine ray`: scoring on several machines or GPUs",
    "openvino": "`--backend openvino` of `curate score`, faster on a CPU",
    "map": "the map of `curate report`",
    "dev": "everything that `make test` needs",
}
# What a training method models, and when to use it; the rest of its row comes from the code.
METHOD_NOTES: dict[str, tuple[str, str]] = {
    "visimsiam": (
        "a view's place on a sphere, power spherical about what another view predicts, as sure as kappa says",
        "images without labels, where you want a kappa with the embedding",
    ),
    "simsiam": ("the same place, without kappa", "the baseline of `visimsiam`"),
    "dino": (
        "views of an image fall on the same prototypes, as a sharper, centred teacher says",
        "to compare its entropy with `kappa_visimsiam`",
    ),
    "simclr": (
        "a view is separated from those of all other images of the batch",
        "images without labels and large batches",
    ),
    "vicreg": (
        "views agree, while every number of the embedding keeps its spread and goes with no other",
        "images without labels, where the batch holds images of one kind: it has no negatives",
    ),
    "moco": (
        "a view is separated from a long queue of others by a slow copy of the network",
        "images without labels and small batches, embedding alone",
    ),
    "umm": (
        "each image a Gaussian, or several; the draws of two views are one set, those of other images others",
        "a size and a direction of uncertainty in the space of the embedding",
    ),
    "mcinfonce": (
        "each image a von Mises-Fisher distribution; draws of positives agree, of negatives do not",
        "kappa for images whose labels or votes are ambiguous, best on a backbone that is frozen",
    ),
    "infonce": ("the same of points; without draws", "the baseline of `mcinfonce`"),
    "hib": ("the probability that draws of two images match", "to compare with `mcinfonce`"),
    "elk": ("the expected likelihood of two distributions, in closed form", "as `mcinfonce`, without draws"),
    "simvae": (
        "the views of an image decoded from posteriors around one centre, which is integrated out",
        "a representation that can be drawn again, and the error of what it cannot draw",
    ),
    "vae": ("each view decoded from a posterior near N(0, I)", "the baseline of `simvae`"),
    "betavae": ("the same, beta times as near", "to compare with `simvae`"),
    "crvae": ("the same of an image and its views, whose posteriors are held together", "to compare with `simvae`"),
    "proxynca": (
        "the classes as points on a sphere, a softmax of cosines to them",
        "labels, and new classes to separate: the baseline of `nivmf`",
    ),
    "proxyanchor": (
        "the same points, each pulling the hardest images of its class and pushing the hardest others",
        "the same, with large batches",
    ),
    "nivmf": (
        "each class a non-isotropic von Mises-Fisher distribution, each image an isotropic one",
        "labels: an embedding for new classes whose norm is a kappa",
    ),
    "losspred": ("the order of a classifier's losses", "labels, and a backbone that you trust: the best single score"),
    "junk": ("the probability that an image is no whole image", "to find damaged images, on any backbone"),
    "supervised": ("the classes", "labels, for a backbone to start the others from on a CPU"),
    "ensemble": (
        "ten linear classifiers that learn as one mixture; where they differ is uncertainty",
        "labels, and the cheapest second opinion; to compare with `supervised`",
    ),
    "mcdropout": (
        "a classifier behind dropout that stays on: the mean over fixed masks",
        "labels; to compare with `ensemble`",
    ),
    "hetxl": (
        "a classifier of features with noise, whose covariance each image its own has",
        "labels that are ambiguous in ways that repeat",
    ),
    "sngp": (
        "a Gaussian process by random features: an entropy that grows with distance from what was seen",
        "labels, where images unlike all that was trained on are to be reported",
    ),
}


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in (header, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]]) + "\n"


def commands() -> str:
    """Return every command with the first sentence of its help."""
    return table(("command", "what it does"), [(f"`curate {name}`", about) for name, about in command_lines().items()])


def command_lines() -> dict[str, str]:
    """Return command -> the first line of its help, in the order of `curate --help`."""
    import typer

    from curate.cli import app

    group: Any = typer.main.get_command(app)
    return {name: (group.commands[name].help or "").splitlines()[0] for name in group.list_commands(None)}


def sources() -> str:
    """Return every kind of source with its suffixes."""
    from curate.manifest.schemes import SCHEMES
    from curate.manifest.sources import KINDS

    suffixes: dict[str, list[str]] = {}
    for suffix, kind in KINDS.items():
        suffixes.setdefault(kind, []).append(f"`.{suffix}`")
    rows = [("folder", "every image file at any depth"), ("image files", "one row each")]
    rows += [(" ".join(found), SOURCES[kind]) for kind, found in suffixes.items()]
    schemes = " ".join(f"`{scheme}`" for scheme in SCHEMES if scheme not in ("file", "memory"))
    rows.append(("URL of any of these", f"the same, through fsspec: {schemes}"))
    return table(("source", "rows"), rows)


def rules() -> str:
    """Return every rule of `curate filter` with its help."""
    import typer

    from curate.cli import app
    from curate.policies.filter.table import RULES

    group: Any = typer.main.get_command(app)
    shown = [
        (f"`{param.opts[0]} {param.metavar}`", param.help)
        for param in group.commands["filter"].params
        if param.opts[0].removeprefix("--") in (*RULES, "column", "per")
    ]
    return table(("option", "meaning"), shown)


def finders() -> str:
    """Return every finder of `curate dedup`: unit, threshold, what is the same."""
    from curate.policies.dedup.finders.table import FINDERS

    rows = []
    for name, finder in FINDERS.items():
        sign = ">=" if finder.higher else "<="
        bar = "" if finder.threshold is None else f"{sign} {finder.threshold:g}"
        rows.append((f"`{name}`", finder.meaning, finder.unit, bar, " ".join(f"`{each}`" for each in finder.needs)))
    return table(("finder", "the same are rows for which", "unit", "default", "columns"), rows)


def issues() -> str:
    """Return every kind of `curate issues`: what it is, its measure, the bounds of where it begins, its witness."""
    from curate.policies.issues.kinds import KINDS

    rows = []
    for name, kind in KINDS.items():
        side, bounds = ("below", "above")[not kind.low], sorted((kind.strict, kind.loose))
        begins = f"{side} {bounds[0]:g}" + (f" to {bounds[1]:g}" if bounds[0] != bounds[1] else "")
        needs = kind.witness.words if kind.witness else ""
        rows.append((f"`{name}`", kind.meaning, f"`{kind.name}`", begins, needs, "yes" if kind.unusable else ""))
    return table(("kind", "meaning", "measure", "begins", "and", "unusable"), rows)


def strategies() -> str:
    """Return every strategy of `curate select`: what it picks, what it needs, and its cost."""
    from curate.selectors.table import SELECTORS

    needs = {
        "vectors": "embeddings",
        "probabilities": "labels",
        "uncertainty": "`--score`",
        "holdout_loss": "`--holdout-loss`",
    }
    own = {"small-loss": "`--label`; embeddings, or `--holdout-loss`"}
    rows = []
    for name, kind in SELECTORS.items():
        about = " ".join((kind.__doc__ or "").split("\n\n")[0].split()).removesuffix(".").replace("``", "`")
        asked = own.get(name) or ", ".join(dict.fromkeys(needs[need] for need in kind.needs))
        rows.append((f"`{name}`", about, asked, "yes" if kind.prefix else "no", kind.cost))
    return table(("strategy", "what it picks", "needs", "prefix", "time and memory"), rows)


def compared() -> str:
    """Return every training method in more words: what it models, needs, costs and gives, and when to use it."""
    from scoring.scorers import columns_of
    from trainers.config import TrainConfig
    from trainers.methods.table import METHODS

    rows = []
    for name, kind in METHODS.items():
        models, when = METHOD_NOTES[name]
        config = TrainConfig(name, **kind.defaults)
        own, head = config.settings, kind.head(config.settings, config.size)
        small = getattr(own, "n_small", 0)
        views = f"{getattr(own, 'views', kind.n_standard)}" + (f" + {small} of {own.small_size} px" if small else "")
        needs = ["labels"] * kind.reads_labels(own) + ["pixels, no cache"] * kind.reads_pixels(own)
        gives = ["embedding", *(f"`{column}`" for column in columns_of({name: head} if head else {}))]
        recipe = f"{config.optimizer} {config.lr:g} {config.schedule}, {config.batch_size} images a step"
        rows.append((f"`{name}`", models, ", ".join(needs), views, ", ".join(gives), recipe, kind.paper, when))
    return table(
        ("method", "what it models", "needs", "views of an image", "gives", "default recipe", "paper", "use it for"),
        rows,
    )


def settings() -> str:
    """Return every setting of every training method; one that is the same in several methods comes once."""
    from trainers.methods.settings import Shown, shown
    from trainers.methods.table import METHODS

    readers: dict[Shown, list[str]] = {}
    for name, kind in METHODS.items():
        for each in shown(kind.Settings):
            readers.setdefault(each, []).append(f"`{name}`")
    return table(
        ("setting", "default", "meaning", "methods"),
        [(f"`{each.name}`", each.default, each.meaning, ", ".join(names)) for each, names in readers.items()],
    )


def recipes() -> str:
    """Return every recipe by name: its method, where it comes from, and what was reached there."""
    from trainers.methods.table import METHODS
    from trainers.named_recipes import recipes_of

    rows = [
        (f"`{method}`", f"`{name}`", each.source, each.paper)
        for method in METHODS
        for name, each in recipes_of(method).items()
    ]
    return table(("method", "recipe", "source", "reached there"), rows)


def columns() -> str:
    """Return every column that curate writes."""
    from curate.columns import COLUMNS
    from scoring.scorers import score_columns

    rows = []
    for name, column in {**COLUMNS, **score_columns()}.items():
        unit = "" if column.unit == "1" else column.unit
        rows.append((f"`{name}`", column.meaning, unit, column.higher))
    return table(("column", "meaning", "unit", "higher means"), rows)


def statuses() -> str:
    """Return every status."""
    from scoring.images.outcome import STATUSES

    return table(("status", "meaning"), [(f"`{name}`", meaning) for name, meaning in STATUSES.items()])


def rooms() -> str:
    """Return every room of the three packages with what its docstring says it is."""
    rows = []
    for package in ("scoring", "trainers", "curate"):
        for room in sorted((ROOT / package).rglob("__init__.py")):
            about = (ast.get_docstring(ast.parse(room.read_text())) or "").split("\n\n")[0].splitlines()
            rows.append((f"`{room.parent.relative_to(ROOT)}/`", " ".join(about).replace("``", "`")))
    return table(("room", "what it holds"), rows)


def extras() -> str:
    """Return every extra of the distribution with what it brings."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return table(
        ("extra", "for"), [(f"`pip install 'kappa-curate[{name}]'`", EXTRAS[name]) for name in project if name != "dev"]
    )


def formats() -> str:
    """Return every format of `curate export` with what is written; the command prints the line that reads it."""
    from curate.exporting.table import FORMATS

    return table(("format", "what is written"), [(f"`{name}`", kind.out) for name, kind in FORMATS.items()])


def tools() -> str:
    """Return every format of `curate round`, and what comes back; what goes out is in the table of exports."""
    from curate.exporting.table import TOOLS

    return table(("format", "what comes back"), [(f"`{name}`", kind.back) for name, kind in TOOLS.items()])


def plots() -> str:
    """Return every kind of image: what it shows, and what it needs."""
    from curate.reporting.plots.table import KINDS

    return table(
        ("kind", "what it shows", "what it needs"), [(f"`{name}`", one.shows, one.needs) for name, one in KINDS.items()]
    )


TABLES: dict[str, Callable[[], str]] = {
    "commands": commands,
    "sources": sources,
    "rules": rules,
    "issues": issues,
    "finders": finders,
    "strategies": strategies,
    "formats": formats,
    "tools": tools,
    "compared": compared,
    "settings": settings,
    "recipes": recipes,
    "columns": columns,
    "statuses": statuses,
    "extras": extras,
    "plots": plots,
    "rooms": rooms,
}


def renew(text: str) -> str:
    """Return a text with the table between each pair of markers made again."""
    return BLOCK.sub(lambda found: found[1] + TABLES[found[2]]() + found[3], text)


def main() -> None:
    """Write the tables, or check them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a table is stale")
    check = parser.parse_args().check
    for page in PAGES:
        before = page.read_text()
        after = renew(before)
        if check and before != after:
            same = next(n for n, (a, b) in enumerate(zip_longest(before.split("\n"), after.split("\n")), 1) if a != b)
            sys.exit(f"{page.relative_to(ROOT)}:{same}: a table is stale; run: make docs")
        if not check and before != after:
            page.write_text(after)


if __name__ == "__main__":
    main()
