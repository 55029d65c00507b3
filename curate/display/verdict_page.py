"""A page on which a reviewer judges images one by one, good or bad, and saves the answers as CSV."""

from collections.abc import Mapping, Sequence

from curate.display.audit_page import PAIR_SIDE, SAVED_BY_SCRIPT, answer_section, answers_page
from curate.display.page import escaped, isolated, picture_html
from curate.display.tiles import Pictures
from curate.tables.table import Table

ANSWERS = {"g": "good", "b": "bad", "u": "unsure"}
PICTURES = "Is this image worth keeping?", "Good means that you would train on it."
LABELS = "Is the label right?", "Good means that the image shows what its label says."
HEAD = (
    "<h1>{question}</h1>\n<p>{meaning} Press g (good), b (bad) or u if you are unsure, which counts as bad; the arrows "
    "move. Images come at random, so that the first hundred answers are a sample like all of them. Save the answers "
    "as CSV when you are done, or in between; curate filter --audit reads them.</p>\n"
)


def verdict_page(
    table: Table, rows: Sequence[Mapping[str, str]], source: str | None, *, name: str, labelled: bool
) -> str:
    """Return the page of rows to be judged.

    Scores are not shown: who sees them is led by them.

    Args:
        table: that the rows are of.
        rows: of the CSV, with ``image``, ``key`` and ``label``; all with the same columns.
        source: what was scored, where the table names no images.
        name: of the CSV when it is saved.
        labelled: whether the label is what is judged.

    Raises:
        InputError: if images cannot be found.
    """
    read = Pictures(table, [row["key"] for row in rows], side=PAIR_SIDE, source=source)
    question, meaning = LABELS if labelled else PICTURES
    return answers_page(
        "Audit of images",
        [
            HEAD.format(question=question, meaning=meaning) + SAVED_BY_SCRIPT,
            *(_section(row, read, labelled=labelled) for row in rows),
        ],
        columns=list(rows[0]),
        rows=[list(row.values()) for row in rows],
        answers=ANSWERS,
        noun="pictures",
        name=name,
    )


def _section(row: Mapping[str, str], read: Pictures, *, labelled: bool) -> str:
    words = escaped(row["image"]) + (f" · label {isolated(row['label'])}" if labelled else "")
    figure = picture_html(read(row["key"]).pixels, row["key"])
    caption = f"<figcaption>{isolated(row['key'])}</figcaption>"
    return answer_section(list(row.values()), words, f"<figure>{figure}{caption}</figure>", ANSWERS)
