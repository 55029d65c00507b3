"""Messages on a subset: its tables, notes, and the verdict in plain words."""

from curate.counted import Grid, counted
from curate.evaluation.subset.differences import Gap
from curate.evaluation.subset.fairness import Fairness
from curate.evaluation.subset.found import SubsetFound
from curate.evaluation.subset.sides import BY_CLASS, RANDOM, SUBSET, WHOLE
from curate.evaluation.subset.trained import SIGNIFICANT, ClassGap, Trained
from curate.evaluation.subset.verdict import (
    AS_GOOD,
    BETTER,
    HELPS,
    HURTS,
    NO_HELP,
    UNKNOWN,
    WORSE,
    against,
    beside,
    verdict_of,
)
from scoring.metrics.resampling import Interval

N_NAMED = 10  # classes and groups
NOISY = 0.02  # share of test labels that are wrong at least, from which on they are spoken of
SAYS = {
    HELPS: "the subset helps",
    HURTS: "the subset hurts",
    NO_HELP: "the subset does not help: random rows of the same size train as well",
    UNKNOWN: "cannot be determined",
}


def about(found: SubsetFound) -> list[str | Grid]:
    """Return what was compared."""
    lines = [f"{found.subset}: {found.kept:,} of {found.rows:,} rows of {found.table} ({found.kept / found.rows:.1%})"]
    lines += [f"  left out: {n:,} {reason}" for reason, n in found.left_out.items()]
    if found.trained:
        apart, near = " that no side trained on", ", most of them near-copies of rows that are trained on"
        which = near if _from_memory(found) else apart
        lines.append(f"tested on {counted(found.n_tested, 'row')}{which}: {found.test}")
    return [*lines]


def of_models(found: SubsetFound) -> list[str | Grid]:
    """Return accuracies by side, and the differences; nothing where nothing was trained."""
    if not found.trained:
        return []
    models = found.trained
    header = ["trained on", "rows", *(f"{one.model} {what}" for one in models for what in ("accuracy", "balanced"))]
    rows = [
        [side, found.n_trained[side], *(f"{value:.1%}" for one in models for value in _of_side(one, side))]
        for side in (SUBSET, WHOLE, RANDOM, BY_CLASS)
    ]
    gaps = [[f"subset - {side}", *(_points(one.gaps[side]) for one in models)] for side in (WHOLE, RANDOM, BY_CLASS)]
    gaps += [
        [f"subset - {side}, balanced", *(_points(one.balanced_gaps[side]) for one in models)]
        for side in (WHOLE, RANDOM)
    ]
    if models[0].borne_out:
        gaps.append(["subset - random, labels confirmed", *(_points(one.borne_out.get(RANDOM)) for one in models)])
    for name in ("kept", "dropped"):
        if name in models[0].by_kept:
            gaps.append([f"subset - random, rows {name}", *(_points(one.by_kept.get(name)) for one in models)])
    return ["", Grid(rows, header=header), "", Grid(gaps, header=["points", *(one.model for one in models)])]


