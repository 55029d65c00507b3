"""Rows with known labels that several tests label again, round by round."""

import numpy as np
from sklearn.datasets import load_digits

from curate.rounds.simulation.replay import Replay


def digits():
    """The split of the published protocol; the probe scales features itself, so they stay as they are."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    pool, test = order[:1297], order[1297:]
    vectors = (x[pool] / np.linalg.norm(x[pool], axis=1, keepdims=True)).astype(np.float32)
    return Replay(x[pool], y[pool], x[test], y[test], vectors=vectors, calibrate=False)
