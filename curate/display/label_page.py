"""A page on which a reviewer judges labels, and saves the answers as CSV."""

from collections.abc import Mapping, Sequence

from curate.display.audit_page import PAIR_SIDE, SAVED_BY_SCRIPT, answer_section, answers_page
from curate.display.page import escaped, isolated, picture_html
from curate.display.tiles import Pictures
from curate.tables.table import Table

HEAD = (
    "<h1>Which label is right?</h1>\n"
    "<p>Press g where the given label is right, s where the suggested one is, o where neither is, u if you are unsure; "
    "the arrows move. Rows come at random, so that the first hundred answers are a sample like all of them. Save the "
    "answers as CSV when you are done, or in between; curate review verdicts reads them.</p>\n"
)


def label_page(
    table: Table, rows: Sequence[Mapping[str, str]], source: str | None, *, answers: Mapping[str, str], name: str
) -> str:
    """Return the page of rows whose labels are to be judged.

    Args:
        table: that was examined.
        rows: of the CSV, with ``row``, ``key``, ``given`` and ``suggested``; all with the same columns.
        source: what was scored, where the table names no images.
        answers: key to press -> answer.
        name: of the CSV when it is saved.

    Raises:
        InputError: if images cannot be found.
    """
    read = Pictures(table, [row["key"] for row in rows], side=PAIR_SIDE, source=source)
    return answers_page(
        "Review of labels",
        [HEAD + SAVED_BY_SCRIPT, *(_section(row, read, answers) for row in rows)],
        columns=list(rows[0]),
        rows=[list(row.values()) for row in rows],
        answers=answers,
        noun="labels",
        name=name,
    )


def _section(row: Mapping[str, str], read: Pictures, answers: Mapping[str, str]) -> str:
    words = f"{escaped(row['row'])} · given {isolated(row['given'])} · suggested {isolated(row['suggested'])}"
    figure = picture_html(read(row["key"]).pixels, row["key"])
    caption = f"<figcaption>{isolated(row['key'])}</figcaption>"
    return answer_section(list(row.values()), words, f"<figure>{figure}{caption}</figure>", answers)
