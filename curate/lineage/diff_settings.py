"""Options of two chains of steps: rules, inputs, weights and versions, side by side."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from curate.policies.chain import Link

MANY = 16  # characters of a digest


@dataclass(frozen=True)
class Setting:
    """Something that one chain says otherwise than the other.

    Attributes:
        step: of which it is, such as ``2 filter``.
        name: of the setting.
        first: its value; None if absent.
        second: the same.
    """

    step: str
    name: str
    first: Any
    second: Any


def compare_settings(first: Sequence[Link], second: Sequence[Link]) -> list[Setting]:
    """Compare the options of the steps of two chains, and on what they ran; not where files lie or are called.

    Args:
        first: steps, from the table that was scored on.
        second: the same.
    """
    settings: list[Setting] = []
    names = [step.policy for step in first], [step.policy for step in second]
    for kind, a, b, c, d in SequenceMatcher(None, *names, autojunk=False).get_opcodes():
        if kind == "equal":
            for n, (old, new) in enumerate(zip(first[a:b], second[c:d], strict=True)):
                settings += _compare(old, new, f"{a + n + 1} {old.policy}", is_first=a + n == 0)
            continue
        settings += [Setting(f"{n + 1} {names[0][n]}", "step", names[0][n], None) for n in range(a, b)]
        settings += [Setting(f"{n + 1} {names[1][n]}", "step", None, names[1][n]) for n in range(c, d)]
    return settings


def _compare(old: Link, new: Link, step: str, *, is_first: bool) -> Iterator[Setting]:
    left, right = (dict(_facts(link, is_first=is_first)) for link in (old, new))
    for name in dict.fromkeys((*left, *right)):
        if left.get(name) != right.get(name):
            yield Setting(step, name, left.get(name), right.get(name))


def _facts(link: Link, *, is_first: bool) -> Iterator[tuple[str, Any]]:
    """The compared facts of a receipt: the input of a later step is the output of the step before."""
    noted = link.noted
    if is_first:
        yield "rows of the input", noted["input"].get("n_rows")
        yield "input", str(noted["input"].get("digest", ""))[:MANY]
        model = noted.get("model")
        if isinstance(model, Mapping):
            yield "model", model.get("method")
            yield "weights", str(model.get("digest", ""))[:MANY]
    if link.is_calibration:
        calibration = noted.get("calibration")
        yield "calibration", str(calibration.get("digest", ""))[:MANY] if isinstance(calibration, Mapping) else None
    rules = [rule for rule in noted.get("policy", ()) if isinstance(rule, Mapping)]
    for number, rule in enumerate(rules, 1):
        yield from ((f"rule {number}, {name}", value) for name, value in _flat(rule) if not name.endswith("path"))
    yield "curate", noted.get("curate")
    about = noted.get("environment")
    if isinstance(about, Mapping):
        yield from ((name, value) for name, value in _flat(about) if name != "platform")


def _flat(value: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Every value in nested objects, under its path."""
    for name, each in value.items():
        if isinstance(each, Mapping):
            yield from _flat(each, f"{before}{name}.")
        else:
            yield f"{before}{name}", each
