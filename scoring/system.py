"""Operating system differences: the only module that imports modules missing on Windows.

Linux is tested. Values that a system cannot provide are None.
"""

import os
import sys
from pathlib import Path
from typing import Any

fcntl: Any
resource: Any
try:
    import fcntl
except ImportError:
    fcntl = None
try:
    import resource
except ImportError:
    resource = None

_BINARY = getattr(os, "O_BINARY", 0)  # else Windows would write line feeds as two bytes
# Read a file without waiting for a pipe, and without handing it to another program.
READ = os.O_RDONLY | _BINARY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY"))
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY | getattr(os, "O_CLOEXEC", 0)
APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _BINARY

HAS_FLOCK = fcntl is not None
RENAMES_OPEN_FILES = os.name != "nt"  # Windows refuses to rename or remove a file that is open
SHARES_MEMORY = hasattr(os, "memfd_create") and hasattr(fcntl, "F_ADD_SEALS")  # Linux only
PASSES_SOCKETS = os.name == "posix" and HAS_FLOCK  # a child process inherits an open socket


def try_flock(handle: int, *, shared: bool = False) -> bool:
    """Lock an open file or folder until it is closed; False if another process holds it or locking is impossible."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def open_folder(folder: str | os.PathLike[str]) -> int:
    """Return a descriptor of a folder, or of the null device if folders cannot be opened; the caller closes it."""
    if not hasattr(os, "O_DIRECTORY"):
        return os.open(os.devnull, os.O_RDONLY)
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def read_at(handle: int, n_bytes: int, offset: int) -> bytes:
    """Read at most ``n_bytes`` at ``offset`` of an open file that no other thread reads."""
    if hasattr(os, "pread"):
        return os.pread(handle, n_bytes, offset)
    os.lseek(handle, offset, os.SEEK_SET)
    return os.read(handle, n_bytes)


def seal_size(handle: int) -> None:
    """Prevent shared memory from shrinking, since reading beyond its end would kill this process."""
    fcntl.fcntl(handle, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)


def usable_cores() -> int:
    """Return the number of processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def peak_memory() -> int | None:
    """Return the peak memory of this process in bytes; None if unknown."""
    if resource is None:
        return None
    peak = int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return peak if sys.platform == "darwin" else peak * 1024


def limit_memory(n_bytes: int) -> None:
    """Limit the data segment of this process, in bytes, if the system supports it."""
    if resource is not None:
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (n_bytes if hard < 0 else min(n_bytes, hard), hard))


def write_no_core() -> None:
    """Disable core dumps of this process."""
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def free_memory() -> int | None:
    """Return the bytes available without swapping; None if unknown."""
    amounts = []
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        lines = (line.split() for line in meminfo.read_text().splitlines())
        amounts += [int(words[1]) * 1024 for words in lines if words[0] == "MemAvailable:"]
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and limit.read_text().strip() != "max":
        amounts.append(int(limit.read_text()) - int(used.read_text()))
    return min(amounts, default=None)
