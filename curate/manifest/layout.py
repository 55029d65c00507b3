"""The roles of a user table's columns (key, path, image), and the rows made of them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from curate.columns import COLUMNS, KEY, SIGNATURE, THUMBNAIL, URI
from curate.counted import repeated
from curate.manifest.contract import NUMBERED, SourceOptions
from curate.manifest.schemes import URL_PATTERN
from scoring.errors import InputError
from scoring.lookup import name_list, require_known

# Searched in this order, ignoring case; the first text column is the path column.
PATH_NAMES = (
    "uri",
    "url",
    "path",
    "file_path",
    "filepath",
    "image_path",
    "image_url",
    "file_name",
    "filename",
    "file",
    "image",
    "img",
)
# Names of image byte columns; the last two only without a path column.
IMAGE_NAMES = ("image", "img", "image_bytes", "img_bytes", "image_data", "jpg", "jpeg", "png", "webp", "bytes", "data")
_WEAK_NAMES = frozenset({"bytes", "data"})
_OF_ANOTHER = re.compile("mask|segm|annot|depth|thumb|preview|label|condition", re.IGNORECASE)  # next to an image
_KEY_NAMES = (KEY, "__key__")
Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


@dataclass(frozen=True)
class Layout:
    """The columns of a table that curate needs.

    Args:
        key: column of the keys; None numbers the rows.
        path: column with a path or URL, or None; `image.path` for a field of the image's struct.
        image: column with the bytes, or None.
        in_struct: whether ``image`` is a struct with a field `bytes`.
        user_columns: other columns: (name, name in the rows).
        fields: their types, by name in the rows.
    """

    key: str | None
    path: str | None
    image: str | None
    in_struct: bool
    user_columns: tuple[tuple[str, str], ...]
    fields: tuple[pa.Field, ...]

    @property
    def schema(self) -> pa.Schema:
        """`key`, `uri`, then the user's own columns."""
        return pa.schema([(KEY, pa.string()), (URI, pa.string()), *self.fields])

    @property
    def renamed(self) -> dict[str, str]:
        """The user's columns whose name was taken, with their new names."""
        return {name: new for name, new in self.user_columns if name != new}

    @property
    def bytes_leaf(self) -> str | None:
        """Path of the Parquet leaf that contains the bytes."""
        return f"{self.image}.bytes" if self.in_struct else self.image


def find_layout(schema: pa.Schema, options: SourceOptions, where: str) -> Layout:
    """Determine the role of each column of a table.

    Args:
        schema: of the table.
        options: `key`, `path_column`, `image_column`, `reserved` are used.
        where: the table's name, for messages.

    Raises:
        InputError: if a named column is missing or has the wrong type, two columns share a name, or the table has
            neither a path nor an image column; lists the existing columns.
    """
    if twice := repeated(schema.names):
        raise InputError(f"expected column names to be unique in {where}, got {twice} twice; rename one")
    options = _present(options, schema) if options.noted else options
    image = _image_column(schema, options, where)
    path = _path_column(schema, options, where, image)
    in_struct = image is not None and pa.types.is_struct(schema.field(image).type)
    if path is None and in_struct and _is_text(_struct_field(schema.field(image).type, "path")):
        path = f"{image}.path"
    if image is None and path is None:
        raise InputError(
            f"expected a column with paths, URLs or image bytes in {where}, got the columns "
            f"{name_list(schema.names) or '(none)'}; choose one with --path-column or --image-column"
        )
    key = _key_column(schema, options, where)
    if key is None and options.key != NUMBERED and path in schema.names:
        key = path
    user_columns = _user_columns(schema, options, image, in_struct, key)
    fields = tuple(_user_field(schema.field(name), new, name == image) for name, new in user_columns)
    return Layout(key, path, image, in_struct, user_columns, fields)


def with_text_columns(layout: Layout, names: Sequence[str], reserved: Sequence[str]) -> Layout:
    """Return the layout with additional text columns; a taken name gets the prefix `source_`."""
    taken = {*COLUMNS, *reserved, *(field.name for field in layout.fields)}
    added: list[tuple[str, str]] = []
    for name in names:
        new = name
        while new in taken:
            new = f"source_{new}"
        taken.add(new)
        added.append((name, new))
    fields = tuple(pa.field(new, pa.string()) for _, new in added)
    return replace(layout, user_columns=(*layout.user_columns, *added), fields=(*layout.fields, *fields))


