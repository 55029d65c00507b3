"""Descriptions of files: tables, subsets, decisions, receipts and checkpoints, in a few lines."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from curate.columns import STATUS, describe
from curate.manifest.store_path import AnyPath, StorePath, path_to_read
from curate.policies.receipts import read_step
from curate.tables.classes import CLASSES, class_list, lists_of
from curate.tables.digests import is_text, plain
from curate.tables.table import Table, open_table
from scoring.errors import InputError
from scoring.lookup import name_list

DECISION = "decision"
NOT_SETTINGS = ("kind", "curate", "columns", "model", "policy", CLASSES)


@dataclass
class Description:
    """The kind and content of a file.

    Attributes:
        path: of the file.
        kind: ``scores``, ``subset``, ``decisions``, ``table`` (not curate's), ``receipt`` or ``checkpoint``.
        facts: JSON values by name, in display order.
        columns: for a table, one entry per column: name, type, meaning, unit, higher.
        counts: number of rows by status or by decision.
    """

    path: str
    kind: str
    facts: dict[str, Any] = field(default_factory=dict)
    columns: list[dict[str, str]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


def describe_file(path: str | Path | StorePath) -> Description:
    """Return the kind and content of a file; reads only headers and the columns of status and classes.

    Args:
        path: Parquet file or folder of parts, receipt (``.json``) or checkpoint (``.safetensors``).

    Raises:
        InputError: for another or a damaged file.
    """
    place = path_to_read(path)
    if place.suffix == ".json":
        return _receipt(place)
    if isinstance(place, StorePath):
        return _table(open_table(place))
    if place.suffix == ".safetensors":
        return _checkpoint(place)
    if place.is_file() and place.suffix != ".parquet" and not _is_parquet(place):
        raise InputError(f"expected a table (.parquet), a receipt (.json) or a checkpoint (.safetensors), got {path}")
    return _table(open_table(place))


def _classes(table: Table) -> dict[str, str]:
    """Return by column, in words, the number and names of listed classes, and those without rows."""
    lists = lists_of(table)
    present: dict[str, set[str]] = {name: set() for name in lists}
    for batch in table.batches(list(lists)) if lists else ():
        for name, seen in present.items():
            seen.update(class_list(table, name).texts(batch.column(name)).unique().drop_null().to_pylist())
    lines = {}
    for name, names in lists.items():
        lacking = [each for each in names if each not in present[name]]
        none = f"; no row of {name_list(lacking)}" if lacking else ""
        lines[name] = f"{len(names):,}: {name_list(names)}{none}"
    return lines


def _is_parquet(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PAR1"
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; check who owns it") from None


def _table(table: Table) -> Description:
    metadata = table.metadata
    columns = [_column(table, name, table.noted("columns")) for name in table.schema.names]
    facts: dict[str, Any] = {
        "rows": table.n_rows,
        "files": len(table.files),
        "bytes": sum(file.stat().st_size for file in table.files),
        "written by curate": metadata.get("curate"),
        "model": metadata.get("model"),
        "policy": metadata.get("policy"),
        **{name: value for name, value in metadata.items() if name not in NOT_SETTINGS},
        CLASSES: _classes(table) or None,
    }
    counted = next((name for name in (DECISION, STATUS) if name in table.schema.names), None)
    return Description(
        str(table.path),
        str(metadata.get("kind", "table")),
        {name: value for name, value in facts.items() if value is not None},
        columns,
        _count(table, counted) if counted else {},
    )


def _column(table: Table, name: str, described: dict[str, Any]) -> dict[str, str]:
    entry = described.get(name)
    known = describe(name)
    words = {"meaning": known.meaning, "unit": known.unit, "higher": known.higher}
    if isinstance(entry, dict):
        words |= {key: str(entry[key]) for key in words if key in entry}
    return {"name": name, "type": str(table.schema.field(name).type), **words}


def _count(table: Table, name: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    if not is_text(table.schema.field(name).type):
        return counts
    for batch in table.batches([name]):
        for entry in pc.value_counts(plain(batch.column(name))).to_pylist():
            value = str(entry["values"])
            counts[value] = counts.get(value, 0) + entry["counts"]
    return dict(sorted(counts.items(), key=lambda item: -item[1]))


def _receipt(path: AnyPath) -> Description:
    receipt = read_step(path)
    counts = receipt.get("counts")
    facts = {name: receipt.get(name) for name in ("input", "model", "policy", "outputs", "environment")}
    facts["written by curate"] = receipt.get("curate")
    numbers: dict[str, int] = (
        {k: v for k, v in counts.items() if isinstance(v, int)} if isinstance(counts, dict) else {}
    )
    return Description(str(path), "receipt", {k: v for k, v in facts.items() if v is not None}, [], numbers)


def _checkpoint(path: Path) -> Description:
    from scoring.cards import read_card  # imported here, since tables do not need it

    if not path.is_file():
        raise InputError(f"{path} does not exist; expected a checkpoint (.safetensors)")
    return Description(str(path), "checkpoint", read_card(path))
