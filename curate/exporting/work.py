"""An export in progress: folder `NAME.part`, its journal, finished parts, the final check and the rename."""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from curate.engines.journal import append_line, journal_lines
from curate.engines.settings import refuse_difference
from curate.exporting.parts import AllParts, Entry, HashedFile, Part
from curate.manifest.text import json_object, to_json
from scoring.atomic import AtomicFile, commit_together, place_errors, sync_folder
from scoring.atomic_folder import replace_folder
from scoring.errors import InputError
from scoring.file_digest import file_sha256
from scoring.lock import LOCK, HeldFolder
from scoring.temporaries import sweep, temporary_stem

RUN, JOURNAL = "run.json", "journal.jsonl"
OUT, PIECES = "out", "pieces"
ENTRIES = "_entries"  # piece name: files of a part
MISSING = "_missing"  # piece name: rows left out
MANIFEST = ".curate-export.json"  # manifest of an exported folder
KIND = "export"


@dataclass(frozen=True)
class Done:
    """A finished part: one line of the journal."""

    part: int
    rows: int
    files: int
    n_bytes: int
    missing: int
    pieces: dict[str, str] = field(default_factory=dict)  # name -> digest


class WorkFolder(HeldFolder):
    """The working folder of the export ``out``, held by one live process; ``workers`` threads check files."""

    def __init__(self, out: Path, workers: int) -> None:
        super().__init__(out.with_name(f"{out.name}.part"))
        self.final = out
        self.workers = workers
        self.done: dict[int, Done] = {}
        self.resumed: frozenset[int] = frozenset()

    @property
    def out(self) -> Path:
        """The folder of the files to deliver."""
        return self.folder / OUT

    def begin(self, fingerprint: dict[str, Any], *, overwrite: bool, skips: bool) -> None:
        """Start or resume the export described by ``fingerprint``; parts that changed on disk are written again.

        Args:
            fingerprint: all that determines the output.
            overwrite: remove an unfinished export of something else instead of refusing.
            skips: whether parts with missing rows count as finished.

        Raises:
            InputError: if the folder belongs to another export; the first difference is named.
        """
        sweep(self.folder, temporary_stem(self.folder / RUN))
        before = self._previous_run()
        if before is None and any(path.name != LOCK for path in self.folder.iterdir()):
            raise InputError(f"{self.folder} is not an unfinished export, and was not touched; rename it, or --out")
        if before is not None and before != fingerprint and not overwrite:
            refuse_difference(str(self.folder), before, fingerprint)
        if before == fingerprint:
            finished = [Done(**line) for line in journal_lines(self.folder / JOURNAL)]
            known = [line for line in finished if skips or not line.missing]
            self.done = {line.part: line for line in known if self._is_unchanged(line)}
        else:
            self.clear()
        # first, since a folder without it is not recognised as ours
        with AtomicFile(self.folder / RUN, overwrite=True) as file:
            file.write(json.dumps(fingerprint, indent=1).encode())
        with place_errors(self.folder):
            self.out.mkdir(exist_ok=True)
            (self.folder / PIECES).mkdir(exist_ok=True)
        self.resumed = frozenset(self.done)

    def clear(self) -> None:
        """Remove all but the lock: first the journal, so that no part counts, and last the owner's record."""
        with place_errors(self.folder):
            (self.folder / JOURNAL).unlink(missing_ok=True)
            for path in self.folder.iterdir():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                elif path.name not in (LOCK, RUN):
                    path.unlink()
            (self.folder / RUN).unlink(missing_ok=True)

    def commit(self, part: Part, missing: bytes) -> None:
        """Move the pieces of a part to their final paths and journal it; from then on it counts as finished."""
        listed = b"".join(to_json([e.name, e.n_bytes, e.sha256], indent=None) for e in part.entries)
        contents, written = {**part.pieces, ENTRIES: listed, MISSING: missing}, list[Entry]()
        for name, data in contents.items():
            with HashedFile(self._piece(name, part.number).parent, f"{part.number:06d}", written) as file:
                file.write(bytes(data))
        pieces = {name: entry.sha256 for name, entry in zip(contents, written, strict=True)}
        n_bytes = sum(entry.n_bytes for entry in part.entries)
        line = Done(part.number, part.written, len(part.entries), n_bytes, len(part.lost), pieces)
        append_line(self.folder / JOURNAL, line.__dict__)
        self.done[part.number] = line

    def remove(self) -> None:
        """Rename the folder, then remove it, so that no process sees it half removed; a later run cleans up.

        Raises:
            InputError: if it cannot be removed; the folder of a round must not keep leftovers.
        """
        doomed = self.final.with_name(f"{temporary_stem(self.final)}{os.getpid()}.{secrets.token_hex(4)}")
        with place_errors(self.folder):
            self.folder.rename(doomed)
            with suppress(FileNotFoundError):  # another starting process removes it too
                shutil.rmtree(doomed)

    def tidy(self) -> None:
        """Remove leftovers of a run that was killed after its result was renamed."""
        sweep(self.final.parent, temporary_stem(self.final))
        if self.folder.is_dir() and (self._previous_run() is not None or not any(self.folder.iterdir())):
            with self:
                self.remove()

    def entries(self, number: int) -> list[Entry]:
        """Return the files of a finished part."""
        lines = self._piece(ENTRIES, number).read_bytes().splitlines()
        return [Entry(*json.loads(line)) for line in lines]

    def places(self, name: str) -> Iterator[Path]:
        """Yield the paths of the pieces of a name, in the order of the parts."""
        for number in sorted(self.done):
            if name in self.done[number].pieces:
                yield self._piece(name, number)

    def check(self, parts: AllParts, n_rows: int) -> tuple[int, int, str]:
        """Compare rows, files, sizes and digests on disk with the journal.

        Returns:
            Number of files, bytes, and a digest of all names, sizes and digests, independent of their order.

        Raises:
            InputError: naming the difference.
        """
        rows = sum(line.rows + line.missing for line in self.done.values())
        if rows != n_rows:
            raise InputError(f"expected {n_rows:,} rows in {self.folder}, got {rows:,}; run the command again")
        with ThreadPoolExecutor(self.workers) as pool:
            for number in sorted(self.done):
                looked = self.entries(number)
                if number not in self.resumed and not all(pool.map(self._is_intact, looked)):
                    raise self._damaged(looked)
            if not all(map(self._is_intact, parts.entries)):
                raise self._damaged(parts.entries)
        listed = (entry for number in self.done for entry in self.entries(number))
        expected = account((entry.name, entry.n_bytes) for entry in (*listed, *parts.entries))
        got = account(files_in(self.out))
        if expected != got:
            raise InputError(
                f"expected {expected[0]:,} files of {expected[1]:,} bytes in {self.out}, got {got[0]:,} of "
                f"{got[1]:,}: two names may be equal on this file system, or another process wrote there; remove "
                f"{self.folder}, and choose another place"
            )
        return expected

    def publish(self, parts: AllParts, manifest: dict[str, Any] | None, *, overwrite: bool) -> tuple[Path, ...]:
        """Rename the finished export to its final name, and remove the working folder."""
        if parts.files:
            commit_together(parts.files)
            paths = tuple(file.path for file in parts.files)
        else:
            with place_errors(self.final):
                if manifest is not None:
                    (self.out / MANIFEST).write_bytes(to_json(manifest))
                os.sync()  # all files together, since each alone would wait for the disk
                if overwrite and self.final.exists():
                    replace_folder(self.final, self.out)
                elif os.path.lexists(self.final):
                    raise InputError(f"{self.final} appeared while it was being written; choose another name")
                else:
                    self.out.rename(self.final)
                sync_folder(self.final.parent)
            paths = (self.final,)
        self.remove()
        return paths

    def _previous_run(self) -> dict[str, Any] | None:
        try:
            return json_object((self.folder / RUN).read_bytes())
        except FileNotFoundError:
            return None

    def _is_unchanged(self, line: Done) -> bool:
        """Return whether a part's pieces and files are unchanged."""
        if any(file_sha256(self._piece(name, line.part)) != digest for name, digest in line.pieces.items()):
            return False
        with ThreadPoolExecutor(self.workers) as pool:
            return all(pool.map(self._is_intact, self.entries(line.part)))

    def _is_intact(self, entry: Entry) -> bool:
        path = self.out / entry.name
        try:
            if path.stat().st_size != entry.n_bytes:
                return False
        except OSError:
            return False
        return not entry.sha256 or file_sha256(path) == entry.sha256

    def _damaged(self, entries: list[Entry]) -> InputError:
        name = next(entry.name for entry in entries if not self._is_intact(entry))
        return InputError(f"{self.out / name} changed after it was written; check the disk, and run the command again")

    def _piece(self, name: str, number: int) -> Path:
        return self.folder / PIECES / name / f"{number:06d}"