def of_classes(found: SubsetFound) -> list[str | Grid]:
    """Return the classes that gain or lose more than chance allows, against random rows or the whole."""
    if not found.trained or not found.trained[0].classes:
        return []
    model = found.trained[0]
    moved = [one for one in model.classes if min(one.adjusted_p[RANDOM], one.adjusted_p[WHOLE]) <= SIGNIFICANT]
    n = counted(len(model.classes), "class", "classes")
    if not moved:
        return [
            "",
            f"of {n}, none gains or loses more than chance allows ({model.model}, adjusted for all of them)",
        ]
    header = ["class", "tested", "kept", "of", "- random", "p", "- whole", "p"]
    shown = moved if len(moved) <= N_NAMED else [*moved[: N_NAMED // 2], *moved[-N_NAMED // 2 :]]
    more = "" if len(moved) == len(shown) else f", {len(shown)} of them shown"
    return [
        "",
        Grid([_class_line(one) for one in shown], header=header),
        f"{len(moved):,} of {n} gain or lose more than chance allows ({model.model}, p adjusted for all){more}",
    ]


def of_holdings(found: SubsetFound) -> list[str | Grid]:
    """Return what the subset holds: diversity, coverage and wrong labels."""
    rows = []
    if found.diversity is not None:
        one = found.diversity
        rows.append(
            [
                "Vendi score ↑",
                _number(one.subset, "{:.2f}"),
                f"{one.random:.2f}",
                _signed(one.against_random, "{:+.2f}"),
                _number(one.whole, "{:.2f}"),
            ]
        )
    if found.coverage is not None:
        near = found.coverage
        rows.append(
            [
                "covered ↑",
                f"{near.subset:.1%}",
                f"{near.random:.1%}",
                f"{_points(near.against_random)} points",
                "100.0%",
            ]
        )
        rows.append(
            [
                "distance to nearest ↓",
                f"{near.distance:.3f}",
                f"{near.random_distance:.3f}",
                _signed(near.distance_against_random, "{:+.3f}"),
                "0.000",
            ]
        )
    lines: list[str | Grid] = (
        ["", Grid(rows, header=["holds", "subset", "random", "difference", "whole"])] if rows else []
    )
    if found.noise is not None:
        noise = found.noise
        lines += [
            f"wrong labels, estimated: {_number(noise.subset, '{:.1%}')} in the subset, "
            f"{_number(noise.whole, '{:.1%}')} in the whole, {_number(noise.tested, '{:.1%}')} on the test side"
        ]
    return lines


def of_fairness(found: SubsetFound) -> list[str | Grid]:
    """Return what is kept of each group."""
    lines: list[str | Grid] = []
    for one in found.fairness:
        shown = one.groups if len(one.groups) <= N_NAMED else one.groups[:N_NAMED]
        rows = [
            [each.name, each.rows, each.kept, _number(each.share, "{:.1%}"), f"{each.adjusted_p:.3f}"] for each in shown
        ]
        more = "" if len(shown) == len(one.groups) else f" (the {len(shown)} lowest of {len(one.groups):,})"
        lines += ["", Grid(rows, header=[one.column, "rows", "kept", "share kept", "p of as few"]), *_fair(one, more)]
    return lines


def notes(found: SubsetFound) -> list[str]:
    """Return what a reader must know in addition to the numbers."""
    lines = []
    if found.share < 1:
        lines.append(
            f"{found.share:.1%} of the rows that can be trained on were looked at, by a hash of their keys; all sides "
            "are as much smaller: --sample N takes more"
        )
    if found.copies:
        what = (
            "were left out, for every side may have seen them"
            if found.copies_left_out
            else "are most of them, and stay: what they say is in part memory; deduplicate, or name others with --test"
        )
        lines.append(f"{counted(found.copies, 'test row')} with a near-copy (cosine above 0.97) to train on {what}")
    if found.lost:
        named = ", ".join(found.lost[:N_NAMED]) + (", ..." if len(found.lost) > N_NAMED else "")
        lines.append(f"the subset has no row of {counted(len(found.lost), 'class', 'classes')}: {named}")
    lines += [f"no {model} model: {why}" for model, why in found.not_trained.items()]
    lines += [
        f"{counted(one.n_unread, 'image')} could not be read, and have no part in the {one.model}"
        for one in found.trained
        if one.n_unread
    ]
    if found.noise is not None and found.noise.tested.low > NOISY:
        lines.append(
            "labels of the test side are wrong in part, too: right models are counted as wrong there, which makes "
            "differences smaller; see the line 'labels confirmed', or test on labels that were checked, with --test"
        )
    if found.noise is not None:
        lines.append(
            "wrong labels are determined by what other rows say, as in curate labels: of a subset that was "
            "chosen by that, "
            "what is left looks better than it is"
        )
    return lines


def verdict(found: SubsetFound) -> list[str]:
    """Return whether the subset helps, in plain words."""
    if not found.trained:
        return ["cannot be determined whether it helps: no model was trained; name classes with --label"]
    model, told = found.trained[0], found.verdicts[0]
    gap = model.gaps[RANDOM]
    memory = "in part memory: " if _from_memory(found) else ""
    ours, theirs = (f"{model.accuracy[side]:.1%}" for side in (SUBSET, RANDOM))
    lines = [
        f"{memory}{SAYS[told.says]}: by the {_name(model)}, {ours} against {theirs} of random rows of the same size, "
        f"{_points(gap)} points" + (_unknown(gap) if told.says == UNKNOWN else ""),
        _of_whole(model, told.of_size),
    ]
    if {HELPS, HURTS} & {told.says, told.of_rows}:
        lines += _of_classes_or_rows(model, told.says, told.of_rows)
    lines += [
        f"the {_name(one)} says: {SAYS[verdict_of(one).says]}, {_points(one.gaps[RANDOM])} points"
        for one in found.trained[1:]
    ]
    if found.noise is not None and found.noise.tested.low > NOISY and model.borne_out:
        clean = against(model.borne_out[RANDOM])
        lines.append(
            f"on the {counted(model.n_borne_out, 'test row')} whose label other rows confirm: {SAYS[clean]}, "
            f"{_points(model.borne_out[RANDOM])} points"
        )
    lines += _losers(model)
    return lines


def _from_memory(found: SubsetFound) -> bool:
    """Return whether most test rows have near-copies that are trained on, and stay."""
    return found.copies > 0 and not found.copies_left_out


def _of_side(one: Trained, side: str) -> tuple[float, float]:
    return one.accuracy[side], one.balanced[side]


def _class_line(one: ClassGap) -> list[object]:
    told = [(_points(one.gaps[side]), f"{one.adjusted_p[side]:.3f}") for side in (RANDOM, WHOLE)]
    return [one.name, one.tested, one.kept, one.whole, *told[0], *told[1]]


def _fair(one: Fairness, more: str) -> list[str]:
    if one.ratio != one.ratio:
        return [f"{one.column}: a single group, or nothing kept of any: there is nothing to compare"]
    rule = "passes" if one.passes else "fails"
    unlucky = [each.name for each in one.groups if each.dropped_more]
    named = ", ".join(unlucky[:N_NAMED]) + (", ..." if len(unlucky) > N_NAMED else "")
    chance = f"dropped more than chance allows: {named}" if unlucky else "no group was dropped more than chance allows"
    return [
        f"{one.column}{more}: {rule} the four-fifths rule, the lowest share is {one.ratio:.2f} of the highest; {chance}"
    ]


def _of_whole(model: Trained, says: str) -> str:
    gap, rate = _points(model.gaps[WHOLE]), f"{model.accuracy[WHOLE]:.1%}"
    words = {
        BETTER: "it is better than training on everything",
        WORSE: "training on everything is better",
        AS_GOOD: "it is as good as training on everything, within 2 points",
        UNKNOWN: "it is not clearly better or worse than training on everything",
    }
    return f"{words[says]}: {rate} for the whole, subset less whole {gap} points"


def _of_classes_or_rows(model: Trained, says: str, of_rows: str) -> list[str]:
    gap = _points(model.gaps[BY_CLASS])
    same = f"random rows with the subset's own number of each class: {gap} points"
    if says == of_rows:
        return [f"it is the rows, and not only how many of each class: {same}"]
    if of_rows in (NO_HELP, UNKNOWN):
        if beside(model.gaps[BY_CLASS]) != AS_GOOD:  # too wide to say that the rows are no matter
            return [f"whether what {says} is the rows or how many there are of each class cannot be determined: {same}"]
        return [f"what {says} may be how many there are of each class, and not which rows: {same}"]
    if says in (NO_HELP, UNKNOWN):
        return [f"with as many rows of each class on both sides it {of_rows}: {same}"]
    return [f"the rows and the numbers of each class pull apart: {same}"]


def _losers(model: Trained) -> list[str]:
    lines = []
    for side, what in ((RANDOM, "random rows"), (WHOLE, "everything")):
        lost = [
            one for one in model.classes if one.adjusted_p[side] <= SIGNIFICANT and one.gaps[side].interval.value < 0
        ]
        if lost:
            named = ", ".join(f"{one.name} {100 * one.gaps[side].interval.value:+.1f}" for one in lost[:N_NAMED])
            lines.append(f"reported worse than with {what}, in points: {named}{', ...' if len(lost) > N_NAMED else ''}")
    return lines


def _unknown(gap: Gap) -> str:
    low, high = (100 * value for value in gap.interval[1:])
    return f": anything from {low:+.1f} to {high:+.1f} is likely; more test rows (--test) or draws (--seeds) show more"


def _name(one: Trained) -> str:
    return {"linear": "linear probe", "kNN": "vote of 20 neighbours", "network": "small network"}.get(
        one.model, one.model
    )


def _points(gap: Gap | None) -> str:
    return "-" if gap is None else "{:+.1f} [{:+.1f}, {:+.1f}]".format(*(_zero(100 * value) for value in gap.interval))


def _zero(value: float) -> float:
    return 0.0 if abs(value) < 0.05 else value  # never -0.0


def _signed(gap: Gap, shape: str) -> str:
    return "{} [{}, {}]".format(*(shape.format(value) for value in gap.interval))


def _number(interval: Interval, shape: str) -> str:
    value, low, high = (shape.format(value) for value in interval)
    return f"{value} [{low}, {high}]" if interval.low == interval.low else value
