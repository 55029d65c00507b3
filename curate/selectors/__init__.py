"""Selectors: which rows to label, or to train on, from arrays alone; none opens a file."""

from curate.selectors.badge import Badge
from curate.selectors.chance import Random, StratifiedRandom
from curate.selectors.contract import HOW_TO_GET, Selector, check
from curate.selectors.pool import Pool, Selection
from curate.selectors.power import PowerSampling
from curate.selectors.ranked import (
    Bald,
    Entropy,
    HighestScore,
    JensenShannon,
    LeastConfidence,
    Margin,
    RhoLoss,
)

SELECTORS: dict[str, type[Selector]] = {  # to add a selector, add a line
    "random": Random,
    "stratified": StratifiedRandom,
    "least-confidence": LeastConfidence,
    "margin": Margin,
    "entropy": Entropy,
    "bald": Bald,
    "jensen-shannon": JensenShannon,
    "score": HighestScore,
    "power": PowerSampling,
    "badge": Badge,
    "rho-loss": RhoLoss,
}

__all__ = ["HOW_TO_GET", "SELECTORS", "Pool", "Selection", "Selector", "check"]
