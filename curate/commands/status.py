"""``curate round status``: the accuracy so far, and whether to stop."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from curate.commands import options
from curate.commands.declared import command_of
from curate.commands.printing import EXIT_GATE, NextCommand, emit, on_terminal, show, show_table, suggest, unused
from curate.counted import counted, listed
from curate.options.option import Option
from curate.rounds.options import RoundStatusOptions
from scoring.errors import InputError

if TYPE_CHECKING:
    from curate.rounds.import_labels import ImportResult
    from curate.rounds.measures.lift import ArmLift, PairLift
    from curate.rounds.measures.rules import RuleCheck
    from curate.rounds.measures.stopping import Advice
    from curate.rounds.status import Status
    from curate.rounds.verify import RoundCheck

N_SHOWN = 3  # differing rows named per line
N_CLASSES = 5  # classes without a label named per line
N_KEYS = 5  # replaced labels named


def headline(status: "Status") -> str:
    """Return in one sentence whether to continue, the accuracy of the model, and the remaining labels."""
    seen: dict[str, dict[str, Any]] = {advice.name: dict(advice.seen) for advice in status.advice}
    left = seen["pool"]["left"] if "pool" in seen else 0
    reached = [rule.rule for rule in status.rules if rule.reached]
    if reached:
        verdict = f"Stop: {' and '.join(reached)} is reached"
    elif not left:
        verdict = "Stop: no image is left to request"
    elif "budget" in seen and seen["budget"]["labels"] >= seen["budget"]["planned"]:
        verdict = "Stop: all planned labels are there"
    elif status.rules:
        verdict = f"Continue: {' and '.join(rule.rule for rule in status.rules)} is not reached yet"
    else:
        verdict = "Continue until the accuracy is enough (--stop 'accuracy >= 90%' decides it)"
    parts = [verdict]
    if measured := [point for point in status.curve if point["n"]]:
        ends = measured[-1]["anytime"]
        parts.append(
            f"accuracy {measured[-1]['accuracy']:.1%} ({ends['low']:.1%} to {ends['high']:.1%} at every look) with "
            f"{counted(measured[-1]['n_labels'], 'label')}"
        )
    if "budget" in seen:
        planned = seen["budget"]["planned"]
        parts.append(f"{max(0, planned - seen['budget']['labels']):,} of {planned:,} planned labels are left")
    parts.append(f"{counted(left, 'image is', 'images are')} left to request")
    return "; ".join(parts) + "."


def lift_words(lift: "ArmLift") -> str:
    """Return the lift of the strategy over random labels, or what is missing to measure it."""
    from curate.rounds.measures.lift import LEAST_CONTROL, LEAST_HELD_OUT

    if lift.strategy is None or lift.control is None or lift.low is None or lift.high is None:
        return (
            f"not enough yet to decide the lift over random: {counted(lift.n, 'control label')} of at least "
            f"{LEAST_CONTROL}, {counted(lift.n_held_out, 'held-out label')} of at least {LEAST_HELD_OUT}"
        )
    text = (
        "lift of the strategy over random, for other draws of labels too: "
        f"{100 * (lift.strategy - lift.control):+.1f} points ({100 * lift.low:+.1f} to {100 * lift.high:+.1f}, "
        "about 95 % of this look)"
    )
    if lift.low > 0:
        return f"{text}; the strategy beats random"
    if lift.high < 0:
        return f"{text}; random beats the strategy"
    if lift.needed is not None and lift.needed <= 1000 * lift.n:
        return f"{text}; not enough yet to decide: about {lift.needed:,} control labels if the difference stays"
    return f"{text}; not enough yet to decide{'; more held-out rows are needed' if lift.few_held_out else ''}"


def pair_lift_words(lift: "PairLift") -> str:
    """Return the accuracy difference of the two current models."""
    ends = lift.anytime
    return (
        f"the first {lift.n:,} labels of the strategy reach {lift.strategy:.1%}, as many random ones "
        f"{lift.control:.1%}: "
        f"{100 * (lift.strategy - lift.control):+.1f} points between these two models ({100 * ends.low:+.1f} to "
        f"{100 * ends.high:+.1f}, {100 * ends.confidence:.10g} % at every look)"
    )


def rule_words(rule: "RuleCheck") -> str:
    """Return the numbers that a stop rule used, and those missing."""
    if rule.why == "too few labels":
        return "nothing is measured yet: that needs labels of held-out images" + (
            ", and of images drawn at random" if rule.measure == "lift" else ""
        )
    lift = rule.measure == "lift"
    value, low, high = (_measured(part, lift) for part in (rule.value, rule.low, rule.high))
    text = f"{value}, at every look between {low} and {high}"
    if rule.why == "too few rows":
        return f"{text}; not to be shown with {rule.n:,} held-out images, it needs at least {rule.needed or 0:,}"
    if rule.reached or lift:
        return text
    if rule.needed is None:
        return f"{text}; {value} is not enough"
    return f"{text}; if it stays at {value}, about {rule.needed:,} held-out images would show it, there are {rule.n:,}"


def _measured(value: float | None, points: bool) -> str:
    if value is None:
        return "not known"
    return f"{100 * value:+.1f} points" if points else f"{value:.1%}"


SEEN: dict[str, Callable[[Any], str]] = {  # text on the numbers used, by stop criterion
    "stabilising predictions": lambda seen: (
        "agreement of successive models beyond chance (Cohen's) is "
        f"{', '.join(f'{value:.3f}' for value in seen['kappas'])}; {seen['stable']} counts as stable"
    ),
    "classification change": lambda seen: f"{seen['changed']:.1%} of predictions changed with the last labels",
    "exhausted coverage": lambda seen: (
        f"the mean distance to the nearest label is {seen['now']:.3f}, after {seen['before']:.3f} and at first "
        f"{seen['first']:.3f}"
    ),
    "mean entropy": lambda seen: f"{seen['entropy']:.3f} of a uniform guess; below {seen['sure']} is certain",
    "budget": lambda seen: f"{seen['labels']:,} of {counted(seen['planned'], 'label')} planned",
    "pool": lambda seen: f"{counted(seen['left'], 'image is left', 'images are left')} to request",
}


def advice_words(advice: "Advice") -> str:
    """Return the numbers that a stop criterion used."""
    if "needed" not in advice.seen:
        return SEEN[advice.name](advice.seen)
    if advice.seen["needed"] == 1:
        return "needs a model, and none was given"
    return f"needs {advice.seen['needed']} models, there are {advice.seen['models']}"


def status_notes(status: "Status") -> list[str]:
    """Return notes on unknown numbers, and why."""
    notes = []
    if not status.rounds:
        notes.append(f"no batch was made yet; make a batch with `curate round next {status.path}`")
    if pending := status.counts["pending"]:
        waiting = counted(pending, "requested image has", "requested images have")
        notes.append(f"{waiting} no label yet; read them with `curate round import {status.path} labels.csv`")
    held_out, labelled = status.held_out
    if not held_out:
        notes.append("no rows are held out, so accuracy cannot be estimated")
    elif not labelled:
        notes.append(
            f"none of the {counted(held_out, 'held-out image')} has a label yet, so accuracy cannot be estimated"
        )
    without = [name for name, count in status.classes.items() if not count]
    if without and any(status.classes.values()):
        classes = counted(len(without), "class", "classes")
        notes.append(f"no label of {classes} yet: {listed(without, N_CLASSES)}")
    return notes


def import_notes(imported: "ImportResult") -> list[str]:
    """Return notes on labels that an import ignored or replaced."""
    from curate.exporting.labels import shown

    notes = []
    if imported.earlier is not None:
        rest = "nothing was counted twice" if imported.written is None else "only images requested since then count"
        notes.append(f"this file was imported already, as {imported.earlier}: {rest}")
    if imported.rest_skipped is not None:
        single, several = (f"{words} without a label" for words in ("image", "images"))
        rest = counted(imported.rest_skipped, f"{single} counts", f"{several} count")
        notes.append(f"{rest} as skipped in round {imported.round}")
    if imported.written is None and imported.earlier is None:
        notes.append("every label in the file was there already: nothing was counted twice")
    if imported.news.changed:
        some = listed(map(shown, imported.news.changed), N_KEYS)
        answers = counted(len(imported.news.changed), "earlier answer was", "earlier answers were")
        notes.append(f"{answers} replaced by newer answers of the same annotator ({some})")
    return notes


def check_words(check: "RoundCheck") -> str:
    """Return whether a batch was reproduced, or the differences."""
    if check.identical:
        return f"round {check.number}: ok, {counted(check.n_rows, 'row was', 'rows were')} chosen again, all the same"
    problems = list(check.problems)
    if check.n_different:
        named = "; ".join(check.different[:N_SHOWN]) + ("; ..." if check.n_different > N_SHOWN else "")
        problems.append(f"{check.n_different:,} of {counted(check.n_rows, 'row')} not the same ({named})")
    return f"round {check.number}: DIFFERENT: {'; '.join(problems)}"


@command_of(RoundStatusOptions, all_="table")
def run(
    request: RoundStatusOptions,
    all_: Annotated[bool, Option("Also show all criteria.", "--all")] = False,
    fail_unless_stop: Annotated[bool, Option(f"Exit with {EXIT_GATE} until a --stop rule is reached.")] = False,
    json_: options.Json = False,
) -> NextCommand:
    """Report the accuracy so far, and whether to stop.

    Example:

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
    code = EXIT_GATE if fail_unless_stop and not status.stop else 0
    if status.stop:
        return suggest("round", "labels", status.path, "-o", unused("labels.parquet"), code=code)
    if status.counts["pending"]:
        return after_batch(status.path, "next", status.path, "--partial", code=code)
    return suggest("round", "next", status.path, code=code)


def after_batch(folder: str | Path, *other: object, code: int = 0) -> NextCommand:
    """Return the import of the last batch if annotators fill in its file or sort its folder, else `round` OTHER."""
    if on_terminal():
        from curate.exporting.table import TOOLS
        from curate.rounds.files.folder import open_folder
        from curate.rounds.next import EXPORT

        last, kind = open_folder(folder).rounds[-1], TOOLS[open_folder(folder).settings.format]
        export = last.folder / (EXPORT + kind.suffix)
        if export.suffix == ".csv" or export.is_dir():
            return suggest("round", "import", folder, export, code=code)
    return suggest("round", *other, code=code)


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
