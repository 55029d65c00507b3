"""How far the models of two rounds say the same of the same rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from curate.tables.table import open_table


@dataclass(frozen=True)
class ModelAgreement:
    """What two models say of the same rows.

    Attributes:
        n: rows.
        kappa: Cohen's, of their classes.
        changed: share of the rows with another class, in [0, 1].
    """

    n: int
    kappa: float
    changed: float


def cohen_kappa(first: Sequence[str], second: Sequence[str]) -> float:
    """Return how far two models agree beyond chance level: 1 is always, 0 what their class shares would give.

    Two models that give every row one and the same class agree: 1.

    Source: Cohen 1960; for successive models, Bloodgood and Vijay-Shanker 2009, arXiv:1409.5165.

    >>> cohen_kappa(["a", "a", "b", "b"], ["a", "a", "b", "a"])
    0.5
    """
    names, codes = np.unique([*first, *second], return_inverse=True)
    a, b = codes[: len(first)], codes[len(first) :]
    observed = float((a == b).mean())
    expected = float(np.bincount(a, minlength=len(names)) @ np.bincount(b, minlength=len(names))) / len(a) ** 2
    return 1.0 if expected >= 1 else (observed - expected) / (1 - expected)


def compared(sample: pa.Table, before: Path | None) -> ModelAgreement | None:
    """Return how far two models agree on the rows of both; None without an earlier one, or such a row.

    Args:
        sample: `key` and `predicted` of the rows on which rounds are compared.
        before: the same of the round before; may not be there.
    """
    if before is None or not before.is_file():
        return None
    earlier = open_table(before, require=["key", "predicted"]).read()
    class_before = dict(zip(earlier["key"].to_pylist(), earlier["predicted"].to_pylist(), strict=True))
    class_now = dict(zip(sample["key"].to_pylist(), sample["predicted"].to_pylist(), strict=True))
    both = [key for key in class_now if key in class_before]
    if not both:
        return None
    now, then = [class_now[key] for key in both], [class_before[key] for key in both]
    changed = float(np.mean([a != b for a, b in zip(now, then, strict=True)]))
    return ModelAgreement(len(both), cohen_kappa(now, then), changed)
