"""The folder of each image, by its key, as a class column for tables without labels."""

import pyarrow as pa
import pyarrow.compute as pc

from curate.columns import KEY
from curate.manifest.folder import SIDES
from curate.tables.digests import is_text, plain

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
