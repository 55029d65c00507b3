"""How good the model of a round is: measured on rows held out, and on a fixed sample of the pool."""

from dataclasses import dataclass

from curate.probes.accuracy import Accuracy
from curate.rounds.measures.anytime import Anytime
from curate.rounds.measures.comparison import ModelAgreement
from curate.rounds.measures.coverage import PoolCoverage


@dataclass(frozen=True)
class ModelQuality:
    """How good a model is, as `state.json` holds it.

    Attributes:
        probe: its kind, "linear" or "knn".
        n_labels: labels it was fitted on.
        classes: how many of each class, those without any too.
        temperature: by which its logits were divided; None where it has none.
        holdout: accuracy on rows held out.
        entropy: mean entropy on the sample, over an even guess', in [0, 1].
        coverage: of the sample by labelled rows; None without either.
        against_last: the sample's classes against the round before's; None without one.
        anytime: interval of the accuracy that holds at every look.
    """

    probe: str
    n_labels: int
    classes: dict[str, int]
    temperature: float | None
    holdout: Accuracy
    entropy: float
    anytime: Anytime
    coverage: PoolCoverage | None = None
    against_last: ModelAgreement | None = None
