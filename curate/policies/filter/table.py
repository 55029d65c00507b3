"""Every rule by name; a class is imported when it is looked up."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from scoring.lookup import Lazy

if TYPE_CHECKING:
    from curate.policies.filter.rule import Rule

# To add a rule, add a line, and a field of ``FilterOptions``, which says what it does.
WHERE: dict[str, str] = {
    "keep-top": "curate.policies.filter.amounts:KeepTop",
    "drop-bottom": "curate.policies.filter.amounts:DropBottom",
    "min": "curate.policies.filter.bounds:Minimum",
    "max": "curate.policies.filter.bounds:Maximum",
    "where": "curate.policies.filter.condition:Where",
    "like": "curate.policies.filter.alike:Like",
    "unlike": "curate.policies.filter.alike:Unlike",
    "keys": "curate.policies.filter.named:Keys",
    "without-keys": "curate.policies.filter.named:WithoutKeys",
    "verdicts": "curate.policies.filter.by_verdicts:ByVerdicts",
    "max-bad-rate": "curate.policies.filter.guaranteed:MaxBadRate",
}
RULES: "Mapping[str, type[Rule]]" = Lazy(WHERE)
