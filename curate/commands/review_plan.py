"""``curate review plan``: how many images, and which, to judge for a filter with a guarantee."""

from curate.commands.declared import command_of
from curate.commands.printing import Output, print_lines, printers
from curate.policies.audit.options import ReviewPlanOptions


@command_of(ReviewPlanOptions)
def run(request: ReviewPlanOptions, output: Output) -> None:
    """Plan how many images to judge for a guarantee, and draw them.

    Example:

    \b
        curate review plan scores.parquet --max-bad-rate 2%
        curate review plan scores.parquet --max-bad-rate 2% --keep 80% -o kept.audit.csv
        curate review plan checked.parquet --column label_quality --label label --max-bad-rate 5% -o right.audit.csv

    `curate review scores.parquet kept.audit.csv` shows the drawn images: exclude the bad ones, and keep the rest. Then
    `curate filter scores.parquet --max-bad-rate 2% --audit kept.audit.csv -o kept.parquet` keeps as many rows as the
    verdicts allow. With --keep, only the most certain rows are drawn, and the others cannot be kept.
    """
    from curate.policies.audit.draw import run_review_plan

    plan = run_review_plan(request)
    requested = request.out is None
    output.result(plan, lambda: print_lines(plan.lines(), *printers(requested=requested)), requested=requested)
