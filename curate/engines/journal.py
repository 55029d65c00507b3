"""Committed shards: files in a folder, a journal of one line per shard, and a lock."""

import glob
import json
import os
import secrets
import shutil
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from curate.columns import OK
from curate.engines.settings import refuse_difference
from curate.manifest.store_path import AnyPath, StorePath
from curate.manifest.text import json_object
from scoring.atomic import AtomicFile, place_errors, sync_folder
from scoring.atomic_folder import exchange
from scoring.errors import InputError
from scoring.file_digest import file_sha256
from scoring.lock import LOCK, HeldFolder
from scoring.marks import DECODING

RUN = "run.json"
JOURNAL = "journal.jsonl"


@dataclass(frozen=True)
class Part:
    """The file of a shard and its facts: one line of the journal once committed."""

    shard: int
    rows: int
    n_bytes: int
    sha256: str
    statuses: dict[str, int]  # status -> rows
    step: int  # batch size on the device
    deep: int = 0  # images of 16 bits
    highest: int = 0  # the largest value among them

    @property
    def failed(self) -> int:
        """Number of rows whose image could not be scored."""
        return self.rows - self.statuses.get(OK, 0)


def part_path(folder: Path, shard: int) -> Path:
    """Return the file of a shard in the folder of its run."""
    return folder / f"part-{shard:06d}.parquet"


def require_local(out: AnyPath) -> Path:
    """Return a local path unchanged; refuse a URL."""
    if isinstance(out, StorePath):
        raise ValueError(f"{out} is not on this machine")
    return out


def append_line(path: Path, value: dict[str, Any]) -> None:
    """Append one line with its checksum to a journal, and flush it to disk."""
    text = json.dumps(value, sort_keys=True)
    with place_errors(path), path.open("a") as file:
        file.write(f"{text}\t{zlib.crc32(text.encode()):08x}\n")
        file.flush()
        os.fsync(file.fileno())


