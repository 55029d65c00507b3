"""Derive a subset again from its receipt, and say whether it is the same or which rows differ."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.columns import KEY
from curate.policies.filter.rules import decide, needs_of, rule_from_json
from curate.policies.outcomes import KEEP, OUTCOMES
from curate.policies.receipts import read_receipt
from curate.tables.digests import key_bytes, plain, tie_breaks
from curate.tables.keys import named
from curate.tables.rows import read_rows
from curate.tables.table import Table, open_table
from scoring.errors import InputError
from scoring.file_digest import file_sha256

N_NAMED = 10


@dataclass
class Verification:
    """What came of deriving a subset again.

    Attributes:
        n_rows: rows of the table as it is now.
        n_different: rows whose decision, or whose content in the subset, is not what was derived.
        different: the first ten of them, in words.
        notes: everything else that is not as the receipt says (digests, missing rows, files that changed).
    """

    n_rows: int = 0
    n_different: int = 0
    different: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: int = 0

    @property
    def identical(self) -> bool:
        """Whether nothing differs."""
        return not self.n_different and not self.problems

    def differ(self, text: str) -> None:
        """Count one row that differs, and name it if it is among the first."""
        self.n_different += 1
        if len(self.different) < N_NAMED:
            self.different.append(text)

    def problem(self, text: str) -> None:
        """Record something that differs and is not a row."""
        self.problems += 1
        self.notes.append(text)

    def check_digest(self, what: str, digest: str, expected: str) -> None:
        """Record an input that is not the one that was read then; one without a digest was computed anew."""
        if not digest:
            self.notes.append(f"{what} is no longer there: it was computed again, and nothing was written")
        elif digest != expected:
            self.problem(
                f"{what} is not the one that was read then: its digest is {digest[:16]}..., expected {expected[:16]}..."
            )

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        return {"identical": self.identical, **self.__dict__}


def verify(receipt: str | Path, table: str | Path | None = None) -> Verification:
    """Apply the receipt's policy to its input again and compare with the files beside the receipt.

    Args:
        receipt: ``NAME.receipt.json``; subset and decisions are looked for in its folder.
        table: the input, if it has moved since.

    Returns:
        whether all is identical, and what is not. Rows may stand in another order in the input.

    Raises:
        InputError: if receipt, input or an output is missing or cannot be read.
    """
    receipt = Path(receipt)
    noted = read_receipt(receipt)
    source = open_table(table if table is not None else _moved(receipt, noted), require=[KEY])
    again = _decide_again(source, noted["policy"], receipt.parent)
    result = Verification(n_rows=len(again.outcome))
    result.check_digest("the input", again.digest, noted["input"]["digest"])
    for text, digest, expected in again.others:
        result.check_digest(text, digest, expected)
    folder = receipt.parent
    decisions = _output(folder, noted, "decisions", result)
    subset = _output(folder, noted, "subset", result)
    for name in noted["outputs"]:
        if name not in ("subset", "decisions"):
            _check_bytes(folder / noted["outputs"][name]["file"], noted["outputs"][name]["sha256"], result)
    same_order = _compare_decisions(source, again, decisions, result)
    _compare_subset_keys(source, again, subset, result)
    if again.compare is not None:
        again.compare(subset, result)
    elif not same_order:
        result.notes.append("the input has another order of rows now; rows were compared by key, not every column")
    elif result.identical:
        _compare_subset_rows(source, again, subset, result)
    return result


@dataclass(frozen=True)
class _Again:
    """A policy decided again: what became of N rows, and the digests of what was read.

    ``others`` are further inputs: what it is, its digest now, its digest then. ``compare`` compares a subset that is
    not the kept rows as they are.
    """

    outcome: np.ndarray
    hashes: np.ndarray
    digest: str
    others: tuple[tuple[str, str, str], ...] = ()
    compare: Callable[[Table, Verification], None] | None = None


def _decide_again(source: Table, policy: list[Any], folder: Path) -> _Again:
    if any(isinstance(rule, dict) and rule.get("rule") == "select" for rule in policy):
        return _choose_again(source, policy, folder)
    if any(isinstance(rule, dict) and rule.get("rule") == "dedup" for rule in policy):
        return _deduplicate_again(source, policy, folder)
    rules = [rule_from_json(rule) for rule in policy]
    table_rows = read_rows(source, needs_of(rules))
    return _Again(decide(rules, table_rows).outcome, table_rows.hashes, table_rows.digest)


def _deduplicate_again(source: Table, policy: list[Any], folder: Path) -> _Again:
    from curate.policies.dedup.decide import decide_duplicates
    from curate.policies.dedup.grouping.keep import parse_keep
    from curate.policies.dedup.request import Request

    if len(policy) != 1:
        raise InputError(f"expected one rule in the receipt of a deduplication, got {len(policy)}; take a copy")
    request = Request.from_json(policy[0])
    against = policy[0].get("against")
    if against is not None and not (isinstance(against, dict) and isinstance(against.get("path"), str)):
        raise InputError("expected the path of the other table in the receipt of a deduplication; take a copy")
    other = None
    if against is not None:
        path = _there_or_beside(Path(against["path"]), folder)
        if path is None:
            raise InputError(
                f"the other table {against['path']} is no longer there; put it back, or beside the receipt"
            )
        other = open_table(path, require=[KEY])
    criteria = parse_keep(request.keep, source, label=request.label)
    graph = _graph_of(policy[0], folder)
    found = decide_duplicates(source, request, criteria, other, graph=graph[0] if graph else None)
    others = [(f"{other.path}", found.other_digest, str(against.get("digest")))] if other and against else []
    if graph:
        others.append((str(graph[0]), found.graph["digest"], graph[1]))
    return _Again(found.outcome, found.rows.hashes, found.rows.digest, tuple(others))


def _graph_of(rule: dict[str, Any], folder: Path) -> tuple[Path, str] | None:
    """The graph of neighbours that a deduplication went by, or None, and its digest then; it need not be there."""
    noted = rule.get("graph")
    if noted is None:
        return None
    if not (isinstance(noted, dict) and isinstance(noted.get("path"), str)):
        raise InputError("expected the path of the graph in the receipt of a deduplication; take a copy")
    path = Path(noted["path"])
    return _there_or_beside(path, folder) or path, str(noted.get("digest"))


def _choose_again(source: Table, policy: list[Any], folder: Path) -> _Again:
    from curate.policies.select.compare import choose_again, compare_batch

    picked, others = choose_again(source, policy, folder)
    hashes = np.empty(len(picked.rows), np.uint64)
    hashes[picked.rows.place] = picked.rows.hashes

    def compare(batch: Table, result: Verification) -> None:
        compare_batch(source, picked, batch, result.differ, result.problem)

    return _Again(picked.verdict.outcome, hashes, picked.rows.digest, tuple(others), compare)


def _moved(receipt: Path, noted: dict[str, Any]) -> Path:
    """Where the input is: where it was, or a file of that name beside the receipt."""
    path = Path(noted["input"]["path"])
    found = _there_or_beside(path, receipt.parent)
    if found is None:
        raise InputError(f"the input {path} of {receipt} is no longer there; name where it is now with --table")
    return found


def _there_or_beside(path: Path, folder: Path) -> Path | None:
    beside = folder / path.name
    return path if path.exists() else beside if beside.exists() else None


def _output(folder: Path, noted: dict[str, Any], name: str, result: Verification) -> Table:
    entry = noted["outputs"][name]
    table = open_table(folder / entry["file"], require=[KEY])
    _check_bytes(table.path, entry["sha256"], result)
    return table


def _check_bytes(path: Path, expected: str, result: Verification) -> None:
    """Record a file that is gone, or not as it was written."""
    if not path.is_file():
        result.problem(f"{path} is no longer there")
    elif file_sha256(path) != expected:
        result.problem(f"{path} is not the file that was written: its bytes differ from the receipt")


def _read_keys(table: Table, extra: tuple[str, ...] = ()) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
    for batch in table.batches([KEY, *extra]):
        yield tie_breaks(key_bytes(batch.column(KEY))), batch


def _compare_decisions(source: Table, again: _Again, decisions: Table, result: Verification) -> bool:
    """Compare decisions by key; return whether both files have the same order."""
    decisions.require(["decision"])
    codes = pa.array(OUTCOMES)
    noted_hashes, noted = [np.empty(0, np.uint64)], [np.empty(0, np.int16)]
    for piece, batch in _read_keys(decisions, ("decision",)):
        noted_hashes.append(piece)
        words = plain(batch.column("decision")).cast(pa.string())
        noted.append(pc.fill_null(pc.index_in(words, codes), -1).to_numpy(zero_copy_only=False).astype(np.int16))
    was_hashes, was = np.concatenate(noted_hashes), np.concatenate(noted)
    found, at = _find(again.hashes, was_hashes)
    changed = np.flatnonzero(~found | (was[at] != again.outcome if len(was) else True))
    _name_rows(source, changed, again, found, at, was, result)
    _name_extra(decisions, ~_find(was_hashes, again.hashes)[0], "decided then, but no longer in the input", result)
    return np.array_equal(again.hashes, was_hashes)


def _find(wanted: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each wanted hash, whether it is known, and where (0 where not)."""
    if not len(known):
        return np.zeros(len(wanted), bool), np.zeros(len(wanted), np.int64)
    order = np.argsort(known, kind="stable")
    place = np.minimum(np.searchsorted(known[order], wanted), len(known) - 1)
    at = order[place]
    found = known[at] == wanted
    return found, np.where(found, at, 0)


