"""``curate round status``: how good it is by now, and whether to stop."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from curate.commands import options
from curate.commands.printing import emit, show, show_table
from curate.commands.round_words import advice_words, lift_words, status_notes
from curate.counted import counted

if TYPE_CHECKING:
    from curate.rounds.status import Status


def run(
    folder: options.RoundsFolder,
    table: options.MovedTable = None,
    no_lift: Annotated[bool, typer.Option("--no-lift", help="Do not compare with random labels (faster).")] = False,
    json_: options.Json = False,
) -> None:
    """Tell how good it is by now, and whether to stop.

    Example:

    \b
        curate round status rounds
    """
    from curate.rounds.status import status

    found = status(folder, table=table, lift=not no_lift)
    if json_:
        emit(_status_json(found))
    else:
        _show_status(found)


def _status_json(found: "Status") -> dict[str, Any]:
    """Facts, and beside them what is said of them."""
    facts = found.to_json()
    for facts_of, advice in zip(facts["advice"], found.advice, strict=True):
        facts_of["text"] = advice_words(advice)
    if found.lift is not None:
        facts["lift"]["text"] = lift_words(found.lift)
    return {**facts, "notes": status_notes(found)}


def _show_status(found: "Status") -> None:
    for line in found.changed:
        show(f"CHANGED: {line}")
    counts = ", ".join(f"{count:,} {name}" for name, count in found.counts.items())
    show(f"{found.path}: {counted(found.rounds, 'round')}, {counted(found.asked, 'image')} asked: {counts}")
    show(f"with a class: {found.held_out[1]:,} of {counted(found.held_out[0], 'held-out image')}")
    if found.classes:
        most_first = sorted(found.classes.items(), key=lambda one: one[1], reverse=True)
        show_table(most_first, header=("class", "labels to learn from"), right=1)
    if found.agreement["n_keys"]:
        alpha = found.agreement["alpha"]
        said = "not defined" if alpha is None else f"{alpha:.3f}"
        people = f" ({', '.join(found.annotators)})" if found.annotators else ""
        show(
            f"annotators{people} agree on {found.agreement['pairs']:.1%} of pairs in "
            f"{counted(int(found.agreement['n_keys']), 'image')}, alpha {said}"
        )
    if found.tied:
        more = ", ..." if len(found.tied) < found.counts["tied"] else ""
        show(f"tied, and without a class: {', '.join(found.tied)}{more}")
    rows = [
        (point["n_labels"], f"{point['accuracy']:.1%}", f"{point['low']:.1%} to {point['high']:.1%}", point["n"])
        for point in found.curve
        if point["n"]
    ]
    if rows:
        show_table(rows, header=("labels", "accuracy", "95 % interval", "held-out images"), right=0)
    if found.lift is not None:
        show(lift_words(found.lift))
    for one in found.advice:
        mark = "cannot tell" if one.reached is None else "STOP" if one.reached else "go on"
        show(f"{one.name}: {mark} ({advice_words(one)})")
    for note in status_notes(found):
        show(note)
