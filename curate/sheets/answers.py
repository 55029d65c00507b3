"""Neighbours of queries as one image: each query on the left, its neighbours next to it."""

from collections.abc import Sequence

import numpy as np
from PIL import Image

from curate.columns import KEY
from curate.manifest.contract import ReadError
from curate.retrieval.queries import image_reader
from curate.retrieval.results import Retrieval, value
from curate.sheets.tiles import TILE, Tile, contact_sheet, refuse_too_many, tiles
from curate.tables.provenance import white_of
from scoring.images import DecodeError, decode_rgb

QUERIES = 40  # that are drawn
EACH = 27  # rows of a query
COLUMNS = 10
FEWEST = 6  # tiles, below which no heading would fit
FRAMES = {"answered": "black", "alone": "gray", "rejected": "red", "undecided": "orange", "failed": "gray"}


def answer_sheet(retrieval: Retrieval, source: str | None) -> Image.Image:
    """Return a contact sheet of the first queries, framed, each with the rows found.

    Args:
        retrieval: queries and results.
        source: the scored source, if images are not at the table's uris.

    Raises:
        InputError: if images cannot be read.
    """
    shown = range(min(len(retrieval), QUERIES))
    near = {at: retrieval.neighbours(at)[:EACH] for at in shown}
    refuse_too_many(sum(1 + len(each) for each in near.values()))
    rows = [answer.row for each in near.values() for answer in each]
    rows += [int(retrieval.queries.searched_row[at]) for at in shown if retrieval.queries.searched_row[at] >= 0]
    of_rows = tiles(retrieval.table, rows, KEY, source=source) if rows else {}
    queries = _queries(retrieval, shown, of_rows)
    sections: list[tuple[str, Sequence[Tile]]] = []
    for at in shown:
        beside = [
            Tile(
                of_rows[answer.row].pixels,
                f"{answer.rank}.  {answer.similarity:.3f}",
                f"{retrieval.column.split('_')[0]} {value(answer.certainty)}" if retrieval.column else answer.key,
                (*((answer.key,) if retrieval.column else ()), *of_rows[answer.row].more),
            )
            for answer in near[at]
        ]
        sections.append((retrieval.title(at), [queries[at], *beside]))
    most = max((len(each) for _, each in sections), default=0)
    return contact_sheet(sections, columns=min(COLUMNS, max(FEWEST, most)))


def _queries(retrieval: Retrieval, shown: Sequence[int], of_rows: dict[int, Tile]) -> dict[int, Tile]:
    """Return the tile of each query."""
    queries = retrieval.queries
    of_tables = {
        place: tiles(table, queries.row[[at for at in shown if queries.table[at] == place]].tolist(), KEY)
        for place, table in enumerate(queries.tables)
        if any(queries.table[at] == place and queries.searched_row[at] < 0 for at in shown)
    }
    drawn = {}
    for at in shown:
        pixels = (
            of_rows[int(queries.searched_row[at])].pixels
            if queries.searched_row[at] >= 0
            else of_tables[int(queries.table[at])][int(queries.row[at])].pixels
            if queries.table[at] >= 0
            else _of_file(queries.names[at], white_of(retrieval.table))
        )
        certainty = f"{retrieval.column.split('_')[0]} {value(retrieval.certainty[at])}" if retrieval.column else ""
        drawn[at] = Tile(pixels, "query", certainty, (), FRAMES[retrieval.states[at]])
    return drawn


def _of_file(path: str, white: int) -> np.ndarray | None:
    try:
        return decode_rgb(image_reader(path)(), short_side=TILE, white=white)
    except (ReadError, DecodeError):
        return None
