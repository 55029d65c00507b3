"""The table of strategies by name, imported on use, so that help can list them quickly."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from scoring.lookup import Lazy, lookup

if TYPE_CHECKING:
    from curate.selectors.contract import Selector

WHERE: dict[str, str] = {  # to add a selector, add a line
    "auto": "curate.selectors.herding:Auto",
    "random": "curate.selectors.chance:Random",
    "stratified": "curate.selectors.chance:StratifiedRandom",
    "least-confidence": "curate.selectors.ranked:LeastConfidence",
    "margin": "curate.selectors.ranked:Margin",
    "entropy": "curate.selectors.ranked:Entropy",
    "score": "curate.selectors.ranked:HighestScore",
    "k-means": "curate.selectors.clusters:KMeans",
    "typiclust": "curate.selectors.clusters:TypiClust",
    "hierarchical": "curate.selectors.hierarchical:Hierarchical",
    "herding": "curate.selectors.herding:MaxHerding",
    "k-center": "curate.selectors.kcenter:KCenter",
    "small-loss": "curate.selectors.chance:SmallLoss",
}
SELECTORS: "Mapping[str, type[Selector]]" = Lazy(WHERE)


def selector_named(name: str) -> "type[Selector]":
    """Return the selector of a strategy; InputError with the nearest name for an unknown one."""
    return lookup(SELECTORS, name, kind="strategy")
