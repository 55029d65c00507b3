"""Parsing of the target of a balance: a power of the cell sizes, or a share of each cell."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from curate.manifest.store_path import path_on_disk
from curate.manifest.text import read_bytes, read_json
from curate.manifest.text_tables import MAX_TABLE_BYTES, read_csv
from curate.policies.balance.options import To
from scoring.errors import InputError
from scoring.lookup import closest, name_list

NAMED = {"uniform": 0.0, "square-root": 0.5}  # exponent of the cell sizes
FILES = (".csv", ".json")
SHARE = "share"
ROUNDING = 1e-3  # accepts three times 33.3 %
HOW = f"{', '.join(NAMED)}, a file of classes and shares ({', '.join(FILES)}), or CLASS=SHARE for each class"


def target_of(to: To, alpha: float | None) -> tuple[float, dict[str, float]]:
    """Return the power of the sizes, and the share of each named class, which takes precedence.

    Args:
        to: as typed, once or more; a mapping class -> share; None for uniform.
        alpha: the power; None for none.

    Raises:
        InputError: for an invalid value, or shares that do not sum to 1.
    """
    texts = [] if to is None else [str(to)] if isinstance(to, str | Path) else to
    if alpha is not None:
        if len(texts):
            raise InputError("--alpha and --to both set the target; leave one of them out")
        if not 0 <= alpha <= 1:
            raise InputError(f"--alpha must be from 0 (uniform) to 1 (as it is), got {alpha:g}; 0.5 is the square root")
        return alpha, {}
    if isinstance(texts, Mapping):
        return 0.0, _checked_sum({str(name): _share(str(name), str(share)) for name, share in texts.items()})
    if not texts:
        return NAMED["uniform"], {}
    if len(texts) == 1 and texts[0] in NAMED:
        return NAMED[texts[0]], {}
    if len(texts) == 1 and Path(texts[0]).suffix.lower() in FILES and "=" not in Path(texts[0]).name:
        return 0.0, _checked_sum(_read(path_on_disk(texts[0], "--to")))
    return 0.0, _checked_sum(_typed(texts))


def shares_in(
    alpha: float, named: Mapping[str, float], names: Sequence[str], sizes: NDArray[np.int64], *, what: str
) -> NDArray[np.float64]:
    """Return the share of each cell, shape (C,), with sum 1; InputError for a named class without rows.

    Args:
        alpha: power of the sizes, used if no shares are named.
        named: class -> share.
        names: of the cells.
        sizes: rows of each, shape (C,), >= 1.
        what: name of the cells in messages.
    """
    if not named:
        weight = sizes.astype(np.float64) ** alpha
        return weight / weight.sum()
    place = {name: at for at, name in enumerate(names)}
    unknown = [name for name in named if name not in place and named[name] > 0]
    if unknown:
        more = f" (and {len(unknown) - 1:,} more)" if len(unknown) > 1 else ""
        some = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        raise InputError(
            f"no row has the {what} {unknown[0]!r}{more}, of which {named[unknown[0]]:.4g} was requested"
            f"{closest(unknown[0], names)} ({what}: {some})"
        )
    shares = np.zeros(len(names))
    for name, share in named.items():
        if share > 0:
            shares[place[name]] = share
    return shares


def _typed(texts: Sequence[str]) -> dict[str, float]:
    shares: dict[str, float] = {}
    for text in texts:
        name, sign, share = text.rpartition("=")
        if not sign or not name:
            raise InputError(f"--to takes {HOW}, got {text!r}{closest(text, NAMED)}")
        if name in shares:
            raise InputError(f"--to has two shares of {name!r}; keep one")
        shares[name] = _share(name, share)
    return shares


def _read(path: Path) -> dict[str, float]:
    pairs: list[tuple[str, str]]
    if path.suffix.lower() == ".json":
        read = read_json(path, what='shares like {"cat": 0.3, "dog": 0.7}', most=MAX_TABLE_BYTES)
        if not isinstance(read, dict):
            raise InputError(f'{path} is not a JSON object; write shares like {{"cat": 0.3, "dog": 0.7}}')
        pairs = [(str(name), str(share)) for name, share in read.items()]
    else:
        data = read_bytes(path, what="text with shares", most=MAX_TABLE_BYTES)
        table = read_csv(data, str(path), expects={SHARE})
        names = [name for name in table.schema.names if name != SHARE]
        if SHARE not in table.schema.names or len(names) != 1:
            raise InputError(
                f"expected two columns in {path}, classes and {SHARE!r}, got {name_list(table.schema.names)}; "
                "remove the others"
            )
        columns = table.column(names[0]).to_pylist(), table.column(SHARE).to_pylist()
        pairs = [(str("" if name is None else name), str(share)) for name, share in zip(*columns, strict=True)]
    shares: dict[str, float] = {}
    for name, share in pairs:
        if name in shares:
            raise InputError(f"{path} has two shares of {name!r}; keep one")
        shares[name] = _share(name, share)
    return shares


def _share(name: str, text: str) -> float:
    number = text.strip()
    try:
        share = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise InputError(f"the share of {name!r} must be from 0 to 1, or 0% to 100%, got {text[:40]!r}")
    return share


def _checked_sum(shares: dict[str, float]) -> dict[str, float]:
    total = sum(shares.values())
    if abs(total - 1) > ROUNDING:
        off = f"{(total - 1) * 100:.4g}% too much" if total > 1 else f"{(1 - total) * 100:.4g}% is missing"
        raise InputError(f"the shares of {len(shares):,} classes sum to {total * 100:.4g}%, expected 100%: {off}")
    return {name: share / total for name, share in shares.items()}
