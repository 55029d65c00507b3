"""What queries found, as one image: each query on the left, and what it found next to it."""

from collections.abc import Sequence

import numpy as np
from PIL import Image

from curate.columns import KEY
from curate.display.sheet import TILE, Tile, contact_sheet, refuse_too_many
from curate.display.tiles import tiles
from curate.manifest import ReadError
from curate.retrieval.queries import image_reader
from curate.retrieval.results import Retrieval
from curate.retrieval.words import value
from curate.tables.provenance import white_of
from scoring.images import DecodeError, decode_rgb

QUERIES = 40  # that are drawn
EACH = 27  # rows of a query
COLUMNS = 10
FEWEST = 6  # tiles, below which no heading would fit
FRAMES = {"answered": "black", "alone": "gray", "rejected": "red", "undecided": "orange", "failed": "gray"}


def answer_sheet(found: Retrieval, source: str | None) -> Image.Image:
    """Return a contact sheet of the first queries, framed, each with the rows that it found.

    Args:
        found: what queries found.
        source: what was scored, where images are not at the table's own uris.

    Raises:
        InputError: if images cannot be had.
    """
    shown = range(min(len(found), QUERIES))
    near = {at: found.neighbours(at)[:EACH] for at in shown}
    refuse_too_many(sum(1 + len(each) for each in near.values()))
    rows = [one.row for each in near.values() for one in each]
    rows += [int(found.queries.searched_row[at]) for at in shown if found.queries.searched_row[at] >= 0]
    of_rows = tiles(found.table, rows, KEY, source=source) if rows else {}
    queries = _queries(found, shown, of_rows)
    sections: list[tuple[str, Sequence[Tile]]] = []
    for at in shown:
        beside = [
            Tile(
                of_rows[one.row].pixels,
                f"{one.rank}.  {one.similarity:.3f}",
                f"{found.column.split('_')[0]} {value(one.certainty)}" if found.column else one.key,
                (*((one.key,) if found.column else ()), *of_rows[one.row].more),
            )
            for one in near[at]
        ]
        sections.append((found.title(at), [queries[at], *beside]))
    most = max((len(each) for _, each in sections), default=0)
    return contact_sheet(sections, columns=min(COLUMNS, max(FEWEST, most)))


def _queries(found: Retrieval, shown: Sequence[int], of_rows: dict[int, Tile]) -> dict[int, Tile]:
    """Return the tile of each query."""
    asked = found.queries
    of_tables = {
        place: tiles(table, asked.row[[at for at in shown if asked.table[at] == place]].tolist(), KEY)
        for place, table in enumerate(asked.tables)
        if any(asked.table[at] == place and asked.searched_row[at] < 0 for at in shown)
    }
    drawn = {}
    for at in shown:
        pixels = (
            of_rows[int(asked.searched_row[at])].pixels
            if asked.searched_row[at] >= 0
            else of_tables[int(asked.table[at])][int(asked.row[at])].pixels
            if asked.table[at] >= 0
            else _of_file(asked.names[at], white_of(found.table))
        )
        said = f"{found.column.split('_')[0]} {value(found.certainty[at])}" if found.column else ""
        drawn[at] = Tile(pixels, "query", said, (), FRAMES[found.states[at]])
    return drawn


def _of_file(path: str, white: int) -> np.ndarray | None:
    try:
        return decode_rgb(image_reader(path)(), short_side=TILE, white=white)
    except (ReadError, DecodeError):
        return None
