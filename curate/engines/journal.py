"""What has been committed: shard files in a folder, a journal of one line a shard, and a lock."""

import fcntl
import hashlib
import json
import os
import shutil
import socket
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from curate.engines.settings import refuse_difference
from scoring.atomic import AtomicFile, place_error, sync_folder
from scoring.errors import InputError

RUN = "run.json"
JOURNAL = "journal.jsonl"
LOCK = "lock"


@dataclass(frozen=True)
class Committed:
    """One journal line: a shard that is safe on disk."""

    shard: int
    rows: int
    n_bytes: int
    sha256: str
    statuses: dict[str, int]  # status -> rows
    step: int  # images that went through the device at once


class WorkFolder:
    """The folder of one scoring run; at most one live process holds it.

    The lock is the kernel's, on an open file: a process that dies, however it dies, no longer holds it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = -1

    def __enter__(self) -> Self:
        try:
            self.folder.mkdir(exist_ok=True)
            self._lock = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise place_error(error, self.folder) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._lock, 200, 0).decode(errors="replace").strip() or "another process"
            os.close(self._lock)
            self._lock = -1
            raise InputError(
                f"{self.folder} is being written by {holder}; wait for it, or choose another --out"
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        for leftover in self.folder.glob(".*.tmp.*"):
            leftover.unlink()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def begin(self, fingerprint: dict[str, Any], *, overwrite: bool = False) -> dict[int, Committed]:
        """Start or resume the run that ``fingerprint`` describes, and return the shards that are done.

        A shard counts as done when its journal line and its file agree; anything else is computed again.

        Args:
            fingerprint: what decides what is written: name -> value.
            overwrite: drop what a different run left here, in place of refusing.

        Raises:
            InputError: if the folder belongs to another run; the first difference is named.
        """
        run = self.folder / RUN
        before = _read_json(run)
        if before is not None and overwrite and before != fingerprint:
            for path in (self.folder / JOURNAL, run, *self.folder.glob("part-*.parquet")):
                path.unlink(missing_ok=True)
            before = None
        if before is not None:
            refuse_difference(str(self.folder), before, fingerprint)
        else:
            with AtomicFile(run, overwrite=True) as file:
                file.write(json.dumps(fingerprint, indent=1).encode())
        return {line.shard: line for line in self._lines() if self._holds(line)}

    def part(self, shard: int) -> Path:
        """Return the file of a shard."""
        return self.folder / f"part-{shard:06d}.parquet"

    def commit(self, line: Committed) -> None:
        """Append one line to the journal and flush it to the disk; the shard's file is in place already."""
        text = json.dumps(asdict(line), sort_keys=True)
        try:
            with (self.folder / JOURNAL).open("a") as file:
                file.write(f"{text}\t{zlib.crc32(text.encode()):08x}\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise place_error(error, self.folder / JOURNAL) from None

    def remove(self) -> None:
        """Remove the folder; what it held is safe elsewhere."""
        shutil.rmtree(self.folder)
        sync_folder(self.folder.parent)

    def become(self, out: Path) -> None:
        """Give the finished folder its name, in place of a folder that has it."""
        (self.folder / LOCK).unlink()
        old = out.with_name(f".{out.name}.old")
        if out.exists():
            shutil.rmtree(old, ignore_errors=True)
            out.rename(old)
        self.folder.rename(out)
        sync_folder(out.parent)
        shutil.rmtree(old, ignore_errors=True)

    def _lines(self) -> list[Committed]:
        """Return the journal's lines; one that was cut off or damaged is as good as not written."""
        path = self.folder / JOURNAL
        if not path.exists():
            return []
        lines = []
        whole = path.read_bytes()
        for raw in whole.splitlines():
            text, _, crc = raw.rpartition(b"\t")
            if crc.decode(errors="replace") == f"{zlib.crc32(text):08x}":
                lines.append(Committed(**json.loads(text)))
        if whole and not whole.endswith(b"\n"):
            with path.open("ab") as file:  # or the next line would be glued to the torn one
                file.write(b"\n")
        return lines

    def _holds(self, line: Committed) -> bool:
        part = self.part(line.shard)
        if not part.is_file() or part.stat().st_size != line.n_bytes:
            return False
        with part.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == line.sha256


def _read_json(path: Path) -> dict[str, Any] | None:
    """Return what a file of ours holds; None where there is none, or nothing that was ever finished."""
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return value if isinstance(value, dict) else None
