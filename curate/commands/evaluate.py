"""``curate evaluate``: what the score columns are worth."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from curate.commands import options
from curate.commands.evaluate_words import evaluation_notes, evaluation_verdict
from curate.commands.printing import columns_that_fit, emit, say, show, show_table, write_json

if TYPE_CHECKING:
    from curate.evaluation.results import Evaluation, Measure
    from scoring.metrics import Interval


def run(
    table: options.Table,
    label: Annotated[str | None, options.shared("--label", ", in --labelled or in the table")] = None,
    labelled: options.Labelled = None,
    column: Annotated[
        list[str] | None, options.shared("--column", " to measure; again for more. [default: every kappa_* and unc_*]")
    ] = None,
    votes: Annotated[
        str | None,
        typer.Option(
            help="Column of lists, in --labelled or in the table: how many people chose each class.",
            show_default=False,
        ),
    ] = None,
    against: Annotated[Path | None, options.shared("--against", ", to be told apart from this one")] = None,
    degrade: Annotated[int, typer.Option(min=0, help="Images to read again, make worse and score.")] = 0,
    source: options.Source = None,
    key: options.SourceKey = None,
    path_column: options.SourcePathColumn = None,
    image_column: options.SourceImageColumn = None,
    root: options.SourceRoot = None,
    model: Annotated[
        str | None, options.shared("--model", ", for --degrade; by default the shipped one that scored the table")
    ] = None,
    device: Annotated[str, options.shared("--device", ", for --degrade", show_default=True)] = "auto",
    folds: Annotated[int, typer.Option(help="Of the linear classifier's cross-validation.")] = 5,
    repeats: Annotated[
        int, options.shared("--repeats", ": bootstrap resamples, shuffles of permutation tests", show_default=True)
    ] = 1000,
    embedding: options.Embedding = None,
    seed: options.Seed = 0,
    sample: Annotated[
        int | None,
        options.shared("--sample"),
    ] = None,
    out: Annotated[Path | None, options.shared("--out", ": everything, NAME.json")] = None,
    overwrite: options.Overwrite = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure what the score columns are worth, with intervals.

    Against labels: R-AUROC, AUROC of kNN and linear classifier, abstained accuracy. Against votes, another table, and
    worse versions of the images where you ask for them. Every number has a 95 % bootstrap interval.

    Example:

    \b
        curate evaluate scores.parquet --label label
        curate evaluate scores.parquet --labelled people.parquet --label class --votes counts -o report.json
        curate evaluate scores.parquet --label label --degrade 2000 --source photos/
        curate evaluate scores.parquet --against other.parquet
    """
    given = dict(locals())
    os.environ.setdefault("GOMP_SPINCOUNT", "0")  # threads that wait must not spin where others want the core
    from curate.evaluation.run import evaluate
    from scoring.atomic import refuse_existing, require_folder
    from scoring.errors import InputError

    if out is not None and out.suffix.lower() != ".json":
        raise InputError(f"expected a report name that ends in .json, got {out}")
    if out is not None:
        refuse_existing(out, overwrite=overwrite)
        require_folder(out)
    of_images = {"source": source, "key": key, "path-column": path_column, "image-column": image_column}
    unread = [name for name, value in {**of_images, "root": root, "model": model}.items() if value is not None]
    if unread and not degrade:
        raise InputError(f"--{unread[0]} is for --degrade, which is not there; give --degrade N, or leave it out")
    found = evaluate(**options.given_to(evaluate, given), announce=(lambda text: None) if quiet else say)
    if out is not None:
        write_json(_json(found), out, overwrite=overwrite)
    if json_:
        emit(_json(found))
    else:
        _report(found)
    if out is not None and not quiet:
        say(f"report: {out}")


def _json(found: "Evaluation") -> dict[str, Any]:
    """Everything as plain JSON, facts and what is said of them."""
    return {**found.to_json(), "notes": evaluation_notes(found), "verdict": evaluation_verdict(found)}


def _report(found: "Evaluation") -> None:
    show(f"{found.used:,} of {found.rows:,} rows measured: {found.table}")
    for reason, n in found.left_out.items():
        show(f"  left out: {n:,} {reason}")
    shared = [measure for measure in found.measures if measure.values and set(measure.values) == {"embedding"}]
    if shared:
        show_table([[_title(one), _cell(one.values["embedding"])] for one in shared], header=("measure", "embedding"))
        show("")
    for section in _sections([measure for measure in found.measures if measure.values and measure not in shared]):
        _show_section(section, [name for name in found.columns if any(name in one.values for one in section)])
    said: set[str] = set()
    for measure in found.measures:
        if measure.missing or measure.meaning not in said:
            said.add(measure.meaning)
            for line in _sentences(measure):
                show(line)
    for note in evaluation_notes(found):
        show(f"note: {note}")
    for line in evaluation_verdict(found):
        show(f"verdict: {line}")


def _show_section(section: "list[Measure]", columns: list[str]) -> None:
    """Print measures that share columns: one table, or several of some columns each where the terminal is narrow."""
    titles = ["measure", *map(_title, section)]
    cells = [[name, *(_cell(one.values.get(name)) for one in section)] for name in columns]
    for chosen in columns_that_fit(titles, cells):
        lines = zip(titles, *(cells[number] for number in chosen), strict=True)
        header, *rows = (list(line) for line in lines)
        show_table(rows, header=header)
        show("")


def _sections(measures: "list[Measure]") -> "list[list[Measure]]":
    """Return runs of measures that share columns: one table each."""
    sections: list[list[Measure]] = []
    for measure in measures:
        if sections and set(measure.values) <= set(sections[-1][0].values):
            sections[-1].append(measure)
        else:
            sections.append([measure])
    return sections


def _title(measure: "Measure") -> str:
    return measure.name + {"higher": " ↑", "lower": " ↓"}.get(measure.better, "")


def _cell(interval: "Interval | None") -> str:
    if interval is None or interval.value != interval.value:
        return "-"
    return f"{_number(interval.value)} [{_number(interval.low)}, {_number(interval.high)}]"


def _number(value: float) -> str:
    value = 0.0 if abs(value) < 0.0005 else value  # never -0
    return f"{value:.3f}" if abs(value) < 10 else f"{value:,.1f}"


def _sentences(measure: "Measure") -> list[str]:
    """Return what a measure means, which way is better, and which column is ahead of which."""
    if measure.missing:
        return [f"{measure.name}: not measured, for {measure.missing}"]
    better = f"; {measure.better} is better" if measure.better else ""
    lines = [f"{_title(measure)}: {measure.meaning}{better} (n = {measure.n:,})"]
    gaps = measure.differences
    if gaps:
        clear = [gap.second for gap in gaps if gap.interval.low > 0 or gap.interval.high < 0]
        level = [gap.second for gap in gaps if gap.second not in clear]
        words = [f"ahead of {', '.join(clear)}"] if clear else []
        words += [f"not clearly ahead of {', '.join(level)}"] if level else []
        lines.append(f"  {gaps[0].first} is {' and '.join(words)}")
    worst = max(measure.p.values(), default=0.0)
    if measure.p and worst > 0.01:
        shown = ", ".join(f"{column} {p:.3f}" for column, p in measure.p.items() if p > 0.01)
        lines.append(f"  could be luck (permutation test, p): {shown}")
    return lines
