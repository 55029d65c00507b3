"""``curate explain``: everything that happened to an image, step by step."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from curate.commands import options
from curate.commands.declared import command_of
from curate.commands.printing import NextCommand, emit, show, show_table, suggest
from curate.lineage.options import ExplainOptions

if TYPE_CHECKING:
    from curate.lineage.explain import Event, Story

GONE = {"drop": "dropped", "undecided": "left undecided", "failed": "failed"}


@command_of(ExplainOptions)
def run(request: ExplainOptions, json_: options.Json = False) -> NextCommand:
    """Report what happened to an image in every step, and why.

    Example:

        curate explain kept.parquet photos/0012.jpg
        curate explain scores.parquet photos/0012.jpg photos/0013.jpg

    Reads receipts and decisions without recomputing them; to recompute, use `curate verify kept.parquet --chain`.
    """
    from curate.lineage.explain import run_explain

    stories = run_explain(request)
    others = sorted({story.in_its_place for story in stories if story.in_its_place} - set(request.keys))
    places = {story.key: story for story in (*stories, *(run_explain(replace(request, keys=others)) if others else ()))}
    if json_:
        emit([{**story.to_json(), "outcome": outcome(story)} for story in stories])
    for number, story in enumerate(stories if not json_ else ()):
        if number:
            show("")
        _show_story(story, places.get(story.in_its_place or ""))
    receipts = [event.receipt for story in stories for event in story.events]
    return suggest("verify", receipts[-1], "--chain") if receipts else suggest("issues", request.table)


def _show_story(story: "Story", other: "Story | None") -> None:
    show(f"{story.key}: {outcome(story)}")
    if other is not None:
        show(f"{other.key}, instead: {outcome(other)}")
    show_table([(Path(story.table).name, _values(story.row))])
    if story.events:
        rows = [
            (str(number), event.policy, Path(event.receipt).name.removesuffix(".receipt.json"), *_of(story, number - 1))
            for number, event in enumerate(story.events, 1)
        ]
        show_table(rows, header=("step", "", "wrote", "decision", "why"))


def _of(story: "Story", number: int) -> tuple[str, str]:
    event: Event = story.events[number]
    if event.decision == "absent":
        return "-", "not in what it read"
    facts = _values({**event.noted, **event.added})
    rule = f" (rule: {event.rule})" if event.rule and event.rule not in event.reason else ""
    return event.decision, f"{event.reason}{rule}{'; ' if event.reason and facts else ''}{facts}"


def outcome(story: "Story") -> str:
    """Return the final outcome of a row, in words."""
    if not story.events:
        return "scored, and no step next to the table has read it"
    if story.lost is None:
        return "kept by every step"
    event = story.events[story.lost]
    return f"{GONE[event.decision]} by step {story.lost + 1}, {event.policy}: {event.reason}"


def _values(row: "Mapping[str, object]") -> str:
    return ", ".join(f"{name} {f'{value:.6g}' if isinstance(value, float) else value}" for name, value in row.items())
