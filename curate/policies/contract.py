"""The interface of a policy, and the table of all policies."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self, TypeVar

from curate.policies.decided import Decided
from curate.policies.outputs import Files
from curate.policies.result import Result
from curate.tables.table import Table
from scoring.errors import InputError
from scoring.lookup import Lazy

R = TypeVar("R", bound=Result, covariant=True)

FILTER = "filter"


class Policy(Protocol[R]):
    """A request to a table, with all its parameters: decides every row."""

    @property
    def files(self) -> Files:
        """Additional files that it reads and writes."""

    def decide(self, table: Table) -> Decided[R]:
        """Decide every row of a table.

        Args:
            table: with a unique ``key``.

        Raises:
            InputError: for a column, key or parameter that cannot be used.
        """

    @classmethod
    def from_receipt(cls, rules: Sequence[Mapping[str, Any]]) -> Self:
        """Return the policy that wrote ``Decided.policy``; a file is the path where it is now.

        Raises:
            InputError: if it is invalid.
        """


WHERE: dict[
    str, str
] = {  # to add a policy, add a line: what receipts call its rule; a filter's rules have their own names
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
    """Return the policy that the rules of a receipt belong to.

    Raises:
        InputError: for several rules of a policy that has one.
    """
    name = name_of(rules)
    if name != FILTER and len(rules) != 1:
        raise InputError(f"expected one rule in the receipt of {name}, got {len(rules)}; restore it from a backup")
    return POLICIES[name]


def name_of(rules: Sequence[Any]) -> str:
    """Return the name of the policy that the rules of a receipt belong to."""
    named = [str(rule.get("rule")) for rule in rules if isinstance(rule, Mapping)]
    return next((name for name in named if name in POLICIES), FILTER)
