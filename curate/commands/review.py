"""``curate review``: decide on groups of suspected images, and browse a table, in the browser."""

from typing import TYPE_CHECKING, Annotated

import typer

from curate.commands.declared import command_of
from curate.commands.elapsed import replace_elapsed
from curate.commands.printing import Output, emit, show
from curate.reviewing.options import ReviewOptions

if TYPE_CHECKING:
    from curate.reporting.served.server import Server


@command_of(ReviewOptions)
def run(
    request: ReviewOptions,
    output: Output,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
) -> None:
    """Review suspected images in groups, or browse a table.

    Example:

    \b
        curate review cleaned
        curate review scores.parquet kept.parquet
        curate review scores.parquet --browse
        curate review scores.parquet unique.audit.csv
        curate review plan scores.parquet --max-bad-rate 2% -o kept.audit.csv
        curate review verdicts kept.audit.csv
        curate filter cleaned/subset.parquet --verdicts cleaned/subset.verdicts.jsonl -o final.parquet

    Shows suspected images (junk, issues, near copies, suspected labels, leaks, undecided rows) in groups of similar
    ones, those with the most expected bad images first. One key keeps, drops, relabels or splits a group. The page is
    served on 127.0.0.1 under a random path until Ctrl-C, and needs no network. Each decision is on disk before the page
    continues.

    `review plan` draws a random sample to judge, and `review verdicts` reports the result.
    """
    from curate.reviewing.serve import run_review

    server = run_review(request)
    if output.json:
        emit({"url": server.url, "port": server.server_port})
    else:
        show(server.url)
    for note in (*server.site.notes, "Ctrl-C ends it"):
        output.note(note)
    replace_elapsed(lambda: None)
    _serve(server, browser=not no_open)


def _serve(server: "Server", *, browser: bool) -> None:
    """Serve until Ctrl-C, which is the normal end."""
    import sys
    import threading
    import webbrowser
    from contextlib import closing, suppress

    if browser and sys.stdout.isatty():
        threading.Thread(target=webbrowser.open, args=(server.url,), daemon=True).start()
    with closing(server), suppress(KeyboardInterrupt):
        server.serve_forever(poll_interval=0.2)
