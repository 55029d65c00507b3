"""From JSON to a dataclass."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import pytest

from curate.tables.typed_json import from_json
from scoring.errors import InputError


@dataclass(frozen=True)
class Guard:
    gate: float = 0.0
    discount: bool = False


@dataclass(frozen=True)
class Rule:
    name: str
    amount: str | int | float
    seed: int = 0
    share: float | None = None
    kind: Literal["star", "chain"] = "star"
    classes: tuple[str, ...] | None = None
    sizes: list[int] = field(default_factory=list)
    thresholds: dict[str, float] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    guard: Guard = Guard()
    column: str | None = field(default=None, init=False)


COMPLETE = Rule(
    "a", "80%", 3, 0.5, "chain", ("cat", "dog"), [1, 2], {"hash": 2.0}, {"by": [1, None]}, Guard(0.25, discount=True)
)


def test_what_json_holds_of_a_dataclass_is_read_back():
    assert from_json(Rule, json.loads(json.dumps(asdict(COMPLETE))), what="the rule") == COMPLETE
    assert from_json(Rule, {"name": "a", "amount": 5}, what="the rule") == Rule("a", 5)


def test_a_whole_number_is_a_number_and_becomes_one():
    read = from_json(Rule, {"name": "a", "amount": 1, "share": 1, "thresholds": {"hash": 2}}, what="the rule")
    assert read.share == 1.0
    assert type(read.share) is float
    assert type(read.amount) is int
    assert type(read.thresholds["hash"]) is float


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"name": 3}, "name of the rule"),
        ({"name": None}, "text as name"),
        ({"amount": True}, "amount"),
        ({"amount": [1]}, "amount"),
        ({"seed": 1.5}, "as seed"),
        ({"seed": True}, "seed"),
        ({"share": "much"}, "as share"),
        ({"share": False}, "share"),
        ({"share": 10**400}, "share"),
        ({"kind": "heap"}, "'chain' as kind"),
        ({"kind": ["star"]}, "kind"),
        ({"classes": "cat"}, "as classes"),
        ({"classes": ["cat", 3]}, "classes"),
        ({"sizes": {"a": 1}}, "a list as sizes"),
        ({"thresholds": [1]}, "as thresholds"),
        ({"thresholds": {"hash": "two"}}, "hash in thresholds"),
        ({"guard": {"gate": "half"}}, "gate of guard"),
        ({"guard": {"gates": 0.5}}, "did you mean 'gate'"),
        ({"guard": 1}, "guard"),
        ({"sede": 1}, "did you mean 'seed'"),
    ],
)
def test_a_field_of_another_type_is_named(changed, told):
    with pytest.raises(InputError) as error:
        from_json(Rule, {"name": "a", "amount": 1, **changed}, what="the rule")
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_missing_fields_are_named_and_ignored_fields_allowed():
    with pytest.raises(InputError, match="no 'amount'"):
        from_json(Rule, {"name": "a"}, what="the rule")
    with pytest.raises(InputError, match="no 'seed'"):
        from_json(Rule, {"name": "a", "amount": 1}, what="the rule", complete=True)
    assert from_json(Rule, {"name": "a", "amount": 1, "rule": "x"}, what="the rule", ignored=["rule"]).name == "a"
    with pytest.raises(InputError, match="JSON object"):
        from_json(Rule, ["a", 1], what="the rule")