def _present(options: SourceOptions, schema: pa.Schema) -> SourceOptions:
    """Return options without columns that a table lacks or has with another type: these are found by default."""
    holds = {"key": lambda kind: True, "path_column": _is_text, "image_column": _holds_bytes}
    absent: dict[str, Any] = {
        option: None
        for option, fits in holds.items()
        if (name := getattr(options, option)) not in (None, NUMBERED)
        and not (name in schema.names and fits(schema.field(name).type))
    }
    return replace(options, **absent)


def _column(schema: pa.Schema, name: str, option: str, where: str) -> pa.Field:
    require_known(name, schema.names, f"{option}: {where} has no column", "columns")
    return schema.field(name)


def _image_column(schema: pa.Schema, options: SourceOptions, where: str) -> str | None:
    if options.image_column is not None:
        field = _column(schema, options.image_column, "--image-column", where)
        if not _holds_bytes(field.type):
            raise InputError(
                f"expected --image-column {field.name!r} to hold bytes or a struct with a field 'bytes', got "
                f"{field.type} in {where}; for paths use --path-column"
            )
        return str(field.name)
    if options.path_column is not None:
        return None
    candidates = [
        field.name for field in schema if _holds_bytes(field.type) and field.name not in (SIGNATURE, THUMBNAIL)
    ]
    named = [name for name in candidates if name.lower() in IMAGE_NAMES]
    path = _path_column(schema, options, where, None)
    sure = [name for name in named if name.lower() not in _WEAK_NAMES or path is None]
    if not sure and path is None:  # images of Hugging Face's `datasets`, with any name
        structs = [name for name in candidates if pa.types.is_struct(schema.field(name).type)]
        sure = [name for name in structs if len(structs) > 1 or not _OF_ANOTHER.search(name)]
    if len(sure) == 1:
        return str(sure[0])
    if sure or named or (candidates and path is None):
        paths = f", or --path-column {path} for the paths" if path else ", or the paths with --path-column"
        raise InputError(
            f"expected one column that is named like an image in {where}, got "
            f"{', '.join(sure or named or candidates)}; choose it with --image-column{paths}"
        )
    return None


def _path_column(schema: pa.Schema, options: SourceOptions, where: str, image: str | None) -> str | None:
    if options.path_column is not None:
        field = _column(schema, options.path_column, "--path-column", where)
        if not _is_text(field.type):
            raise InputError(
                f"expected --path-column {field.name!r} to hold text, got {field.type} in {where}; "
                "for bytes use --image-column"
            )
        return str(field.name)
    for usual_name in PATH_NAMES:
        for field in schema:
            if field.name.lower() == usual_name and field.name != image and _is_text(field.type):
                return str(field.name)
    return None


def _key_column(schema: pa.Schema, options: SourceOptions, where: str) -> str | None:
    if options.key == NUMBERED:
        return None
    if options.key is None:
        names = [name for name in _KEY_NAMES if name in schema.names]
        field = schema.field(names[0]) if names else None
    else:
        field = _column(schema, options.key, "--key", where)
    if field is None:
        return None
    if not (_is_text(field.type) or pa.types.is_integer(field.type)):
        raise InputError(
            f"expected the key column {field.name!r} of {where} to hold text or integers, got {field.type}; "
            f"choose another with --key COLUMN, or number the rows with --key '{NUMBERED}'"
        )
    return str(field.name)


