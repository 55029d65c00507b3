"""Policies applied to a table, located from any of their files, in order."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from curate.columns import KEY
from curate.manifest.store_path import AnyPath
from curate.policies.chain import Link, links, receipt_of, subset_at
from curate.policies.moved import Searched
from curate.policies.receipts import (
    PIPELINE_RECEIPT,
    is_applied,
    lost_rows,
    read_pipeline_receipt,
    read_receipt,
    read_step,
)
from curate.reporting.columns import shortened
from curate.reporting.options import Results
from curate.tables.table import Table, open_table
from scoring.errors import InputError

RECEIPT = ".receipt.json"
MOST = 50  # maximal number of policies
MOST_REASONS = 50  # maximal number of reported reasons per policy


@dataclass(frozen=True)
class Applied:
    """A policy applied to a table, or to the subset of an earlier one.

    Attributes:
        name: of the policy.
        path: of its receipt.
        receipt: as read.
        decisions: the table next to it; None if missing.
        groups: groups of a deduplication; None if absent.
    """

    name: str
    path: AnyPath
    receipt: Mapping[str, Any]
    decisions: Table | None
    groups: Table | None

    @property
    def subset(self) -> AnyPath:
        """The path of its subset."""
        return self.path.with_name(self.receipt["outputs"]["subset"]["file"])

    @property
    def rules(self) -> list[dict[str, Any]]:
        """The requests, one per rule."""
        return [rule for rule in self.receipt["policy"] if isinstance(rule, dict)]

    def funnel(self) -> dict[str, Any]:
        """Counts of input rows, kept rows, and dropped rows by reason; they add up."""
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
    """Return the policies that wrote the given files, and their predecessors, in the order applied.

    Args:
        table: the input of the first policy.
        paths: subsets, decisions or receipts of policies, receipts of pipelines or their folders; one or several.

    Raises:
        InputError: for a file that no policy wrote, one that lacks its receipt, or more than ``MOST`` policies.
    """
    named = [paths] if isinstance(paths, str | Path) else paths or ()
    chains = [_chain(receipt.resolve(), table) for path in named for receipt in _receipts(Path(path))]
    order = {step.path.resolve(): step for steps in zip_longest(*chains) for step in steps if step is not None}
    if len(order) > MOST:
        raise InputError(f"expected the results of at most {MOST} policies, got more; pass fewer")
    depth = {step.path.resolve(): n for chain in chains for n, step in enumerate(reversed(chain))}
    return [_applied(order[path]) for path in sorted(order, key=lambda path: depth[path])]


def _chain(receipt: AnyPath, table: Table) -> list[Link]:
    """Return a receipt and its predecessors up to the table, without calibrations."""
    read_receipt(receipt)  # refuses calibrations, which decide no rows
    steps = []
    for step in links(receipt, Searched(receipt.parent)):
        steps += [] if step.is_calibration else [step]
        if step.source is not None and step.source.resolve() == table.path.resolve():
            break
    return steps


def _receipts(path: Path) -> Iterable[AnyPath]:
    """Return the receipts for a path."""
    is_folder = path.is_dir() and subset_at(path) == path
    if is_folder and not (path / PIPELINE_RECEIPT).is_file():
        raise InputError(f"expected what a policy wrote (NAME.parquet or NAME.receipt.json), got the folder {path}")
    if is_folder or path.name == PIPELINE_RECEIPT:
        folder = path if is_folder else path.parent
        for _, outputs in read_pipeline_receipt(folder / PIPELINE_RECEIPT):
            receipts = (folder / name for name in outputs if name.endswith(RECEIPT) and (folder / name).is_file())
            yield from (path for path in receipts if not is_applied(read_step(path)))
        return
    if not path.exists():
        raise InputError(f"{path} does not exist; pass a subset, its decisions or its receipt, as a policy wrote them")
    yield receipt_of(path)


def _applied(step: Link) -> Applied:
    return Applied(step.policy, step.path, step.noted, _output(step, "decisions"), _output(step, "groups"))


def _output(step: Link, name: str) -> Table | None:
    """Return a table that a policy wrote, if it still exists."""
    file = step.output(name)
    required = [KEY, "decision"] if name == "decisions" else ()
    return open_table(file, require=required) if file is not None and file.is_file() else None
