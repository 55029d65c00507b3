"""The hardware available to this process: processors, memory, GPUs and disks."""

import os
import platform
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch

from curate.diagnosis.contract import NOTE, PROBLEM, MachineFact
from scoring.folded import has_bfloat16
from scoring.system import usable_cores

GB = 1e9
LITTLE_MEMORY = 4 * GB
LITTLE_DISK = 5 * GB
FLUSHED = 16 << 20  # bytes written by the disk test
SLOW_DISK = 20e6  # bytes a second, flushed
CGROUP = Path("/sys/fs/cgroup")
NVIDIA = Path("/proc/driver/nvidia/version")


def processors() -> Iterator[MachineFact]:
    """Yield the processor, the share of it available to this process, and the threads of the model."""
    cores = usable_cores()
    yield MachineFact("processor", "model", _cpu_name())
    yield MachineFact("processor", "cores", f"{cores} of {os.cpu_count() or 1} usable by this process")
    quota = cpu_quota()
    if quota is not None and quota < cores:
        advice = f"curate score --workers {max(1, round(quota))}, or grant the container more"
        yield MachineFact("processor", "quota", f"the container is granted {quota:g} cores", NOTE, advice)
    threads = torch.get_num_threads()
    fewer = threads < cores and "OMP_NUM_THREADS" in os.environ
    advice = "unset OMP_NUM_THREADS: the model uses fewer threads than there are cores" if fewer else ""
    yield MachineFact("processor", "threads of the model", str(threads), NOTE if fewer else "ok", advice)
    kind = torch.backends.cpu.get_cpu_capability()
    half = "multiplies in bfloat16" if has_bfloat16() else "no bfloat16: a model runs in fp32 on it"
    yield MachineFact("processor", "vector instructions", f"{kind}, {half}")


def memory() -> Iterator[MachineFact]:
    """Yield the total and the free memory."""
    total, free = memory_bytes()
    if not total:
        return
    few = free is not None and free < LITTLE_MEMORY
    value = f"{total / GB:.1f} GB" + ("" if free is None else f", {free / GB:.1f} GB of it free")
    advice = "stop other programs; scoring takes about 2 GB, embeddings of a million rows 1 to 3 GB more" if few else ""
    yield MachineFact("memory", "memory", value, NOTE if few else "ok", advice)


def cards() -> Iterator[MachineFact]:
    """Yield the GPUs that torch can use, and why it cannot use others."""
    build = torch.version.cuda
    yield MachineFact(
        "gpu", "torch", f"{torch.__version__}, {f'built for CUDA {build}' if build else 'built without CUDA'}"
    )
    if not torch.cuda.is_available():
        yield _no_card(build)
        return
    for index in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(index)
        free, total = torch.cuda.mem_get_info(index)
        able = "bfloat16" if torch.cuda.is_bf16_supported() else "no bfloat16"
        value = f"{card.name}, {free / GB:.1f} of {total / GB:.1f} GB free, {card.major}.{card.minor}, {able}"
        yield MachineFact("gpu", f"cuda:{index}", value)


def disks(folder: Path) -> Iterator[MachineFact]:
    """Yield free space and speed of the output folder, and the space for temporary files.

    A file of 16 MB is written to the folder, which must exist, and removed.
    """
    yield _room("where you are", folder)
    yield _room("temporary files", Path(tempfile.gettempdir()))
    try:
        speed = flushed_speed(folder)
    except OSError as error:
        advice = "change to another folder, or pass a writable one as --out"
        yield MachineFact("disk", "writing here", f"not possible: {error.strerror}", PROBLEM, advice)
        return
    slow = speed < SLOW_DISK
    advice = "write to a local disk and copy the table afterwards" if slow else ""
    yield MachineFact("disk", "writing here", f"{speed / 1e6:,.0f} MB/s, flushed", NOTE if slow else "ok", advice)


def cpu_quota(group: Path = CGROUP) -> float | None:
    """Return the container's CPU quota in cores; None if unlimited."""
    with suppress(OSError, ValueError):
        quota, period = (group / "cpu.max").read_text().split()
        return float(quota) / float(period) if quota != "max" else None
    return None


def memory_bytes(group: Path = CGROUP, of_system: Path = Path("/proc/meminfo")) -> tuple[int, int | None]:
    """Return the bytes of memory available to this process, and the free ones if known."""
    total, free = 0, None
    with suppress(OSError, ValueError, AttributeError):
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError, KeyError):
        lines = dict(line.split(":", 1) for line in of_system.read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
    with suppress(OSError, ValueError):
        bound = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
        if bound < total:
            total, free = bound, max(0, min(bound - used, free if free is not None else bound))
    return total, free


def flushed_speed(folder: Path) -> float:
    """Return the flushed write speed of the disk in bytes per second; OSError if nothing can be written."""
    data = os.urandom(FLUSHED)  # zeros might be compressed away
    with tempfile.TemporaryFile(dir=folder) as file:
        started = time.perf_counter()
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        return len(data) / (time.perf_counter() - started)


def _room(name: str, folder: Path) -> MachineFact:
    free = shutil.disk_usage(folder).free
    few = free < LITTLE_DISK
    advice = "free some space: a million rows take 1 to 3 GB, and twice that while they are merged" if few else ""
    return MachineFact("disk", name, f"{free / GB:,.1f} GB free", NOTE if few else "ok", advice)


def _no_card(build: str | None) -> MachineFact:
    if not NVIDIA.exists():
        return MachineFact("gpu", "cuda", "no NVIDIA card here: models run on the CPU")
    if build is None:
        advice = "install a torch that is built for CUDA: https://pytorch.org/get-started/locally"
        return MachineFact("gpu", "cuda", "there is an NVIDIA card, and this torch cannot use one", PROBLEM, advice)
    advice = "check nvidia-smi and CUDA_VISIBLE_DEVICES; the driver may be older than this torch needs"
    return MachineFact("gpu", "cuda", "there is an NVIDIA driver, and torch finds no card", PROBLEM, advice)


def _cpu_name() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