def _name_rows(
    source: Table,
    changed: np.ndarray,
    again: _Again,
    found: np.ndarray,
    at: np.ndarray,
    was: np.ndarray,
    result: Verification,
) -> None:
    names = _first_keys(source, changed)
    for row in changed.tolist():
        now = OUTCOMES[again.outcome[row]]
        then = "not there" if not found[row] else OUTCOMES[was[at[row]]] if was[at[row]] >= 0 else "unreadable"
        result.differ(f"{names.get(row, '')}: now {now}, then {then}")


def _name_extra(table: Table, extra: np.ndarray, what: str, result: Verification) -> None:
    rows = np.flatnonzero(extra)
    names = _first_keys(table, rows)
    for row in rows.tolist():
        result.differ(f"{names.get(row, '')}: {what}")


def _first_keys(table: Table, rows: np.ndarray) -> dict[int, str]:
    """The keys of the first few of some rows, by row number."""
    first = rows[:N_NAMED]
    return dict(zip(first.tolist(), named(table, first), strict=True))


def _compare_subset_keys(source: Table, again: _Again, subset: Table, result: Verification) -> None:
    """The subset must hold the kept rows, all of them and no other."""
    pieces = [piece for piece, _ in _read_keys(subset)]
    present = np.concatenate(pieces) if pieces else np.empty(0, np.uint64)
    kept = np.flatnonzero(again.outcome == KEEP)
    missing = kept[~_find(again.hashes[kept], present)[0]]
    names = _first_keys(source, missing)
    for row in missing.tolist():
        result.differ(f"{names.get(row, '')}: kept, but not in the subset")
    _name_extra(subset, ~_find(present, again.hashes[kept])[0], "in the subset, but not kept", result)
    if len(present) != len(np.unique(present)):
        result.problem("the subset holds some rows more than once")


