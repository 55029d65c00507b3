"""Numbers as texts of six digits, many at a time, and a text as an exact number."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

DIGITS = 6
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


def six_digits(values: NDArray[np.float64]) -> pa.StringArray:
    """Return ``format(value, ".6g")`` of each of N numbers.

    A number is rounded to six digits here; the shortest text that reads back as what came out, which Arrow writes,
    then has no more of them. Numbers with an exponent, and ties, are left to Python.

    >>> six_digits(np.array([0.1234567, 12.0, 1e-9])).to_pylist()
    ['0.123457', '12', '1e-09']
    """
    size = np.abs(values)
    plain = (size >= LEAST) & (size < MOST)
    scale = SCALES[np.searchsorted(POWERS, size, side="right")]
    scaled = np.where(plain, size, 1.0) * scale
    plain &= np.abs(scaled - np.floor(scaled) - 0.5) > NEAR_TIE
    rounded = np.copysign(np.rint(scaled) / scale, values)
    texts: pa.StringArray = pa.array(np.where(plain, rounded, 0.0)).cast(pa.string())
    if plain.all():
        return texts
    by_python = pa.array([format(value, f".{DIGITS}g") for value in values[~plain].tolist()], pa.string())
    places = np.arange(len(values))
    places[~plain] = len(values) + np.arange(len(by_python))
    return pa.concat_arrays([texts, by_python]).take(pa.array(places))
