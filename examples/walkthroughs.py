"""Run the walk-throughs of docs/walkthroughs on real data, and put what the commands print into the pages.

    python examples/walkthroughs.py [--data DATA] [NAME ...]

A page is prose around ```console blocks. Every line `$ COMMAND` in them is run, in the order of the page, in a folder
that holds what the page begins with; what the block shows below it is replaced by what came out. Minutes on two cores.
"""

import argparse
import contextlib
import csv
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

from named_data import add_data, open_data

FILES = ("caltech_subset", "malformed", "rsscn7_160", "cifar10_train", "cifar10n_train", "monkeys10_160")

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "walkthroughs"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
WIDTH = 110  # of the terminal that is shown


def classes(table: pa.Table, labels: Sequence[int]) -> list[str]:
    """Return the names of labels, by the classes that a file carries."""
    named = json.loads(table.schema.metadata[b"meta"])["classes"]
    return [named[label] for label in labels]


def write_images(folder: Path, names: list[str], images: list[bytes]) -> None:
    """Write encoded images as files."""
    for name, data in zip(names, images, strict=True):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def crawl(data: Path, folder: Path) -> None:
    """Make a folder of 22 classes of Caltech-101 at their original size, and Pillow's odd, hostile and broken files."""
    photos = pq.read_table(data / "caltech_subset.parquet")
    write_images(folder / "crawl", photos["file"].to_pylist(), photos["image"].to_pylist())
    malformed = pq.read_table(data / "malformed.parquet")
    write_images(
        folder / "crawl" / "odd",
        [Path(name).name for name in malformed["name"].to_pylist()],
        malformed["bytes"].to_pylist(),
    )


def scenes(data: Path, folder: Path) -> None:
    """Make a folder of 1,050 aerial scenes, and their labels as a reviewer would give them, `answers.csv`."""
    table = pq.read_table(data / "rsscn7_160.parquet")
    labels = classes(table, table["label"].to_pylist())
    names = [f"{number:04d}.jpg" for number in range(table.num_rows)]
    write_images(folder / "scenes", names, table["image"].to_pylist())
    write_csv(folder / "answers.csv", ("key", "label"), list(zip(names, labels, strict=True)))


def splits(data: Path, folder: Path) -> None:
    """Make `photos`, 22 classes of Caltech-101, and `train` and `test`: four fifths of them and the rest, at random."""
    table = pq.read_table(data / "caltech_subset.parquet")
    names, images = table["file"].to_pylist(), table["image"].to_pylist()
    in_test = np.random.default_rng(0).random(len(names)) < 0.2
    sides = [f"{'test' if side else 'train'}/{name}" for name, side in zip(names, in_test, strict=True)]
    write_images(folder, sides, images)
    write_images(folder / "photos", names, images)


def votes(data: Path, folder: Path) -> None:
    """Make `images.parquet`: 10,000 CIFAR-10 images with the worst of three annotators' labels, and the true one."""
    images = pq.read_table(data / "cifar10_train.parquet").slice(0, 10_000)
    people = pq.read_table(data / "cifar10n_train.parquet").slice(0, 10_000)
    if images["id"].to_pylist() != people["id"].to_pylist():
        raise SystemExit("expected the same rows in cifar10_train and cifar10n_train")
    columns = {
        "key": [f"{number:05d}" for number in images["id"].to_pylist()],
        "image": images["image"],
        "label": classes(images, people["worse_label"].to_pylist()),
        "truth": classes(images, images["label"].to_pylist()),
    }
    pq.write_table(pa.table(columns), folder / "images.parquet")


def monkeys(data: Path, folder: Path) -> None:
    """Make a folder of 1,000 monkeys, the labels of every tenth, `few.csv`, and of the others, `rest.csv`."""
    table = pq.read_table(data / "monkeys10_160.parquet")
    labels = classes(table, table["label"].to_pylist())
    names = [f"{number:04d}.jpg" for number in range(table.num_rows)]
    write_images(folder / "monkeys", names, table["image"].to_pylist())
    rows = list(zip(names, labels, strict=True))
    write_csv(folder / "few.csv", ("key", "label"), rows[::10])
    write_csv(folder / "rest.csv", ("key", "label"), [row for number, row in enumerate(rows) if number % 10])


def write_csv(path: Path, header: tuple[str, ...], rows: list[tuple[str, str]]) -> None:
    """Write rows as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    path.write_text(text.getvalue())


BEGINNINGS: dict[str, Callable[[Path, Path], None]] = {  # page -> what makes the folder that it begins with
    "clean_a_crawl": crawl,
    "choose_what_to_label": scenes,
    "remove_leaks": splits,
    "find_wrong_labels": votes,
    "fit_to_my_images": monkeys,
}


def run(line: str, folder: Path) -> str:
    """Run a line as typed, and return what it prints; notes and results together, as a terminal shows them."""
    print(f"$ {line}", flush=True)
    words = shlex.shlex(line, posix=True, punctuation_chars=True)  # type: ignore[arg-type]
    words.whitespace_split = True
    plain = line.startswith("curate ") and not any(set(word) <= set("|<>;&()") for word in words)
    printed, code = run_in_process(line, folder) if plain else run_in_shell(line, folder)
    return printed + (f"(exit code {code})\n" if code else "")


def run_in_process(line: str, folder: Path) -> tuple[str, int]:
    """Run a line of curate in this process, which has loaded torch already; return what it prints and the exit code."""
    from typer.testing import CliRunner

    from curate.cli import app

    with contextlib.chdir(folder):
        done = CliRunner().invoke(app, shlex.split(line, comments=True)[1:], env={"COLUMNS": str(WIDTH)})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return done.output + "".join(traceback.format_exception(done.exception)), 1
    return done.output, done.exit_code


def run_in_shell(line: str, folder: Path) -> tuple[str, int]:
    """Run a line in a shell, as for pipes and loops; return what it prints and the exit code."""
    environment = {**os.environ, "COLUMNS": str(WIDTH), "PYTHONPATH": str(ROOT), "PYTHON": sys.executable}
    shell = ["bash", "-o", "pipefail", "-c", f'curate() {{ "$PYTHON" -m curate "$@"; }}\n{line}']
    done = subprocess.run(
        shell, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.stdout, done.returncode


def renew(text: str, run_line: Callable[[str], str]) -> str:
    """Return a page with the output of every command line below it.

    Args:
        text: of the page.
        run_line: a line -> what it prints.
    """

    def block(match: re.Match[str]) -> str:
        lines = [line for line in match[1].splitlines() if line.startswith("$ ")]
        return "```console\n" + "".join(f"{line}\n{run_line(line[2:])}" for line in lines) + "```"

    return BLOCK.sub(block, text)


def main() -> None:
    """Renew the pages that were named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*BEGINNINGS, []], help="pages; all where none is named")
    add_data(parser)
    options = parser.parse_args()
    data = open_data(options.data, FILES).need(*FILES).resolve()
    for name in options.names or BEGINNINGS:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            BEGINNINGS[name](data, path)
            page = PAGES / f"{name}.md"
            page.write_text(renew(page.read_text(), lambda line, path=path: run(line, path)))  # type: ignore[misc]
        print(f"renewed: {page.relative_to(ROOT)}", flush=True)


if __name__ == "__main__":
    main()
