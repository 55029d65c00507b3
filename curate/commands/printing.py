"""Output of commands: results on stdout, notes and the next command on stderr."""

import io
import json
import os
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer

from curate.commands.elapsed import clear_elapsed
from curate.counted import Grid, single_line

if TYPE_CHECKING:
    from curate.policies.decided import Result

BRIEF = "progress without results"  # context key of a step that prints nothing more
DRY_RUN = "dry run: nothing was written"
EXIT_GATE = 3  # exit code of a failed gate; all requested output is still written
UNBROKEN = 10_000  # maximum line width for all terminals
GAP = 2  # spaces between table columns
UNSAID = 80  # width of a terminal that reports 0, as in containers and scripts


def say(text: str) -> None:
    """Print a note on stderr."""
    clear_elapsed()
    typer.echo(single_line(text), err=True)


def show(text: str) -> None:
    """Print a line of the result on stdout."""
    clear_elapsed()
    typer.echo(single_line(text))


def emit(value: Any) -> None:
    """Print JSON on stdout, with null for NaN and infinity."""
    from curate.tables.typed_json import plain_json

    clear_elapsed()
    typer.echo(json.dumps(plain_json(value), indent=2, ensure_ascii=True, default=str))


@dataclass(frozen=True)
class Output:
    """What a command prints, from its options --json and --quiet."""

    json: bool
    quiet: bool

    @property
    def silent(self) -> bool:
        """Whether a command prints nothing while it works."""
        return self.json or self.quiet

    def note(self, text: str) -> None:
        """Print a note, unless quiet."""
        if not self.quiet:
            say(text)

    def announce(self, text: str) -> None:
        """Print what the command does, unless silent."""
        if not self.silent:
            say(text)

    def written(self, **paths: object) -> None:
        """Print the name and path of each written file, unless quiet."""
        for name, path in paths.items():
            if path is not None:
                self.note(f"{name}: {path}")

    def result(self, result: Any, report: Callable[[], None], *, requested: bool) -> None:
        """Print a result as JSON, or call ``report``; if quiet, only for a ``requested`` report, as in a dry run."""
        if self.json:
            emit(result.to_json())
        elif requested or not self.quiet:
            report()


def check_report(out: Path | None, *, overwrite: bool = False) -> None:
    """Refuse a report path without ``.json``, that exists, or whose folder is missing, before the work."""
    from scoring.atomic import refuse_existing, require_folder
    from scoring.errors import InputError

    if out is None:
        return
    if out.suffix.lower() != ".json":
        raise InputError(f"expected a report name that ends in .json, got {out}")
    refuse_existing(out, overwrite=overwrite)
    require_folder(out)


def write_json(value: Any, out: Path, *, overwrite: bool = False) -> None:
    """Write a report as JSON, atomically."""
    from scoring.atomic import AtomicFile

    with AtomicFile(out, overwrite=overwrite) as file:
        file.write(json.dumps(value, indent=1, ensure_ascii=True).encode() + b"\n")


def say_files(result: "Result", *, dry_run: bool) -> None:
    """Print the output paths of a policy; in a dry run, print on stderr that nothing was written."""
    if dry_run:
        say(DRY_RUN)
    for name, path in result.paths().items():
        if path is not None:
            say(f"{name}: {path}")


def on_terminal() -> bool:
    """Return whether notes appear on a terminal, and not in a step of `curate run`."""
    return sys.stderr.isatty() and sys.stdout is not sys.stderr


def say_next(command: str) -> None:
    """Print the usual next command on a terminal, but not in a step of `curate run`."""
    if on_terminal():
        say(f"next: {command}")


def say_table(rows: Iterable[Sequence[object]], *, header: Sequence[str] = (), right: int | None = None) -> None:
    """Print rows as aligned columns on stderr; see ``show_table``."""
    _print_table(sys.stderr, rows, header, right)


def show_table(rows: Iterable[Sequence[object]], *, header: Sequence[str] = (), right: int | None = None) -> None:
    """Print rows of the result as aligned columns on stdout; counts get thousands separators.

    ``right`` is the index of the right-aligned column.
    """
    _print_table(sys.stdout, rows, header, right)


