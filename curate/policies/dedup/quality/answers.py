"""An audit with the verdicts on it: read, checked, and every pair accounted for."""

import csv
import io
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from curate.manifest.text import unguarded
from curate.policies.dedup.quality.audit import COLUMNS, DROPPED, MOST_DRAWN, NEAR, Drawn, StratumName
from curate.policies.sampled import Judged as Sampled
from curate.policies.sampled import n_finished, verdicts_on
from curate.policies.verdicts import DROP, KEEP
from scoring.errors import InputError

SAME, DIFFERENT, UNSURE = "same", "different", "unsure"
OF_VERDICT = {DROP: SAME, KEEP: DIFFERENT}
_MOST_BYTES = 256 << 20
_STRATUM = re.compile(
    rf"^(?P<finder>.+): (?P<side>{DROPPED}|{NEAR}) (?P<number>\d{{1,3}}), (?P<least>\S+) to (?P<most>\S+)$"
)
_PLACE = re.compile(r"^(?P<number>\d{1,6}) of (?P<total>\d{1,6})$")


@dataclass(frozen=True)
class Judged:
    """A pair, and the verdicts: ``same``, ``different``, ``unsure``, or None where it counts as not drawn."""

    pair: Drawn
    answer: str | None


@dataclass(frozen=True)
class Answers:
    """An audit with answers.

    Attributes:
        path: where they were read.
        judged: every pair that was drawn, in the order of the audit.
        unfinished: pairs with verdicts that do not count, as their block is not judged whole.
    """

    path: str
    judged: tuple[Judged, ...]
    unfinished: int = 0


def read_answers(path: str | Path) -> Answers:
    """Return the pairs of an audit with what reviewers said of them in ``curate review``.

    A pair of which a copy was dropped is the same, one of which both were kept is different. Where reviewers differ,
    it is unsure. Pairs behind the last block that is judged whole count as not drawn.

    Raises:
        InputError: as ``read_pairs``, or for verdicts that cannot be read.
    """
    pairs, said = read_pairs(path), verdicts_on(Path(path))
    answers = [_answer(said, pair) for pair in pairs]
    is_judged = [answer is not None for answer in answers]
    n = n_finished([shown(pair)[0] for pair in pairs], is_judged)
    judged = tuple(
        Judged(pair, answer if at < n else None) for at, (pair, answer) in enumerate(zip(pairs, answers, strict=True))
    )
    return Answers(str(path), judged, sum(is_judged[n:]))


def shown(pair: Drawn) -> tuple[str, str]:
    """Return the image of a pair that is judged, and the one next to it: of what was dropped, the dropped one."""
    return (pair.key_a, pair.key_b) if pair.stratum.side == NEAR else (pair.key_b, pair.key_a)


def read_pairs(path: str | Path) -> list[Drawn]:
    """Return the pairs of an audit, in the order drawn.

    Raises:
        InputError: for a file that cannot be read, or a column, row or number that is missing or wrong; all bad lines
            are counted, and the first is named.
    """
    path = Path(path)
    rows = _rows(path)
    pairs: dict[int, Drawn] = {}
    totals: set[int] = set()
    bad: list[str] = []
    for line, row in rows:
        try:
            number, total, pair = _parsed(row)
        except ValueError as error:
            bad.append(f"line {line}: {error}")
            continue
        if number in pairs:
            bad.append(f"line {line}: pair {number} comes twice")
        pairs[number] = pair
        totals.add(total)
    if bad:
        more = f" ({len(bad):,} bad lines in all)" if len(bad) > 1 else ""
        raise InputError(f"{path}, {bad[0]}{more}; draw the audit again")
    if len(totals) != 1:
        counts = ", ".join(map(str, sorted(totals))) or "none"
        raise InputError(
            f"{path}: expected the pairs of one audit, got totals of {counts}; give one file as it was drawn"
        )
    total = totals.pop()
    absent = [number for number in range(1, total + 1) if number not in pairs]
    if absent:
        raise InputError(
            f"{path}: expected all {total:,} pairs, {len(absent):,} are missing (such as {absent[0]}); "
            "give the file as it was drawn"
        )
    return [pairs[number] for number in range(1, total + 1)]


def _answer(said: Sampled, pair: Drawn) -> str | None:
    """The answer of reviewers on a pair, in either order."""
    lines = [
        line for keys in ((pair.key_a, pair.key_b), (pair.key_b, pair.key_a)) for line in said.get(keys, {}).values()
    ]
    answers = {OF_VERDICT.get(line.verdict, UNSURE) for line in lines}
    return (answers.pop() if len(answers) == 1 else UNSURE) if answers else None


def _rows(path: Path) -> list[tuple[int, Mapping[str, str]]]:
    if path.exists() and not path.is_file():  # a FIFO would be waited for
        raise InputError(f"expected a file at {path}, got a folder, a device or a pipe; give the path of a file")
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror}); give the NAME.audit.csv of curate dedup --audit"
        ) from None
    if len(data) > _MOST_BYTES:
        raise InputError(f"{path} is larger than {_MOST_BYTES >> 20} MB; expected an audit that curate dedup drew")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text; draw the audit again") from None
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
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
        raise InputError(f"{path} is not a CSV file ({error}); draw the audit again") from None
    return rows


def _parsed(row: Mapping[str, str | None]) -> tuple[int, int, Drawn]:
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
    keys = unguarded(values["key_a"]), unguarded(values["key_b"])
    return number, total, Drawn(*keys, _number(values["similarity"]), name, weight)


def _number(text: str) -> float:
    try:
        value = float(text.strip())
    except ValueError:
        raise ValueError(f"expected a number, got {text[:40]!r}") from None
    if not math.isfinite(value):
        raise ValueError(f"expected a finite number, got {text[:40]!r}")
    return value
