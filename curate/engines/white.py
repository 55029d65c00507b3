"""The white level of 16-bit images: estimated for a whole source, never for one image, and checked after a run."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.counted import counted
from curate.engines.journal import Part
from curate.manifest.ahead import ahead
from curate.manifest.contract import Manifest, Reader, ReadError
from scoring.images import DecodedImage, Preprocessing, decode
from scoring.images.budget import BODIES
from scoring.images.deep import WHITE, may_be_deep, white_for

RUNS, MOST_RUNS, IN_A_RUN = 8, 64, 4  # runs of neighbouring rows, which are read faster than scattered ones
FEWEST = 8  # minimum of 16-bit images to determine white: a few may all be dark
_SPANS, _SPAN = 16, 4096  # maximum rows whose file names are read
_EIGHT_BITS = r"(?i)\.(jpe?g|jpe|jfif|mpo|webp|gif|bmp|dib|ppm|pbm|ico)$"  # suffixes of formats without 16 bits
_SMALL = Preprocessing(32, resize=32)


@dataclass(frozen=True)
class FoundWhite:
    """The white level of 16-bit images, estimated from images of a source.

    Attributes:
        white: value of white.
        n: number of 16-bit images examined.
        highest: largest value among them; 0 if none.
    """

    white: int = WHITE
    n: int = 0
    highest: int = 0

    def words(self) -> list[str]:
        """Return a note if the white level is below 16 bits."""
        if self.white == WHITE:
            return []
        bits = self.white.bit_length()
        return [
            f"16-bit images: the {self.n} sampled hold values up to {self.highest:,} of {WHITE:,}, so {self.white:,} "
            f"({bits} bits) is used as white; --white {WHITE} uses the full 16 bits"
        ]


def find_white(manifest: Manifest, workers: int | None = None) -> FoundWhite:
    """Return the white level of a source: the lowest of 8, 10, 12, 14 and 16 bits that contains its values.

    Reads up to 32 images, spread over those whose names may be 16-bit, and decodes 16-bit ones; up to 256 if 1 to 7
    are. Fewer than 8 of these decide nothing. Unreadable images are skipped; scoring reports them.
    """
    places = _candidates(manifest)
    maxima = _maxima(manifest, places, RUNS, workers)
    if 0 < len(maxima) < FEWEST:
        maxima = _maxima(manifest, places, MOST_RUNS, workers)
    highest = max(maxima, default=0)
    return FoundWhite(white_for(highest) if len(maxima) >= FEWEST else WHITE, len(maxima), highest)


def _maxima(manifest: Manifest, places: NDArray[np.int64], most_runs: int, workers: int | None) -> list[int]:
    """Return the largest values of the 16-bit images in runs of rows."""
    with ThreadPoolExecutor(workers) as pool:
        readers = ahead(_readers(manifest, places, most_runs), manifest.connections)
        return [highest for highest in pool.map(_highest, readers) if highest is not None]


def _readers(manifest: Manifest, places: NDArray[np.int64], most_runs: int) -> Iterator[Reader]:
    n = min(len(places), most_runs * IN_A_RUN)
    runs = -(-n // IN_A_RUN)
    for run in range(runs):
        start = run * (len(places) - IN_A_RUN) // max(1, runs - 1) if len(places) > n else run * IN_A_RUN
        for place in places[start : start + IN_A_RUN].tolist():
            yield from manifest.readers(place, place + 1)


def _candidates(manifest: Manifest) -> NDArray[np.int64]:
    """Return rows whose image may have 16 bits, judged by file name, from parts spread over the source."""
    numbers, n = [np.zeros(0, np.int64)], manifest.n_rows
    starts = range(0, n, _SPAN) if n <= _SPANS * _SPAN else np.linspace(0, n - _SPAN, _SPANS).astype(int).tolist()
    for start in starts:
        rows = manifest.rows(start, min(start + _SPAN, n))
        names = pc.coalesce(rows.column("uri"), rows.column("key").cast(rows.schema.field("uri").type))
        excluded = pc.fill_null(pc.match_substring_regex(names, _EIGHT_BITS), False)
        numbers.append(start + np.flatnonzero(~excluded.to_numpy(zero_copy_only=False)))
    return np.concatenate(numbers)


@BODIES.image()
def _highest(read: Callable[[], bytes]) -> int | None:
    """Return the largest value of a 16-bit image; None for any other or an unreadable one."""
    try:
        data = read()
    except ReadError:
        return None
    return decode(data, _SMALL).highest if may_be_deep(data) else None


@dataclass
class DeepImages:
    """Counts the 16-bit images of a shard, and their largest value."""

    n: int = 0
    highest: int = 0

    def watched(self, images: Iterable[DecodedImage]) -> Iterator[DecodedImage]:
        """Yield images unchanged."""
        for image in images:
            if image.highest is not None:
                self.n, self.highest = self.n + 1, max(self.highest, image.highest)
            yield image


def white_notes(parts: Iterable[Part], white: int) -> list[str]:
    """Return a note if the white level of a run does not suit its images; ``white`` is the level used."""
    deep = [part for part in parts if part.deep]
    n, highest = sum(part.deep for part in deep), max((part.highest for part in deep), default=0)
    better = white_for(highest)
    images = counted(n, "image is", "images are")
    note = ""
    if n and highest > white:
        note = (
            f"{images} of 16 bits, with values up to {highest:,}: values above {white:,} were clipped to "
            "white (the column error marks these images)"
        )
    elif n and better < white:
        note = (
            f"{images} of 16 bits, and no value is above {highest:,} of {white:,}: all are nearly black; if "
            f"they hold {better.bit_length()} bits"
        )
    return [f"{note}; score again with --white {better}"] if note else []
