"""Comparison of the numbers in a receipt with newly computed ones, by name."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from curate.policies.decided import Decided, Result, counted_result

CLOSE = 1e-5  # numbers of another machine may differ by their last bits
MISSING = "missing"
NOT_DERIVED = frozenset({"planted"})  # what takes the images to be edited again
FIXED = frozenset({"kind", "format", "curate", "input", "read", "hash", "outputs", "environment", "digest"})


def facts_of(decided: Decided[Result]) -> dict[str, Any]:
    """Return the facts of a decided policy for its receipt, as plain JSON: rules, counts, reasons and others."""
    model, facts = decided.table.metadata.get("model"), counted_result(decided).facts()
    return plain_json({"model": model, "policy": decided.policy, "counts": decided.counts(), **facts})


def plain_json(value: Any) -> Any:
    """Return a value as after writing and reading JSON."""
    return json.loads(json.dumps(value, ensure_ascii=False, default=str))


def without_files(rules: Any) -> Any:
    """Return rules without their files, which are compared by digest."""
    if not isinstance(rules, list) or not all(isinstance(rule, Mapping) for rule in rules):
        return rules
    return [{name: value for name, value in rule.items() if not is_file(value)} for rule in rules]


def is_file(value: object) -> bool:
    """Return whether a parameter of a rule is a file with a digest."""
    return isinstance(value, Mapping) and set(value) == {"path", "digest"}


def unequal(
    now: Any, then: Any, name: str = "", *, texts: bool = True, missing: object = MISSING
) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, new value and old value of all differences between two JSON values.

    Args:
        now: the new value.
        then: the recorded value.
        name: prefix of the names inside, such as ``counts`` in ``counts.kept``.
        texts: whether to compare texts.
        missing: value of a name that either lacks; None to treat it as null.
    """
    if isinstance(now, dict) and isinstance(then, dict):
        for key in {**now, **then}:
            new, other = now.get(key, missing), then.get(key, missing)
            yield from unequal(new, other, f"{name}.{key}" if name else key, texts=texts, missing=missing)
    elif isinstance(now, list) and isinstance(then, list) and len(now) == len(then):
        for number, (new, other) in enumerate(zip(now, then, strict=True), 1):
            yield from unequal(new, other, f"{name} {number}", texts=texts, missing=missing)
    elif isinstance(now, str) and isinstance(then, str):
        if texts and now != then:
            yield name, now, then
    elif not _same(now, then):
        yield name, now, then


def _same(now: Any, then: Any) -> bool:
    if isinstance(now, bool) or isinstance(then, bool) or not isinstance(then, int | float):
        return type(now) is type(then) and bool(now == then)
    if isinstance(now, float):
        return math.isclose(now, then, rel_tol=CLOSE, abs_tol=CLOSE) or (math.isnan(now) and math.isnan(then))
    return bool(now == then)


def unlike_tables(now: pa.Table, then: pa.Table, name: str, *, texts: bool) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, new value and old value of the differences between two tables with the same row order.

    Args:
        now: the new table.
        then: the written table.
        name: of the file.
        texts: whether to compare texts.
    """
    if now.schema.names != then.schema.names:
        yield f"{name}: columns", ", ".join(now.schema.names), ", ".join(then.schema.names)
    elif now.num_rows != then.num_rows:
        yield f"{name}: rows", now.num_rows, then.num_rows
    else:
        for column in now.schema.names:
            new_values, other = plain_json(now[column].to_pylist()), plain_json(then[column].to_pylist())
            for row, (new, was) in enumerate(zip(new_values, other, strict=True), 1):
                yield from unequal(new, was, f"{name}: {column} of row {row}", texts=texts)
