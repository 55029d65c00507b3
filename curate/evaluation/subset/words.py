"""Messages about a subset: its tables, notes, and the verdict in plain words."""

from curate.counted import Grid, counted, listed
from curate.evaluation.subset.findings import (
    AS_GOOD,
    BETTER,
    HELPS,
    HURTS,
    NO_HELP,
    UNKNOWN,
    WORSE,
    Fairness,
    SubsetFindings,
    against,
    compare_with_all,
    verdict_of,
)
from curate.evaluation.subset.sides import ALL_ROWS, BY_CLASS, RANDOM, SUBSET
from curate.evaluation.subset.trained import SIGNIFICANT, ClassGap, Gap, SideAccuracies
from scoring.metrics.resampling import Interval

N_NAMED = 10  # maximum classes and groups named
NOISY = 0.02  # lower bound of wrong test labels above which they are reported
SAYS = {
    HELPS: "the subset helps",
    HURTS: "the subset hurts",
    NO_HELP: "the subset does not help: random rows of the same size train as well",
    UNKNOWN: "cannot be determined",
}


def about(findings: SubsetFindings) -> list[str | Grid]:
    """Return lines on the compared training sets."""
    lines = [
        f"{findings.subset}: {findings.kept:,} of {findings.rows:,} rows of {findings.table} "
        f"({findings.kept / findings.rows:.1%})"
    ]
    lines += [f"  left out: {n:,} {reason}" for reason, n in findings.left_out.items()]
    if findings.trained:
        apart, near = " that no side trained on", ", most of them near-copies of rows that are trained on"
        which = near if _from_memory(findings) else apart
        lines.append(f"tested on {counted(findings.n_tested, 'row')}{which}: {findings.test}")
    return [*lines]


def of_models(findings: SubsetFindings) -> list[str | Grid]:
    """Return accuracies by training set, and the differences; empty if nothing was trained."""
    if not findings.trained:
        return []
    models = findings.trained
    header = [
        "trained on",
        "rows",
        *(f"{trained.model} {what}" for trained in models for what in ("accuracy", "balanced")),
    ]
    rows = [
        [
            side,
            findings.n_trained[side],
            *(f"{value:.1%}" for trained in models for value in (trained.accuracy[side], trained.balanced[side])),
        ]
        for side in (SUBSET, ALL_ROWS, RANDOM, BY_CLASS)
    ]
    gaps = [
        [f"subset - {side}", *(_points(trained.gaps[side]) for trained in models)]
        for side in (ALL_ROWS, RANDOM, BY_CLASS)
    ]
    gaps += [
        [f"subset - {side}, balanced", *(_points(trained.balanced_gaps[side]) for trained in models)]
        for side in (ALL_ROWS, RANDOM)
    ]
    if models[0].confirmed_gaps:
        gaps.append(
            ["subset - random, labels confirmed", *(_points(trained.confirmed_gaps.get(RANDOM)) for trained in models)]
        )
    for name in ("kept", "dropped"):
        if name in models[0].by_kept:
            gaps.append([f"subset - random, rows {name}", *(_points(trained.by_kept.get(name)) for trained in models)])
    return ["", Grid(rows, header=header), "", Grid(gaps, header=["points", *(trained.model for trained in models)])]


