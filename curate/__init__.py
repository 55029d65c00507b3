"""Score a heap of images, keep the subset worth training on.

``score``, ``fit``, ``filter``, ``issues``, ``dedup``, ``labels``, ``calibrate``, ``select``, ``balance``, ``split``,
``evaluate``, ``compare``, ``selftest``, ``retrieve``, ``export``, ``verify``, ``explain``, ``diff``, ``plot``,
``report``, ``view`` and ``audit_plan`` are the commands of these names, with the same options as keywords; a mistake of
the user's is an ``InputError``. ``open`` opens a table that shows its images in a notebook. They are loaded when first
used, so that ``import curate`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from curate.version import __version__

if TYPE_CHECKING:
    from curate.calibration.fit import calibrate
    from curate.comparison.run import compare
    from curate.display.notebook import open as open
    from curate.engines.score import score
    from curate.evaluation.run import evaluate
    from curate.exchange.subset import export
    from curate.facts.serve import view
    from curate.facts.write import report
    from curate.fitting.fit import fit
    from curate.lineage.diff import diff
    from curate.lineage.explain import explain
    from curate.lineage.verify import verify
    from curate.plots.plot import plot
    from curate.policies.audit.draw import audit_plan
    from curate.policies.balance.policy import balance
    from curate.policies.dedup.policy import dedup
    from curate.policies.filter.policy import filter as filter
    from curate.policies.issues.policy import issues
    from curate.policies.labels.policy import labels
    from curate.policies.select.policy import select
    from curate.policies.split.policy import split
    from curate.retrieval.run import retrieve
    from curate.trial.run import selftest
    from scoring.errors import InputError


_MODULES = {
    "score": "curate.engines.score",
    "fit": "curate.fitting.fit",
    "filter": "curate.policies.filter.policy",
    "issues": "curate.policies.issues.policy",
    "dedup": "curate.policies.dedup.policy",
    "labels": "curate.policies.labels.policy",
    "audit_plan": "curate.policies.audit.draw",
    "calibrate": "curate.calibration.fit",
    "select": "curate.policies.select.policy",
    "balance": "curate.policies.balance.policy",
    "split": "curate.policies.split.policy",
    "evaluate": "curate.evaluation.run",
    "compare": "curate.comparison.run",
    "selftest": "curate.trial.run",
    "retrieve": "curate.retrieval.run",
    "export": "curate.exchange.subset",
    "verify": "curate.lineage.verify",
    "explain": "curate.lineage.explain",
    "diff": "curate.lineage.diff",
    "plot": "curate.plots.plot",
    "report": "curate.facts.write",
    "view": "curate.facts.serve",
    "open": "curate.display.notebook",
    "InputError": "scoring.errors",
}
# Not ``filter`` and ``open``: a star import would replace Python's own.
__all__ = [
    "InputError",
    "__version__",
    "audit_plan",
    "balance",
    "calibrate",
    "compare",
    "dedup",
    "diff",
    "evaluate",
    "explain",
    "export",
    "fit",
    "issues",
    "labels",
    "plot",
    "report",
    "retrieve",
    "score",
    "select",
    "selftest",
    "split",
    "verify",
    "view",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'curate' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
