"""The images of a batch, for tables that name no files: found by key in what was scored."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.columns import KEY
from curate.export import ImageReader
from curate.manifest import ReadError, open_manifest

STEP = 65_536


def reader_of(source: str) -> Callable[[pa.Table], ImageReader]:
    """Return what makes a reader of a batch's images from what was scored.

    Args:
        source: folder, list, table or tar file, as `curate score` takes it.

    Raises:
        InputError: if it cannot be opened.
    """

    def reader(batch: pa.Table) -> ImageReader:
        manifest = open_manifest(source)
        wanted = batch[KEY].combine_chunks().cast(pa.string())
        place: dict[str, int] = {}
        for start in range(0, manifest.n_rows, STEP):
            keys = manifest.rows(start, min(start + STEP, manifest.n_rows)).column(KEY)
            inside = pc.is_in(keys, value_set=wanted).to_numpy(zero_copy_only=False)
            place |= {keys[at].as_py(): start + at for at in np.flatnonzero(inside).tolist()}

        def read(key: str) -> bytes:
            if key not in place:
                raise ReadError("missing", f"{source} has no image of that key")
            return next(manifest.readers(place[key], place[key] + 1))()

        return read

    return reader
