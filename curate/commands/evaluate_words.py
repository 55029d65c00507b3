"""What is said of an evaluation beside its measures."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from curate.evaluation.results import Evaluation

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
