"""A digest of the labels and losses of a cache, which is part of its identity."""

import hashlib

import numpy as np
import pyarrow as pa

from trainers.data import is_missing

NONE = bytes(32)  # instead of the digest of a label that is missing


class TargetsDigest:
    """A digest of labels and losses by row, independent of the block size.

    Text and whole numbers differ, and so do 0 and -0 of a loss; null, NaN and empty text are one thing as labels, and
    null and NaN are one thing as losses.
    """

    def __init__(self) -> None:
        self._labels, self._losses = hashlib.sha256(), hashlib.sha256()

    def update(self, labels: pa.Array | None, losses: pa.Array | None) -> None:
        """Add rows.

        Args:
            labels: text or whole numbers, dictionary-encoded or not, shape (B,), or None if absent at all.
            losses: float64, shape (B,), or None too.
        """
        if labels is not None and len(labels):
            self._labels.update(_label_digests(labels))
        if losses is not None and len(losses):
            values = np.array(losses.to_numpy(zero_copy_only=False), np.float64)
            values[np.isnan(values)] = np.nan  # of one bit pattern
            self._losses.update(values.astype("<f8").tobytes())

    def hexdigest(self) -> str:
        """Return the digest of the rows so far."""
        return hashlib.sha256(self._labels.digest() + self._losses.digest()).hexdigest()


def _label_digests(labels: pa.Array) -> bytes:
    """Return 32 bytes per row; each distinct label is hashed once."""
    coded = labels if pa.types.is_dictionary(labels.type) else labels.dictionary_encode()
    kind = "text" if pa.types.is_string(coded.type.value_type) else "number"
    of_value = [
        NONE if is_missing(value) else hashlib.sha256(f"{kind}:{value}".encode("utf-8", "surrogateescape")).digest()
        for value in coded.dictionary.to_pylist()
    ]
    table = np.frombuffer(b"".join([*of_value, NONE]), np.uint8).reshape(-1, 32)  # the last row is for null
    return table[coded.indices.fill_null(len(of_value)).to_numpy()].tobytes()
