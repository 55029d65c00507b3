"""What finders could not do, or did next to their search; ``curate dedup`` says it."""

from dataclasses import dataclass

HIGHEST_KAPPA = 1e6  # the normaliser is tested up to here; such an image is as good as a point


@dataclass(frozen=True)
class FewFinders:
    """A table has not the columns of the usual finders.

    Attributes:
        table: its path.
        finders: that are used instead.
    """

    table: str
    finders: tuple[str, ...]


@dataclass(frozen=True)
class NotCompared:
    """Rows that a finder leaves out.

    Attributes:
        finder: its name.
        rows: how many.
        why: what they are or have, such as "of one flat colour".
    """

    finder: str
    rows: int
    why: str


@dataclass(frozen=True)
class EqualElsewhere:
    """Files that go for an equal one in another folder, where nothing says which folder is preferred.

    Attributes:
        rows: how many.
        dropped: key of the first.
        kept: key of the one that stays instead.
    """

    rows: int
    dropped: str
    kept: str


@dataclass(frozen=True)
class LooseGroups:
    """Large groups of which most rows lie just above the threshold, as one template with other content does.

    Attributes:
        groups: how many.
        rows: in them that lie just above the threshold.
        largest: rows of the largest.
        finder: that links most of these rows.
        similarity: their median, in its unit.
        to_review: of these rows, those that are kept until they are reviewed; the others were dropped.
    """

    groups: int
    rows: int
    largest: int
    finder: str
    similarity: float
    to_review: int


@dataclass(frozen=True)
class PixelsRead:
    """Images that were read again, as another may have the same pixels.

    Attributes:
        images: how many.
        unreadable: of them.
        example: key of the first that could not be read, and why; or empty.
    """

    images: int
    unreadable: int
    example: str


@dataclass(frozen=True)
class ManyLinks:
    """Rows that may have more links than a graph lists neighbours: pairs of two of them are searched for.

    Attributes:
        rows: how many.
        graph: path of the graph.
    """

    rows: int
    graph: str


@dataclass(frozen=True)
class KappaRadius:
    """What two rows of a table have to reach, given their kappas.

    Attributes:
        threshold: cosine at which two rows of the median kappa just match.
        dim: M, the width of the embeddings.
        median: of the kappas of the table.
        floor: a lower kappa counts as this one.
        n_low: rows whose kappa was raised to the floor.
        n_high: rows whose kappa was lowered to ``HIGHEST_KAPPA``.
        loosest: the smallest cosine that is enough for any two rows of the table.
    """

    threshold: float
    dim: int
    median: float
    floor: float
    n_low: int
    n_high: int
    loosest: float
