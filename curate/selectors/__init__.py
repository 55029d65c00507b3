"""Selectors: which rows to label, or to train on, from arrays alone; none opens a file."""

from curate.selectors.contract import HOW_TO_GET, Selector, check
from curate.selectors.pool import Pool, Selection

SELECTORS: dict[str, type[Selector]] = {  # to add a selector, add a line
}

__all__ = ["HOW_TO_GET", "SELECTORS", "Pool", "Selection", "Selector", "check"]
