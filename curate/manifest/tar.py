# Paths are bytes where names need not be UTF-8, and pathlib holds text.
"""WebDataset shards (.tar): images and the members that go with them -> rows."""

from collections import Counter
from functools import partial
from typing import BinaryIO

import pyarrow as pa

from curate.columns import COLUMNS
from curate.counted import counted
from curate.manifest.contract import NUMBERED, Reader, RemoteReader, SourceOptions
from curate.manifest.memory import MemoryManifest, check_unique
from curate.manifest.names import begins_like_an_image, count_suffixes, is_image_name, may_be_an_image, suffix_of
from curate.manifest.places import Place
from curate.manifest.sidecars import SIDECARS, Sidecars, combine
from curate.manifest.tar_index import Contents, Member, members
from scoring.errors import InputError
from scoring.images.sniff import HEAD


def split_name(name: str) -> tuple[str, str]:
    """Return a member's sample key and its extension: the last component is cut at its first dot.

    A dot that starts the last component is part of the key.

    >>> split_name("cats/0001.left.jpg"), split_name("cats.v1/.a.png")
    (('cats/0001', 'left.jpg'), ('cats.v1/.a', 'png'))
    """
    folder, slash, last = name.rpartition("/")
    stem, _, extension = last[1:].partition(".")
    return folder + slash + last[:1] + stem, extension


class _Gathered:
    """Rows of all shards being collected; numbers are arrays, text goes to Arrow shard by shard."""

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
                self._sort_in(member, file, options, images, sides)
        self.links += contents.links
        if contents.cut_off:
            self.cut_off.append(f"{place.name} ends inside {contents.cut_off!r}")
        self.without_image += len(sides.keys() - images.keys())
        self.several += sum(len(members_of_key) > 1 for members_of_key in images.values())
        room = None if options.limit is None else options.limit - self.n_rows
        rows = [(key, member) for key, members_of_key in images.items() for member in members_of_key]
        rows.sort(key=lambda row: row[1].offset)
        self._append(number, place, rows[:room], images, sides, options)

    def _sort_in(
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
            alone = len(images[key]) == 1
            keys.append(key if alone else f"{key}.{split_name(member.name)[1]}")
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
        """Return the left-out entries, for display."""
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
    """Look into a member without a known suffix: its first bytes follow the header."""
    file.seek(member.offset)
    return begins_like_an_image(file.read(min(HEAD, member.size)))


def open_tars(places: list[Place], options: SourceOptions) -> MemoryManifest:
    """Open WebDataset shards.

    A row is an image member, by its suffix or, where it has none, by its first bytes; its key is its name up to the
    first dot of the last component, with the rest of the name added when a sample has several images. `.cls` becomes
    the column `label`, `.txt` the column `text`, the top-level scalars of `.json` their own columns.

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
    gathered = _Gathered()
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
