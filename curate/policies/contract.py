"""The interface of policies, the table of all policies, and the function that runs them."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields, replace
from typing import Any, ClassVar, Protocol, Self, TypeVar

from curate.manifest.store_path import AnyPath
from curate.policies.decided import Decided, Result, counted_result, kept_by_class
from curate.policies.outputs import Files, outputs_for, write_outputs
from curate.policies.receipts import state_of
from curate.tables.table import Table
from curate.tables.typed_json import from_json
from scoring.errors import InputError
from scoring.lookup import Lazy

R = TypeVar("R", bound=Result, covariant=True)

FILTER = "filter"


class Policy(Protocol[R]):
    """A validated request with all its parameters, which decides every row of a table."""

    @property
    def files(self) -> Files:
        """Additional files that it reads and writes."""

    def decide(self, table: Table) -> Decided[R]:
        """Decide every row of a table with a unique ``key``; InputError for an unusable column, key or parameter."""

    @classmethod
    def from_receipt(cls, rules: Sequence[Mapping[str, Any]]) -> Self:
        """Return the policy that wrote ``Decided.policy``, with present paths of files; InputError if it is invalid."""


WHERE: dict[
    str, str
] = {  # to add a policy, add a line with the name of its rule in receipts; rules of filters have separate names
    FILTER: "curate.policies.filter.policy:Filter",
    "dedup": "curate.policies.dedup.policy:Dedup",
    "issues": "curate.policies.issues.policy:Issues",
    "select": "curate.policies.select.policy:Select",
    "balance": "curate.policies.balance.policy:Balance",
    "split": "curate.policies.split.policy:Split",
    "labels": "curate.policies.labels.policy:Labels",
}
POLICIES: Mapping[str, type[Policy[Result]]] = Lazy(WHERE)


def policy_of(rules: Sequence[Any]) -> type[Policy[Result]]:
    """Return the policy class for the rules of a receipt; InputError for several rules of a policy that has one."""
    name = name_of(rules)
    if name != FILTER and len(rules) != 1:
        raise InputError(f"expected one rule in the receipt of {name}, got {len(rules)}; restore it from a backup")
    return POLICIES[name]


def name_of(rules: Sequence[Any]) -> str:
    """Return the name of the policy for the rules of a receipt."""
    named = [str(rule.get("rule")) for rule in rules if isinstance(rule, Mapping)]
    return next((name for name in named if name in POLICIES), FILTER)


S = TypeVar("S", bound=Result)


def apply(
    policy: Policy[S], table: Table, out: str | AnyPath | None, *, dry_run: bool = False, overwrite: bool = False
) -> S:
    """Decide every row of a table, and write the outputs.

    Args:
        policy: with its parameters.
        table: with a unique ``key``; never changed.
        out: path of the subset, ending in ``.parquet``, on a disk or in a store; may be None in a dry run.
        dry_run: count only; write nothing.
        overwrite: replace outputs that exist.

    Returns:
        counts, notes and paths.

    Raises:
        InputError: for an unusable table, parameter or output; nothing is written.
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


class Request:
    """The request of a policy with one rule, as a dataclass.

    Attributes:
        rule: name of the policy.
        beside: other names in its rule, which are not fields.
    """

    rule: ClassVar[str]
    beside: ClassVar[tuple[str, ...]] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the request as one rule of a policy."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]
        lists = {name: list(value) for name, value in values.items() if isinstance(value, tuple)}
        return {"rule": self.rule, **values, **lists}

    @classmethod
    def from_json(cls, rule: Mapping[str, Any]) -> Self:
        """Return the request from the record of ``to_json``; InputError for any other."""
        return from_json(cls, rule, what="the rule of the receipt", ignored=("rule", *cls.beside))

    @classmethod
    def from_receipt(cls, rules: Sequence[Mapping[str, Any]]) -> Self:
        """Return the policy that is its request, from a receipt; InputError for another policy."""
        return cls.from_json(rules[0])
