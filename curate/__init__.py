"""Score a heap of images, keep the subset worth training on.

``curate.score``, ``curate.filter`` and ``curate.select`` mirror the commands; they are loaded when first used, so that
``import curate`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from curate.version import __version__

if TYPE_CHECKING:
    from curate.engines.local import score
    from curate.policies.filter.policy import filter_table as filter
    from curate.policies.select.policy import choose_table as select


_LAZY = {
    "score": ("curate.engines.local", "score"),
    "filter": ("curate.policies.filter.policy", "filter_table"),
    "deduplicate": ("curate.policies.dedup.policy", "dedup_table"),
    "select": ("curate.policies.select.policy", "choose_table"),
}
__all__ = ["__version__", "filter", "score", "select"]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'curate' has no attribute {name!r}")
    module, attribute = _LAZY[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
