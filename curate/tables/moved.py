"""Finds images that moved together with their table, and the folder of each image, a class where labels lack."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.compute as pc

from curate.columns import KEY, URI
from curate.manifest.names import SIDES
from curate.manifest.schemes import scheme_of
from curate.tables.digests import is_text, plain
from scoring.file_digest import file_sha256

UP = 2  # folders above the one of the table, in which images are looked for, too


@dataclass(frozen=True)
class Moved:
    """The present place of a folder's images.

    Attributes:
        before: their former folder.
        now: their present folder.
    """

    before: str
    now: str

    def current(self, uri: str | None) -> str | None:
        """Return the present path of an image; the recorded one if it does not exist."""
        if uri is None or not uri.startswith(self.before + "/"):
            return uri
        place = self.now + uri[len(self.before) :]
        return place if os.path.isfile(place) else uri  # noqa: PTH113 (for each row)

    def current_rows(self, rows: pa.Table) -> pa.Table:
        """Return rows with the present paths in the column ``uri``."""
        at = rows.schema.get_field_index(URI)
        if at < 0:
            return rows
        uris = [self.current(uri) for uri in rows.column(at).to_pylist()]
        return rows.set_column(at, rows.schema.field(at), pa.array(uris, rows.schema.field(at).type))


def moved_with(table: object, uris: Sequence[object], digests: Sequence[object]) -> Moved | None:
    """Return the present location of a table's images, if they moved together with it.

    A folder is accepted if an image in it has the recorded SHA-256. Tables in a store are not searched.

    Args:
        table: its path.
        uris: of some rows.
        digests: SHA-256 of their images.
    """
    if not isinstance(table, Path):
        return None
    local = [
        (uri, digest)
        for uri, digest in zip(uris, digests, strict=True)
        if isinstance(uri, str) and digest and scheme_of(uri) is None and uri.startswith("/")
    ]
    if any(Path(uri).exists() for uri, _ in local):
        return None
    folder = table.absolute() if table.is_dir() else table.absolute().parent
    for uri, digest in local:
        parts = PurePosixPath(uri).parts[1:]
        for place in (folder, *folder.parents[:UP]):
            for n_before in range(len(parts)):
                image = place.joinpath(*parts[n_before:])
                if ".." not in parts and image.is_file() and file_sha256(image) == digest:
                    return Moved("".join(f"/{part}" for part in parts[:n_before]), str(place))
    return None


_SIDES = pa.array(sorted(side.decode() for side in SIDES))
_OUTSIDE = r"(?:^|/)(?:\.\.)?/"  # an absolute path, a URL, or one that leads up: no folder of the source


def has_text_keys(schema: pa.Schema) -> bool:
    """Return whether keys of a table could be paths."""
    at = schema.get_field_index(KEY)
    return at >= 0 and is_text(schema.field(at).type)


def folders_of(keys: pa.Array) -> pa.Array:
    """Return the name of the innermost folder of each of N keys; null at the top and in a folder such as `train`.

    The same as ``manifest.folder.folder_label``, for a whole column.

    >>> folders_of(pa.array(["train/cats/1.jpg", "train/1.jpg", "1.jpg", "https://a.b/c/1.jpg"])).to_pylist()
    ['cats', None, None, None]
    """
    paths = pc.replace_substring_regex(plain(keys).cast(pa.string()), r"^\./", "")
    names = pc.struct_field(pc.extract_regex(paths, r"(?s)(?:^|/)(?P<name>[^/]+)/[^/]*$"), "name")
    side = pc.is_in(pc.utf8_lower(names), value_set=_SIDES)
    outside = pc.match_substring_regex(paths, _OUTSIDE)
    return pc.if_else(pc.or_(side, outside), pa.scalar(None, pa.string()), names)
