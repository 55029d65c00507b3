"""Amounts of rows (a count, or a share of the remaining ones), exact numbers, and texts of six digits."""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.counted import counted
from scoring.errors import InputError

AMOUNTS = "a fraction above 0 up to 1.0 (0.8), a percentage (80%) or a count of rows (5000)"


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


DIGITS = 6
THOUSAND = 1000  # three digits, half of six
LEAST, MOST = 1e-4, 999_999.5  # between them Python writes no exponent
POWERS = 10.0 ** np.arange(-4, DIGITS)
SCALES = 10.0 ** (DIGITS + 4.0 - np.arange(len(POWERS) + 1))  # of numbers below the first power, and from each on
MOST_EXPONENT = 999  # of an exact number, which has as many digits
NEAR_TIE = 1e-4  # of the last digit: nearer to a half the product below may round another way than the number itself


def exact_number(text: str) -> Fraction:
    """Return a number such as 0.1, 1/3 or 1e-30 exactly; ValueError for others, or an exponent beyond 999."""
    mantissa, _, exponent = text.strip().lower().partition("e")
    if mantissa and exponent and abs(int(exponent)) > MOST_EXPONENT:
        raise ValueError(f"expected an exponent of at most {MOST_EXPONENT}, got {exponent[:10]}")
    return Fraction(text)


def six_digits(values: NDArray[np.float64], before: str = "", after: str | pa.StringArray = "") -> pa.StringArray:
    """Return ``before``, ``format(value, ".6g")`` and ``after`` as one text for each of N numbers.

    The first three digits, with sign and zeros, and the last three are looked up in tables. Numbers with an exponent,
    and ties, are formatted by Python.

    >>> six_digits(np.array([0.1234567, 12.0, 1e-9])).to_pylist()
    ['0.123457', '12', '1e-09']
    """
    size = np.abs(values)
    plain = (size >= LEAST) & (size < MOST)
    power = sum((size >= least).view(np.int8) for least in POWERS).astype(np.int64)  # a search in so few is slower
    scaled = np.where(plain, size, 1.0) * SCALES[power]
    plain &= np.abs(scaled - np.floor(scaled) - 0.5) > NEAR_TIE
    digits = np.rint(scaled).astype(np.int64)
    high = digits // THOUSAND
    low = digits - high * THOUSAND
    heads, tails = _digit_texts(before)
    head = ((power * 2 + (low > 0)) * 2 + np.signbit(values)) * (THOUSAND + 1) + high
    tail = power * THOUSAND + low
    if not plain.all():
        by_python = [f"{before}{value:.{DIGITS}g}" for value in values[~plain].tolist()]
        head[~plain], tail[~plain] = len(heads) + np.arange(len(by_python)), 0
        heads = pa.concat_arrays([heads, pa.array(by_python, pa.string())])
    texts: pa.StringArray = pc.binary_join_element_wise(
        heads.take(pa.array(head)), tails.take(pa.array(tail)), after, ""
    )
    return texts


@cache
def _digit_texts(before: str) -> tuple[pa.StringArray, pa.StringArray]:
    """Return the texts of the first three of six digits, after ``before``, and of the last three.

    Indexed by power of ten, whether the last three digits are above 0, sign and first three digits; and by power of ten
    and last three digits.
    """
    high, low = np.arange(THOUSAND + 1), np.arange(THOUSAND)
    heads: list[pa.Array] = []
    tails: list[pa.Array] = []
    for power, scale in enumerate(SCALES.tolist()):
        start = len(f"{100_001 / scale:.{DIGITS}g}") - 3 - (0 < power - 6 < 4)
        round_texts, texts_with_tail = (pa.array((high * THOUSAND + last) / scale).cast(pa.string()) for last in (0, 1))
        heads += [
            pc.binary_join_element_wise(f"{before}{sign}", texts, "")
            for texts in (round_texts, pc.utf8_slice_codeunits(texts_with_tail, 0, start))
            for sign in ("", "-")
        ]
        tails += [
            pa.array([""]),
            pc.utf8_slice_codeunits(pa.array((100_000 + low[1:]) / scale).cast(pa.string()), start),
        ]
    return pa.concat_arrays(heads), pa.concat_arrays(tails)
