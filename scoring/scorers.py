"""Scorers by name: the model outputs that each needs, and its columns.

Importing a scorer is cheap: torch is only imported by the functions that use it.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Protocol

from scoring.column import Column
from scoring.lookup import Lazy, lookup

METHOD = "<method>"
HEAD = "head"  # output of a trained module on the features
HEAD_OF_PIXELS = "head of pixels"  # the same of features and the pixels in [0, 1], shape (N, 3, S, S), behind them
TRAINED = (HEAD, HEAD_OF_PIXELS)
FEATURES = "features"  # of the backbone, shape (N, D)
CROPS = "crops"  # embeddings of ten crops of each image, shape (10, N, E), rows of unit length
LOGITS = "logits"  # of the model's classifier, shape (N, C)
TABLE = "table"  # the stored embeddings of all rows, unit length, a NumPy array (N, D)


class Scorer(Protocol):
    """A score: a frozen dataclass with its parameters.

    Attributes:
        needs: its input: ``HEAD``, ``HEAD_OF_PIXELS``, ``FEATURES``, ``CROPS``, ``LOGITS`` or ``TABLE``; all float32
            tensors except ``TABLE``.
        columns: name -> meaning; ``<method>`` in a name stands for the head's method. Names with ``unc_`` are higher
            for less certain images.
        passes: number P of additional passes with dropout, for inputs of shape (P, N, D) or (P, N, C); 0 for the input
            of the single pass without dropout.
    """

    needs: ClassVar[str]
    columns: ClassVar[Mapping[str, Column]]

    @property
    def passes(self) -> int:
        """Number of additional passes with dropout."""

    def score(self, inputs: Any, /) -> Mapping[str, Any]:
        """Return its columns by name, each of shape (N,); a pure function."""


HEADS: dict[str, str] = {  # trained scorers; to add one, add a line
    "kappa": "scoring.heads:KappaHeadSpec",
    "norm": "scoring.heads:NormHeadSpec",
    "uncertainty": "scoring.heads:UncertaintyHeadSpec",
    "junk": "scoring.heads:JunkHeadSpec",
    "posterior": "scoring.heads:PosteriorHeadSpec",
    "gaussians": "scoring.heads:GaussiansHeadSpec",
    "classifier": "scoring.class_heads:ClassifierHeadSpec",
    "prototypes": "scoring.heads:PrototypeHeadSpec",
    "ensemble": "scoring.class_heads:EnsembleHeadSpec",
    "mcdropout": "scoring.class_heads:DropoutHeadSpec",
    "hetxl": "scoring.class_heads:HetXLHeadSpec",
    "sngp": "scoring.class_heads:SNGPHeadSpec",
}
WHERE: dict[str, str] = {  # all scorers; to add one that needs no training, add a line
    **HEADS,
    "crops": "scoring.crops:CropsScorer",
    "dropout": "scoring.class_heads:DropoutScorer",
    "neighbour": "scoring.relative.scorers:NeighbourScorer",
    "ambiguous": "scoring.relative.scorers:AmbiguousScorer",
}
SCORERS: Mapping[str, type[Scorer]] = Lazy(WHERE)


def free_scorers() -> Mapping[str, type[Scorer]]:
    """Return the scorers that need no training, by name."""
    return Lazy({name: place for name, place in WHERE.items() if name not in HEADS})


def scorers_named(names: Iterable[str]) -> dict[str, Scorer]:
    """Return scorers that need no training, with default parameters; InputError for an unknown name."""
    return {name: lookup(free_scorers(), name, kind="scorer")() for name in names}


def columns_of(scorers: Mapping[str, Scorer]) -> dict[str, Column]:
    """Return the columns of named scorers, in their order."""
    return {
        column.replace(METHOD, name): about
        for name, scorer in scorers.items()
        for column, about in scorer.columns.items()
    }


def scored(name: str, scorer: Scorer, inputs: Any, n: int) -> dict[str, Any]:
    """Return the columns of a scorer by full name; ValueError unless they are as declared, of ``n`` numbers each.

    Args:
        name: of the scorer, or of the head's method.
        scorer: computes the columns.
        inputs: what the scorer needs, for n rows.
        n: number of rows.
    """
    scores = scorer.score(inputs)
    if list(scores) != list(scorer.columns) or any(tuple(values.shape) != (n,) for values in scores.values()):
        shapes = {column: tuple(values.shape) for column, values in scores.items()}
        raise ValueError(f"the scorer {name} declares {list(scorer.columns)}, each of shape ({n},), and gave {shapes}")
    return dict(zip(columns_of({name: scorer}), scores.values(), strict=True))


def main_column(name: str, scorer: Scorer) -> str:
    """Return the first column of a scorer, from which the others are derived."""
    return next(iter(columns_of({name: scorer})))


def score_columns() -> dict[str, Column]:
    """Return every column that a scorer can give; ``<method>`` in its name stands for a head's method."""
    return {name: about for kind in SCORERS.values() for name, about in kind.columns.items()}
