"""Selectors: which rows to label, or to train on, from arrays alone; none opens a file."""

from curate.selectors.badge import Badge
from curate.selectors.chance import Random, StratifiedRandom
from curate.selectors.clusters import KMeans, TypiClust
from curate.selectors.contract import HOW_TO_GET, Selector, check
from curate.selectors.determinantal import Determinantal
from curate.selectors.facility import FacilityLocation, StochasticFacilityLocation
from curate.selectors.herding import Auto, MaxHerding
from curate.selectors.kcenter import KCenter
from curate.selectors.mixed import Mixed
from curate.selectors.pairwise import Pairwise
from curate.selectors.pool import Pool, Selection
from curate.selectors.power import PowerSampling
from curate.selectors.probcover import ProbCover
from curate.selectors.ranked import (
    Bald,
    Entropy,
    HighestScore,
    JensenShannon,
    LeastConfidence,
    Margin,
    RhoLoss,
)
from curate.selectors.small_loss import SmallLoss

SELECTORS: dict[str, type[Selector]] = {  # to add a selector, add a line
    "auto": Auto,
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
    "k-means": KMeans,
    "typiclust": TypiClust,
    "prob-cover": ProbCover,
    "herding": MaxHerding,
    "facility-location": FacilityLocation,
    "facility-location-stochastic": StochasticFacilityLocation,
    "k-center": KCenter,
    "determinantal": Determinantal,
    "pairwise": Pairwise,
    "mixed": Mixed,
    "rho-loss": RhoLoss,
    "small-loss": SmallLoss,
}

__all__ = ["HOW_TO_GET", "SELECTORS", "Pool", "Selection", "Selector", "check"]
