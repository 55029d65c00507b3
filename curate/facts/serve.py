"""A report that is served: the page of a table too large to be inside one."""

from pathlib import Path

from curate.columns import KEY
from curate.facts.document import POINTS, SAMPLE, Asked, gather
from curate.facts.results import Results
from curate.facts.served.index import Index
from curate.facts.served.pictures import Pictures
from curate.facts.served.server import Server, Site, new_token
from curate.manifest import SourceOptions
from curate.policies.receipts import state_of
from curate.tables.images import require_images
from curate.tables.table import Table, open_table
from scoring.errors import InputError


def view(
    table: str | Path,
    results: Results = None,
    *,
    column: str | None = None,
    label: str | None = None,
    source: str | None = None,
    root: str | Path | None = None,
    key: str | None = None,
    path_column: str | None = None,
    image_column: str | None = None,
    points: int = POINTS,
    no_map: bool = False,
    measured: str | Path | None = None,
    seed: int = 0,
    port: int = 0,
) -> Server:
    """Return a server of the page of a table, ready for ``serve_forever``; its ``url`` is where the page is.

    It answers on 127.0.0.1 alone, behind a random token, and changes nothing. Rows stay in the table: some 150 bytes a
    row are held, sorted and filtered columns included.

    Args:
        table: as for ``report``, with the other options of the same name.
        results: the same.
        column: the same.
        label: the same.
        source: the same.
        root: the same.
        key: the same.
        path_column: the same.
        image_column: the same.
        points: the same.
        no_map: the same.
        measured: the same.
        seed: the same.
        port: to listen on; 0 for any that is free.

    Raises:
        InputError: for a table, file, column or port that cannot be used.
    """
    from curate.display.app.assemble import served_page

    opened = open_table(table, require=[KEY])
    state = state_of(opened)
    options = SourceOptions(
        root=None if root is None else str(root), key=key, path_column=path_column, image_column=image_column
    )
    asked = Asked(results, column, label, SAMPLE, 0 if no_map else points, measured, seed)
    server = Server(port)
    try:
        pictures = Pictures(opened, source=source, options=options)
        facts, token = gather(opened, asked), new_token()
    except BaseException:
        server.server_close()
        raise
    page = served_page(facts.served(), token).encode("utf-8", "backslashreplace")
    notes = [*facts.counted["overview"]["notes"], *_without_images(opened, source)]
    server.site = Site(Index(facts), pictures, page, token, state, notes)
    return server


def _without_images(table: Table, source: str | None) -> list[str]:
    try:
        require_images(table, source)
    except InputError as error:
        return [str(error)]
    return []