def files_in(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield path and size of every file in the folder, links followed, without the manifest."""
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        with os.scandir(folder / inside) as entries:
            for entry in entries:
                name = f"{inside}/{entry.name}" if inside else entry.name
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(name)
                elif name != MANIFEST:
                    try:
                        yield name, entry.stat().st_size
                    except OSError:  # a dangling link
                        yield name, -1


def account(files: Iterator[tuple[str, int]]) -> tuple[int, int, str]:
    """Return the number of files, their bytes, and a digest of names and sizes independent of the order."""
    n = n_bytes = total = 0
    for name, size in files:
        digest = hashlib.sha256(f"{name}\0{size}".encode("utf-8", "surrogateescape")).digest()
        n, n_bytes, total = n + 1, n_bytes + size, (total + int.from_bytes(digest)) % (1 << 256)
    return n, n_bytes, f"{total:064x}"


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """Return the manifest of an exported folder; None if it is not one."""
    path = folder / MANIFEST
    try:
        if path.is_symlink() or path.stat().st_size > 1 << 20:
            return None
        manifest = json_object(path.read_bytes())
    except OSError:
        return None
    return manifest if manifest is not None and manifest.get("kind") == KIND else None


def is_untouched(folder: Path, manifest: dict[str, Any]) -> bool:
    """Return whether an exported folder contains exactly the exported files, by name and size."""
    return list(account(files_in(folder))) == [manifest.get(name) for name in ("files", "bytes", "names")]
