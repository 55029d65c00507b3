"""Every engine by name: how the shards of a run are scored; imported when it is looked up."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from scoring.lookup import Lazy

if TYPE_CHECKING:
    from curate.engines.run import ScoreRun

WHERE: dict[str, str] = {  # to add an engine, add a line: a function that scores run.todo() and commits each part
    "local": "curate.engines.local:score_here",
}
ENGINES: "Mapping[str, Callable[[ScoreRun], None]]" = Lazy(WHERE)
