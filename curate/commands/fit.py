"""``curate fit``: a score that is fitted to the heap."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from curate.commands import options
from curate.commands.printing import emit, say, say_table
from curate.commands.uneven import uneven_words
from curate.counted import counted

if TYPE_CHECKING:
    from curate.fitting.result import FitResult
    from scoring.metrics import Interval

MOST_TOLD = 12  # classes or clusters in the report
LUCK = 0.5


def run(
    table: options.Table,
    out: Annotated[
        Path | None, options.shared("--out", ": the model, NAME.safetensors, for images that come later")
    ] = None,
    apply: Annotated[
        Path | None,
        typer.Option(
            "--apply",
            parser=options.given_path,
            metavar="FILE",
            help="Also write the table with the columns.",
            show_default=False,
        ),
    ] = None,
    fitted: Annotated[
        Path | None,
        typer.Option(
            "--fitted",
            parser=options.given_path,
            metavar="FILE",
            help="Apply this model, fitted before, in place of fitting.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str | None,
        options.shared("--model", ", or timm:NAME: the one that scored the table; found by itself if it ships"),
    ] = None,
    label: Annotated[
        str | None, options.shared("--label", " to learn from, of the table or of --labelled", show_default=True)
    ] = None,
    labelled: Annotated[Path | None, options.shared("--labelled", ", or a folder of rounds: to learn from")] = None,
    embedding: options.Embedding = None,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Fit a score to the heap that a table holds; no image is read.

    Example:

    \b
        curate fit scores.parquet --apply fitted.parquet
        curate fit scores.parquet -o fitted.safetensors
        curate fit scores.parquet --labelled labels.csv --apply fitted.parquet
        curate score more/ --model fitted.safetensors -o more.parquet

    unc_fitted is high for junk, and below that for what the heap cannot tell: images far from all others that are no
    copies, among images of other kinds. sheet, select and filter --max go by it where it is there; filter --keep-top by
    unc_local, its rank among the nearest images. `curate score` ends with all this by itself; fit it here for a model
    that scores new images by the same heap, or with labels: from 50 up, they are spread over the heap, unless those
    that were held out speak against it.
    """
    from curate.fitting.fit import fit

    line = (lambda text: None) if quiet else say
    result = fit(
        table,
        out,
        apply=apply,
        fitted=fitted,
        model=model,
        label=label,
        labelled=labelled,
        embedding=embedding,
        seed=seed,
        overwrite=overwrite,
        report=line,
    )
    if json_:
        emit(result.to_json())
    elif not quiet:
        _report(result, applied=fitted is not None)


def _report(result: "FitResult", *, applied: bool) -> None:
    for text in _notes(result, applied=applied):
        say(text)
    _shares(result)
    keeps = f"{counted(result.references, 'row')} to compare with, {result.n_bytes / 1e6:,.1f} MB"
    if result.path is not None:
        say(f"model: {result.path} ({keeps})")
    if result.applied is not None:
        say(f"table: {result.applied}")


def _shares(result: "FitResult") -> None:
    from curate.fitting.shares import KEPT

    if not result.shares:
        return
    say(f"what keeping the surest {KEPT:.0%} by unc_local, as filter does, takes of each {result.kind}:")
    rows = [(each.name, each.rows, each.taken, f"{each.taken / each.rows:.0%}") for each in result.shares[:MOST_TOLD]]
    say_table(rows, header=(result.kind, "rows", "taken", "share"), right=1)
    if len(result.shares) > MOST_TOLD:
        say(f"and {len(result.shares) - MOST_TOLD:,} more")
    for text in uneven_words(result.kind, {each.name: (each.rows, each.taken) for each in result.shares}, 1 - KEPT):
        say(text)


def _notes(result: "FitResult", *, applied: bool) -> list[str]:
    """Return what somebody should know before going by the columns, one sentence each."""
    from scoring.heap.fit import FEW_ROWS
    from scoring.heap.model import far_from

    notes = [f"left out: {counted(count, 'image')} with {what}" for what, count in result.without.items()]
    if applied:
        far = far_from(round(result.outside * result.rows), result.rows)
        return [*notes, far] if far else notes
    if result.rows < FEW_ROWS:
        notes.append(f"fitted to {counted(result.rows, 'image')}: fewer than {FEW_ROWS} tell too little to go by")
    if result.references < result.rows:
        kept = f"{result.references:,} of {counted(result.rows, 'row')}"
        notes.append(f"the model keeps a draw of {kept} to compare new images with")
    if result.recall < 1:
        notes.append(f"the search found {result.recall:.1%} of the neighbours, as measured on rows drawn")
    return notes + _of_labels(result.labels)


def _of_labels(known: dict[str, Any]) -> list[str]:
    """Return what labels say of the score."""
    if not known:
        return []
    of = f"{counted(known['rows'], 'label')} of {counted(known['classes'], 'class', 'classes')}"
    what = "telling labelled rows whose nearest labelled row is of another class"
    notes = []
    if "better" in known:
        notes.append(f"{of}, {what}: AUROC {_shown(known['auroc'])} where labels were held out")
        inside = f"on the labels that it learned from {known['inside'].value:.3f}"
        notes.append(f"without labels {_shown(known['without'])}; {inside}")
        if not known["better"]:
            notes.append("learning from the labels is no better: the fit goes without them")
    else:
        notes.append(f"{of}, {what}: AUROC {_shown(known['auroc'])}")
    used = known["auroc"] if known.get("better", True) else known["without"]
    if used.low <= LUCK:
        more = "more labels may help" if "better" in known else "learn from the labels, by --label"
        notes.append(f"that is no better than luck: on these classes, unc_ambiguous says nothing; {more}")
    return notes


def _shown(found: "Interval") -> str:
    return f"{found.value:.3f} (95 %: {found.low:.3f} to {found.high:.3f})"