def show_in_parts(rows: Iterable[Sequence[str]], *, header: Sequence[str], right: int | None = None) -> None:
    """Print a table in parts if the terminal is narrow, so that no name or cell is broken; each has the first column.

    ``right`` is the index of the right-aligned column of each part.
    """
    _print_table(sys.stdout, rows, header, right, keep_cells=True)


def print_lines(lines: Iterable[str | Grid], line: Callable[[str], None], table: Callable[..., None]) -> None:
    """Print the lines of a ``Printed`` result: text by ``line``, as ``show``, grids by ``table``, as ``show_table``."""
    for each in lines:
        if isinstance(each, Grid):
            table(each.rows, header=each.header, right=each.right)
        else:
            line(each)


def printers(*, requested: bool) -> tuple[Callable[[str], None], Callable[..., None]]:
    """Return printers of a line and of a table: to stdout if they are the result, as in a dry run."""
    return (show, show_table) if requested else (say, say_table)


def _print_table(
    stream: TextIO,
    rows: Iterable[Sequence[object]],
    header: Sequence[str],
    right: int | None,
    *,
    keep_cells: bool = False,
) -> None:
    """Print a table, in parts where a line would break cells (``keep_cells``), or words of up to half its length."""
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    lines = [[_value(value) for value in row] for row in ([header, *rows] if header else rows)]
    columns = list(zip_longest(*lines, fillvalue=""))
    width, terminal = _width(stream), stream.isatty()
    full = [max(map(cell_len, column)) for column in columns]
    words = [max(map(cell_len, " ".join(column).split()), default=0) for column in columns]
    least = full if keep_cells else [min(word, width // 2) for word in words]
    drawn = io.StringIO()
    console = Console(
        file=drawn, width=width, force_terminal=terminal, no_color=not terminal, markup=False, highlight=False
    )
    for part in columns_that_fit(least, width):
        table = Table(box=None, show_header=bool(header), pad_edge=False, header_style="bold")
        sizes = _narrowed([full[index] for index in part], [least[index] for index in part], width)
        for index, size in zip(part, sizes, strict=True):
            title = columns[index][0] if header else ""
            table.add_column(Text(title), justify="right" if index == right else "left", overflow="fold", width=size)
        for row in zip(*(columns[index][bool(header) :] for index in part), strict=True):
            table.add_row(*map(Text, row))
        console.print(*([""] if drawn.tell() else []), table, sep="\n")
    clear_elapsed()
    for text in drawn.getvalue().splitlines():
        typer.echo(text.rstrip(), file=stream)


def _narrowed(full: Sequence[int], least: Sequence[int], width: int) -> list[int]:
    """Return column widths that fit next to each other: the widest shrink, to ``least`` first."""
    sizes = list(full)
    for _ in range(sum(sizes) + GAP * (len(sizes) - 1) - width):
        index = max(range(len(sizes)), key=lambda index: (sizes[index] > least[index], sizes[index]))
        sizes[index] = max(1, sizes[index] - 1)
    return sizes


def _width(stream: TextIO) -> int:
    """Return the terminal's width; output to a file or program is not wrapped, unless COLUMNS is set."""
    if os.environ.get("COLUMNS", "0").isdecimal() and int(os.environ.get("COLUMNS", "0")):
        return int(os.environ["COLUMNS"])
    return os.get_terminal_size(stream.fileno()).columns or UNSAID if stream.isatty() else UNBROKEN


def columns_that_fit(sizes: Sequence[int], width: int) -> list[list[int]]:
    """Return the columns of each of as few tables as possible that fit the width; every table has the first.

    A column that is too wide is next to the first only. ``sizes`` are the widths of the columns.
    """
    tables: list[list[int]] = []
    used = width
    for number, size in enumerate(sizes[1:], 1):
        if used + GAP + size > width and (not tables or len(tables[-1]) > 1):
            tables.append([0])
            used = sizes[0]
        tables[-1].append(number)
        used += GAP + size
    return tables or [[0]] * len(sizes)


def _value(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else single_line(value)


@dataclass(frozen=True)
class NextCommand:
    """How a command ends: the command that usually follows, and the exit code.

    Attributes:
        line: a command line that runs as printed; empty if nothing follows.
        code: exit code, 0 unless a check or a gate failed.
        printer: prints the line as a line of the result, with or without a terminal; None: on a terminal only.
    """

    line: str
    code: int = 0
    printer: Callable[[str], None] | None = None

    def show(self) -> None:
        """Print the line."""
        if self.line and self.printer is not None:
            self.printer(f"next: {self.line}")
        elif self.line:
            say_next(self.line)


def suggest(*words: object, code: int = 0) -> NextCommand:
    """Return the command with these words after `curate`, quoted for a shell; a path `-k.parquet` is `./-k.parquet`."""
    texts = [f"./{word}" if isinstance(word, Path) and str(word).startswith("-") else str(word) for word in words]
    return NextCommand(shlex.join(["curate", *texts]), code)


def rerun(*more: object, without: Collection[str] = ("--dry-run",), out: object = None, code: int = 0) -> NextCommand:
    """Return the command line as typed, without some flags, and with more words.

    Args:
        *more: words, which precede a typed `--`.
        without: flags to leave out.
        out: path for --out, instead of a typed one; None leaves the line as it is.
        code: exit code.
    """
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    typed, last = [word for word in words[:end] if word not in without], words[end:]
    if out is not None:
        places = [at for at, word in enumerate(typed) if word.startswith(("-o", "--out"))]
        for at in reversed(places):
            del typed[at : at + (2 if typed[at] in ("-o", "--out") else 1)]
        more = (*more, "-o", out)
    return suggest(*typed, *more, *last, code=code)


def unused(name: str) -> str:
    """Return a path that does not exist: the given one, or one with a number before the first dot of its name."""
    folder, file = os.path.split(name)
    stem, dot, suffix = file.partition(".")
    number, free = 1, name
    while os.path.lexists(free):
        number += 1
        free = str(Path(folder, f"{stem}-{number}{dot}{suffix}"))
    return free


def to_export(table: object, *more: object, code: int = 0) -> NextCommand:
    """Return the export of a table: its images, or its rows if the images have no known place."""
    where = source_of(table)
    if where is None:
        return suggest("export", table, "--to", "csv", "-o", unused("training.csv"), code=code)
    return suggest("export", table, "--to", "folder", *more, *where, "-o", unused("training"), code=code)


def source_of(table: object) -> list[str] | None:
    """Return the option --source that images of a table need, empty if it has their paths, None if it is unknown.

    It is unknown where no terminal shows the next command, so that no file is opened.
    """
    if not on_terminal():
        return None
    from curate.manifest.store_path import path_to_read
    from curate.tables.images import holds_paths
    from curate.tables.table import open_table
    from scoring.errors import InputError

    try:
        opened = open_table(path_to_read(str(table)))
        if holds_paths(opened):
            return []
    except (InputError, OSError):  # in a store that no longer answers
        return None
    source = opened.metadata.get("source")
    return ["--source", source] if isinstance(source, str) and Path(source).exists() else None


def to_train(cache: object, about: Mapping[str, Any]) -> NextCommand:
    """Return the training of a head on a cache of features, by its record."""
    method = "mcinfonce" if about["columns"]["label"] is None else "losspred"
    backbone = about["made_from"]["name"]
    return suggest("train", method, "--cached", cache, "--backbone", backbone, "-o", unused("head.safetensors"))


def after_policy(
    request: Any, result: "Result", name: str, *more: str, without: Collection[str] = ("--dry-run",), code: int = 0
) -> NextCommand:
    """Return what follows a policy: the run that writes, an export, or for an empty subset a report on the reasons.

    Args:
        request: with ``table`` and ``out``.
        result: of the policy.
        name: of the output, if none was given.
        more: options of the export.
        without: flags that the run that writes leaves out.
        code: exit code.
    """
    if result.subset is None:
        kept = request.out is not None and (request.overwrite or not os.path.lexists(request.out))
        out = None if kept else Path(unused(str(request.out or name)))
        return rerun(without=without, out=out, code=code)
    if not result.kept:
        return suggest("report", request.table, result.subset, "-o", unused("report.html"), code=code)
    return to_export(result.subset, *more, code=code)
