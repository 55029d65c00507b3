"""The chain of receipts: each refers to its input table, next to which is the receipt of the previous step."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.columns import KEY
from curate.manifest.store_path import AnyPath
from curate.policies.contract import name_of
from curate.policies.moved import Searched
from curate.policies.receipts import (
    APPLIED_KIND,
    KIND,
    PIPELINE_RECEIPT,
    is_applied,
    read_pipeline_receipt,
    read_step,
    receipt_beside,
    step_beside,
)
from curate.policies.seal import read_json
from curate.tables.table import CLEANED, Table, open_table
from scoring.errors import InputError

MOST = 50  # maximal number of receipts in a chain
RECEIPT = ".receipt.json"


@dataclass(frozen=True)
class Link:
    """A receipt of a chain.

    Attributes:
        path: of the receipt.
        noted: its content.
        source: present path of its input table; None if missing.
    """

    path: AnyPath
    noted: Mapping[str, Any]
    source: AnyPath | None

    @property
    def is_calibration(self) -> bool:
        """Whether it is the receipt of an applied calibration, which decides no rows."""
        return is_applied(self.noted)

    @property
    def policy(self) -> str:
        """The name of the policy; ``calibrate`` if probabilities were added to a table."""
        return "calibrate" if self.is_calibration else name_of(self.noted["policy"])

    @property
    def written(self) -> str:
        """The name of the table that it wrote: of a policy its subset."""
        return "table" if self.is_calibration else "subset"

    @property
    def input(self) -> AnyPath:
        """The table that it was made from; InputError if that is gone."""
        if self.source is None:
            raise InputError(f"the input {self.noted['input']['path']} of {self.path} no longer exists; see --root")
        return self.source

    def open(self, name: str) -> Table:
        """Return a table that it wrote; InputError if that is gone."""
        path = self.output(name)
        if path is None or not path.is_file():
            raise InputError(f"{path or name} of {self.path} no longer exists; run that step again")
        return open_table(path, require=[KEY])

    def output(self, name: str) -> AnyPath | None:
        """The path of a written file; None if it wrote none of that name."""
        entry = self.noted["outputs"].get(name)
        return self.path.with_name(entry["file"]) if entry else None


def subset_at(path: AnyPath) -> AnyPath:
    """Return the subset in a folder of ``curate clean``; another path as it is."""
    return path / CLEANED if isinstance(path, Path) and (path / CLEANED).is_file() else path


def receipt_of(path: AnyPath) -> AnyPath:
    """Return the receipt at a path: a receipt, or next to a subset (also of ``curate clean``) or decisions.

    Raises:
        InputError: for a table without a receipt.
    """
    path = subset_at(path)
    if path.suffix != ".parquet" or not path.is_file():
        return path
    beside = receipt_beside(path)
    if not beside.is_file():
        raise InputError(f"{path} has no receipt next to it: expected {beside.name}; pass a subset or its receipt")
    return beside


def links(receipt: AnyPath, searched: Searched, table: AnyPath | None = None) -> Iterator[Link]:
    """Yield a receipt, then the receipt of its input, and so on to a table without receipt.

    Args:
        receipt: the last one.
        searched: folders of inputs; the folders of the receipts are searched too.
        table: the input of the last receipt, if it was moved.

    Raises:
        InputError: for a malformed receipt, or a chain of more than ``MOST`` or with a cycle.
    """
    seen: set[AnyPath] = set()
    waiting: AnyPath | None = receipt
    while waiting is not None:
        if waiting.resolve() in seen or len(seen) == MOST:
            raise InputError(f"{waiting} refers to itself, or follows more than {MOST} steps; restore it from a backup")
        seen.add(waiting.resolve())
        noted = read_step(waiting)
        source = table if table is not None else Searched(waiting.parent, searched.roots).source_of(noted)
        yield Link(waiting, noted, source)
        waiting, table = step_beside(source), None


def links_after(table: AnyPath, searched: Searched) -> list[Link]:
    """Return the steps applied to a table, and their successors, each after the step whose output it read.

    Their receipts are in the table's folder, or where a pipeline that wrote the folder put them, such as ``curate
    clean``.

    Args:
        table: the scored table.
        searched: folders of inputs.

    Raises:
        InputError: for a malformed receipt, or more than ``MOST``.
    """
    receipts = _receipts_in(table.parent)
    if len(receipts) > MOST:
        raise InputError(f"{table.parent} holds {len(receipts):,} receipts, more than {MOST}; pass a subset instead")
    waiting = [Link(path, noted, searched.source_of(noted)) for path in receipts for noted in _noted(path)]
    made, after = {table.resolve()}, []
    while ready := [step for step in waiting if step.source is not None and step.source.resolve() in made]:
        after += ready
        waiting = [step for step in waiting if step not in ready]
        written = (step.output(step.written) for step in ready)
        made |= {path.resolve() for path in written if path is not None}
    return after


def _receipts_in(folder: AnyPath) -> list[AnyPath]:
    """Return the receipts in a folder, by name, and those that its pipeline wrote elsewhere."""
    if isinstance(folder, Path):
        receipts = sorted(folder.glob("*" + RECEIPT))
        pipeline = folder / PIPELINE_RECEIPT
        steps = read_pipeline_receipt(pipeline) if pipeline.is_file() else []
        listed = (folder / name for _, outputs in steps for name in outputs if name.endswith(RECEIPT))
        elsewhere = [path for path in listed if path.resolve().parent != folder.resolve() and path.is_file()]
        return [*receipts, *elsewhere]
    return [folder / file.name for file in folder.files() if file.name.endswith(RECEIPT)]


def _noted(path: AnyPath) -> Iterator[dict[str, Any]]:
    """Yield the receipt of a step; nothing for a pipeline or a round, whose steps have separate receipts."""
    _, receipt = read_json(path, "a receipt that curate wrote")
    if isinstance(receipt, dict) and receipt.get("kind") in (KIND, APPLIED_KIND):
        yield read_step(path)
