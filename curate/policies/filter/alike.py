"""Rules by example: keep or drop rows with an embedding similar to an example's."""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from curate.columns import EMBEDDING
from curate.policies.filter.rule import Reasons, Rule, RuleArguments, RuleResult, Ruling
from curate.retrieval.queries import ROW, TABLE, QueryNames, images_of
from curate.tables.digests import tie_breaks
from curate.tables.needs import EMBEDDINGS, Needs
from curate.tables.rows import Rows
from curate.tables.table import Table
from curate.tables.vectors import unit_rows
from scoring.arrays import Floats, Ints, Mask
from scoring.errors import InputError

COSINE = 0.8  # default; 0.3 % of the pairs of PACS reach it, mostly of one class (docs/filter.md)
BLOCK = 65_536  # rows at a time
MOST_EXAMPLES = 1_000
N_TYPED = 3  # examples shown in a typed rule


@dataclass(frozen=True)
class Example:
    """An example that rows are compared with.

    Attributes:
        name: key of a row, or path of an image.
        cosine: minimal cosine of similar rows, in (0, 1].
        vector: embedding of an image as base64 of float32; empty for a row.
    """

    name: str
    cosine: float = COSINE
    vector: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.cosine <= 1:
            raise InputError(f"the cosine of an example must be above 0 and at most 1, got {self.name}={self.cosine:g}")


@dataclass(frozen=True)
class ExampleRule(Rule):
    """Keep or drop rows that are similar to any example, by the cosine of their embeddings."""

    examples: tuple[Example, ...]
    column: str | None = field(default=None, init=False)
    per: str | None = field(default=None, init=False)
    gathers = True
    sign: ClassVar[int]  # 1: similar rows are kept; -1: they are dropped

    @classmethod
    def read(cls, value: Any, arguments: RuleArguments) -> Self:
        """Return the rule from its typed value; InputError for an invalid one."""
        return cls(parse_examples(arguments.values, arguments.table, f"--{cls.name}", arguments.model))

    def judge(self, table_rows: Rows, rows: slice, inside: Mask) -> Ruling:
        """Decide M consecutive rows; ``inside``, shape (M,), masks the rows that no earlier rule dropped."""
        near, judged, at = np.zeros(len(inside)), np.zeros(len(inside), bool), np.flatnonzero(inside)
        near[at], _, judged[at] = nearest(self.examples, table_rows, rows.start + at)
        return Ruling(((near >= 0) == (self.sign > 0)) & judged, judged, None)

    def needs(self, table: Table) -> Needs:
        """Return the columns and facts to read of a table."""
        return Needs(representations=EMBEDDINGS)

    def typed(self) -> str:
        """Return the rule as typed, shortened to the first examples."""
        more = f" and {len(self.examples) - N_TYPED:,} more" if len(self.examples) > N_TYPED else ""
        named = ", ".join(f"{example.name}={example.cosine:g}" for example in self.examples[:N_TYPED])
        return f"--{self.name} {named}{more}"

    def missing(self) -> str:
        """Return why rows are undecided."""
        return "there is no embedding to compare with the examples"

    def reasons(self, result: RuleResult, rows: Ints, dropped: Mask) -> Reasons:
        """Return the nearest example of each of M rows, and the cosine, as reasons."""
        beyond, which, _ = nearest(self.examples, result.table_rows, rows)
        bounds = np.array([example.cosine for example in self.examples])[which]
        names = [self.examples[at].name for at in which.tolist()]
        words = [
            f"{'like' if over >= 0 else 'unlike every example; nearest'} {name} (cosine {bound + over:.4f}, "
            f"{'at least' if over >= 0 else 'below'} {bound:g})"
            for name, over, bound in zip(names, beyond.tolist(), bounds.tolist(), strict=True)
        ]
        return Reasons(words, (bounds + beyond, bounds, self.sign * beyond))


@dataclass(frozen=True)
class Like(ExampleRule):
    """Keep rows that are similar to any example, by the cosine of their embeddings."""

    name: ClassVar[str] = "like"
    sign: ClassVar[int] = 1


@dataclass(frozen=True)
class Unlike(ExampleRule):
    """Drop rows that are similar to any example, by the cosine of their embeddings."""

    name: ClassVar[str] = "unlike"
    sign: ClassVar[int] = -1


