"""Texts of numbers with six significant digits, computed by column."""

from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

DIGITS = 6
THOUSAND = 1000  # three digits, half of six
LEAST, MOST = 1e-4, 999_999.5  # between them Python writes no exponent
POWERS = 10.0 ** np.arange(-4, DIGITS)
SCALES = 10.0 ** (DIGITS + 4.0 - np.arange(len(POWERS) + 1))  # of numbers below the first power, and from each on
NEAR_TIE = 1e-4  # of the last digit: nearer to a half the product below may round another way than the number itself


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
