"""What a command must have left when it was disturbed, and when it was then repeated."""

import errno
import os
import random
import re
from dataclasses import dataclass
from typing import TypeVar

from crash_commands import COMMANDS
from crash_lab import Call, Ended, Lab, Snapshot

T = TypeVar("T")
TAKEN = "exists already"
# What differs between two undisturbed runs, by file: who held a lock, times of change, a date, how long it took.
UNSTEADY = {
    "lock": rb"(?s).*",
    "pipeline.receipt.json": rb'(?<=report.html": ")\w+|(?<="digest": ")\w+(?="\n}\n$)',  # a report has a date
    "pipeline.state.json": rb'(?<= bytes, )\d+|(?<= files, )[0-9a-f]+|(?<=report.html": ")[0-9a-f]{64}',
    "report.html": rb'(?<="made":")[^"]*',
    "state.json": rb'(?<="wall_s": )[\d.]+|(?<="peak_mb": )\d+|(?<="digest": ")\w+(?="\n}\n$)',
}
ERRORS = {  # what the system may say to each call
    "write": (errno.ENOSPC, errno.EIO),
    "fsync": (errno.EIO, errno.ENOSPC),
    "open": (errno.EACCES, errno.ENOSPC, errno.EROFS),
    "mkdir": (errno.ENOSPC, errno.EACCES, errno.EROFS),
    "rename": (errno.EIO, errno.EACCES, errno.ENOSPC, errno.EROFS),
    "exchange": (errno.EIO, errno.EACCES, errno.ENOSPC, errno.EROFS),
    "link": (errno.EIO, errno.EACCES, errno.ENOSPC, errno.EROFS),
    "symlink": (errno.ENOSPC, errno.EACCES),
    "unlink": (errno.EIO, errno.EACCES, errno.EROFS),
    "rmdir": (errno.EIO, errno.EACCES, errno.EROFS),
    "truncate": (errno.EIO, errno.ENOSPC),
    "sync": (),
}


def steady(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot without what differs between two undisturbed runs."""
    contents = {}
    for name, data in snapshot.items():
        pattern = UNSTEADY.get(name.rsplit("/", 1)[-1])
        contents[name] = re.sub(pattern, b"", data) if pattern else data
    return contents


def is_work(name: str) -> bool:
    """Whether a file is no result, by its name: of a folder that is filled, or what is noted meanwhile."""
    parts = name.rstrip("/").split("/")
    hidden = any(part.startswith(".") and part != ".curate-export.json" for part in parts)
    return (
        hidden
        or name.endswith("/")
        or any(part.endswith(".part") for part in parts)
        or parts[-1] in ("lock", "pipeline.state.json")
    )


@dataclass
class Bench:
    """A command with what was there before it and what an undisturbed run leaves."""

    lab: Lab
    name: str
    before: Snapshot
    whole: Snapshot
    calls: list[Call]
    seconds: float
    overwritten: int = 0  # repeats that had to be typed with --overwrite

    @property
    def line(self) -> str:
        """What is typed."""
        return COMMANDS[self.name].line

    def disturbed(self, **asked: object) -> Ended:
        """Run it from the beginning with a disturbance."""
        self.lab.begin(self.name)
        return self.lab.run(self.line, **asked)

    def half_written(self) -> list[str]:
        """Return the files that are under the name of a result and not as they were or are to be."""
        now = steady(self.lab.snapshot())
        wrong = [n for n in now if not is_work(n) and now[n] not in (self.whole.get(n), self.before.get(n))]
        gone = [n for n in self.before if n in self.whole and not is_work(n) and n not in now]
        return wrong + [f"{n} is gone" for n in gone if not n.endswith(".receipt.json")]  # it goes first

    def repeat(self) -> list[str]:
        """Run the command again, undisturbed; return what differs from a run that never was disturbed.

        Where all results were whole already, it may say so, or that there is nothing to do. Where a table is, and not
        yet its image, it may ask for ``--overwrite``, which is then typed.
        """
        earlier = steady(self.lab.snapshot())
        ended = self.lab.run(self.line)
        was_complete = all(earlier.get(n) == self.whole[n] for n in self.whole if not is_work(n))
        if ended.code == 1 and TAKEN in ended.said and not was_complete and COMMANDS[self.name].draws:
            self.overwritten += 1
            ended = self.lab.run(f"{self.line} --overwrite")
        now = steady(self.lab.snapshot())
        wrong = []
        if ended.code != COMMANDS[self.name].ends and not (ended.code == 1 and was_complete):
            wrong.append(f"the repeat ends with {ended.code}: {ended.said.strip().splitlines()[-1:]}")
        wrong += [f"{n} is missing" for n in self.whole if n not in now]
        wrong += [f"{n} is left" for n in now if n not in self.whole]
        return wrong + [f"{n} differs" for n in now if n in self.whole and now[n] != self.whole[n]]


def bench(lab: Lab, name: str, *, data: bool = False) -> Bench:
    """Run a command undisturbed, and note what it leaves and which calls it makes, with the bytes or without."""
    if not data and name in lab.benches:
        return lab.benches[name]
    lab.begin(name)
    before = steady(lab.snapshot())
    ended = lab.run(COMMANDS[name].line, log=True, data=data)
    assert ended.code == COMMANDS[name].ends, f"{name}: {ended.said}"
    lab.benches[name] = Bench(lab, name, before, steady(lab.snapshot()), ended.calls, ended.seconds)
    return lab.benches[name]


def kinds(calls: list[Call]) -> list[int]:
    """Return the numbers, from 1, of the first and the last call of each kind.

    Those are of a kind that do the same to names that are alike but for digits, random parts and the image's name.
    """
    seen: dict[tuple[str, ...], list[int]] = {}
    for number, call in enumerate(calls, 1):
        places = (re.sub(r"(cat|dog)%2F\d+", "*", place) for place in (call.one, call.two))
        alike = tuple(re.sub(r"\d+\.[0-9a-f]{8}|[0-9a-f]{8}(?=\.)|\d+", "#", place) for place in places)
        seen.setdefault((call.kind, *alike), []).append(number)
    return sorted({n for numbers in seen.values() for n in (numbers[0], numbers[-1])})


def some(trials: list[T]) -> list[T]:
    """Return what is tried of all that could be, in order: at most ``CRASH_MOST`` (an environment variable), or all."""
    most = int(os.environ.get("CRASH_MOST", len(trials)))
    drawn = random.Random(0).sample(range(len(trials)), min(most, len(trials)))
    return [trials[at] for at in sorted(drawn)]


def place(trial: Bench, n: int) -> str:
    """Return in words what the n-th call of a command does."""
    call, start = trial.calls[n - 1], f"{trial.lab.folder}/"
    return (
        f"{n} of {len(trial.calls)}, {call.kind} {call.one.removeprefix(start)} {call.two.removeprefix(start)}".rstrip()
    )


def plain(ended: Ended, usual: int = 0) -> list[str]:
    """Return what is wrong with how a command ended on an error: no line of it, a traceback, another code than usual.

    After the line, `curate run` says at which step it stopped.
    """
    wrong = [] if ended.code in (0, 1) else [f"exit {ended.code}"]
    if "Traceback" in ended.said:
        wrong.append("a traceback: " + ended.said.strip().splitlines()[-1])
    elif ended.code == 1 != usual and not any(line.startswith("error: ") for line in ended.said.splitlines()[-2:]):
        wrong.append(f"no line of an error at the end: {ended.said[-300:]!r}")
    return wrong
