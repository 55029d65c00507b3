"""``curate info``: the content of a file."""

import json
from typing import TYPE_CHECKING, Any

from curate.commands import options
from curate.commands.declared import command_of
from curate.commands.printing import NextCommand, emit, show, show_table, suggest, to_export, to_train, unused
from curate.training.options import InfoOptions

if TYPE_CHECKING:
    from curate.description import Description
    from curate.manifest.store_path import AnyPath

MOST_SHOWN = 400  # maximum characters of a nested fact


@command_of(InfoOptions)
def run(request: InfoOptions, json_: options.Json = False) -> NextCommand:
    """Show what a file is: rows, columns, model, settings, counts.

    Example:

        curate info scores.parquet
        curate info kept.receipt.json
    """
    from curate.manifest.store_path import path_to_read
    from curate.training.info import run_info

    description = run_info(request)
    if json_:
        emit(description.__dict__)
    else:
        _report(description)
    return _next(path_to_read(request.file), description)


def _next(file: "AnyPath", about: "Description") -> NextCommand:
    """Return the command that usually follows a file of this kind; none for an unknown kind."""
    from curate.columns import KEY, QUALITY
    from curate.policies.receipts import receipt_beside

    if about.kind == "cache":
        return to_train(file, about.facts)
    if about.kind == "subset":
        return to_export(file)
    words = {"receipt": ("verify", file), "rounds": ("round", "status", file), "checkpoint": ("models", file)}
    if about.kind in words:
        return suggest(*words[about.kind])
    names = {column["name"] for column in about.columns}
    if about.kind in ("scores", "table") and KEY in names:
        checked = about.kind == "scores" and any(name.startswith(QUALITY) for name in names)
        return suggest("issues", file) if checked else suggest("report", file, "-o", unused("report.html"))
    receipt = receipt_beside(file.with_name(file.name.removesuffix(f".{about.kind}.parquet")))
    return suggest("verify", receipt) if receipt.is_file() else NextCommand("")


def _report(description: "Description") -> None:
    """Print the main facts first, then the columns, and digests at the end."""
    facts = dict(description.facts)
    rules = {f"rule {number}": line for number, line in enumerate(rule_lines(facts.pop("policy", [])), 1)}
    lines = _lines({**{name: facts.pop(name) for name in ("rows",) if name in facts}, **rules, **facts})
    show(f"{description.path}: {description.kind}")
    if description.counts:
        show_table(list(description.counts.items()), right=1)
    show_table([line for line in lines if not _is_fingerprint(*line)])
    if description.columns:
        rows = [[c["name"], c["type"], _meaning(c)] for c in description.columns]
        show_table(rows, header=("column", "type", "meaning"))
    last = [line for line in lines if _is_fingerprint(*line)]
    if last:
        show_table(last, header=("digests and environment", ""))


def _is_fingerprint(name: str, value: object) -> bool:
    """Return whether a fact only serves to compare runs: a digest or a version."""
    first, _, last = name.rpartition(".")
    named = last in ("digest", "digest_of", "head", "preprocessing", "sha256") and isinstance(value, str)
    return named or first.split(".")[0] in ("environment", "versions", "settings", "preprocessing", "outputs")


def _meaning(column: dict[str, str]) -> str:
    unit = f", {column['unit']}" if column["unit"] not in ("", "1") else ""
    higher = f"; higher is {column['higher']}" if column["higher"] else ""
    return f"{column['meaning']}{unit}{higher}"


def _lines(facts: dict[str, Any]) -> list[tuple[str, object]]:
    """Return facts as names and values, with one line per nested fact of the first level."""
    lines: list[tuple[str, object]] = []
    for name, value in facts.items():
        if isinstance(value, dict) and value:
            lines += [(f"{name}.{key}", _short(inner)) for key, inner in value.items()]
        else:
            lines.append((name, _short(value)))
    return lines


def _short(value: object) -> object:
    """Return a fact on one line; long nested ones, such as a classifier, are shortened."""
    if not isinstance(value, dict | list):
        return value
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}... (--json shows all)"


def rule_lines(policy: Any) -> list[str]:
    """Return each rule of a policy as one line for display; empty if it is not a policy."""
    rules = policy if isinstance(policy, list) else []
    return [_rule_line(rule) for rule in rules if isinstance(rule, dict)]


def _rule_line(rule: dict[str, Any]) -> str:
    thresholds = rule.get("thresholds")
    if isinstance(thresholds, dict):
        finders = ", ".join(
            f"{name} {value:g}" if isinstance(value, float) else name for name, value in thresholds.items()
        )
        switches = [
            name for name in ("mirrored", "rotated", "cropped", "report_only", "only_against") if rule.get(name)
        ]
        crop = rule.get("listed_crop")
        listed = [f"lists crop {crop:g}"] if isinstance(crop, float) else []
        return " ".join(str(part) for part in (rule.get("rule"), finders, *switches, *listed))
    values = [rule[name] for name in ("rule", "amount", "bound", "condition") if rule.get(name) is not None]
    places = [f"{word} {rule[name]}" for name, word in (("column", "of"), ("per", "per")) if rule.get(name)]
    return " ".join(str(part) for part in (*values, *places))
