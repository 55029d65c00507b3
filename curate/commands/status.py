"""``curate round status``: the accuracy so far, and whether to stop."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from curate.commands import options
from curate.commands.declared import command_of
from curate.commands.printing import EXIT_GATE, emit, show, show_table
from curate.commands.round_words import (
    advice_words,
    headline,
    lift_words,
    pair_lift_words,
    rule_words,
    status_notes,
)
from curate.counted import counted
from curate.rounds.options import RoundStatusOptions
from scoring.errors import InputError

if TYPE_CHECKING:
    from curate.rounds.status import Status


@command_of(RoundStatusOptions, all_="table")
def run(
    request: RoundStatusOptions,
    all_: Annotated[bool, typer.Option("--all", help="Also show all criteria.")] = False,
    fail_unless_stop: Annotated[
        bool, typer.Option("--fail-unless-stop", help=f"Exit with {EXIT_GATE} until a --stop rule is reached.")
    ] = False,
    json_: options.Json = False,
) -> None:
    """Report the accuracy so far, and whether to stop.

    Example:

    \b
        curate round status rounds
        curate round status rounds --all
        curate round status rounds --stop 'accuracy >= 90%' --fail-unless-stop

    The intervals "at every look" are valid for all looks together: you can look after every round, and stop at any
    time.
    """
    from curate.rounds.status import run_round_status

    status = run_round_status(request)
    if fail_unless_stop and status.stop is None:
        raise InputError("--fail-unless-stop uses --stop rules, and none is given; add --stop 'accuracy >= 90%'")
    if json_:
        emit(_status_json(status))
    else:
        _show_status(status, details=all_)
    if fail_unless_stop and not status.stop:
        raise typer.Exit(EXIT_GATE)


def _status_json(status: "Status") -> dict[str, Any]:
    """Return facts, each with its explanation."""
    facts = status.to_json()
    for facts_of, advice in zip(facts["advice"], status.advice, strict=True):
        facts_of["text"] = advice_words(advice)
    if status.lift is not None:
        facts["lift"]["text"] = lift_words(status.lift)
    if status.pair_lift is not None:
        facts["pair_lift"]["text"] = pair_lift_words(status.pair_lift)
    for facts_of, rule in zip(facts["rules"], status.rules, strict=True):
        facts_of["text"] = rule_words(rule)
    return {**facts, "notes": status_notes(status)}


def _show_status(status: "Status", *, details: bool) -> None:
    for line in status.changed:
        show(f"CHANGED: {line}")
    show(headline(status))
    if details:
        _show_details(status)
    for rule in status.rules:
        mark = "cannot determine" if rule.reached is None else "STOP" if rule.reached else "continue"
        show(f"{rule.rule}: {mark} ({rule_words(rule)})")
    for note in status_notes(status):
        show(note)


def _show_details(status: "Status") -> None:
    """Print counts, classes, agreement, the curve, and the advice of each criterion."""
    counts = ", ".join(f"{count:,} {name}" for name, count in status.counts.items())
    show(f"{status.path}: {counted(status.rounds, 'round')}, {counted(status.requested, 'image')} requested: {counts}")
    show(f"with a class: {status.held_out[1]:,} of {counted(status.held_out[0], 'held-out image')}")
    if status.classes:
        most_first = sorted(status.classes.items(), key=lambda item: item[1], reverse=True)
        show_table(most_first, header=("class", "labels to learn from"), right=1)
    if status.agreement["n_keys"]:
        alpha = status.agreement["alpha"]
        agreement = "not defined" if alpha is None else f"{alpha:.3f}"
        people = f" ({', '.join(status.annotators)})" if status.annotators else ""
        show(
            f"annotators{people} agree on {status.agreement['pairs']:.1%} of pairs in "
            f"{counted(int(status.agreement['n_keys']), 'image')}, alpha {agreement}"
        )
    if status.tied:
        more = ", ..." if len(status.tied) < status.counts["tied"] else ""
        show(f"tied, and without a class: {', '.join(status.tied)}{more}")
    _show_curve(status)
    if status.pair_lift is not None:
        show(pair_lift_words(status.pair_lift))
    if status.lift is not None:
        show(lift_words(status.lift))
    for advice in status.advice:
        mark = "cannot determine" if advice.reached is None else "STOP" if advice.reached else "continue"
        show(f"{advice.name}: {mark} ({advice_words(advice)})")


def _show_curve(status: "Status") -> None:
    """Print accuracy by labels with both intervals."""
    share = f"{100 * status.confidence:.10g} %"
    rows = [
        (
            point["n_labels"],
            f"{point['accuracy']:.1%}",
            f"{point['anytime']['low']:.1%} to {point['anytime']['high']:.1%}",
            f"{point['low']:.1%} to {point['high']:.1%}",
            point["n"],
        )
        for point in status.curve
        if point["n"]
    ]
    if not rows:
        return
    show_table(
        rows, header=("labels", "accuracy", f"{share} at every look", "95 % of this look", "held-out images"), right=0
    )
    show(
        "at every look: all hold at once, however often you look and whenever you stop; of this look: valid "
        "only if you look once"
    )
