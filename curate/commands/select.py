"""``curate select``: choose what to label next, or what to train on."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from curate.commands import options
from curate.commands.printing import emit, printers, say, say_files
from curate.commands.progress import Bar
from curate.counted import counted
from curate.selectors.table import SELECTORS

if TYPE_CHECKING:
    from curate.policies.select.policy import SelectResult

Budget = Annotated[str, options.shared("--budget", " to pick: 500, or a share: 0.1, 10%", metavar="AMOUNT")]
Out = Annotated[Path | None, options.written_to("--out", ": the batch, such as batch.parquet")]
Strategy = Annotated[str, options.shared("--strategy", f": {', '.join(SELECTORS)}", metavar="NAME", show_default=True)]
LabelledWhere = Annotated[
    str | None,
    typer.Option(
        metavar="CONDITION", help="Rows of the table that are labelled: 'label is not null'.", show_default=False
    ),
]
Label = Annotated[
    str | None,
    options.shared(
        "--label", ", in --labelled or in the table. [default: label, where there is one]", metavar="COLUMN"
    ),
]
Labelled = Annotated[Path | None, options.read_from("--labelled")]
Exclude = Annotated[
    Path | None,
    typer.Option(
        parser=options.table_argument,
        metavar="FILE",
        help="CSV, list or table whose keys are never picked.",
        show_default=False,
    ),
]
Per = Annotated[str | None, options.shared("--per", ": the budget in each", metavar="COLUMN")]
Balance = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="The budget in equal shares to the values of a column.", show_default=False),
]
MinDistance = Annotated[
    float | None,
    typer.Option(
        metavar="D",
        help="Stop at the first pick nearer than D to another or to a labelled row, between unit embeddings: "
        "0.32 is a cosine of 0.95.",
        show_default=False,
    ),
]
Loss = Annotated[str | None, typer.Option(metavar="COLUMN", help="rho-loss: losses of the model.", show_default=False)]
HoldoutLoss = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="rho-loss, small-loss: losses of a model of other rows.", show_default=False),
]


def run(
    table: options.Table,
    budget: Budget,
    out: Out = None,
    strategy: Strategy = "auto",
    set_: options.Settings = None,
    labelled: Labelled = None,
    labelled_where: LabelledWhere = None,
    label: Label = None,
    exclude: Exclude = None,
    allow_unmatched: options.AllowUnmatched = False,
    per: Per = None,
    balance: Balance = None,
    min_distance: MinDistance = None,
    noise_guard: options.NoiseGuard = False,
    gate: options.Gate = 0.0,
    discount: options.Discount = False,
    quality: options.Quality = None,
    score: options.Score = None,
    loss: Loss = None,
    holdout_loss: HoldoutLoss = None,
    graph: options.Graph = None,
    embedding: options.Embedding = None,
    seed: options.Seed = 0,
    engine: options.Engine = "local",
    dry_run: options.DryRun = False,
    overwrite: options.Overwrite = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Choose the rows to label next, or to train on.

    Example:

    \b
        curate select scores.parquet --budget 100 -o batch.parquet
        curate select scores.parquet --budget 100 --labelled labels.csv --noise-guard -o batch-2.parquet
        curate select scores.parquet --budget 10% --strategy herding --balance label -o train.parquet
        curate select scores.parquet --budget 50 --strategy score --score unc_losspred --dry-run
        curate select scores.parquet --budget 10% --strategy small-loss --label label -o train.parquet
        curate select /nfs/scores --budget 1% --strategy prob-cover -o /nfs/batch.parquet --engine ray:auto

    auto maximises coverage until labels exist, then prefers images near the decision boundary; it needs embeddings.
    Labelled rows are never picked again, and picks keep away from them. Strategies that use class probabilities need
    labels: a linear probe is fitted on the embeddings. small-loss is for partly wrong labels: it picks rows whose label
    other rows confirm, by probes or by --holdout-loss. The same rows are
    picked whatever the order of the table. Writes batch.parquet (in order of rank, with rank and gain),
    batch.decisions.parquet (every row, and why) and batch.receipt.json, which `curate verify` checks.
    """
    arguments = dict(locals())
    from curate.policies.select.policy import select
    from scoring.settings import parse_settings

    silent = json_ or quiet
    with Bar("picks", quiet=silent) as bar:
        result = select(
            **options.accepted(select, arguments),
            set=parse_settings(set_ or []),
            picked=lambda done, total: bar.show(done, total, 0, ""),
            announce=(lambda text: None) if silent else say,
        )
    if json_:
        emit(result.to_json())
    elif dry_run or not quiet:
        _report(result, dry_run)


def _report(result: "SelectResult", dry_run: bool) -> None:
    line, table = printers(requested=dry_run)
    for note in [*result.notes, *(result.copies.words() if result.copies else [])]:
        line(note)
    rows: list[tuple[str, int, str]] = [("rows in", result.n_rows, "")]
    rows.append(("picked", result.kept, result.strategy + _span(result.gains)))
    rows += [(name, n, "") for name, n in result.dropped_by.items()]
    rows += [("undecided", n, reason) for reason, n in result.undecided_by.items()]
    rows += [("failed", n, status) for status, n in result.failed_by.items()]
    table(rows, right=1)
    if result.groups:
        shares = sorted(result.groups.values())
        span = f"{shares[0]:,} to " if shares[0] != shares[-1] else ""
        line(f"{counted(len(shares), 'group')}, {span}{counted(shares[-1], 'row')} of each")
    if dry_run:
        for each in result.first:
            line(f"would pick: {each['rank']}. {each['key']}")
    say_files(result, dry_run=dry_run)


def _span(gains: list[float | None]) -> str:
    """The first and the last gain in words, or the least and the greatest where they rise in between."""
    known = [gain for gain in gains if gain is not None]
    if not known:
        return ""
    falls = known == sorted(known, reverse=True)
    first, last = (known[0], known[-1]) if falls else (min(known), max(known))
    return f"; gains {'from' if falls else 'between'} {first:.3g} {'to' if falls else 'and'} {last:.3g}"
