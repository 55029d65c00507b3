"""The committed shards of a run in a store: parts, a small object that confirms each part, and a lock.

    s3://bucket/run/scores.parquet          the table; or scores/part-000000.parquet ..., run.json
    s3://bucket/run/.scores.parquet.work/   during the run: run.json, lock-*, beat-*, part-*.parquet, done-*.json

Parts are written to a local folder and uploaded whole. `done-000012.json` follows its part and replaces the line of a
local journal, since objects cannot be appended to. It also has the version that the store gave the part: a part counts
if the store has that version and size. Its sha256 is compared when the part is read again.
"""

import json
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path
from typing import Any, Self, TypeVar

from curate.engines.journal import RUN, Part, WorkFolder, parsed_run, part_path
from curate.manifest.file_set import local_folder, make_private
from curate.manifest.store_lock import StoreLock
from curate.manifest.store_path import UNFINISHED, AnyPath, StorePath
from scoring.atomic import place_errors
from scoring.errors import InputError

S = TypeVar("S")
T = TypeVar("T")
_AT_ONCE = 16  # concurrent requests


class WorkStore(WorkFolder):
    """The folder of one scoring run in a store, ``place``, and the local folder that its parts pass through."""

    def __init__(self, place: StorePath, out: StorePath) -> None:
        folder = local_folder(place)
        super().__init__(folder, folder / f"table{out.suffix}", known_as=place)
        self.place: StorePath = place
        self._out, self._remote = out, StoreLock(place, folder)

    def __enter__(self) -> Self:
        make_private(self.folder.parent)
        super().__enter__()
        try:
            self._remote.__enter__()
        except BaseException:
            super().__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._remote.__exit__(*error)
        finally:
            super().__exit__(*error)

    def __str__(self) -> str:
        return str(self.place)

    def exists(self) -> bool:
        """Return whether a run began here, or was interrupted."""
        return bool(self.place.files())

    def begin(
        self, fingerprint: dict[str, Any], metadata: dict[str, Any], *, overwrite: bool = False
    ) -> tuple[dict[int, Part], dict[str, Any]]:
        """Start or resume a run; see ``WorkFolder.begin``."""
        begun = super().begin(fingerprint, metadata, overwrite=overwrite)
        # marker that shows engines whether other processes see the same folder
        (self.folder / RUN).write_bytes((self.place / RUN).read() or b"")
        return begun

    def _done(self) -> dict[int, Part]:
        """Return the shards whose confirmation and part agree."""
        files = {file.name: file for file in self.place.files()}
        done = {}
        for data in _in_parallel(lambda name: (self.place / name).read(), filter(_is_done_name, files)):
            line = json.loads(data or b"{}")
            stored = files.get(self._part(line.get("shard", -1)).name)
            if stored is not None and line.pop("stored", None) == [stored.size, stored.version]:
                done[line["shard"]] = Part(**line)
        return done

    def _forget(self) -> None:
        """Remove the run: confirmations first, so that remaining parts do not count after a crash."""
        names = [file.name for file in self.place.files()]
        self._remove([name for name in names if _is_done_name(name)])
        self._remove([name for name in names if name.startswith("part-") or name == RUN])
        for path in self.folder.glob("part-*.parquet"):
            path.unlink()

    def _record(self, run: bytes) -> None:
        (self.place / RUN).put(run)

    def run(self) -> dict[str, Any] | None:
        """Return the record of the run that ``begin`` wrote, or None."""
        return parsed_run((self.place / RUN).read() or b"")

    def commit(self, line: Part) -> None:
        """Upload the file of a shard, then the object that confirms it.

        Raises:
            InputError: if the store refuses, or another process took over the folder.
        """
        self._remote.check()
        size, version = self._part(line.shard).upload(self.part(line.shard), overwrite=True)
        text = json.dumps({**asdict(line), "stored": [size, version]}, sort_keys=True)
        (self.place / _done_name(line.shard)).put(text.encode())

    def files(self, parts: dict[int, Part]) -> list[Path]:
        """Return the files of some shards, in order; files of an earlier run on another machine are downloaded.

        Raises:
            InputError: if one differs from the committed one; its confirmation is removed, so that it is scored again.
        """
        _in_parallel(self._fetch, [part for part in parts.values() if not self._is_complete(part)])
        return [self.part(shard) for shard in sorted(parts)]

    def deliver(self, *, overwrite: bool) -> None:
        """Upload the table to its name, by one atomic request."""
        self._remote.check()
        self._out.upload(self.target, overwrite=overwrite)
        self.target.unlink()

    def become(self, *, overwrite: bool) -> None:
        """Copy the parts, inside the store, to their folder.

        During the copy it has an object `_unfinished`; curate does not read a folder with one.

        Raises:
            InputError: if the name is taken and ``overwrite`` is not set.
        """
        place = self._out
        self._remote.check()
        if place.is_file() or (place.exists() and not overwrite):
            raise InputError(f"{place} appeared while it was being written; choose another --out, or use --overwrite")
        (place / UNFINISHED).put(b"parts are being put here; where that was cut off, repeat the command")
        new = [file.name for file in self.place.files() if file.name.startswith("part-") or file.name == RUN]
        # only files of the previous table
        place.remove([name for name in place.names() if fnmatch(name, "part-*.parquet") and name not in new])
        _in_parallel(lambda name: (self.place / name).copy_to(place / name), new)
        place.remove([UNFINISHED])
        self.remove()

    def remove(self) -> None:
        """Remove the run's objects and local files; the table is stored elsewhere by now.

        Confirmations are removed first: without them, remaining parts do not count.
        """
        self._remote.end()
        names = [file.name for file in self.place.files()]
        first = [name for name in names if _is_done_name(name) or name == RUN]
        self._remove(first)
        self._remove([name for name in names if name not in first])
        shutil.rmtree(self.folder, ignore_errors=True)

    def leftovers(self) -> list[Path]:
        """Return nothing: leftovers of a killed process have no name in a store yet."""
        return []

    def sweep(self) -> None:
        """Abort the unfinished uploads of dead processes; only the process that holds the lock may."""
        self._out.abort_uploads()
        self.place.abort_uploads()

    def _remove(self, names: list[str]) -> None:
        _in_parallel(lambda name: self.place.remove([name]), names)

    def _part(self, shard: int) -> StorePath:
        return self.place / part_path(Path(), shard).name

    def _fetch(self, part: Part) -> None:
        data = self._part(part.shard).read(part.n_bytes)
        if data is None or sha256(data).hexdigest() != part.sha256:
            self.place.remove([_done_name(part.shard)])
            raise InputError(
                f"{self._part(part.shard)} was changed after it was committed; repeat the command, which "
                "scores its rows again"
            )
        with place_errors(self.folder):
            self.part(part.shard).write_bytes(data)


def work_of(out: AnyPath) -> WorkFolder:
    """Return the folder of a run's committed shards: next to the output, on disk or in its store."""
    name = f".{out.name}.work"
    if isinstance(out, StorePath):
        return WorkStore(out.with_name(name), out)
    return WorkFolder(out.with_name(name), out)


def _done_name(shard: int) -> str:
    return f"done-{shard:06d}.json"


def _is_done_name(name: str) -> bool:
    return name.startswith("done-")


def _in_parallel(call: Callable[[S], T], items: Iterable[S]) -> list[T]:
    """Return the results of a call for each item, in order, several at a time."""
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="store") as pool:
        return list(pool.map(call, items))
