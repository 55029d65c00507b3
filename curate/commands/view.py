"""``curate view``: the page of a report, served on this machine."""

from typing import TYPE_CHECKING, Annotated

import typer

from curate.commands import options
from curate.commands.printing import emit, say, show
from curate.commands.report import Column, Label, Measured, NoMap, Points, Results

if TYPE_CHECKING:
    from curate.facts.served.server import Server


def run(
    table: options.Table,
    results: Results = None,
    column: Column = None,
    label: Label = None,
    source: options.Source = None,
    root: options.SourceRoot = None,
    key: options.SourceKey = None,
    path_column: options.SourcePathColumn = None,
    image_column: options.SourceImageColumn = None,
    points: Points = 5_000,
    no_map: NoMap = False,
    measured: Measured = None,
    seed: options.Seed = 0,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 is any that is free.")] = 0,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Look at a table in the browser, however large it is.

    The page of curate report, served on 127.0.0.1 under a random path until Ctrl-C. Rows are read on
    demand.

    Example:

    \b
        curate view scores.parquet
        curate view scores.parquet kept.parquet --source images.parquet --no-map

    Nothing is written. On a terminal a browser is opened.
    """
    given = dict(locals())
    from curate.facts.serve import view

    server = view(**options.given_to(view, given))
    if json_:
        emit({"url": server.url, "port": server.server_port})
    else:
        show(server.url)
    if not quiet:
        for note in server.site.notes:
            say(note)
        say("Ctrl-C ends it")
    _serve(server, browser=not no_open)


def _serve(server: "Server", *, browser: bool) -> None:
    """Answer until Ctrl-C, which is how it ends and no mistake."""
    import sys
    import threading
    import webbrowser
    from contextlib import closing, suppress

    if browser and sys.stdout.isatty():
        threading.Thread(target=webbrowser.open, args=(server.url,), daemon=True).start()
    with closing(server), suppress(KeyboardInterrupt):
        server.serve_forever(poll_interval=0.2)
