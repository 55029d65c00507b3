"""Score a dataset of images, and keep the subset worth training on.

Every command is a function with the same options as keywords: `curate filter` is ``curate.filter``, `curate round next`
is ``curate.round_next``. Invalid input raises ``InputError``. ``open`` opens a table that shows its images
in a notebook. Functions are loaded when they are first used, so that ``import curate`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from curate.version import __version__

if TYPE_CHECKING:
    from curate.calibration.fit import calibrate as calibrate
    from curate.diagnosis.run import doctor as doctor
    from curate.engines.score import score as score
    from curate.evaluation.comparison.run import compare as compare
    from curate.evaluation.run import evaluate as evaluate
    from curate.exporting.subset import export as export
    from curate.fitting.fit import fit as fit
    from curate.fitting.merge import merge as merge
    from curate.lineage.diff import diff as diff
    from curate.lineage.explain import explain as explain
    from curate.lineage.verify import verify as verify
    from curate.pipelines import clean as clean
    from curate.pipelines import run as run
    from curate.policies.audit.draw import review_plan as review_plan
    from curate.policies.audit.examine import review_verdicts as review_verdicts
    from curate.policies.balance.policy import balance as balance
    from curate.policies.dedup.policy import dedup as dedup
    from curate.policies.filter.policy import filter as filter
    from curate.policies.issues.policy import issues as issues
    from curate.policies.labels.policy import labels as labels
    from curate.policies.select.policy import select as select
    from curate.policies.split.policy import split as split
    from curate.reporting.plots.plot import plot as plot
    from curate.reporting.write import report as report
    from curate.retrieval.run import retrieve as retrieve
    from curate.reviewing.serve import review as review
    from curate.rounds.import_labels import round_import as round_import
    from curate.rounds.init import round_init as round_init
    from curate.rounds.labels import round_labels as round_labels
    from curate.rounds.next import round_next as round_next
    from curate.rounds.simulation.plot import round_plot as round_plot
    from curate.rounds.simulation.run import round_simulate as round_simulate
    from curate.rounds.status import round_status as round_status
    from curate.selftests.run import selftest as selftest
    from curate.sheets.contact import sheet as sheet
    from curate.sheets.notebook import open as open
    from curate.training.cache import cache as cache
    from curate.training.info import info as info
    from curate.training.models import models as models
    from curate.training.models import models_convert as models_convert
    from curate.training.train import train as train
    from scoring.errors import InputError as InputError

_MODULES = {
    "score": "curate.engines.score",
    "fit": "curate.fitting.fit",
    "merge": "curate.fitting.merge",
    "filter": "curate.policies.filter.policy",
    "issues": "curate.policies.issues.policy",
    "dedup": "curate.policies.dedup.policy",
    "labels": "curate.policies.labels.policy",
    "calibrate": "curate.calibration.fit",
    "select": "curate.policies.select.policy",
    "balance": "curate.policies.balance.policy",
    "split": "curate.policies.split.policy",
    "round_init": "curate.rounds.init",
    "round_next": "curate.rounds.next",
    "round_import": "curate.rounds.import_labels",
    "round_status": "curate.rounds.status",
    "round_labels": "curate.rounds.labels",
    "round_simulate": "curate.rounds.simulation.run",
    "round_plot": "curate.rounds.simulation.plot",
    "run": "curate.pipelines",
    "clean": "curate.pipelines",
    "info": "curate.training.info",
    "sheet": "curate.sheets.contact",
    "retrieve": "curate.retrieval.run",
    "report": "curate.reporting.write",
    "review": "curate.reviewing.serve",
    "review_plan": "curate.policies.audit.draw",
    "review_verdicts": "curate.policies.audit.examine",
    "plot": "curate.reporting.plots.plot",
    "evaluate": "curate.evaluation.run",
    "compare": "curate.evaluation.comparison.run",
    "selftest": "curate.selftests.run",
    "verify": "curate.lineage.verify",
    "explain": "curate.lineage.explain",
    "diff": "curate.lineage.diff",
    "export": "curate.exporting.subset",
    "train": "curate.training.train",
    "cache": "curate.training.cache",
    "doctor": "curate.diagnosis.run",
    "models": "curate.training.models",
    "models_convert": "curate.training.models",
    "open": "curate.sheets.notebook",
    "InputError": "scoring.errors",
}
# Not ``filter`` and ``open``: a star import would replace Python's own.
__all__ = ["__version__", *(name for name in _MODULES if name not in ("filter", "open"))]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'curate' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
