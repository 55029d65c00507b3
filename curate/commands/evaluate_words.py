"""What is said of an evaluation beside its measures."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from curate.evaluation.results import Evaluation
    from scoring.metrics import Interval

LUCK = 0.5
WORTH = ("AUROC, linear right", "AUROC, kNN right", "R-AUROC")  # measures that tell what a score is worth, best first
NO_SCORES = ("rank average", "class entropy", "Laplacian")  # what stands beside the scores of the table
NO_NORM = "the norm of embeddings, another common baseline, cannot be had: embeddings are stored at unit length"
NO_SLOPE = {  # why a column has no logistic slope
    "infinite": "it holds infinite values",
    "separated": "it is constant but for a few rows, or a threshold on it is never wrong",
}


def evaluation_notes(found: "Evaluation") -> list[str]:
    """Return what a reader must know besides the measures, one sentence each."""
    known = found.caveats
    notes = [
        f"{name} is 1/kappa_{name[4:]}, with the same ranks; ask for it with --column" for name in known.same_ranks
    ]
    if known.other_model is not None:
        model, digest = known.other_model
        notes.append(f"worse images were scored by {model}, and the table by another model ({digest[:12]})")
    if known.without_embeddings:
        notes.append(f"measures against labels need embeddings: {known.without_embeddings}")
    if known.n_twins:
        notes.append(
            f"{known.n_twins:,} of {found.used:,} rows have an exact twin, an embedding equal in every bit; the "
            "nearest neighbour in Recall@1 and R-AUROC, and votes in kNN, are such copies: measure the table without "
            "them, too"
        )
    notes += [f"no logistic slope of {column}: {NO_SLOPE[why]}" for column, why in known.without_slope.items()]
    if known.norm_unknown:
        notes.append(NO_NORM)
    if known.without_votes:
        notes.append(f"{known.without_votes:,} of {found.used:,} rows have no votes, and no part in that measure")
    if known.unread:
        notes.append(f"{known.unread:,} images could not be read again")
    return notes


def evaluation_verdict(found: "Evaluation") -> list[str]:
    """Return what to do with the scores on these labels, in plain words; nothing without labels.

    A score is better than chance where the 95 % interval of its AUROC lies above 0.5.
    """
    measures = {measure.name: measure for measure in found.measures if measure.values}
    measure = next((measures[name] for name in WORTH if name in measures), None)
    if measure is None:
        return []
    scores = {name: one for name, one in measure.values.items() if name not in NO_SCORES and one.value == one.value}
    good = sorted((name for name, one in scores.items() if one.low > LUCK), key=lambda name: -scores[name].value)
    wrong = [name for name, one in scores.items() if one.high < LUCK]
    luck = [name for name in scores if name not in good and name not in wrong]
    lines = []
    if luck:
        lines.append(f"no better than chance on your labels: {', '.join(luck)} ({measure.name} around {LUCK:g})")
    if wrong:
        lines.append(f"worse than chance on your labels, surest where it is wrong: {', '.join(wrong)}")
    if good:
        ties = [each.second for each in measure.differences if each.first == good[0] and each.interval.low <= 0]
        level = [name for name in good[1:] if name in ties]
        lines.append(
            f"use {good[0]}: {measure.name} {_shown(scores[good[0]])}"
            + (f"; not clearly behind it: {', '.join(level)}" if level else "")
        )
    elif scores:
        lines.append(
            "no score of this table tells what is hard on your labels: learn it from them, by curate fit --label "
            "COLUMN --apply FILE, whose unc_class knows them"
        )
    known = measure.values.get("class entropy")
    if good and known is not None and known.low > scores[good[0]].high:
        lines.append(
            f"class entropy, which saw labels, is better still, {_shown(known)}: unc_class of curate fit --label"
        )
    return lines


def _shown(value: "Interval") -> str:
    return f"{value.value:.3f} [{value.low:.3f}, {value.high:.3f}]"