def _user_columns(
    schema: pa.Schema, options: SourceOptions, image: str | None, in_struct: bool, key: str | None
) -> tuple[tuple[str, str], ...]:
    """Return the user's columns and their names in the rows.

    A taken name gets the prefix `source_`, repeatedly if needed. A text column `key` that is the key is not repeated.
    Other fields of a struct with the bytes are included.
    """
    taken = {*COLUMNS, *options.reserved}
    name_pairs: list[tuple[str, str]] = []
    used = {name for name in schema.names if name not in taken}
    for field in schema:
        absorbed = field.name == KEY == key and _is_text(field.type)
        only_bytes = field.name == image and (not in_struct or field.type.num_fields == 1)
        if absorbed or only_bytes:
            continue
        new = field.name
        if new in taken:
            while new in taken or new in used:
                new = f"source_{new}"
            used.add(new)
        name_pairs.append((field.name, new))
    return tuple(name_pairs)


def _user_field(field: pa.Field, name: str, is_image: bool) -> pa.Field:
    kind = field.type
    if is_image:
        kind = pa.struct([part for part in kind if part.name != "bytes"])
    return pa.field(name, kind, field.nullable)


def _is_text(kind: pa.DataType | None) -> bool:
    if kind is None:
        return False
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType | None) -> bool:
    if kind is None:
        return False
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _holds_bytes(kind: pa.DataType) -> bool:
    if not pa.types.is_struct(kind):
        return _is_bytes(kind)
    inside, path = _struct_field(kind, "bytes"), _struct_field(kind, "path")
    return _is_bytes(inside) or (inside == pa.null() and _is_text(path))  # only for paths


def _struct_field(kind: pa.DataType, name: str) -> pa.DataType | None:
    index = kind.get_field_index(name)
    return kind.field(index).type if index >= 0 else None


def without_views(schema: pa.Schema) -> pa.Schema:
    """Return the schema with large text and bytes instead of views, which few Arrow functions support."""
    return pa.schema([field.with_type(_without_view(field.type)) for field in schema], schema.metadata)


def _without_view(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([part.with_type(_without_view(part.type)) for part in kind])
    return {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}.get(kind, kind)


def conformed(rows: Rows, schema: pa.Schema) -> Rows:
    """Return rows with the types of a schema of the same columns.

    A column of the same type is not cast: Arrow cannot cast nulls in lists of fixed size with non-null items.
    """
    if rows.schema == schema:
        return rows  # keeps the row count without columns, unlike an empty list of arrays
    pairs = zip(rows.columns, schema, strict=True)
    cast = [column if column.type == field.type else column.cast(field.type) for column, field in pairs]
    return type(rows).from_arrays(cast, schema=schema)


def text_of(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return text or integers as one string array; nulls stay null."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return array if pa.types.is_string(array.type) else array.cast(pa.string())


def resolve(paths: pa.Array, root: str) -> pa.Array:
    """Return URIs: URLs and absolute paths unchanged, others under ``root``, a path or URL; empty becomes null."""
    is_complete = pc.or_(pc.match_substring_regex(paths, URL_PATTERN), pc.starts_with(paths, "/"))
    joined = pc.binary_join_element_wise(pa.scalar(root.rstrip("/") + "/"), paths, "")
    uris = pc.if_else(is_complete, paths, joined)
    return pc.if_else(pc.equal(pc.binary_length(paths), 0), pa.scalar(None, pa.string()), uris)


def uri_of_each_scheme(uris: pa.Array) -> list[str]:
    """Return one URL for each scheme that occurs, and one path if there is any, in a fixed order."""
    is_url = pc.match_substring_regex(uris, URL_PATTERN)
    urls, paths = uris.filter(pc.fill_null(is_url, False)), uris.filter(pc.fill_null(pc.invert(is_url), False))
    schemes = pc.utf8_lower(pc.extract_regex(urls, "^(?P<scheme>[^:]+)://").field("scheme"))
    first = [urls[pc.index(schemes, scheme).as_py()].as_py() for scheme in sorted(schemes.unique().to_pylist())]
    return [*first, *paths.slice(0, 1).to_pylist()]


def make_rows(keys: pa.Array, uris: pa.Array, table: pa.Table, layout: Layout) -> pa.Table:
    """Return `key`, `uri` (null for embedded bytes) and the user's columns as one table of the layout's schema."""
    columns: Sequence[pa.ChunkedArray] = [table[name] for name, _ in layout.user_columns]
    return pa.Table.from_arrays([keys, uris, *columns], schema=layout.schema)
