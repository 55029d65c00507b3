"""A process that has imported all of curate and forks a child for each command: a start costs milliseconds.

It reads one JSON object a line, runs the command in a child and answers with one line. No thread is ever started here,
so that a child is as a fresh process; what a child does, it alone does.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import sys
import time
from pathlib import Path

SHIM = os.environ.get("LD_PRELOAD", "")
EVERYTHING = ("curate", "scoring", "trainers")
JANITORS = {"jemalloc_bg_thd", "polars-ooc-clea"}  # idle threads of libraries: a child has no need of them
ABSENT = ("ray", "openvino")  # which `curate selftest` would try: half a minute each, and their own processes
OTHERS = ("polars", "matplotlib.backends.backend_agg", "torch", "timm", "PIL.PngImagePlugin", "pyarrow.parquet")


def warm() -> None:
    """Import all that a command could."""
    for name in EVERYTHING:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    for name in OTHERS:
        importlib.import_module(name)
    os.environ.pop("LD_PRELOAD", None)  # for what a command itself starts


def child(request: dict) -> int:
    """Run one command as `python -m curate` does; return its exit code."""
    os.chdir(request["folder"])
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600) if request.get("log") else -1
    sys.argv = ["curate", *request["argv"]]
    sys.modules |= dict.fromkeys(ABSENT)  # as if it were not installed
    for number in request.get("ignored", []):
        signal.signal(number, signal.SIG_IGN)
    from curate.cli import main

    if SHIM:
        fault = request.get("fault") or {}
        ctypes.CDLL(SHIM).crash_arm(
            request["folder"].encode(),
            fault.get("action", 0),
            ctypes.c_long(fault.get("n", 0)),
            fault.get("errno", 0),
            log,
            bool(request.get("data")),
            ctypes.c_long(fault.get("jump", 0)),
        )
    try:
        main()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def leave(code: int) -> None:
    """End a child as the interpreter would."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BrokenPipeError, ValueError):
            stream.flush()
    os._exit(code)


def forked(request: dict) -> int:
    """Start a command in a child; return its process number."""
    if not (pid := os.fork()):
        code = 70
        try:
            code = child(request)
        finally:
            leave(code)
    return pid


def run(request: dict) -> dict:
    """Fork a child, send it the signals requested at their times, and say how it ended; so for others next to it."""
    began = time.perf_counter()
    pid = forked(request)
    others = [forked({**request, **other}) for other in request.get("beside", [])]
    handle = os.pidfd_open(pid)
    ready = select.poll()
    ready.register(handle, select.POLLIN)
    for after, number in request.get("signals", []):
        wait = began + after - time.perf_counter()
        if wait > 0 and ready.poll(wait * 1000):
            break
        os.kill(pid, number)
    late = not ready.poll(1000 * request.get("limit", 120))
    if late:
        os.kill(pid, signal.SIGKILL)
    codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in (pid, *others)]
    os.close(handle)
    return {"code": codes[0], "codes": codes, "seconds": time.perf_counter() - began, "late": late}


def main() -> None:
    """Serve until the input ends."""
    warm()
    threads = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    if len([name for name in threads if name not in JANITORS]) != 1:
        raise SystemExit(f"expected no thread but the first before a fork, got {threads}")
    gc.collect()
    gc.freeze()  # a collection in a child would touch, and so copy, every page
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