def nearest(examples: Sequence[Example], table_rows: Rows, rows: Ints) -> tuple[Floats, Ints, Mask]:
    """Return by how much each row exceeds the minimal cosine of its best example, and the example.

    Args:
        examples: E of them.
        table_rows: with embeddings and hashes of keys.
        rows: M indices.

    Returns:
        Cosine minus the example's minimum, shape (M,); index of the example, shape (M,); mask of rows with an
        embedding.

    Raises:
        InputError: for an example without an embedding, or one of another length.
    """
    embeddings = table_rows.array(EMBEDDING)
    vectors = np.stack([_vector(example, table_rows) for example in examples])  # (E, D)
    bounds = np.array([example.cosine for example in examples])
    beyond, which = np.zeros(len(rows)), np.zeros(len(rows), np.int64)
    for start in range(0, len(rows), BLOCK):
        part = slice(start, start + BLOCK)
        cosine = unit_rows(embeddings[rows[part]]) @ vectors.T - bounds
        which[part] = cosine.argmax(1)
        beyond[part] = np.take_along_axis(cosine, which[part, None], 1)[:, 0].round(6)  # equal rows are always similar
    return beyond, which, table_rows.embedding_problem[rows] == 0


def parse_examples(
    texts: Sequence[str], table: Table, flag: str, model: str | Path | None = None
) -> tuple[Example, ...]:
    """Return examples from keys, images and folders of images, with ``=COSINE`` or without, images embedded.

    Args:
        texts: as typed; a text that is exactly a key or file has no cosine.
        table: with the keys, and the model for images.
        flag: of the option, for messages.
        model: the model of the table, if it is not shipped.

    Raises:
        InputError: for a text that is neither a key nor a readable image, or both but different images, or a cosine out
            of range.
    """
    table.require([EMBEDDING])
    if not texts:
        raise InputError(f"{flag} takes a key or an image, got none; add one, or leave it out")
    names = QueryNames(table, [each for text in texts for each in (text, text.rpartition("=")[0])])
    images: dict[str, Callable[[], bytes]] = {}
    examples: list[Example] = []
    for text in texts:
        named, cosine = names.find(text), COSINE
        if named is None:
            name, cosine = _split(text)
            named = names.find(name)
        if named is None:
            raise InputError(
                f"{flag} takes the key of a row, or the path of an image or a folder of them, with =COSINE unless it "
                f"is {COSINE:g}; {table.path} has no key {name!r}, and there is no such file"
            )
        if named.kind == TABLE:
            raise InputError(
                f"{flag} takes keys, images and folders of images, got the table {named.text}; pass keys of its rows"
            )
        of_files = [] if named.kind == ROW else images_of(named)
        images |= dict(of_files)
        examples += [Example(path, cosine) for path, _ in of_files] or [Example(named.text, cosine)]
    if len(examples) > MOST_EXAMPLES:
        raise InputError(f"{flag} takes at most {MOST_EXAMPLES:,} examples, got {len(examples):,}; pass fewer")
    if images and table.embedding_column is not None:
        raise InputError(
            f"{flag} {next(iter(images))} is an image to embed, and which model computed the column "
            f"{table.embedding_column!r} of --embedding is unknown; pass the key of a row"
        )
    vectors = _embedded(images, table, model) if images else {}
    return tuple(Example(example.name, example.cosine, vectors.get(example.name, "")) for example in examples)


def _split(text: str) -> tuple[str, float]:
    name, _, number = text.rpartition("=")
    try:
        return (name, float(number)) if name else (text, COSINE)
    except ValueError:
        return text, COSINE


def _embedded(images: Mapping[str, Callable[[], bytes]], table: Table, model: str | Path | None) -> dict[str, str]:
    """Return the embedding of each image by the table's model, as base64."""
    from curate.retrieval.images import score_images

    scored = score_images(list(images.values()), table, model=model)
    for path, problem in zip(images, scored.problems, strict=True):
        if problem:
            raise InputError(f"{path} {problem}; choose another example")
    vectors = scored.vectors.astype("<f4")
    return {path: base64.b64encode(row.tobytes()).decode() for path, row in zip(images, vectors, strict=True)}


def _vector(example: Example, table_rows: Rows) -> NDArray[np.float32]:
    """Return the unit vector of an example."""
    embeddings = table_rows.array(EMBEDDING)
    if example.vector:
        try:
            vector = np.frombuffer(base64.b64decode(example.vector, validate=True), "<f4")
        except ValueError:
            raise InputError(
                f"expected the embedding of {example.name} in the receipt, got others; restore it from a backup"
            ) from None
    else:
        place = np.flatnonzero(table_rows.hashes == tie_breaks([example.name.encode()])[0])
        if not len(place) or table_rows.embedding_problem[place[0]]:
            raise InputError(f"the example {example.name!r} has no embedding in the table; choose another row")
        vector = embeddings[place[0]]
    if len(vector) != embeddings.shape[1] or not np.isfinite(vector).all() or not np.any(vector):
        raise InputError(
            f"expected embeddings of {embeddings.shape[1]:,} numbers, got {len(vector):,} of {example.name}; "
            "embed it with the model that scored the table"
        )
    return np.asarray(unit_rows(vector[None])[0])
