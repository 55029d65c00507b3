"""What policies did to a table: their receipts and decisions, found from any of their files, in the order applied."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.facts.options import Results
from curate.facts.texts import shortened
from curate.manifest.store_path import AnyPath, path_to_read
from curate.policies.contract import FILTER, POLICIES
from curate.policies.receipts import (
    PIPELINE_RECEIPT,
    is_applied,
    lost_rows,
    read_pipeline_receipt,
    read_receipt,
    read_step,
    receipt_beside,
    step_beside,
)
from curate.tables.table import Table, open_table
from scoring.errors import InputError

RECEIPT = ".receipt.json"
MOST = 50  # policies over one table
MOST_REASONS = 50  # that are named of a policy


@dataclass(frozen=True)
class Applied:
    """A policy that was applied to a table, or to what another one left of it.

    Attributes:
        name: of the policy.
        path: of its receipt.
        receipt: as read.
        decisions: next to it; None where they are gone.
        groups: of a deduplication; None if absent.
    """

    name: str
    path: AnyPath
    receipt: Mapping[str, Any]
    decisions: Table | None
    groups: Table | None

    @property
    def subset(self) -> AnyPath:
        """Where it wrote what it kept."""
        return self.path.with_name(self.receipt["outputs"]["subset"]["file"])

    @property
    def rules(self) -> list[dict[str, Any]]:
        """What was requested, one entry a rule."""
        return [rule for rule in self.receipt["policy"] if isinstance(rule, dict)]

    def funnel(self) -> dict[str, Any]:
        """Return the rows that came in, those kept, and why the others went; they add up."""
        counts = self.receipt["counts"]
        lost = sorted(lost_rows(self.receipt), key=lambda reason: -reason[2])
        out = [{"reason": shortened(why), "decision": what, "n": n} for what, why, n in lost[:MOST_REASONS]]
        for decision in dict.fromkeys(what for what, _, _ in lost[MOST_REASONS:]):
            rest = [n for what, _, n in lost[MOST_REASONS:] if what == decision]
            out.append({"reason": f"{len(rest):,} other reasons", "decision": decision, "n": sum(rest)})
        return {
            "step": self.name,
            "file": self.subset.name,
            "rows_in": int(counts["n_rows"]),
            "kept": int(counts["kept"]),
            "out": out,
        }


def find_results(table: Table, paths: Results) -> list[Applied]:
    """Return the policies that some files are of, and those between the table and them, in the order applied.

    Args:
        table: that the first of them read.
        paths: subsets, decisions or receipts of policies, receipts of pipelines or their folders; one or several.

    Raises:
        InputError: for a file that no policy wrote, one that lacks its receipt, or more than ``MOST`` policies.
    """
    policies: dict[AnyPath, Applied] = {}
    named = [paths] if isinstance(paths, str | Path) else paths or ()
    waiting: list[AnyPath] = [receipt for path in named for receipt in _receipts(Path(path))]
    while waiting:
        receipt = waiting.pop(0).resolve()
        if receipt in policies:
            continue
        if len(policies) == MOST:
            raise InputError(f"expected the results of at most {MOST} policies, got more; name fewer of them")
        policies[receipt] = policy = _applied(receipt)
        before = _input_of(policy)
        if isinstance(before, Path) and not _is_table(before, table):
            earlier = step_beside(before)
            waiting += [earlier] if earlier is not None else []
    order = list(policies.values())
    made: dict[AnyPath, Applied] = {policy.subset.resolve(): policy for policy in order}
    return sorted(order, key=lambda policy: _depth(policy, made))


def _receipts(path: Path) -> Iterable[AnyPath]:
    """The receipts that a path names."""
    if path.is_dir() and not (path / PIPELINE_RECEIPT).is_file():
        raise InputError(f"expected what a policy wrote (NAME.parquet or NAME.receipt.json), got the folder {path}")
    if path.is_dir() or path.name == PIPELINE_RECEIPT:
        folder = path if path.is_dir() else path.parent
        for _, outputs in read_pipeline_receipt(folder / PIPELINE_RECEIPT):
            receipts = (folder / name for name in outputs if name.endswith(RECEIPT) and (folder / name).is_file())
            yield from (path for path in receipts if not is_applied(read_step(path)))
        return
    if path.name.endswith(".json"):
        yield path
        return
    if not path.exists():
        raise InputError(f"{path} does not exist; give a subset, its decisions or its receipt, as a policy wrote them")
    receipt = receipt_beside(path)
    if not receipt.is_file():
        raise InputError(
            f"{path} has no receipt next to it: expected {receipt.name}; give what a policy wrote, with its receipt"
        )
    yield receipt


def _applied(path: AnyPath) -> Applied:
    receipt = read_receipt(path)
    counts = receipt.get("counts")
    names = ("n_rows", "kept", "dropped", "undecided", "failed")
    if not isinstance(counts, dict) or not all(isinstance(counts.get(name), int) for name in names):
        raise InputError(f"{path} is incomplete: expected counts of rows; take the receipt from a copy")
    named = [str(rule.get("rule")) for rule in receipt["policy"] if isinstance(rule, dict)]
    name = next((name for name in named if name in POLICIES), FILTER)
    return Applied(name, path, receipt, _beside(path, receipt, "decisions"), _beside(path, receipt, "groups"))


def _beside(path: AnyPath, receipt: Mapping[str, Any], name: str) -> Table | None:
    """A table that a policy wrote, where it still is."""
    entry = receipt["outputs"].get(name)
    file = path.with_name(entry["file"]) if entry else None
    return (
        open_table(file, require=["key", "decision"] if name == "decisions" else ())
        if file and file.is_file()
        else None
    )


def _input_of(applied: Applied) -> AnyPath | None:
    """The table that a policy read, before probabilities were added to it; None where it is gone."""
    source = _source(applied.receipt, applied.path)
    for _ in range(MOST):
        receipt = step_beside(source)
        noted = read_step(receipt) if receipt is not None else None
        if noted is None or receipt is None or not is_applied(noted):
            break
        source = _source(noted, receipt)
    return source


def _source(noted: Mapping[str, Any], receipt: AnyPath) -> AnyPath | None:
    """The table that a receipt names, where it is, or next to it; None where it is gone."""
    named = path_to_read(str(noted["input"]["path"]))
    return next((path for path in (named, receipt.with_name(named.name)) if path.exists()), None)


def _is_table(path: Path, table: Table) -> bool:
    return path.resolve() == table.path.resolve()


def _depth(applied: Applied, made: Mapping[AnyPath, Applied]) -> int:
    """How many of the policies came before one."""
    depth, at = 0, applied
    while depth <= len(made):
        before = _input_of(at)
        earlier = made.get(before.resolve()) if before is not None else None
        if earlier is None:
            break
        depth, at = depth + 1, earlier
    return depth