def of_classes(findings: SubsetFindings) -> list[str | Grid]:
    """Return the classes with a significant gain or loss, compared with random rows or all rows."""
    if not findings.trained or not findings.trained[0].classes:
        return []
    model = findings.trained[0]
    moved = [
        of_class
        for of_class in model.classes
        if min(of_class.adjusted_p[RANDOM], of_class.adjusted_p[ALL_ROWS]) <= SIGNIFICANT
    ]
    n = counted(len(model.classes), "class", "classes")
    if not moved:
        return ["", f"of {n}, none gains or loses more than chance allows ({model.model}, adjusted for all of them)"]
    header = ["class", "tested", "kept", "of", "- random", "p", "- whole", "p"]
    shown = moved if len(moved) <= N_NAMED else [*moved[: N_NAMED // 2], *moved[-N_NAMED // 2 :]]
    more = "" if len(moved) == len(shown) else f", {len(shown)} of them shown"
    return [
        "",
        Grid([_class_line(of_class) for of_class in shown], header=header),
        f"{len(moved):,} of {n} gain or lose more than chance allows ({model.model}, p adjusted for all){more}",
    ]


def of_holdings(findings: SubsetFindings) -> list[str | Grid]:
    """Return lines on diversity, coverage and label errors of the subset."""
    rows = []
    if findings.diversity is not None:
        diversity = findings.diversity
        rows.append(
            [
                "Vendi score ↑",
                _number(diversity.subset, "{:.2f}"),
                f"{diversity.random:.2f}",
                _signed(diversity.against_random, "{:+.2f}"),
                _number(diversity.all_rows, "{:.2f}"),
            ]
        )
    if findings.coverage is not None:
        near = findings.coverage
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
    if findings.noise is not None:
        noise = findings.noise
        lines += [
            f"wrong labels, estimated: {_number(noise.subset, '{:.1%}')} in the subset, "
            f"{_number(noise.all_rows, '{:.1%}')} in the whole, {_number(noise.tested, '{:.1%}')} on the test side"
        ]
    return lines


def of_fairness(findings: SubsetFindings) -> list[str | Grid]:
    """Return lines on the kept share of each group."""
    lines: list[str | Grid] = []
    for fairness in findings.fairness:
        shown = fairness.groups[:N_NAMED]
        rows = [
            [each.name, each.rows, each.kept, _number(each.share, "{:.1%}"), f"{each.adjusted_p:.3f}"] for each in shown
        ]
        more = "" if len(shown) == len(fairness.groups) else f" (the {len(shown)} lowest of {len(fairness.groups):,})"
        lines += [
            "",
            Grid(rows, header=[fairness.column, "rows", "kept", "share kept", "p of as few"]),
            *_fairness_lines(fairness, more),
        ]
    return lines


def notes(findings: SubsetFindings) -> list[str]:
    """Return notes on the numbers."""
    lines = []
    if findings.share < 1:
        lines.append(
            f"{findings.share:.1%} of the rows that can be trained on were used, by a hash of their keys; all "
            "sides are smaller in proportion: --sample N uses more"
        )
    if findings.copies:
        what = (
            "were left out, because every side may have seen them"
            if findings.copies_left_out
            else (
                "are most of them, and are kept: they partly measure memorisation; deduplicate, or choose "
                "others with --test"
            )
        )
        lines.append(f"{counted(findings.copies, 'test row')} with a near-copy (cosine above 0.97) to train on {what}")
    if findings.lost:
        classes = counted(len(findings.lost), "class", "classes")
        lines.append(f"the subset has no row of {classes}: {listed(findings.lost, N_NAMED)}")
    lines += [f"no {model} model: {why}" for model, why in findings.not_trained.items()]
    lines += [
        f"{counted(trained.n_unread, 'image')} could not be read, and were left out of the {trained.model}"
        for trained in findings.trained
        if trained.n_unread
    ]
    if findings.noise is not None and findings.noise.tested.low > NOISY:
        lines.append(
            "some labels of the test side are wrong, too: right predictions count as errors there, which "
            "makes differences smaller; see the line 'labels confirmed', or test on labels that were checked, "
            "with --test"
        )
    if findings.noise is not None:
        lines.append(
            "wrong labels are estimated from predictions of other rows, as in curate labels: a subset chosen by "
            "curate labels looks better than it is"
        )
    return lines


def verdict(findings: SubsetFindings) -> list[str]:
    """Return in plain words whether the subset helps."""
    if not findings.trained:
        return ["cannot be determined whether it helps: no model was trained; choose the classes with --label"]
    model, judged = findings.trained[0], findings.verdicts[0]
    gap = model.gaps[RANDOM]
    memory = "in part memory: " if _from_memory(findings) else ""
    of_subset, of_random = (f"{model.accuracy[side]:.1%}" for side in (SUBSET, RANDOM))
    lines = [
        f"{memory}{SAYS[judged.says]}: by the {_name(model)}, {of_subset} against {of_random} of random rows of the "
        f"same size, {_points(gap)} points" + (_unknown(gap) if judged.says == UNKNOWN else ""),
        _compared_with_all(model, judged.of_size),
    ]
    if {HELPS, HURTS} & {judged.says, judged.of_rows}:
        lines += _class_effect(model, judged.says, judged.of_rows)
    lines += [
        f"the {_name(trained)} says: {SAYS[verdict_of(trained).says]}, {_points(trained.gaps[RANDOM])} points"
        for trained in findings.trained[1:]
    ]
    if findings.noise is not None and findings.noise.tested.low > NOISY and model.confirmed_gaps:
        clean = against(model.confirmed_gaps[RANDOM])
        lines.append(
            f"on the {counted(model.n_confirmed, 'test row')} whose label other rows confirm: {SAYS[clean]}, "
            f"{_points(model.confirmed_gaps[RANDOM])} points"
        )
    lines += _losing_classes(model)
    return lines


def _from_memory(findings: SubsetFindings) -> bool:
    """Return whether most test rows have near-copies among the kept training rows."""
    return findings.copies > 0 and not findings.copies_left_out


def _class_line(of_class: ClassGap) -> list[object]:
    gaps = [(_points(of_class.gaps[side]), f"{of_class.adjusted_p[side]:.3f}") for side in (RANDOM, ALL_ROWS)]
    return [of_class.name, of_class.tested, of_class.kept, of_class.all_rows, *gaps[0], *gaps[1]]


def _fairness_lines(fairness: Fairness, more: str) -> list[str]:
    if fairness.ratio != fairness.ratio:
        return [f"{fairness.column}: a single group, or nothing kept of any: there is nothing to compare"]
    rule = "passes" if fairness.passes else "fails"
    unlucky = listed((each.name for each in fairness.groups if each.dropped_more), N_NAMED)
    dropped = (
        f"dropped more than chance allows: {unlucky}" if unlucky else "no group was dropped more than chance allows"
    )
    return [
        f"{fairness.column}{more}: {rule} the four-fifths rule, the lowest share is {fairness.ratio:.2f} of the "
        f"highest; {dropped}"
    ]


def _compared_with_all(model: SideAccuracies, says: str) -> str:
    gap, rate = _points(model.gaps[ALL_ROWS]), f"{model.accuracy[ALL_ROWS]:.1%}"
    words = {
        BETTER: "it is better than training on everything",
        WORSE: "training on everything is better",
        AS_GOOD: "it is as good as training on everything, within 2 points",
        UNKNOWN: "it is not clearly better or worse than training on everything",
    }
    return f"{words[says]}: {rate} for the whole, subset less whole {gap} points"


def _class_effect(model: SideAccuracies, says: str, of_rows: str) -> list[str]:
    gap = _points(model.gaps[BY_CLASS])
    same = f"random rows with the subset's own number of each class: {gap} points"
    if says == of_rows:
        return [f"it is the choice of rows, not only the number of each class: {same}"]
    if of_rows in (NO_HELP, UNKNOWN):
        if (
            compare_with_all(model.gaps[BY_CLASS]) != AS_GOOD
        ):  # the interval is too wide to exclude an effect of the rows
            return [
                f"whether what {says} is the choice of rows or the number of each class cannot be determined: {same}"
            ]
        return [f"what {says} may be the number of each class rather than the choice of rows: {same}"]
    if says in (NO_HELP, UNKNOWN):
        return [f"with as many rows of each class on both sides it {of_rows}: {same}"]
    return [f"the choice of rows and the number of each class have opposite effects: {same}"]


def _losing_classes(model: SideAccuracies) -> list[str]:
    lines = []
    for side, what in ((RANDOM, "random rows"), (ALL_ROWS, "everything")):
        lost = [
            f"{of_class.name} {100 * of_class.gaps[side].interval.value:+.1f}"
            for of_class in model.classes
            if of_class.adjusted_p[side] <= SIGNIFICANT and of_class.gaps[side].interval.value < 0
        ]
        if lost:
            lines.append(f"reported worse than with {what}, in points: {listed(lost, N_NAMED)}")
    return lines


def _unknown(gap: Gap) -> str:
    low, high = (100 * value for value in gap.interval[1:])
    return (
        f": anything from {low:+.1f} to {high:+.1f} is plausible; more test rows (--test) or draws (--seeds) narrow it"
    )


def _name(trained: SideAccuracies) -> str:
    return {"linear": "linear probe", "kNN": "vote of 20 neighbours", "network": "small network"}.get(
        trained.model, trained.model
    )


def _points(gap: Gap | None) -> str:
    if gap is None:
        return "-"
    return "{:+z.1f} [{:+z.1f}, {:+z.1f}]".format(*(100 * value for value in gap.interval))  # z: never -0.0


def _signed(gap: Gap, shape: str) -> str:
    return "{} [{}, {}]".format(*(shape.format(value) for value in gap.interval))


def _number(interval: Interval, shape: str) -> str:
    value, low, high = (shape.format(value) for value in interval)
    return f"{value} [{low}, {high}]" if interval.low == interval.low else value
