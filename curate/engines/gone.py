"""Detection of a source that becomes unavailable during a run, as opposed to single missing images."""

import glob
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from curate.columns import OK
from curate.counted import counted
from curate.engines.settings import PASSING
from curate.engines.shard import Span
from curate.manifest.ahead import ahead
from curate.manifest.contract import Manifest, Reader, ReadError
from curate.manifest.schemes import scheme_of
from curate.options.values import several
from scoring.errors import InputError

_DEPTH = 4  # leading parts of a local path that define a place, such as /mnt/disk/photos
LOOKED_AT = 16  # rows of a batch that are checked
_WORDS = "the source is gone: {}, and {} failed; finished work is kept: restore the source, and repeat the command"


@dataclass
class Watch:
    """Remembers a readable image of each place (host, or upper folders), and reads it again when images are missing.

    Attributes:
        manifest: the rows.
        root: the source folder, if it is a local one.
        good: row of a readable image by place.
    """

    manifest: Manifest
    root: Path | None = None
    good: dict[str, int] = field(default_factory=dict)
    _known_parts: set[str] = field(default_factory=set)

    def check(self, span: Span, table: pa.Table, parts: Path | None = None, shard_rows: int = 0) -> None:
        """Raise ``InputError`` if images of a part are missing because the source is unavailable.

        It is if the source folder is missing or empty, or a readable image of the same place can no longer be read.

        Args:
            span: the part's rows.
            table: its rows with ``key``, ``uri`` and ``status``.
            parts: folder of the run's parts by all processes, which show further readable images; or None.
            shard_rows: rows of each of these.
        """
        if parts is not None:
            rows = zip(table["uri"].to_pylist(), table["status"].to_pylist(), strict=True)
            self._look_into(parts, shard_rows, {place_of(uri) for uri, status in rows if status in PASSING})
        self.check_rows(range(span.start, span.stop), table)

    def check_rows(self, rows: Sequence[int], table: pa.Table, n_failed: int | None = None) -> None:
        """Do the same as ``check`` for any rows of the source, of which ``n_failed`` failed."""
        statuses = table["status"].to_pylist()
        places = [place_of(uri) for uri in table["uri"].to_pylist()]
        pairs = list(zip(places, statuses, strict=True))
        good_now = {place: row for row, (place, status) in zip(rows, pairs, strict=True) if status == OK}
        failed = n_failed or sum(status in PASSING for status in statuses)
        if failed and self.root is not None and not _holds_something(self.root):
            raise InputError(_WORDS.format(f"{self.root} does not exist, or is empty", counted(failed, "image")))
        for place in {place for place, status in pairs if status in PASSING}:
            row = self.good.get(place, good_now.get(place))
            if row is not None and (why := self._loss(row)):
                key = self.manifest.rows(row, row + 1)["key"][0].as_py()
                what = f"{key!r} was read before and cannot be read now ({why})"
                raise InputError(_WORDS.format(what, counted(failed, "image")))
        self.good |= good_now

    def _look_into(self, parts: Path, shard_rows: int, places: set[str]) -> None:
        """Find readable images of some places in parts that were not searched before."""
        for path in sorted(parts.glob("part-*.parquet")):
            if places <= self.good.keys():
                return
            if path.name in self._known_parts:
                continue
            self._known_parts.add(path.name)
            start = int(path.stem.removeprefix("part-")) * shard_rows
            rows = pq.read_table(path, columns=["uri", "status"], partitioning=None).to_pydict()
            for row, (uri, status) in enumerate(zip(rows["uri"], rows["status"], strict=True), start):
                if status == OK:
                    self.good.setdefault(place_of(uri), row)

    def _loss(self, row: int) -> str:
        try:
            next(iter(self.manifest.readers(row, row + 1)))()
        except ReadError as error:
            return str(error)
        return ""


@dataclass
class WatchedReaders:
    """Readers of all images of a source for uses without a status table, such as training and caches.

    Attributes:
        manifest: the rows.
        root: the source folder, if it is a local one.
        statuses: of the images in the last pass, ``ok`` for those not read yet.
    """

    manifest: Manifest
    root: Path | None = None
    statuses: list[str] = field(default_factory=list)

    def readers(self) -> Iterator[Reader]:
        """Yield one reader per image for one pass over the source, with requests ahead."""
        self.statuses = [OK] * self.manifest.n_rows
        every = ahead(self.manifest.readers(0, self.manifest.n_rows), self.manifest.connections)
        return (partial(self._read, row, read) for row, read in enumerate(every))

    def check(self) -> None:
        """Raise ``InputError``, as `Watch.check`, if images of a pass failed since the source is unavailable."""
        if PASSING.isdisjoint(self.statuses):
            return
        n = self.manifest.n_rows
        rows = self.manifest.rows(0, n).append_column("status", pa.array(self.statuses))
        Watch(self.manifest, self.root).check(Span(0, 0, n), rows)

    def _read(self, row: int, read: Reader) -> bytes:
        try:
            return read()
        except ReadError as error:
            self.statuses[row] = error.status
            raise


@dataclass
class WatchedBatches:
    """Checks images read in batches, in any order, and ends a run whose source is unavailable."""

    watch: Watch
    good: list[int] = field(default_factory=list)

    def check(self, rows: Sequence[int], statuses: Sequence[str]) -> None:
        """Record a batch; InputError as `Watch.check` if its images failed because their source is unavailable."""
        pairs = list(zip(rows, statuses, strict=True))
        self.good = [row for row, status in pairs if status == OK][:LOOKED_AT] or self.good
        failed = [pair for pair in pairs if pair[1] in PASSING]
        if failed:
            looked_at = [(row, OK) for row in self.good] + failed[:LOOKED_AT]
            table = pa.concat_tables([self.watch.manifest.rows(row, row + 1) for row, _ in looked_at])
            table = table.select(["key", "uri"]).append_column("status", pa.array([status for _, status in looked_at]))
            self.watch.check_rows([row for row, _ in looked_at], table, len(failed))


def folder_of(source: str | Path | Sequence[str | Path]) -> Path | None:
    """Return the local folder that is a source, even if it was removed; None for other sources."""
    places = [str(place) for place in several(source)]
    if len(places) != 1 or Path(place := places[0]).is_file():
        return None
    is_path = scheme_of(place) is None and not glob.has_magic(place)
    return Path(place) if is_path or Path(place).is_dir() else None


def _holds_something(folder: Path) -> bool:
    """Whether a folder exists and is not empty; the mount point of a lost disk is empty."""
    return folder.is_dir() and next(folder.iterdir(), None) is not None


def place_of(uri: str | None) -> str:
    """Return the host of a URL, or the upper folders of a path, which become unreachable together.

    >>> place_of("https://a.org/x/1.jpg"), place_of("/mnt/disk/photos/cats/1.jpg"), place_of(None)
    ('https://a.org', '/mnt/disk/photos', '')
    >>> place_of("http://[::1/x.jpg")
    'http://[::1'
    """
    if uri is None:
        return ""
    if "://" in uri:
        scheme, _, rest = uri.partition("://")  # not urlsplit, which raises for an incomplete address
        return f"{scheme.lower()}://{re.split('[/?#]', rest, maxsplit=1)[0]}"
    return "/".join(uri.split("/")[:-1][:_DEPTH])
