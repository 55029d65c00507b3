"""The run of every policy: decide, then write subset, decisions and receipt atomically."""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any, TypeVar

from curate.manifest.store_path import AnyPath
from curate.policies.contract import Policy
from curate.policies.decided import counted_result, kept_by_class
from curate.policies.outputs import outputs_for, write_outputs
from curate.policies.receipts import state_of
from curate.policies.result import Result
from curate.tables.table import Table

R = TypeVar("R", bound=Result)


def apply(
    policy: Policy[R], table: Table, out: str | AnyPath | None, *, dry_run: bool = False, overwrite: bool = False
) -> R:
    """Decide every row of a table, and write the outputs.

    Args:
        policy: what is requested.
        table: has a unique ``key``; it is never changed.
        out: subset to write, a name ending in ``.parquet``, here or in a store; may be None in a dry run.
        dry_run: count only; write nothing.
        overwrite: replace outputs that exist.

    Returns:
        counts, notes and paths.

    Raises:
        InputError: for a table, parameter or output that cannot be used; nothing is written then.
    """
    files = policy.files
    with nullcontext() if dry_run else outputs_for(table, out, files, overwrite=overwrite) as outputs:
        states = [(each, state_of(each)) for each in (table, *files.tables)]
        decided = policy.decide(table)
        result = replace(counted_result(decided), input_digest=decided.digest)
        classes_of, classes = kept_by_class(decided)
        if outputs is None:
            return replace(result, classes=classes, classes_of=classes_of)
        written = write_outputs(decided, outputs, result.facts(), states)
    paths: dict[str, Any] = {name: path for name, path in outputs.paths.items() if name in written}
    return replace(result, classes=classes, classes_of=classes_of, **paths)
