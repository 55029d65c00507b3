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
from curate.engines.settings import refuse_difference
from curate.manifest.file_set import local_folder, make_private
from curate.manifest.store import StoredFile
from curate.manifest.store_lock import StoreLock
from curate.manifest.store_path import UNFINISHED, StorePath
from scoring.atomic import place_errors
from scoring.errors import InputError
from scoring.file_digest import file_sha256
from scoring.marks import DECODING

S = TypeVar("S")
T = TypeVar("T")
_AT_ONCE = 16  # concurrent requests


class WorkStore(WorkFolder):
    """The folder of one scoring run in a store, ``place``, and the local folder that its parts pass through."""

    def __init__(self, place: StorePath) -> None:
        super().__init__(local_folder(place), known_as=place)
        self.place: StorePath = place
        self._remote = StoreLock(place, self.folder)

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
        files = {file.name: file for file in self.place.files()}
        before, done = self.run(), self._done(files)
        if before is not None and done:
            if before["fingerprint"] == fingerprint:
                (self.folder / RUN).write_bytes((self.place / RUN).read() or b"")
                return done, before["metadata"]
            if not overwrite:
                refuse_difference(str(self.place), before["fingerprint"], fingerprint)
        # confirmations are removed first, so that remaining parts do not count after a crash
        self._remove([name for name in files if name.startswith("done-")])
        self._remove([name for name in files if name.startswith("part-") or name == RUN])
        is_another = before is None or before["fingerprint"] != fingerprint
        for path in [*self.folder.glob("part-*.parquet"), *(self.folder.glob(f"{DECODING}*") if is_another else ())]:
            path.unlink()
        text = json.dumps({"fingerprint": fingerprint, "metadata": metadata}, indent=1).encode()
        (self.place / RUN).put(text)
        (self.folder / RUN).write_bytes(text)  # marker that shows engines whether other processes see the same folder
        return {}, metadata

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
        _in_parallel(self._fetch, [part for part in parts.values() if not self._is_fetched(part)])
        return [self.part(shard) for shard in sorted(parts)]

    def target(self, out: Path | StorePath) -> Path:
        """Return where the table is created before it is uploaded."""
        return self.folder / f"table{out.suffix}"

    def deliver(self, table: Path, out: Path | StorePath, *, overwrite: bool) -> None:
        """Upload the table to its name, by one atomic request."""
        self._remote.check()
        _stored(out).upload(table, overwrite=overwrite)
        table.unlink()

    def become(self, out: Path | StorePath, *, overwrite: bool) -> None:
        """Copy the parts, inside the store, to their folder.

        During the copy it has an object `_unfinished`; curate does not read a folder with one.

        Raises:
            InputError: if the name is taken and ``overwrite`` is not set.
        """
        place = _stored(out)
        self._remote.check()
        if place.is_file() or (place.exists() and not overwrite):
            raise InputError(f"{out} appeared while it was being written; choose another --out, or use --overwrite")
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
        first = [name for name in names if name.startswith("done-") or name == RUN]
        self._remove(first)
        self._remove([name for name in names if name not in first])
        shutil.rmtree(self.folder, ignore_errors=True)

    def leftovers(self, out: Path | StorePath) -> list[Path]:
        """Return nothing: leftovers of a killed process have no name in a store yet."""
        return []

    def sweep(self, out: Path | StorePath) -> None:
        """Abort the unfinished uploads of dead processes; only the process that holds the lock may."""
        _stored(out).abort_uploads()
        self.place.abort_uploads()

    def _remove(self, names: list[str]) -> None:
        _in_parallel(lambda name: self.place.remove([name]), names)

    def _part(self, shard: int) -> StorePath:
        return self.place / part_path(Path(), shard).name

    def _done(self, files: dict[str, StoredFile]) -> dict[int, Part]:
        """Return the shards whose confirmation and part agree."""
        notes = [name for name in files if name.startswith("done-")]
        done = {}
        for data in _in_parallel(lambda name: (self.place / name).read(), notes):
            line = json.loads(data or b"{}")
            stored = files.get(self._part(line.get("shard", -1)).name)
            if stored is not None and line.pop("stored", None) == [stored.size, stored.version]:
                done[line["shard"]] = Part(**line)
        return done

    def _is_fetched(self, part: Part) -> bool:
        path = self.part(part.shard)
        return path.is_file() and path.stat().st_size == part.n_bytes and file_sha256(path) == part.sha256

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


def work_of(out: Path | StorePath) -> WorkFolder:
    """Return the folder of a run's committed shards: next to the output, on disk or in its store."""
    beside = out.with_name(f".{out.name}.work")
    return WorkStore(beside) if isinstance(beside, StorePath) else WorkFolder(beside)


def _stored(out: Path | StorePath) -> StorePath:
    if not isinstance(out, StorePath):
        raise ValueError(f"a run in a store must end in a store, not at {out}")
    return out


def _done_name(shard: int) -> str:
    return f"done-{shard:06d}.json"


def _in_parallel(call: Callable[[S], T], items: Iterable[S]) -> list[T]:
    """Return the results of a call for each item, in order, several at a time."""
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="store") as pool:
        return list(pool.map(call, items))
