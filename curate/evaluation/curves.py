"""Curves of an evaluation, read from its JSON and checked."""

from collections.abc import Mapping
from typing import Any

import numpy as np

ENDS = ("value", "low", "high")
MOST_STEPS = 100
MOST_KINDS = 24


def read_strengths(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the curves of an evaluation that was read from a file, checked: kind, unit, strength and columns of each.

    Args:
        report: the JSON of ``curate evaluate``; one without strengths gives none.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: if they are something else.
    """
    return [_steps(str(kind), about) for kind, about in list((report.get("strengths") or {}).items())[:MOST_KINDS]]


def _steps(kind: str, about: Mapping[str, Any]) -> dict[str, Any]:
    strength = [float(value) for value in about["strength"]]
    columns = {
        str(name): {end: [float(value) for value in ends[end]] for end in ENDS}
        for name, ends in about["columns"].items()
    }
    lengths = {len(curve) for ends in columns.values() for curve in ends.values()}
    values = [value for ends in columns.values() for curve in ends.values() for value in curve]
    if lengths != {len(strength)} or not 1 <= len(strength) <= MOST_STEPS:
        raise ValueError("curves of other lengths than the strengths")
    if not np.isfinite([*strength, *values]).all() or (np.diff(strength) <= 0).any():
        raise ValueError("strengths that do not ascend, or values that are not numbers")
    return {"kind": kind, "unit": str(about["unit"]), "strength": strength, "columns": columns}
