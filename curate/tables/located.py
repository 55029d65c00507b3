"""Images of a large table in its scored source: all keys are located in one pass, at 16 bytes per row."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from curate.columns import KEY
from curate.manifest import Manifest, SourceOptions, open_manifest
from curate.manifest.contract import Reader, ReadError
from curate.tables.digests import key_array, tie_breaks
from curate.tables.images import STEP, readers_in_order
from curate.tables.keys import places
from scoring.errors import InputError


def source_hashes(manifest: Manifest, name: str) -> NDArray[np.uint64]:
    """Return the hash of the key of each row of a source, shape (N,); ``name`` is for messages."""
    parts = [np.zeros(0, np.uint64)]
    for start in range(0, manifest.n_rows, STEP):
        keys = manifest.rows(start, min(start + STEP, manifest.n_rows)).column(KEY).combine_chunks()
        parts.append(tie_breaks(key_array(keys, name, start)))
    return np.concatenate(parts)


class Located:
    """The positions of many keys in a source.

    Args:
        hashes: of the keys (``tie_breaks``), shape (N,) uint64, distinct.
        source: the scored folder, list, table or tar file.
        options: for reading the source, as when it was scored.

    Attributes:
        manifest: the source.
        missing: number of keys that it lacks.

    Raises:
        InputError: if the source cannot be opened or has none of the keys.
    """

    def __init__(self, hashes: NDArray[np.uint64], source: str, options: SourceOptions) -> None:
        self.source = source
        self.manifest: Manifest = open_manifest(source, options)
        self._hashes = np.sort(hashes)
        self._place = places(self._hashes, source_hashes(self.manifest, source))
        self.missing = int((self._place < 0).sum())
        if self.missing == len(hashes):
            raise InputError(
                f"--source: {source} has no image with the key of any of the {len(hashes):,} rows; pass what "
                "was scored, or a table with the keys in a column named key"
            )

    def readers(self, keys: Sequence[str]) -> Iterator[Reader]:
        """Yield a reader of each key's image, in order; fast in the order of the source."""
        places = self.places_of(tie_breaks([key.encode() for key in keys]))
        present = places[places >= 0]
        ordered = readers_in_order(self.manifest, present) if (np.diff(present) > 0).all() else None
        for place in places.tolist():
            if place < 0:
                yield self._absent
            elif ordered is not None:
                yield next(ordered)
            else:
                yield next(self.manifest.readers(place, place + 1))

    def places_of(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the row of the source of each key hash; -1 for none."""
        return self._place[np.searchsorted(self._hashes, hashes)]

    def _absent(self) -> bytes:
        raise ReadError("missing", f"{self.source} has no image of that key")
