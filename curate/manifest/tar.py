"""From WebDataset shards (.tar) to rows: images and their sidecar members."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any, BinaryIO

import pyarrow as pa

from curate.columns import COLUMNS
from curate.counted import counted
from curate.manifest.contract import NUMBERED, Reader, ReadError, RemoteReader, SourceOptions
from curate.manifest.memory import MemoryManifest, check_unique
from curate.manifest.names import begins_like_an_image, count_suffixes, is_image_name, may_be_an_image, suffix_of
from curate.manifest.places import Place
from curate.manifest.tar_index import Contents, Member, members
from scoring.errors import InputError
from scoring.images.sniff import HEAD

SIDECARS = {"cls": 1 << 10, "txt": 1 << 20, "json": 1 << 20}  # extension -> bound on its size in bytes
_COLUMNS = {"cls": "label", "txt": "text"}
MAX_COLUMNS = 1000
_INTEGER = re.compile("0|-?[1-9][0-9]{0,17}")  # a number in canonical form: 001 is text
_INT64 = range(-(1 << 63), 1 << 63)

Scalar = str | int | float | bool | None


class Sidecars:
    """Values of one shard's rows, in row order, from members such as `.json` and `.cls`."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._values: dict[str, list[Scalar]] = {}
        self._rows = 0
        self.unused = 0  # members that are too large, not UTF-8 or not JSON

    def add(self, members: Iterable[tuple[str, Member]]) -> None:
        """Add the next row's members, as (extension, member)."""
        row: dict[str, Scalar] = {}
        for extension, member in members:
            for name, value in self._parse(extension, member).items():
                # `.cls` and `.txt` have priority for their columns, in any order
                if extension in _COLUMNS or name not in row:
                    row[name] = value
        for name, value in row.items():
            self._column(name).append(value)
        self._rows += 1
        for values in self._values.values():
            if len(values) < self._rows:
                values.append(None)

    def _column(self, name: str) -> list[Scalar]:
        if name not in self._values:
            if len(self._values) == MAX_COLUMNS:
                raise InputError(
                    f"expected at most {MAX_COLUMNS} different keys in the .json members of {self._place.name}, "
                    f"got more (such as {name[:40]!r}); move keys that differ between rows into one nested value"
                )
            self._values[name] = [None] * self._rows
        return self._values[name]

    def _parse(self, extension: str, member: Member) -> dict[str, Scalar]:
        try:
            text = self._place.read(member.offset, member.size, SIDECARS[extension]).decode("utf-8")
            return _scalars(json.loads(text)) if extension == "json" else {_COLUMNS[extension]: _value(extension, text)}
        except (ReadError, ValueError, RecursionError):  # the image remains a row; the count is reported
            self.unused += 1
            return {}

    def columns(self) -> dict[str, pa.Array]:
        """Return one array per column, with one value per added row."""
        return {name: _array(values) for name, values in self._values.items()}


def _value(extension: str, text: str) -> Scalar:
    if extension == "txt":
        return text
    text = text.strip()
    return int(text) if _INTEGER.fullmatch(text) else text


def _scalars(value: Any) -> dict[str, Scalar]:
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return {name: item for name, item in value.items() if item is None or isinstance(item, str | int | float)}


def _array(values: list[Scalar]) -> pa.Array:
    """Return the values as bool, int64, float64 or, if mixed, string; null if all are null."""
    kinds = {type(value) for value in values if value is not None}
    if int in kinds and any(type(value) is int and value not in _INT64 for value in values):
        kinds.add(str)
    if not kinds:
        return pa.nulls(len(values))
    if kinds == {bool}:
        return pa.array(values, pa.bool_())
    if kinds == {int}:
        return pa.array(values, pa.int64())
    if kinds <= {int, float}:
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    return pa.array([_text(value) for value in values], pa.string())


def _text(value: Scalar) -> str | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode("utf-8", "replace").decode("utf-8")  # JSON may contain an unpaired surrogate


