"""The request of a policy, as one rule of its receipt."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, Self

from curate.tables.typed_json import from_json


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