def _compare_subset_rows(source: Table, again: _Again, subset: Table, result: Verification) -> None:
    """Both in the same order: every column of every kept row must be the same."""
    if source.schema != subset.schema:
        result.problem("the input has other columns or types now than the subset")
        return
    waiting = _Aligned(subset)
    start = 0
    for batch in source.batches():
        kept = batch.filter(pa.array(again.outcome[start : start + batch.num_rows] == KEEP))
        start += batch.num_rows
        for old in waiting.take(kept.num_rows):
            now, kept = kept.slice(0, old.num_rows), kept.slice(old.num_rows)
            for name in source.schema.names:
                _compare_column(name, now, old, result)


class _Aligned:
    """Hands out the rows of a table in pieces as long as asked for."""

    def __init__(self, table: Table) -> None:
        self.batches = table.batches()
        self.rest: pa.RecordBatch | None = None

    def take(self, n: int) -> Iterator[pa.RecordBatch]:
        while n > 0:
            batch = self.rest if self.rest is not None and self.rest.num_rows else next(self.batches)
            piece = batch.slice(0, n)
            self.rest = batch.slice(piece.num_rows)
            n -= piece.num_rows
            yield piece


def _compare_column(name: str, now: pa.RecordBatch, old: pa.RecordBatch, result: Verification) -> None:
    left, right = now.column(name), old.column(name)
    if left.equals(right):
        return
    keys = key_bytes(now.column(KEY))
    for row, (new, was) in enumerate(zip(left.to_pylist(), right.to_pylist(), strict=True)):
        if new != was and repr(new) != repr(was):  # the second is for NaN, which equals nothing
            result.differ(f"{keys[row].decode('utf-8', 'replace')}: column {name!r} differs from the subset")
