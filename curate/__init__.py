"""Score a heap of images, keep the subset worth training on.

``curate.score``, ``curate.filter`` and ``curate.select`` mirror the commands; they are loaded when first used, so that
``import curate`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from curate.apply import filter_table as filter
    from curate.choice.run import choose_table as select
    from curate.engines.local import score

__version__ = "0.1.0"

_LAZY = {
    "score": ("curate.engines.local", "score"),
    "filter": ("curate.apply", "filter_table"),
    "deduplicate": ("curate.dedup.run", "dedup_table"),
    "select": ("curate.choice.run", "choose_table"),
}
__all__ = ["__version__", "filter", "score", "select"]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'curate' has no attribute {name!r}")
    module, attribute = _LAZY[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
