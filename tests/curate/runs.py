"""Small scoring runs that several test modules make."""

from curate.engines.score import score
from curate.engines.settings import ScoreSettings

SMALL = ScoreSettings(device="cpu", batch_size=4, shard_rows=8, white=65535)


def run_again(folder, out, checkpoint, **changes):
    return score(folder, out, model=checkpoint, settings=SMALL, **changes)
