"""Amounts of rows (a count, or a share of the remaining ones), and exact numbers."""

import re
from dataclasses import dataclass
from fractions import Fraction

from curate.counted import counted
from scoring.errors import InputError

AMOUNTS = "a fraction above 0 up to 1.0 (0.8), a percentage (80%) or a count of rows (5000)"
MOST_EXPONENT = 999  # of an exact number, which has as many digits


@dataclass(frozen=True)
class Amount:
    """An amount of rows: a share of the remaining rows, or a count; typed ``1`` is one row, ``1.0`` all."""

    text: str
    count: int | None
    share: Fraction | None

    @classmethod
    def parse(cls, value: str | int | float, flag: str) -> "Amount":
        """Parse ``0.8``, ``80%`` or ``5000`` exactly, without binary rounding; InputError for 0 or a share above 1."""
        text = str(value).strip()
        match = re.fullmatch(r"([0-9]+)|([0-9]*\.[0-9]+|[0-9]+\.)|([0-9]+\.?[0-9]*|\.[0-9]+)\s*%", text)
        if match is None or len(text) > 30:
            raise InputError(f"{flag} takes {AMOUNTS}, got {text[:40]!r}")
        if match[1]:
            amount = cls(text, int(match[1]), None)
        else:
            amount = cls(text, None, Fraction((match[2] or match[3]).rstrip(".")) / (1 if match[2] else 100))
        if amount.count == 0 or (amount.share is not None and not 0 < amount.share <= 1):
            raise InputError(f"{flag} takes {AMOUNTS}, got {text}")
        return amount

    def of(self, n: int, *, up: bool) -> int:
        """Return the number of rows out of ``n``: a count (at most n), or a share rounded up or down."""
        if self.count is not None:
            return min(self.count, n)
        share = self.share or Fraction(0)
        n_rows, rest = divmod(share.numerator * n, share.denominator)
        return n_rows + (1 if up and rest else 0)

    def other_reading(self, flag: str, taken: int, n: int) -> str | None:
        """Return a note on a percentage below 1 %, which may be meant as a fraction; None for other amounts.

        Args:
            flag: the option, such as ``--budget``.
            taken: resulting number of rows.
            n: number of all rows.

        >>> Amount.parse("0.8%", "--keep-top").other_reading("--keep-top", 4, 500)
        '--keep-top 0.8% is 4 of 500 rows; 0.8 (or 80%) is 100 times as many'
        """
        if self.share is None or self.share >= Fraction(1, 100) or not self.text.endswith("%"):
            return None
        rows, larger = f"{taken:,} of {counted(n, 'row')}", float(self.share * 100)
        return f"{flag} {self.text} is {rows}; {larger:g} (or {larger * 100:g}%) is 100 times as many"

    def __str__(self) -> str:
        if self.count is not None:
            return f"{self.count:,} rows" if self.count > 1 else "1 row"
        return f"{float((self.share or Fraction(0)) * 100):g}%"


def exact_number(text: str) -> Fraction:
    """Return a number such as 0.1, 1/3 or 1e-30 exactly; ValueError for others, or an exponent beyond 999."""
    mantissa, _, exponent = text.strip().lower().partition("e")
    if mantissa and exponent and abs(int(exponent)) > MOST_EXPONENT:
        raise ValueError(f"expected an exponent of at most {MOST_EXPONENT}, got {exponent[:10]}")
    return Fraction(text)
