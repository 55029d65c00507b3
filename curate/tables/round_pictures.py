"""The images of a batch, for tables that name no files: found by key in what was scored."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.columns import KEY
from curate.counted import counted
from curate.export import ImageReader
from curate.manifest import ReadError, SourceOptions, open_manifest
from scoring.errors import InputError

STEP = 65_536


def reader_of(source: str, options: SourceOptions | None = None) -> Callable[[pa.Table], ImageReader]:
    """Return what makes a reader of a batch's images from what was scored.

    Args:
        source: folder, list, table or tar file, as `curate score` takes it.
        options: which of its columns hold keys and images, where they are not found by name.

    Raises:
        InputError: if it cannot be opened, or has none of the keys.
    """

    def reader(batch: pa.Table) -> ImageReader:
        manifest = open_manifest(source, options or SourceOptions())
        wanted = batch[KEY].combine_chunks().cast(pa.string())
        place: dict[str, int] = {}
        for start in range(0, manifest.n_rows, STEP):
            keys = manifest.rows(start, min(start + STEP, manifest.n_rows)).column(KEY)
            inside = pc.is_in(keys, value_set=wanted).to_numpy(zero_copy_only=False)
            place |= {keys[at].as_py(): start + at for at in np.flatnonzero(inside).tolist()}
        if len(wanted) and not place:
            raise InputError(
                f"{source} has none of the {counted(len(wanted), 'key')} of the batch, such as {wanted[0].as_py()!r}; "
                "name what was scored, and the column of its keys with --key"
            )

        def read(key: str) -> bytes:
            if key not in place:
                raise ReadError("missing", f"{source} has no image of that key")
            return next(manifest.readers(place[key], place[key] + 1))()

        return read

    return reader