def combine(
    shards: list[dict[str, pa.Array]], lengths: list[int], taken: set[str]
) -> tuple[dict[str, pa.ChunkedArray], dict[str, str]]:
    """Combine the shards' columns, each of ``lengths`` rows: their union, in order of appearance; and renamed ones.

    A column whose type differs between shards becomes float64 if all are numbers, else string. A name in ``taken`` gets
    the prefix `source_`, repeatedly if needed.
    """
    kinds: dict[str, set[pa.DataType]] = {}
    for columns in shards:
        for name, column in columns.items():
            kinds.setdefault(name, set()).add(column.type)
    renamed: dict[str, str] = {}
    for name in (name for name in kinds if name in taken):
        new = name
        while new in taken or new in kinds or new in renamed.values():
            new = f"source_{new}"
        renamed[name] = new
    together = {}
    for name, column_kinds in kinds.items():
        kind = _common_type(column_kinds - {pa.null()})
        pairs = zip(shards, lengths, strict=True)
        parts = [columns[name].cast(kind, safe=False) if name in columns else pa.nulls(n, kind) for columns, n in pairs]
        together[renamed.get(name, name)] = pa.chunked_array(parts, kind)
    return together, renamed


def _common_type(kinds: set[pa.DataType]) -> pa.DataType:
    if len(kinds) == 1:
        return next(iter(kinds))
    return pa.float64() if kinds and kinds <= {pa.int64(), pa.float64()} else pa.string()


def split_name(name: str) -> tuple[str, str]:
    """Return a member's sample key and its extension: the last component is cut at its first dot.

    A dot that starts the last component is part of the key.

    >>> split_name("cats/0001.left.jpg"), split_name("cats.v1/.a.png")
    (('cats/0001', 'left.jpg'), ('cats.v1/.a', 'png'))
    """
    folder, slash, last = name.rpartition("/")
    stem, _, extension = last[1:].partition(".")
    return folder + slash + last[:1] + stem, extension


class _ShardIndex:
    """Rows of all shards during indexing; numbers are arrays, text goes to Arrow shard by shard."""

    def __init__(self) -> None:
        self.tables: list[pa.Table] = []  # key, uri, and where the bytes are: shard, offset, size
        self.sides: list[dict[str, pa.Array]] = []
        self.n_rows = 0
        self.without_image = 0
        self.several = 0  # samples of more than one image
        self.hidden = 0
        self.links = 0
        self.unused = 0
        self.suffixes: Counter[str] = Counter()
        self.cut_off: list[str] = []

    def add(self, number: int, place: Place, options: SourceOptions) -> None:
        """Index one shard."""
        images: dict[str, list[Member]] = {}
        sides: dict[str, list[tuple[str, Member]]] = {}
        contents = Contents()
        with place.open() as file:
            for member in members(place, file, contents):
                self._add_member(member, file, options, images, sides)
        self.links += contents.links
        if contents.cut_off:
            self.cut_off.append(f"{place.name} ends inside {contents.cut_off!r}")
        self.without_image += len(sides.keys() - images.keys())
        self.several += sum(len(members_of_key) > 1 for members_of_key in images.values())
        room = None if options.limit is None else options.limit - self.n_rows
        rows = [(key, member) for key, members_of_key in images.items() for member in members_of_key]
        rows.sort(key=lambda row: row[1].offset)
        self._append(number, place, rows[:room], images, sides, options)

    def _add_member(
        self,
        member: Member,
        file: BinaryIO,
        options: SourceOptions,
        images: dict[str, list[Member]],
        sides: dict[str, list[tuple[str, Member]]],
    ) -> None:
        if not options.hidden and any(
            part.startswith(".") and part not in (".", "..") for part in member.name.split("/")
        ):
            self.hidden += 1
            return
        key, extension = split_name(member.name)
        last = member.name.rpartition("/")[2]
        suffix = suffix_of(last)
        if is_image_name(last) or (may_be_an_image(last) and _begins_like_an_image(file, member)):
            images.setdefault(key, []).append(member)
        elif extension in SIDECARS:
            sides.setdefault(key, []).append((extension, member))
        else:
            self.suffixes[suffix] += 1

    def _append(
        self,
        number: int,
        place: Place,
        rows: list[tuple[str, Member]],
        images: dict[str, list[Member]],
        sides: dict[str, list[tuple[str, Member]]],
        options: SourceOptions,
    ) -> None:
        if not rows:
            return
        keys = []
        for index, (key, member) in enumerate(rows):
            keys.append(key if len(images[key]) == 1 else f"{key}.{split_name(member.name)[1]}")
            if options.key == NUMBERED:
                keys[-1] = f"{place.name}#{index}"
        sidecars = Sidecars(place)
        for key, _ in rows:
            sidecars.add(sides.get(key, ()))
        self.unused += sidecars.unused
        uris = [f"{place.uri}::{member.name}" for _, member in rows]
        columns = {
            "key": pa.array(keys, pa.string()),
            "uri": pa.array(uris, pa.string()),
            "shard": pa.repeat(number, len(rows)),
            "offset": pa.array([member.offset for _, member in rows], pa.int64()),
            "size": pa.array([member.size for _, member in rows], pa.int64()),
        }
        self.tables.append(pa.table(columns))
        self.sides.append(sidecars.columns())
        self.n_rows += len(rows)

    def __str__(self) -> str:
        """Return the skipped entries, for display."""
        parts = []
        if n := self.suffixes.total():
            parts.append(f"{counted(n, 'member')} of other kinds ({count_suffixes(self.suffixes)})")
        parts += [f"{counted(self.without_image, 'sample')} without an image"] if self.without_image else []
        parts += [f"{self.hidden:,} hidden"] if self.hidden else []
        parts += [f"{counted(self.links, 'link')} or special files"] if self.links else []
        parts += [f"{counted(self.unused, 'unreadable .json, .cls or .txt member')}"] if self.unused else []
        text = f"; skipped {', '.join(parts)}" if parts else ""
        if self.several:
            text += f"; {counted(self.several, 'sample')} with several images, a row each"
        return text + (f"; cut off: {', '.join(self.cut_off[:3])}" if self.cut_off else "")


