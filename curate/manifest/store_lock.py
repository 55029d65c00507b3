"""A folder of a store that one process holds: numbered locks that are created on condition, and a heartbeat.

A lock is an object that never changes, `lock-000001.json`; the highest number is the holder's. The next number is
created on condition that it is missing, so only one of several processes can follow a dead holder. The holder
repeatedly writes a heartbeat next to its lock; it is dead if the heartbeat is `EXPIRY` older than an object written
now, both by the store's clock. A holder that was only slow finds a higher number before it commits, and stops.
"""

import json
import os
import secrets
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from curate.manifest.store_path import StorePath
from curate.manifest.text import json_object
from scoring.errors import InputError

BEAT = 15.0  # seconds between two heartbeats
EXPIRY = 90.0  # seconds after the last heartbeat until another process may take over
_RELEASED = b"released"
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class StoreLock:
    """Holds a folder of a store: a context manager.

    Args:
        folder: of the store.
        held: a local folder (`HeldFolder`) that every local writer to the same store folder must hold: an earlier
            holder that names it is dead, so there is no need to wait for it.

    Raises:
        InputError: if another process holds it, or the store refuses or does not support conditional writes.
    """

    def __init__(self, folder: StorePath, held: Path) -> None:
        self._folder, self._held = folder, held
        self._number = 0
        self._stop = threading.Event()
        self._beating: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._number = self._create_lock()
        self._stop.clear()
        self._beating = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._beating.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._beating is not None:
            self.end()
            with suppress(InputError):  # then it expires
                self._object("beat").put(_RELEASED)

    def end(self) -> None:
        """Stop the heartbeats, before the contents of the folder are removed."""
        self._stop.set()
        if self._beating is not None:
            self._beating.join()
            self._beating = None

    def check(self) -> None:
        """Raise ``InputError`` if another process took over."""
        last = self._last()
        if last != self._number:
            raise InputError(
                f"{self._folder} was taken over by {self._holder(last)}, because this process sent no sign of "
                "life for long; it ends now, and what it committed stays"
            )

    def _create_lock(self) -> int:
        """Return the number of the lock that this process created."""
        last = self._last()
        if last and not self._is_free(last):
            raise InputError(
                f"{self._folder} is being written by {self._holder(last)}; wait for it, or write elsewhere (if that "
                f"process is gone, repeat the command in {EXPIRY:.0f} s)"
            )
        number = last + 1
        text = {"machine": self._machine(), "host": socket.gethostname(), "process": os.getpid()}
        owner = json.dumps({**text, "nonce": secrets.token_hex(8)}).encode()
        if not self._object("lock", number).create(owner):
            raise InputError(f"{self._folder} is being written by {self._holder(number)}; wait for it")
        if self._object("lock", number).create(owner + b" "):
            self._folder.remove([self._object("lock", number).name])
            raise InputError(
                f"cannot write {self._folder}: the store has no conditional writes (If-None-Match), without "
                "which two writers would mix; write to a local folder and copy it"
            )
        self._object("beat", number).put(b"alive")
        return number

    def _is_free(self, number: int) -> bool:
        """Return whether the holder released its lock, or is dead."""
        beat = self._object("beat", number)
        if beat.read() == _RELEASED:
            return True
        machine = self._machine()
        if machine and self._owner(number).get("machine") == machine:
            return True
        probe = self._folder / f"now-{secrets.token_hex(4)}"
        probe.put(b"now")
        now, last = probe.modified(), beat.modified() or self._object("lock", number).modified()
        self._folder.remove([probe.name])
        return now is not None and last is not None and (now - last).total_seconds() > EXPIRY

    def _beat(self) -> None:
        while not self._stop.wait(BEAT):
            with suppress(InputError):  # the next one may succeed; `check` verifies the lock
                self._object("beat").put(b"alive")

    def _object(self, what: str, number: int | None = None) -> StorePath:
        return self._folder / f"{what}-{self._number if number is None else number:06d}.json"

    def _last(self) -> int:
        names = [file.name for file in self._folder.files() if file.name.startswith("lock-")]
        return max((int(name[5:11]) for name in names if name[5:11].isdecimal()), default=0)

    def _owner(self, number: int) -> dict[str, Any]:
        return json_object(self._object("lock", number).read() or b"") or {}

    def _holder(self, number: int) -> str:
        owner = self._owner(number)
        return f"process {owner.get('process', '?')} on {owner.get('host', 'another machine')}"

    def _machine(self) -> str:
        """Return an identifier unique to this machine and folder; empty if unknown."""
        status = self._held.stat()
        boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
        return f"{boot}:{status.st_dev}:{status.st_ino}" if boot else ""
