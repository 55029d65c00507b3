"""Derive a subset again from its receipt, and say whether it is the same or which rows differ."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from curate.columns import KEY
from curate.manifest.store_path import AnyPath, path_or_store, sha256_of
from curate.policies.contract import Policy, policy_of
from curate.policies.differences import Verification, compare_outputs
from curate.policies.findings import FILE_CHANGED, FILE_GONE, Finding
from curate.policies.receipts import read_receipt
from curate.policies.result import Result
from curate.tables.table import Table, open_table
from scoring.errors import InputError


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
    noted, folder = read_receipt(receipt), receipt.parent
    where, own = table if table is not None else _moved(receipt, noted), noted["input"].get("embedding")
    source = open_table(where, require=[KEY], embedding=own)
    again = _policy(receipt, noted).decide(source, write=False)
    result = Verification(n_rows=len(again.outcome))
    result.check_digest("the input", again.digest, noted["input"]["digest"])
    for now, then in zip(again.policy, noted["policy"], strict=True):
        for name, file in now.items():
            if _is_file(file):
                expected = str(then[name]["digest"]) if _is_file(then.get(name)) else ""
                result.check_digest(file["path"], file["digest"], expected)
    decisions = _output(folder, noted, "decisions", result)
    subset = _output(folder, noted, "subset", result)
    for name, output in noted["outputs"].items():
        if name not in ("subset", "decisions"):
            _check_bytes(folder / output["file"], output["sha256"], result)
    compare_outputs(again, decisions, subset, result)
    return result


def _policy(receipt: Path, noted: dict[str, Any]) -> Policy[Result]:
    """The policy of a receipt, its files looked for where they were, or else beside the receipt."""
    rules = [_located(rule, receipt.parent) for rule in noted["policy"]]
    try:
        return policy_of(rules).from_receipt(rules)
    except InputError as error:
        files = [path_or_store(str(file["path"])) for rule in noted["policy"] for file in _files(rule).values()]
        lost = any(_there_or_beside(path, receipt.parent) is None for path in files)
        more = "; what has moved is looked for beside the receipt" if lost else ""
        raise InputError(f"{receipt}: {error}{more}") from None


def _is_file(value: object) -> bool:
    """Whether a parameter of a rule is a file that was read, with the digest that it had."""
    return isinstance(value, Mapping) and set(value) == {"path", "digest"}


def _located(rule: Any, folder: Path) -> Any:
    """A rule with the paths of its files where they are now: where they were, or else beside the receipt."""
    files = {name: path_or_store(str(file["path"])) for name, file in _files(rule).items()}
    if not files:
        return rule
    return {**rule, **{name: str(_there_or_beside(path, folder) or path) for name, path in files.items()}}


def _files(rule: Any) -> dict[str, Any]:
    """The parameters of a rule that are files, by name."""
    return {name: value for name, value in rule.items() if _is_file(value)} if isinstance(rule, Mapping) else {}


def _moved(receipt: Path, noted: dict[str, Any]) -> AnyPath:
    """Where the input is: where it was, or a file of that name beside the receipt."""
    path = path_or_store(str(noted["input"]["path"]))
    found = _there_or_beside(path, receipt.parent)
    if found is None:
        raise InputError(f"the input {path} of {receipt} is no longer there; name where it is now with --table")
    return found


def _there_or_beside(path: AnyPath, folder: Path) -> AnyPath | None:
    beside = folder / path.name
    return path if path.exists() else beside if beside.exists() else None


def _output(folder: Path, noted: dict[str, Any], name: str, result: Verification) -> Table:
    entry = noted["outputs"][name]
    table = open_table(folder / entry["file"], require=[KEY])
    _check_bytes(table.path, entry["sha256"], result)
    return table


def _check_bytes(path: AnyPath, expected: str, result: Verification) -> None:
    """Record a file that is gone, or not as it was written."""
    if not path.is_file():
        result.problem(Finding(FILE_GONE, str(path)))
    elif sha256_of(path) != expected:
        result.problem(Finding(FILE_CHANGED, str(path)))
