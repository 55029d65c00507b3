"""Verdicts on a sample, stored in a file next to the file of the sample."""

import csv
import io
import math
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from curate.manifest.store_path import AnyPath
from curate.manifest.text import csv_lines, read_text, unguarded
from curate.policies.verdicts import DECISIONS, SUFFIX, Line, read_verdicts
from scoring.errors import InputError
from scoring.file_digest import file_sha256
from scoring.metrics.resampling import Interval

ENDING = ".csv"  # suffix of the file of a sample
MOST_BYTES = 256 << 20
BLOCK = 48  # sampled images shown at a time
NOT_COUNTED = f"without a verdict, or after the last fully judged block of {BLOCK}: count as not sampled"
Row = TypeVar("Row")
Judged = dict[tuple[str, str], dict[str, Line]]


@dataclass(frozen=True)
class Share:
    """A share of pairs or rows with its 95 % interval, in both readings of an unsure answer.

    Attributes:
        of: size of the population.
        strict: with unsure answers counted as no.
        lenient: with unsure answers counted as yes.
    """

    of: int
    strict: Interval
    lenient: Interval

    def to_json(self, what: str) -> dict[str, Any]:
        """Return plain JSON values; ``what`` names the pairs or rows."""
        return {what: self.of, "strict": estimate(self.strict), "lenient": estimate(self.lenient)}


def estimate(interval: Interval) -> dict[str, float | None]:
    """Return an interval as plain JSON; null if unknown."""
    return {"value": None if math.isnan(interval.value) else interval.value, "low": interval.low, "high": interval.high}


def is_drawn(path: Path, columns: Collection[str]) -> bool:
    """Return whether the first line of a file is a CSV header with these columns."""
    try:
        with path.open("rb") as file:
            header = file.read(1000).decode("utf-8-sig", "replace").split("\n", 1)[0]
    except OSError:
        return False
    return set(columns) <= set(header.strip().split(","))


def drawn_rows(
    path: Path, columns: Sequence[str], source: str, parse: Callable[[dict[str, str]], Row], *, most: int
) -> list[Row]:
    """Return the rows of a sample's file, in the order drawn.

    Args:
        path: of the CSV.
        columns: required columns; the first is the position of a row, such as ``1 of 200``.
        source: description of the file for messages: ``NAME.audit.csv of curate review plan``.
        parse: the cells of a line -> its row; ValueError for a malformed line.
        most: maximal number of rows.

    Raises:
        InputError: for an unreadable file, missing columns or rows, or malformed lines, with their number and the first
            one.
    """
    if path.is_file() and path.stat().st_size > MOST_BYTES:
        raise InputError(f"{path} is larger than {MOST_BYTES >> 20} MB; pass the {source}")
    reader = csv.DictReader(io.StringIO(read_text(path, what=f"the {source}"), newline=""), strict=True)
    rows: dict[int, Row] = {}
    totals: set[int] = set()
    bad: list[str] = []
    try:
        missing = [name for name in columns if name not in (reader.fieldnames or ())]
        if missing:
            raise InputError(f"{path} has no column {missing[0]!r}; pass the {source}")
        for line in reader:
            cells = {name: unguarded(line[name] or "") for name in columns}
            if any(cells.values()):
                try:
                    number, total = _place(cells[columns[0]].strip(), columns[0], most)
                    if number in rows:
                        raise ValueError(f"{columns[0]} {number} occurs twice")
                    rows[number] = parse(cells)
                    totals.add(total)
                except ValueError as error:
                    bad.append(f"line {reader.line_num}: {str(error)[:200]}")
    except csv.Error as error:
        raise InputError(f"{path} cannot be read as CSV ({error}); draw it again") from None
    if bad:
        more = f" ({len(bad):,} bad lines in all)" if len(bad) > 1 else ""
        raise InputError(f"{path}, {bad[0]}{more}; draw it again")
    if totals != {len(rows)}:
        got = f"{len(rows):,} of {' and '.join(map(str, sorted(totals)[:3])) or 'none'}"
        raise InputError(f"{path}: expected all rows of one sample, got {got}; pass the file as it was drawn")
    return [rows[number] for number in sorted(rows)]


