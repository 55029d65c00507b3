"""``curate round status``: how good it is by now, and whether to stop."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from curate.commands import options
from curate.commands.printing import EXIT_FOUND, emit, show, show_table
from curate.commands.round_words import (
    advice_words,
    headline,
    lift_words,
    pair_lift_words,
    prequential_words,
    rule_words,
    status_notes,
)
from curate.counted import counted
from scoring.errors import InputError

if TYPE_CHECKING:
    from curate.rounds.status import Status


def run(
    folder: options.RoundsFolder,
    table: options.MovedTable = None,
    no_lift: Annotated[bool, typer.Option("--no-lift", help="Do not compare with random labels (faster).")] = False,
    all_: Annotated[bool, typer.Option("--all", help="Show what it is based on, too.")] = False,
    stop: Annotated[list[str] | None, options.shared("--stop", metavar="RULE")] = None,
    fail_unless_stop: Annotated[
        bool, typer.Option("--fail-unless-stop", help=f"Exit {EXIT_FOUND} while no --stop rule is reached.")
    ] = False,
    json_: options.Json = False,
) -> None:
    """Report the accuracy so far, and whether to stop.

    Example:

    \b
        curate round status rounds
        curate round status rounds --all
        curate round status rounds --stop 'accuracy >= 90%' --fail-unless-stop

    The intervals named "at every look" hold together: look after every round, and stop when you like.
    """
    from curate.simulation.functions import round_status

    found = round_status(folder, table=table, no_lift=no_lift, stop=stop)
    if fail_unless_stop and found.stop is None:
        raise InputError("--fail-unless-stop uses --stop rules, and none is given; add --stop 'accuracy >= 90%'")
    if json_:
        emit(_status_json(found))
    else:
        _show_status(found, details=all_)
    if fail_unless_stop and not found.stop:
        raise typer.Exit(EXIT_FOUND)


def _status_json(found: "Status") -> dict[str, Any]:
    """Facts, each with its explanation."""
    facts = found.to_json()
    for facts_of, advice in zip(facts["advice"], found.advice, strict=True):
        facts_of["text"] = advice_words(advice)
    if found.lift is not None:
        facts["lift"]["text"] = lift_words(found.lift)
    if found.pair_lift is not None:
        facts["pair_lift"]["text"] = pair_lift_words(found.pair_lift)
    if found.prequential is not None:
        facts["prequential"]["text"] = prequential_words(found.prequential)
    for facts_of, rule in zip(facts["rules"], found.rules, strict=True):
        facts_of["text"] = rule_words(rule)
    return {**facts, "notes": status_notes(found)}


def _show_status(found: "Status", *, details: bool) -> None:
    for line in found.changed:
        show(f"CHANGED: {line}")
    show(headline(found))
    if details:
        _show_details(found)
    for rule in found.rules:
        mark = "cannot determine" if rule.reached is None else "STOP" if rule.reached else "go on"
        show(f"{rule.rule}: {mark} ({rule_words(rule)})")
    for note in status_notes(found):
        show(note)


def _show_details(found: "Status") -> None:
    """Counts, classes, agreement, the curve, and what each criterion says."""
    counts = ", ".join(f"{count:,} {name}" for name, count in found.counts.items())
    show(f"{found.path}: {counted(found.rounds, 'round')}, {counted(found.asked, 'image')} requested: {counts}")
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
    _show_curve(found)
    if found.prequential is not None:
        show(prequential_words(found.prequential))
    if found.pair_lift is not None:
        show(pair_lift_words(found.pair_lift))
    if found.lift is not None:
        show(lift_words(found.lift))
    for one in found.advice:
        mark = "cannot determine" if one.reached is None else "STOP" if one.reached else "go on"
        show(f"{one.name}: {mark} ({advice_words(one)})")


def _show_curve(found: "Status") -> None:
    """Accuracy by labels, with both intervals, and which is which."""
    share = f"{100 * found.confidence:.10g} %"
    rows = [
        (
            point["n_labels"],
            f"{point['accuracy']:.1%}",
            f"{point['anytime']['low']:.1%} to {point['anytime']['high']:.1%}",
            f"{point['low']:.1%} to {point['high']:.1%}",
            point["n"],
        )
        for point in found.curve
        if point["n"]
    ]
    if not rows:
        return
    show_table(
        rows, header=("labels", "accuracy", f"{share} at every look", "95 % of this look", "held-out images"), right=0
    )
    show(
        "at every look: all hold at once, however often you look and whenever you stop; of this look: one alone, for "
        "who looks once"
    )
