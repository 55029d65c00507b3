"""A review that came back with answers, and what they report for all labels."""

import csv
import io
import re
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

from curate.manifest.text import read_text
from curate.policies.labels.review import COLUMNS, SUSPECTED, TRUSTED
from scoring.errors import InputError
from scoring.metrics.proportions import Stratum, stratified_interval
from scoring.metrics.resampling import Interval

GIVEN, SUGGESTED, OTHER, UNSURE = "given", "suggested", "other", "unsure"
KEYS = {"g": GIVEN, "s": SUGGESTED, "o": OTHER, "u": UNSURE}  # of the page
WORDS: dict[str, str] = {
    **dict.fromkeys((GIVEN, "g", "right", "ok", "yes", "y"), GIVEN),
    **dict.fromkeys((SUGGESTED, "s"), SUGGESTED),
    **dict.fromkeys((OTHER, "o", "wrong", "no", "n"), OTHER),
    **dict.fromkeys((UNSURE, "u", "?"), UNSURE),
}
MOST_BYTES = 64 << 20
WRONG = (SUGGESTED, OTHER)


@dataclass(frozen=True)
class Share:
    """A share of rows with its 95 % interval, in both readings of an unsure answer.

    Attributes:
        rows: that it is a share of.
        strict: an unsure label counts as right.
        lenient: an unsure label counts as wrong.
    """

    rows: int
    strict: Interval
    lenient: Interval

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        readings = {"strict": self.strict, "lenient": self.lenient}
        return {"rows": self.rows} | {
            name: {"value": None if isnan(one.value) else one.value, "low": one.low, "high": one.high}
            for name, one in readings.items()
        }


@dataclass(frozen=True)
class Verdicts:
    """What answers say.

    Attributes:
        counts: answer -> rows; ``blank`` are those without one.
        wrong: share of all judged labels that are wrong.
        suspected: of the suspected ones; None where none was drawn.
        trusted: of the others; None where none was drawn.
        corrected: share of the suspected rows whose suggested label is right; None too.
    """

    counts: dict[str, int]
    wrong: Share
    suspected: Share | None
    trusted: Share | None
    corrected: Share | None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        shares = {name: value and value.to_json() for name, value in vars(self).items() if name != "counts"}
        return {"counts": self.counts, **shares}


def is_review(path: Path) -> bool:
    """Return whether a file is one of ``curate labels --review``, by its first line."""
    try:
        with path.open("rb") as file:
            header = file.read(1000).decode("utf-8-sig", "replace").split("\n", 1)[0]
    except OSError:
        return False
    return {"given", "suggested"} <= set(re.split(r"[,;\t]", header.strip()))


def read_verdicts(path: str | Path) -> Verdicts:
    """Read a review whose column ``answer`` a reviewer has filled in, and weigh the answers by what each represents.

    The intervals hold for every population: see ``scoring.metrics.proportions``. Rows without an answer count as not
    drawn.

    Args:
        path: NAME.review.csv, as drawn, its rows in any order.

    Raises:
        InputError: for a file that cannot be read, a column, row or word that is missing or wrong, or no answer at all.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path} does not exist; give the NAME.review.csv of curate labels --review")
    if path.stat().st_size > MOST_BYTES:
        raise InputError(f"{path} has {path.stat().st_size:,} bytes, more than {MOST_BYTES:,}; it is no review")
    text = read_text(path, what="the review")
    header = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=header.count)
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        raise InputError(f"{path} has no column {missing[0]!r}; give the NAME.review.csv of curate labels --review")
    try:
        rows = [row for row in reader if any(row.values())]
    except csv.Error as error:
        raise InputError(f"{path} cannot be read as CSV ({error}); save it as CSV again") from None
    return _weighed(path, rows)


def _weighed(path: Path, rows: list[dict[str, str]]) -> Verdicts:
    answers: dict[str, tuple[int, list[str | None]]] = {}
    bad: list[str] = []
    seen: set[str] = set()
    for line, row in enumerate(rows, 2):
        try:
            stratum, size, answer = _parsed(row)
            if row["row"] in seen:
                raise ValueError(f"row {row['row']!r} comes twice")
            if stratum in answers and answers[stratum][0] != size:
                raise ValueError(f"stratum {stratum!r} has two sizes")
        except ValueError as error:
            bad.append(f"line {line}: {error}")
            continue
        seen.add(row["row"])
        answers.setdefault(stratum, (size, []))[1].append(answer)
    bad += [
        f"stratum {name!r} has more rows than its size" for name, (size, said) in answers.items() if len(said) > size
    ]
    if bad:
        more = f" ({len(bad):,} in all)" if len(bad) > 1 else ""
        raise InputError(f"{path}, {bad[0][:200]}{more}; correct it, or draw the review again")
    totals = {place.partition(" of ")[2] for place in seen}
    if totals != {str(len(seen))}:
        raise InputError(
            f"{path}: expected all rows of one review, got {len(seen):,} of {', '.join(sorted(totals)[:3]) or 'none'}; "
            "leave answers empty where there are none, but keep the rows"
        )
    said = [answer for _, each in answers.values() for answer in each]
    if not any(said):
        raise InputError(
            f"{path}: expected answers in the column 'answer', got none on {len(said):,} rows; write given, suggested, "
            "other or unsure"
        )
    counts = {word: said.count(word) for word in (GIVEN, SUGGESTED, OTHER, UNSURE)} | {"blank": said.count(None)}
    suspected = {name: each for name, each in answers.items() if name.startswith(SUSPECTED)}
    trusted = {name: each for name, each in answers.items() if name.startswith(TRUSTED)}
    return Verdicts(
        counts,
        _share(answers, WRONG),
        _share(suspected, WRONG) if suspected else None,
        _share(trusted, WRONG) if trusted else None,
        _share(suspected, (SUGGESTED,)) if suspected else None,
    )


def _parsed(row: dict[str, str]) -> tuple[str, int, str | None]:
    values = {name: row.get(name) or "" for name in COLUMNS}
    stratum = values["stratum"].strip()
    if not stratum.startswith((SUSPECTED, TRUSTED)):
        raise ValueError(f"expected a stratum such as '{SUSPECTED} 1', got {stratum!r}")
    try:
        size = int(values["size"])
    except ValueError:
        raise ValueError(f"expected a whole number in column 'size', got {values['size']!r}") from None
    word = values["answer"].strip().lower()
    if word and word not in WORDS:
        raise ValueError(f"expected given, suggested, other or unsure, got {word!r}")
    if size < 1:
        raise ValueError(f"expected a size of 1 or more, got {size}")
    return stratum, size, WORDS[word] if word else None


def _share(answers: dict[str, tuple[int, list[str | None]]], positive: tuple[str, ...]) -> Share:
    readings = []
    for counted_in in (positive, (*positive, UNSURE)):
        strata = [
            Stratum(size, sum(one is not None for one in said), sum(one in counted_in for one in said))
            for size, said in answers.values()
        ]
        readings.append(stratified_interval(strata))
    return Share(sum(size for size, _ in answers.values()), *readings)