def journal_lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a journal without damaged ones; an incomplete last line is removed from the file."""
    if not path.exists():
        return []
    lines = []
    data = path.read_bytes()
    end = data.rfind(b"\n") + 1
    if end < len(data):
        os.truncate(path, end)
    for raw in data[:end].splitlines():
        text, _, crc = raw.rpartition(b"\t")
        if crc.decode(errors="replace") == f"{zlib.crc32(text):08x}":
            lines.append(json.loads(text))
    return lines


def parsed_run(data: bytes) -> dict[str, Any] | None:
    """Return the content of `run.json`, or None if it is incomplete."""
    value = json_object(data) or {}
    return value if all(isinstance(value.get(name), dict) for name in ("fingerprint", "metadata")) else None


class WorkFolder(HeldFolder):
    """The folder of one scoring run; at most one live process holds it.

    This class is for a local folder; `WorkStore` does the same in an object store.

    Attributes:
        folder: local folder where engines write parts.
        target: path to which the table is written: its final name, which appears when it is complete.
        place: where committed parts are kept; here the same folder.
    """

    def __init__(self, folder: Path, target: Path, *, known_as: object = None) -> None:
        super().__init__(folder, known_as=known_as)
        self.target = target
        self.place: AnyPath = folder

    def __enter__(self) -> Self:
        super().__enter__()
        for leftover in self.folder.glob(".*.tmp.*"):
            leftover.unlink()
        return self

    def begin(
        self, fingerprint: dict[str, Any], metadata: dict[str, Any], *, overwrite: bool = False
    ) -> tuple[dict[int, Part], dict[str, Any]]:
        """Start or resume the run described by ``fingerprint``; return its finished shards, and its metadata.

        A shard is finished if its journal line and its file agree; others are computed again. If none is finished, a
        different run may start.

        Args:
            fingerprint: all that determines the output, by name.
            metadata: for the files of a new run; a resumed run keeps its own.
            overwrite: remove a different run instead of refusing.

        Raises:
            InputError: if the folder belongs to another run; the first difference is named.
        """
        before = self.run()
        done = {} if before is None else self._done()
        if before is not None and done:
            if before["fingerprint"] == fingerprint:
                return done, before["metadata"]
            if not overwrite:
                refuse_difference(str(self.place), before["fingerprint"], fingerprint)
        self._forget()
        if before is None or before["fingerprint"] != fingerprint:
            for mark in self.folder.glob(f"{DECODING}*"):
                mark.unlink()
        self._record(json.dumps({"fingerprint": fingerprint, "metadata": metadata}, indent=1).encode())
        return {}, metadata

    def _done(self) -> dict[int, Part]:
        """Return the finished shards."""
        lines = [Part(**line) for line in journal_lines(self.folder / JOURNAL)]
        return {line.shard: line for line in lines if self._is_complete(line)}

    def _forget(self) -> None:
        """Remove the run: the journal first, so that remaining shards do not count after a crash."""
        for path in (self.folder / JOURNAL, self.folder / RUN, *self.folder.glob("part-*.parquet")):
            path.unlink(missing_ok=True)

    def _record(self, run: bytes) -> None:
        with AtomicFile(self.folder / RUN) as file:
            file.write(run)

    def run(self) -> dict[str, Any] | None:
        """Return the record of the run that ``begin`` wrote, or None."""
        path = self.folder / RUN
        return parsed_run(path.read_bytes()) if path.exists() else None

    def exists(self) -> bool:
        """Return whether a run began here, or was interrupted."""
        return self.folder.exists()

    def files(self, parts: dict[int, Part]) -> list[Path]:
        """Return the files of some shards, in order."""
        return [self.part(shard) for shard in sorted(parts)]

    def deliver(self, *, overwrite: bool) -> None:
        """Move the table to its final name; here it already has it."""

    def part(self, shard: int) -> Path:
        """Return the file of a shard."""
        return part_path(self.folder, shard)

    def commit(self, line: Part) -> None:
        """Append one line to the journal and flush it to disk; the shard's file is already complete."""
        append_line(self.folder / JOURNAL, asdict(line))

    def remove(self) -> None:
        """Remove the folder, whose content is stored elsewhere by now.

        It is renamed first, so that no process sees or locks a half-removed one.
        """
        doomed = self.folder.with_name(f"{self.folder.name}.{secrets.token_hex(4)}.done")
        self.folder.rename(doomed)
        sync_folder(self.folder.parent)
        shutil.rmtree(doomed)

    def become(self, *, overwrite: bool) -> None:
        """Rename the finished folder to the target; InputError if it exists, unless ``overwrite`` replaces it."""
        out = self.target
        if out.exists():
            if not overwrite:
                raise InputError(f"{out} appeared while it was being written; choose another --out, or use --overwrite")
            if exchange(out, self.folder):  # atomic exchange if supported
                self.remove()
            else:
                out.rename(out.with_name(f".{out.name}.{secrets.token_hex(4)}.old"))
                self.folder.rename(out)
        else:
            self.folder.rename(out)
        for mark in out.glob(f"{DECODING}*"):  # left by a dead process, whose shard was scored again
            mark.unlink()
        (out / LOCK).unlink(missing_ok=True)  # another process may have found it finished, and removed it
        sync_folder(out.parent)
        self.sweep()

    def leftovers(self) -> list[Path]:
        """Return files of dead processes next to the target: unfinished tables, and folders being deleted.

        A folder that was to be replaced is a leftover only if its replacement exists.
        """
        out = self.target
        parent, name = out.parent, glob.escape(out.name)
        leftovers = [*parent.glob(f".{name}.tmp.*"), *parent.glob(f"{glob.escape(self.folder.name)}.*.done")]
        leftovers += [out / LOCK] if out.is_dir() and (out / LOCK).is_file() else []
        return leftovers + ([*parent.glob(f".{name}.*.old")] if out.exists() else [])

    def sweep(self) -> None:
        """Remove the leftovers; only the process that holds the lock may."""
        for path in self.leftovers():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def _is_complete(self, line: Part) -> bool:
        """Return whether the file of a shard is the committed one."""
        part = self.part(line.shard)
        if not part.is_file() or part.stat().st_size != line.n_bytes:
            return False
        return file_sha256(part) == line.sha256
