"""Images drawn at random, each predicted before its label came: how often the models so far were right on new ones."""

from curate.rounds.files.folder import CONTROL, Folder
from curate.rounds.measures.anytime import Prequential, prequential
from curate.rounds.state.standing import LabelProgress


def prequential_in(folder: Folder, progress: LabelProgress) -> Prequential | None:
    """Return how often the control images of all rounds were predicted rightly; None before there is one.

    Args:
        folder: of the rounds.
        progress: what came back so far; an image without a class counts on neither side.
    """
    right = []
    for each in folder.rounds:
        columns = (each.batch[name].to_pylist() for name in ("key", "arm", "predicted"))
        for key, arm, predicted in zip(*columns, strict=True):
            agreed = progress.consensus.get(key)
            if arm == CONTROL and predicted is not None and agreed is not None and agreed.label is not None:
                right.append(predicted == agreed.label)
    return prequential(sum(right), len(right), folder.settings.confidence) if right else None
