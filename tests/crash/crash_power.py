"""A model of a disk that loses power: what was not flushed may be lost, in part, or in another order.

As in ALICE (Pillai et al., OSDI 2014): bytes of a file are on the disk when it is synced, names when their folder
is. At any moment, of what is not yet there, any part may be: each operation on names on its own, though it is whole;
of bytes none or the first half.
"""

import itertools
import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from crash_lab import Call

NAMING = ("made", "link", "rename", "exchange", "unlink", "rmdir", "mkdir")


SERIAL = itertools.count()


@dataclass
class Inode:
    """A file's bytes, as they are and as they are on the disk; ``number`` is its own."""

    now: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    number: int = field(default_factory=lambda: next(SERIAL))

    def lost(self, torn: bool) -> bytes:
        """Return what a power cut leaves."""
        fresh = bytes(self.now) if self.now[: len(self.durable)] == self.durable else b""
        half = len(self.durable) + max(0, len(fresh) - len(self.durable)) // 2
        return fresh[:half] if torn and fresh else self.durable


@dataclass
class Step:
    """An operation on names: on one or two paths, with the file that gets one; on the disk or not yet."""

    kind: str
    one: str
    two: str = ""
    inode: Inode | None = None
    durable: bool = False


Names = dict[str, Inode | None]  # path in the folder -> its file; None is a folder
State = dict[str, tuple[bytes, int] | None]  # path -> bytes of a file and its number, which two names may share


class Disk:
    """The files below a folder, and what of them is on the disk.

    Args:
        folder: as it is before the first call; all of that is on the disk.
    """

    def __init__(self, folder: Path) -> None:
        self.root = f"{folder}/"
        self.first: Names = {}
        for at, folders, files in os.walk(folder):
            for name in folders:
                self.first[str(Path(at, name).relative_to(folder))] = None
            for name in files:
                data = Path(at, name).read_bytes()
                self.first[str(Path(at, name).relative_to(folder))] = Inode(bytearray(data), data)
        self.names = dict(self.first)
        self.steps: list[Step] = []

    def apply(self, call: Call) -> None:
        """Do a call."""
        first, two = call.one.removeprefix(self.root), call.two.removeprefix(self.root)
        inode = self.names.get(first)
        if call.kind == "open":
            if inode is None:
                self._step(Step("made", first, inode=Inode()))
            elif call.at == 2:
                inode.now.clear()
        elif call.kind == "write" and inode is not None:
            inode.now[call.at : call.at + len(call.data)] = call.data
        elif call.kind == "truncate" and inode is not None:
            del inode.now[call.at :]
        elif call.kind == "sync":
            self._sync_all()
        elif call.kind == "fsync" and inode is not None:
            inode.durable = bytes(inode.now)
        elif call.kind == "fsync":
            self._sync_folder("" if f"{first}/" == self.root else first)
        elif call.kind in NAMING:
            self._step(Step(call.kind, first, two, inode))

    def _step(self, step: Step) -> None:
        if do(self.names, step):
            self.steps.append(step)

    def _sync_folder(self, folder: str) -> None:
        for step in self.steps:
            if all(parent_of(path) == folder for path in (step.one, step.two) if path):
                step.durable = True

    def _sync_all(self) -> None:
        for step in self.steps:
            step.durable = True
        for inode in self.names.values():
            if inode is not None:
                inode.durable = bytes(inode.now)

    def after_a_cut(self, generator: random.Random, mixes: int) -> Iterator[State]:
        """Yield what may be there when the power comes back: nothing of what waits, all names, and mixes."""
        waiting = [step for step in self.steps if not step.durable]
        chosen: list[set[int]] = [set(), set(map(id, waiting))]
        chosen += [{id(step) for step in waiting if generator.random() < 0.5} for _ in range(mixes if waiting else 0)]
        for keep in chosen:
            names = dict(self.first)
            for step in self.steps:
                if step.durable or id(step) in keep:
                    do(names, step)
            for torn in (False, True):
                yield {p: None if file is None else (file.lost(torn), file.number) for p, file in names.items()}


def parent_of(path: str) -> str:
    """Return the folder of a path, empty at the root."""
    return path.rpartition("/")[0]


def do(names: Names, step: Step) -> bool:
    """Change names by a step, if that can be; return whether it could."""
    parents = [parent_of(path) for path in (step.one, step.two) if path]
    if any(parent and names.get(parent, step) is not None for parent in parents):
        return False
    if step.kind in ("made", "mkdir"):
        if step.one in names:
            return False
        names[step.one] = step.inode
    elif step.one not in names:
        return False
    elif step.kind == "link":
        names.setdefault(step.two, names[step.one])
    elif step.kind == "rename":
        moved = {path: path for path in names if path == step.one or path.startswith(f"{step.one}/")}
        for path in moved:
            names[step.two + path[len(step.one) :]] = names.pop(path)
    elif step.kind == "exchange":
        if step.two not in names:
            return False
        start, two = (
            {path[len(top) :]: names.pop(path) for path in list(names) if path == top or path.startswith(f"{top}/")}
            for top in (step.one, step.two)
        )
        names.update({step.two + end: inode for end, inode in start.items()})
        names.update({step.one + end: inode for end, inode in two.items()})
    else:
        for path in [path for path in names if path == step.one or path.startswith(f"{step.one}/")]:
            del names[path]
    return True


def restore(folder: Path, state: State) -> None:
    """Make a folder hold what is left, two names of a file as such, and touch no file that is as it was."""
    gone = (b"", -1)
    numbers: dict[int, Path] = {}
    for at, folders, files in os.walk(folder, topdown=False):
        for name in files:
            path = Path(at, name)
            data, _ = state.get(str(path.relative_to(folder)), gone) or gone
            if data != path.read_bytes() or not path.stat().st_size:
                path.unlink()
        for name in folders:
            path = Path(at, name)
            if state.get(str(path.relative_to(folder)), gone) is not None:
                shutil.rmtree(path)
    for name, left in sorted(state.items()):
        path = folder / name
        if left is None:
            path.mkdir(exist_ok=True)
            continue
        data, number = left
        if not path.exists() and number in numbers:
            os.link(numbers[number], path)
        elif not path.exists():
            path.write_bytes(data)
        numbers[number] = path
