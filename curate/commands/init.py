"""``curate round init``: a folder of rounds for a table."""

from dataclasses import replace
from typing import TYPE_CHECKING

from curate.commands import options
from curate.commands.declared import command_of
from curate.commands.printing import emit, say
from curate.counted import counted
from curate.rounds.options import RoundInitOptions

if TYPE_CHECKING:
    from curate.rounds.files.folder import Folder


@command_of(RoundInitOptions)
def run(
    request: RoundInitOptions,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Create a folder of rounds for a table, without a batch yet.

    Example:

    \b
        curate round init rounds scores.parquet --classes cat,dog,bird --format label-studio
        curate round init rounds scores.parquet --classes cat,dog --stop 'accuracy >= 90%'
    """
    from curate.rounds.init import run_round_init

    names = ",".join(request.classes) if isinstance(request.classes, list) else None  # a,b and c, typed apart
    opened = run_round_init(replace(request, classes=names))
    if json_:
        emit({"folder": str(request.folder), **opened.settings.to_json()})
    elif not quiet:
        _report_start(request, opened)


def _report_start(request: RoundInitOptions, opened: "Folder") -> None:
    """Print the fixed settings, and what round 1 will ask."""
    from curate.rounds.init import other_holdout

    fixed = opened.settings
    other = other_holdout(request.holdout, fixed.holdout, fixed.n_rows)
    if other is not None:
        say(other)
    rows = f"{counted(fixed.n_rows, 'row')} of {request.table}"
    say(f"{request.folder}: rounds of {fixed.batch:,} of the {rows}, by {fixed.strategy}")
    held_out = counted(fixed.holdout, "image is held out", "images are held out")
    say(f"{held_out}, {counted(fixed.n_control, 'of each batch is', 'of each batch are')} drawn at random")
    n_held_out = opened.holdout["label"].null_count
    if n_held_out:
        first = min(fixed.batch, fixed.n_rows - fixed.holdout)
        say(
            f"round 1 requests {counted(first + n_held_out, 'image')}: {first:,} of the batch, and "
            f"{n_held_out:,} held out, on which every round is measured; later rounds request {fixed.batch:,}"
            f"{'; labels of held-out images count in --budget' if fixed.budget else ''}"
        )
    for rule in fixed.rules:
        say(f"status says stop once it is shown, at {fixed.confidence:.10g} confidence, that {rule}")
    say(f"next: curate round next {request.folder}")
