"""Verdicts on a drawn sample: a file of verdicts next to the file of the sample."""

import csv
import io
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

from curate.manifest.store_path import AnyPath
from curate.manifest.text import csv_lines, read_text
from curate.policies.verdicts import DECISIONS, SUFFIX, Line, read_verdicts
from scoring.errors import InputError
from scoring.file_digest import file_sha256

ENDING = ".csv"  # of the file that names what was drawn
MOST_BYTES = 64 << 20
BLOCK = 48  # drawn images that the page shows at a time
NOT_COUNTED = f"without a verdict, or behind the last block of {BLOCK} that is judged whole: count as not drawn"
Judged = dict[tuple[str, str], dict[str, Line]]


def is_drawn(path: Path, columns: Collection[str]) -> bool:
    """Return whether a file is CSV with some columns, by its first line."""
    try:
        with path.open("rb") as file:
            header = file.read(1000).decode("utf-8-sig", "replace").split("\n", 1)[0]
    except OSError:
        return False
    return set(columns) <= set(header.strip().split(","))


def drawn_lines(path: Path, columns: Sequence[str], source: str) -> list[dict[str, str]]:
    """Return the lines of a file that names what was drawn.

    Args:
        path: of the CSV.
        columns: that it has to have.
        source: what it is, for messages: ``NAME.audit.csv of curate review plan``.

    Raises:
        InputError: for a file that cannot be read, or lacks a column.
    """
    if path.is_file() and path.stat().st_size > MOST_BYTES:
        raise InputError(f"{path} is larger than {MOST_BYTES >> 20} MB; give the {source}")
    reader = csv.DictReader(io.StringIO(read_text(path, what=f"the {source}"), newline=""))
    missing = [name for name in columns if name not in (reader.fieldnames or ())]
    if missing:
        raise InputError(f"{path} has no column {missing[0]!r}; give the {source}")
    try:
        return [line for line in reader if any(line.values())]
    except csv.Error as error:
        raise InputError(f"{path} cannot be read as CSV ({error}); draw it again") from None


def drawn_text(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> bytes:
    """Return the drawn sample as CSV; no cell is a formula to a spreadsheet."""
    return csv_lines([columns, *lines], end="\n").encode("utf-8", "surrogateescape")


def verdicts_beside(sample: AnyPath) -> AnyPath:
    """Return where the verdicts on a sample are: ``NAME.verdicts.jsonl`` next to ``NAME.csv``."""
    return sample.with_name(f"{sample.name.removesuffix(ENDING)}{SUFFIX}")


def verdicts_on(sample: Path) -> Judged:
    """Return the last verdict of each reviewer, by judged image and the image it was compared with.

    Args:
        sample: NAME.csv; without verdicts next to it nothing was judged.

    Raises:
        InputError: for a file that is no file of verdicts.
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
    """Yield the places of drawn images that the page shows together, in the order drawn: none is twice in a block."""
    inside: list[int] = []
    for place, image in enumerate(shown):
        if len(inside) == BLOCK or image in {shown[at] for at in inside}:
            yield inside
            inside = []
        inside.append(place)
    if inside:
        yield inside


def n_finished(shown: Sequence[Hashable], is_judged: Sequence[bool]) -> int:
    """Return how many drawn images, from the first on, are in blocks that are judged whole.

    In which order a block is judged may depend on what the images show: its first verdicts are no random sample of it.

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
    """Refuse a sample of which no block is judged whole; ``what`` names the images, such as ``labels``."""
    got = f"on {n_judged:,} of an unfinished block of {min(BLOCK, n_drawn):,}" if n_judged else "none"
    raise InputError(
        f"expected verdicts on the {n_drawn:,} {what} of {sample}, got {got}; judge them: curate review TABLE {sample}"
    )


def judged_sha256(sample: Path) -> str:
    """Return the digest of a sample and the verdicts on it; of any other file its digest."""
    verdicts = verdicts_beside(sample)
    digest = file_sha256(sample)
    if sample.suffix != ENDING or not isinstance(verdicts, Path) or not verdicts.is_file():
        return digest
    return sha256(f"{digest} {file_sha256(verdicts)}".encode()).hexdigest()


def refuse_judged(samples: Iterable[AnyPath], option: str) -> None:
    """Refuse to replace a sample on which there are verdicts.

    Args:
        samples: that would be written.
        option: that draws them.

    Raises:
        InputError: naming the verdicts.
    """
    for sample in samples:
        path = verdicts_beside(sample)
        if path.is_file():
            raise InputError(
                f"{path} holds verdicts on a sample that {option} would replace; move both, or choose another name"
            )