def _place(text: str, what: str, most: int) -> tuple[int, int]:
    place = re.fullmatch(r"(\d{1,6}) of (\d{1,6})", text, re.ASCII)
    if place is None or not 1 <= int(place[1]) <= int(place[2]) <= most:
        raise ValueError(f"expected a place such as '1 of 200' in column {what!r}, got {text[:40]!r}")
    return int(place[1]), int(place[2])


def number_in(cells: Mapping[str, str], name: str) -> float:
    """Return the number in a cell; ValueError for other text, NaN or infinity."""
    try:
        value = float(cells[name].strip())
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"expected a number in column {name!r}, got {cells[name][:40]!r}")
    return value


def drawn_text(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> bytes:
    """Return a sample as CSV; cells that a spreadsheet would run as formulas are escaped."""
    return csv_lines([columns, *lines], end="\n").encode("utf-8", "surrogateescape")


def verdicts_beside(sample: AnyPath) -> AnyPath:
    """Return the path of the verdicts on a sample: ``NAME.verdicts.jsonl`` next to ``NAME.csv``."""
    return sample.with_name(f"{sample.name.removesuffix(ENDING)}{SUFFIX}")


def verdicts_on(sample: Path) -> Judged:
    """Return the last verdict of each reviewer, by judged image and the image it was compared with.

    Empty without a file of verdicts next to the sample; InputError if it is malformed.
    """
    path = verdicts_beside(sample)
    verdicts: Judged = {}
    if not isinstance(path, Path) or not path.is_file():
        return verdicts
    for line in read_verdicts(path).live():
        if line.verdict in DECISIONS:
            for key, other in zip(line.keys, line.beside or [""] * len(line.keys), strict=True):
                verdicts.setdefault((key, other), {})[line.reviewer] = line
    return verdicts


def blocks(shown: Sequence[Hashable]) -> Iterator[list[int]]:
    """Yield the indices of sampled images that the page shows together, in the order drawn, without repeats."""
    inside: list[int] = []
    for place, image in enumerate(shown):
        if len(inside) == BLOCK or image in {shown[at] for at in inside}:
            yield inside
            inside = []
        inside.append(place)
    if inside:
        yield inside


def n_finished(shown: Sequence[Hashable], is_judged: Sequence[bool]) -> int:
    """Return the number of sampled images, from the first, in completely judged blocks.

    The order of judging within a block may depend on the images, so the first verdicts of a block are not a random
    sample.

    Args:
        shown: the images, in the order drawn.
        is_judged: whether each has a verdict.
    """
    n = 0
    for block in blocks(shown):
        if not all(is_judged[place] for place in block):
            break
        n += len(block)
    return n


def refuse_unfinished(sample: object, n_drawn: int, n_judged: int, what: str) -> NoReturn:
    """Raise InputError for a sample without a completely judged block of ``what``, such as ``labels``."""
    got = f"on {n_judged:,} of an unfinished block of {min(BLOCK, n_drawn):,}" if n_judged else "none"
    raise InputError(
        f"expected verdicts on the {n_drawn:,} {what} of {sample}, got {got}; judge them: curate review TABLE {sample}"
    )


def judged_sha256(sample: Path) -> str:
    """Return the digest of a sample and its verdicts; for any other file its digest."""
    verdicts = verdicts_beside(sample)
    digest = file_sha256(sample)
    if sample.suffix != ENDING or not isinstance(verdicts, Path) or not verdicts.is_file():
        return digest
    return sha256(f"{digest} {file_sha256(verdicts)}".encode()).hexdigest()


def refuse_judged(samples: Iterable[AnyPath], option: str) -> None:
    """Raise InputError if a sample that ``option`` would overwrite has verdicts."""
    for sample in samples:
        path = verdicts_beside(sample)
        if path.is_file():
            raise InputError(
                f"{path} holds verdicts on a sample that {option} would replace; move both, or choose another name"
            )
