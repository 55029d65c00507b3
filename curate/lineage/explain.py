"""The history of an image: the decision and reason of every step after scoring."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from curate.columns import KEY
from curate.lineage.options import ExplainOptions
from curate.manifest.store_path import path_to_read, subset_at
from curate.options.function import callable_of
from curate.options.values import several
from curate.policies.chain import Link, Searched, links, links_after, receipt_of
from curate.policies.decided import OUTCOMES
from curate.policies.receipts import receipt_beside
from curate.tables.digests import is_bytes
from curate.tables.keys import rows_with_keys
from curate.tables.spelling import key_meant, nearest_key
from curate.tables.table import Table, open_table
from scoring.errors import InputError

KEPT, DROPPED, _, _ = OUTCOMES
ABSENT, ADDED = "absent", "added"  # row not in a step's input; step that only adds columns
MOST_KEYS = 1_000
WORDS = (KEY, "decision", "reason", "rule")  # text columns of decisions; others are numbers
IN_ITS_PLACE = "kept_key"


@dataclass(frozen=True)
class Event:
    """The decision of a step on a row.

    Attributes:
        policy: its name.
        receipt: its path.
        decision: keep, drop, undecided or failed; ``absent`` if an earlier step dropped the row; ``added`` for a
            calibration, which decides nothing.
        reason: in words.
        rule: the deciding rule, as typed.
        noted: further non-null values in the decisions: score, threshold, margin, group, rank, ...; of a dropped copy
            also ``kept_by``, the criteria for the kept copy.
        added: columns of the row that the step added.
    """

    policy: str
    receipt: str
    decision: str
    reason: str = ""
    rule: str = ""
    noted: Mapping[str, Any] = field(default_factory=dict)
    added: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Story:
    """The history of a row.

    Attributes:
        key: of the row.
        table: the scored table.
        row: its values there, without lists, bytes and nulls.
        events: one per step, in order.
    """

    key: str
    table: str
    row: Mapping[str, Any]
    events: Sequence[Event]

    @property
    def lost(self) -> int | None:
        """Index of the first step that dropped the row; None if no step did."""
        return next(
            (n for n, event in enumerate(self.events) if event.decision in OUTCOMES and event.decision != KEPT), None
        )

    @property
    def in_its_place(self) -> str | None:
        """Key of the row kept instead of this one; None if there is none."""
        return None if self.lost is None else self.events[self.lost].noted.get(IN_ITS_PLACE)

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        return {**asdict(self), "lost": self.lost, "in_its_place": self.in_its_place}


def run_explain(options: ExplainOptions) -> list[Story]:
    """Report what happened to rows across all steps, as the receipts and decisions note it.

    Returns:
        One story a key, in their order.

    Raises:
        InputError: for a key that the scored table has not, or a table, receipt or decisions that are gone.
    """
    key_list = list(several(options.keys))
    _check(key_list)
    table = subset_at(path_to_read(options.table))
    searched = Searched(table.parent, tuple(map(Path, several(options.root))))
    if table.suffix == ".json" or (table.is_file() and receipt_beside(table).is_file()):
        steps = list(links(receipt_of(table), searched))[::-1]
        scored = open_table(steps[0].input, require=[KEY])
    else:
        steps, scored = links_after(table, searched), open_table(table, require=[KEY])
    known = rows_with_keys(scored, key_list)
    key_list = [key if key in known else key_meant(key, scored) for key in key_list]
    rows = _rows_of(scored, key_list, [each.name for each in scored.schema])
    for key in key_list:
        if key not in rows:
            raise InputError(f"{scored.path} has no row with the key {key!r}{nearest_key(key, scored)}")
    events: dict[str, list[Event]] = {key: [] for key in key_list}
    for step in steps:
        for key, event in _events(step, key_list).items():
            events[key].append(event)
    return [Story(key, str(scored.path), rows[key], events[key]) for key in key_list]


explain = callable_of(ExplainOptions, run_explain)


def _check(keys: Sequence[str]) -> None:
    if not keys or len(keys) > MOST_KEYS:
        raise InputError(f"expected 1 to {MOST_KEYS:,} keys, got {len(keys):,}")
    for key in keys:
        try:
            key.encode()
        except UnicodeEncodeError:
            raise InputError(f"expected a key in UTF-8, got {key.encode('utf-8', 'backslashreplace')!r}") from None


def _events(step: Link, keys: Sequence[str]) -> dict[str, Event]:
    """Return the decision of a step on each row."""
    about = step.policy, str(step.path)
    written = step.open(step.written)
    before = written.schema.names if step.source is None else open_table(step.source).schema.names
    new = [name for name in written.schema.names if name not in before]
    added = _rows_of(written, keys, new)
    if step.is_calibration:
        return {key: Event(*about, ADDED if key in added else ABSENT, added=added.get(key, {})) for key in keys}
    decisions = step.open("decisions")
    noted = _rows_of(decisions, keys, decisions.schema.names)
    rules = step.noted["policy"]
    rule = rules[0] if rules and isinstance(rules[0], Mapping) else {}
    kept_by = ""  # the criteria that selected one of several copies
    if rule.get("keep") and not rule.get("against"):  # a row of another table is always kept
        first = [f"--{name}" for name in ("protect", "prefer") if rule.get(name)]
        kept_by = ", then ".join([*first, str(rule["keep"]), "the shorter key"])
    events = {}
    for key in keys:
        row = noted.get(key)
        if row is None:
            events[key] = Event(*about, ABSENT)
            continue
        rest = {name: value for name, value in row.items() if name not in WORDS}
        if row["decision"] == DROPPED and row.get(IN_ITS_PLACE) and kept_by:
            rest["kept_by"] = kept_by
        words = (str(row["decision"]), str(row.get("reason", "")), str(row.get("rule", "")))
        events[key] = Event(*about, *words, noted=rest, added=added.get(key, {}))
    return events


def _rows_of(table: Table, keys: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return some values of rows by key, without lists, bytes and nulls; -0 becomes 0."""
    kinds = {name: table.schema.field(name).type for name in names}
    plain = [name for name, kind in kinds.items() if not pa.types.is_nested(kind) and not is_bytes(kind)]
    row_of_key = rows_with_keys(table, keys)
    if not row_of_key or not plain:
        return {key: {} for key in row_of_key}
    rows = table.take(list(row_of_key.values()), plain).to_pylist()
    return {
        key: {
            name: value + 0.0 if isinstance(value, float) else value for name, value in row.items() if value is not None
        }
        for key, row in zip(row_of_key, rows, strict=True)
    }
