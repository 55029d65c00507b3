"""An audit that came back with answers: read, checked, and every row accounted for."""

import csv
import io
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from curate.policies.dedup.quality.audit import COLUMNS, DROPPED, MOST_DRAWN, NEAR, Drawn, StratumName
from scoring.errors import InputError

SAME, DIFFERENT, UNSURE = "same", "different", "unsure"
WORDS: dict[str, str] = {
    **dict.fromkeys(("yes", "y", "1", "1.0", "same", "true"), SAME),
    **dict.fromkeys(("no", "n", "0", "0.0", "different", "false"), DIFFERENT),
    **dict.fromkeys(("unsure", "?", "u", "maybe"), UNSURE),
}
_MOST_BYTES = 256 << 20
_STRATUM = re.compile(
    rf"^(?P<finder>.+): (?P<side>{DROPPED}|{NEAR}) (?P<number>\d{{1,3}}), (?P<least>\S+) to (?P<most>\S+)$"
)
_PLACE = re.compile(r"^(?P<number>\d{1,6}) of (?P<total>\d{1,6})$")


@dataclass(frozen=True)
class Judged:
    """A pair, and the verdicts: ``same``, ``different``, ``unsure``, or None where nothing was reported."""

    pair: Drawn
    answer: str | None


@dataclass(frozen=True)
class Answers:
    """An audit with answers.

    Attributes:
        path: where they were read.
        judged: every pair that was drawn, in the order of the audit.
    """

    path: str
    judged: tuple[Judged, ...]


def read_answers(path: str | Path) -> Answers:
    """Read an audit whose column ``answer`` a reviewer has filled in.

    Answers may be yes, no and unsure; y, n and ?; 1 and 0; same and different, in any case; an empty one is not one.
    A spreadsheet may have changed the order of the rows, and commas into semicolons or tabs.

    Raises:
        InputError: for a file that cannot be read, a column, row or number that is missing or wrong, or an answer that
            is not among these; all bad lines are counted, and the first is named.
    """
    path = Path(path)
    rows = _rows(path)
    found: dict[int, Judged] = {}
    totals: set[int] = set()
    bad: list[str] = []
    for line, row in rows:
        try:
            number, total, judged = _parsed(row)
        except ValueError as error:
            bad.append(f"line {line}: {error}")
            continue
        if number in found:
            bad.append(f"line {line}: pair {number} comes twice")
        found[number] = judged
        totals.add(total)
    if bad:
        more = f" ({len(bad):,} bad lines in all)" if len(bad) > 1 else ""
        raise InputError(f"{path}, {bad[0]}{more}; correct it, or draw the audit again")
    if len(totals) != 1:
        counts = ", ".join(map(str, sorted(totals))) or "none"
        raise InputError(
            f"{path}: expected the pairs of one audit, got totals of {counts}; give one file as it was drawn"
        )
    total = totals.pop()
    absent = [number for number in range(1, total + 1) if number not in found]
    if absent:
        raise InputError(
            f"{path}: expected all {total:,} pairs, {len(absent):,} are missing (such as {absent[0]}); "
            "leave their answer empty instead of taking lines out"
        )
    return Answers(str(path), tuple(found[number] for number in range(1, total + 1)))


def _rows(path: Path) -> list[tuple[int, Mapping[str, str]]]:
    if path.exists() and not path.is_file():  # a FIFO would be waited for
        raise InputError(f"expected a file at {path}, got a folder, a device or a pipe; give the path of a file")
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); give the audit with its answers") from None
    if len(data) > _MOST_BYTES:
        raise InputError(f"{path} is larger than {_MOST_BYTES >> 20} MB; expected an audit that curate dedup drew")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text; save it from the spreadsheet as CSV UTF-8") from None
    header = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=header.count)
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        absent = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
        if absent:
            got = ", ".join(reader.fieldnames or ())[:200] or "nothing"
            raise InputError(f"{path}: expected the columns {', '.join(COLUMNS)}, got {got}; {absent[0]!r} is missing")
        rows: list[tuple[int, Mapping[str, str]]] = []
        for row in reader:
            if any(value for value in row.values() if value):
                rows.append((reader.line_num, row))
            if len(rows) > MOST_DRAWN:
                raise InputError(f"{path} has more than {MOST_DRAWN:,} lines; expected an audit that curate dedup drew")
    except csv.Error as error:
        raise InputError(f"{path} is not a CSV file ({error}); save it from the spreadsheet as CSV UTF-8") from None
    return rows


def _parsed(row: Mapping[str, str | None]) -> tuple[int, int, Judged]:
    """Return number, total and pair of one line, or raise ValueError with what is wrong with it."""
    values = {name: row.get(name) or "" for name in COLUMNS}
    place = _PLACE.match(values["pair"].strip())
    if place is None:
        raise ValueError(f"expected a pair such as '1 of 200', got {values['pair'][:40]!r}")
    number, total = int(place["number"]), int(place["total"])
    if not 1 <= number <= total <= MOST_DRAWN:
        raise ValueError(f"expected a pair such as '1 of 200', got {values['pair'][:40]!r}")
    stratum = _STRATUM.match(values["stratum"].strip())
    if stratum is None:
        raise ValueError(f"expected a stratum as it was drawn, got {values['stratum'][:60]!r}")
    name = StratumName(
        stratum["finder"], stratum["side"], int(stratum["number"]), _number(stratum["least"]), _number(stratum["most"])
    )
    weight = _number(values["weight"])
    if weight < 1:
        raise ValueError(f"expected a weight of 1 or more, got {weight:g}")
    said = values["answer"].strip().casefold()
    if said and said not in WORDS:
        raise ValueError(f"expected yes, no, unsure or nothing as the answer, got {values['answer'][:40]!r}")
    pair = Drawn(values["key_a"], values["key_b"], _number(values["similarity"]), name, weight)
    return number, total, Judged(pair, WORDS.get(said))


def _number(text: str) -> float:
    try:
        value = float(text.strip().replace(",", "."))
    except ValueError:
        raise ValueError(f"expected a number, got {text[:40]!r}") from None
    if not math.isfinite(value):
        raise ValueError(f"expected a finite number, got {text[:40]!r}")
    return value
