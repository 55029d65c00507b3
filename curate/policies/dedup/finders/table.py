"""The table of duplicate finders, ``FINDERS``; each has a similarity in its unit, and is imported when built."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real

import numpy as np

from curate.columns import EMBEDDING, SIGNATURE
from curate.policies.dedup.finders.passing import OfColour, WithoutFlat
from curate.policies.dedup.finders.searches import NearHash, NearVector, SameText, Search, Views
from curate.tables.rows import Rows
from scoring.arrays import Array, Floats, Mask
from scoring.errors import InputError
from scoring.lookup import lookup


@dataclass(frozen=True)
class Finder:
    """One kind of duplicate.

    Attributes:
        meaning: one line for help and README.
        needs: the required columns.
        build: rows, threshold, views of an image -> Search.
        threshold: default threshold of copies; None if there is none.
        lowest: lowest sensible threshold.
        highest: highest sensible threshold.
        unit: of threshold and similarity.
        higher: whether larger values are more similar.
    """

    meaning: str
    needs: tuple[str, ...]
    build: Callable[[Rows, float, Views], Search]
    threshold: float | None = None
    lowest: float = 1
    highest: float = 1
    unit: str = "cosine"
    higher: bool = True

    def holds(self, similarity: Array, threshold: float) -> Mask:
        """Return a mask of the similarities that reach the threshold."""
        return similarity >= np.float32(threshold) if self.higher else similarity <= threshold

    def margin(self, similarity: Array, threshold: float) -> Floats:
        """Return how far similarities exceed the threshold, relative to the distance to equality: 1 is equal."""
        span = abs((self.highest if self.higher else self.lowest) - threshold)
        return np.abs(np.asarray(similarity, np.float64) - threshold) / span if span else np.ones(len(similarity))


def _near_signature(rows: Rows, threshold: float, views: Views) -> Search:
    search = NearVector(rows.array(SIGNATURE), threshold, SIGNATURE, views, ties=rows.hashes)
    if rows.chroma is None:
        return search
    usual = FINDERS[SIGNATURE].threshold
    return OfColour(search, rows, views, closely=usual is not None and threshold > usual)


def _part_of(rows: Rows, threshold: float, views: Views) -> Search:
    from curate.policies.dedup.finders.crops import NearParts, PartOfColour

    search = NearParts(rows, threshold, views)
    return search if rows.chroma is None else PartOfColour(search, rows, views)


def _near_duplicate(rows: Rows, threshold: float, views: Views) -> Search:
    from curate.policies.dedup.finders.verified import Verified

    return Verified(rows, threshold, views)


def _near_embedding(rows: Rows, threshold: float, _: Views) -> Search:
    search = NearVector(rows.array(EMBEDDING), threshold, EMBEDDING, ties=rows.hashes)
    return search if rows.flat is None or not rows.flat.any() else WithoutFlat(search, rows, "embedding")


FINDERS: dict[str, Finder] = {  # strongest evidence first: the first finder that links a pair is recorded
    "bytes": Finder(
        "the files are equal, byte by byte", ("sha256",), lambda rows, *_: SameText(rows.texts["sha256"]), unit=""
    ),
    "hash": Finder(
        "the 64-bit perceptual hashes differ in few bits",
        ("phash",),
        lambda rows, radius, _: NearHash(rows, radius),
        threshold=2,
        lowest=0,
        highest=20,
        unit="bits",
        higher=False,
    ),
    "signature": Finder(
        "the images agree in their low frequencies and colours; mirrored and turned copies on request",
        (SIGNATURE,),
        _near_signature,
        threshold=0.95,
        lowest=0.5,
    ),
    "crop": Finder(
        "one image is a part of the other, 70 % of each side or more, as no other nearby: crops, borders",
        (EMBEDDING, SIGNATURE),
        _part_of,
        threshold=0.985,
        lowest=0.94,
    ),
    "embedding": Finder("the model sees the same content", (EMBEDDING,), _near_embedding, threshold=0.985, lowest=0.5),
    "near-duplicate": Finder(
        "annotators would say so, by a fitted model of embedding, signature, part and surroundings together",
        (EMBEDDING, SIGNATURE),
        _near_duplicate,
        threshold=0.9,
        lowest=0.05,
        unit="probability",
    ),
}


def threshold_of(name: str, value: float | None) -> float:
    """Return the threshold of a finder, by default its own; InputError if unknown, without one, or out of range."""
    finder = lookup(FINDERS, name, kind="finder")
    if finder.threshold is None:
        if value is not None:
            raise InputError(f"the finder {name} takes no threshold, got {value:g}; leave --threshold out")
        return 1.0
    if value is None:
        return finder.threshold
    if not isinstance(value, Real) or isinstance(value, bool):
        raise InputError(f"--threshold of {name}: expected a number, got {value!r}")
    if not finder.lowest <= value <= finder.highest or (finder.unit == "bits" and value != int(value)):
        kind = "a whole number of bits" if finder.unit == "bits" else f"a {finder.unit}"
        raise InputError(
            f"--threshold of {name} is {kind} between {finder.lowest:g} and {finder.highest:g}, got {value:g}"
        )
    return value


def build(rows: Rows, thresholds: Mapping[str, float], views: Views) -> dict[str, Search]:
    """Return the finders with thresholds, built, in the order of ``FINDERS``."""
    return {name: FINDERS[name].build(rows, thresholds[name], views) for name in FINDERS if name in thresholds}