def _begins_like_an_image(file: BinaryIO, member: Member) -> bool:
    """Return whether a member without a known suffix is an image, by its first bytes."""
    file.seek(member.offset)
    return begins_like_an_image(file.read(min(HEAD, member.size)))


def open_tars(places: list[Place], options: SourceOptions) -> MemoryManifest:
    """Open WebDataset shards.

    A row is an image member, by its suffix or, without one, by its first bytes. Its key is its name up to the first dot
    of the last component, with the rest of the name added if a sample has several images. `.cls` becomes the column
    `label`, `.txt` the column `text`, and the top-level scalars of `.json` become columns.

    Args:
        places: the shards, in order.
        options: `key` (only "#"), `hidden`, `limit`, `reserved`, `max_bytes` are used.

    Raises:
        InputError: if a shard cannot be read, there is no image, or keys repeat.
    """
    if options.key not in (None, NUMBERED) and not options.noted:
        raise InputError(
            f"expected no --key for tar shards (a sample's name is its key) or '{NUMBERED}' to number the rows, "
            f"got {options.key!r}"
        )
    gathered = _ShardIndex()
    for number, place in enumerate(places):
        gathered.add(number, place, options)
        if options.limit is not None and gathered.n_rows >= options.limit:
            break
    where = places[0].name if len(places) == 1 else f"{places[0].name} and {len(places) - 1} more"
    if not gathered.n_rows:
        raise InputError(f"expected images (.jpg, .png, ...) in {where}, got none{gathered}; pass other shards")
    columns, renamed = combine(
        gathered.sides, [table.num_rows for table in gathered.tables], {*COLUMNS, *options.reserved}
    )
    rows = pa.concat_tables(gathered.tables)
    shards, offsets, sizes = (rows[name].to_numpy() for name in ("shard", "offset", "size"))
    table = rows.select(["key", "uri"])
    for name, column in columns.items():
        table = table.append_column(name, column)
    check_unique(table["key"], "name", where)

    def locate(row: int) -> Reader:
        place = places[shards[row]]
        read = partial(place.read, int(offsets[row]), int(sizes[row]))
        return partial(read, options.max_bytes) if place.path is not None else RemoteReader(read, options.max_bytes)

    manifest = MemoryManifest(
        f"tar {where}: {counted(table.num_rows, 'image')}{gathered}",
        table,
        options=options,
        identity=("tar", *(place.identity for place in places)),
        versions=(offsets, sizes),
        sizes=sizes,
        locate=locate,
    )
    manifest.renamed = renamed
    return manifest
