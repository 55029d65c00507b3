"""The processes on a node of a Ray cluster: an actor that scores shards, and a task of a search.

This module is sent to nodes as source, not by name, so that a node without curate, or with another version, can report
it: at the top it imports only the standard library.
"""

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from curate.engines.job import Job
    from curate.engines.journal import Part
    from curate.engines.shard import Span

_let_in: dict[str, str] = {}  # hardware, libraries and node of this process, by marker
VERSIONED = {"curate": "curate.version", "torch": "torch", "pillow": "PIL", "simplejpeg": "simplejpeg"}


def process_facts(marker: str) -> dict[str, Any]:
    """Return facts of a process: ``node``, ``pid``, ``versions`` that decide the bytes, ``computes`` and ``marker``.

    ``marker`` is a small file in the shared folder of the run; its content, or None, is returned.
    """
    versions = {}
    for name, module in VERSIONED.items():
        try:
            versions[name] = str(import_module(module).__version__)
        except ImportError:
            versions[name] = "none"
    computes = ""
    if versions["torch"] != "none":
        import torch

        gpu = torch.cuda.is_available()
        computes = torch.cuda.get_device_name() if gpu else torch.backends.cpu.get_cpu_capability()
    seen = None
    with suppress(OSError), open(marker, "rb") as file:  # noqa: PTH123  a plain path, of whichever system this is
        seen = file.read(1 << 20)
    node = {"node": socket.gethostname(), "pid": os.getpid()}
    return {**node, "versions": versions, "computes": computes, "marker": seen}


class ScoringActor:
    """Opens a job and scores its shards, two at a time: one is decoded while the other is in the model.

    ``folder`` is the current folder of the driver, for relative paths.
    """

    def __init__(self, folder: str) -> None:
        with suppress(OSError):  # a node without the folder can use absolute paths, and reports missing ones
            os.chdir(folder)
        self._model = threading.Lock()

    def facts(self, marker: str) -> dict[str, Any]:
        """Return facts of this process; see ``process_facts``."""
        return process_facts(marker)

    def open(self, job: "Job") -> None:
        """Open the model and the source; errors name differences from the run's start."""
        self._job = job.open()

    def score(self, span: "Span") -> "Part":
        """Score one shard, write its file, and return its record."""
        from curate.engines.job import score_span

        return score_span(self._job, span, self._model)


@dataclass(frozen=True)
class Terms:
    """The requirements on a process that runs tasks: content of a marker file, versions, threads of matrix products."""

    marker: str
    content: bytes
    versions: dict[str, str]
    threads: int


def run_task(terms: Terms, function: Callable[[Any], Any], argument: Any) -> tuple[str, Any]:
    """Run a task; return the facts of this process, and the result.

    If this process does not meet the terms, nothing is run, and the result is None.
    """
    if terms.marker not in _let_in:
        facts = process_facts(terms.marker)
        if facts["marker"] != terms.content or facts["versions"] != terms.versions:
            return "", facts
        import torch

        torch.set_num_threads(terms.threads)
        _let_in[terms.marker] = f"{facts['computes']} on {facts['node']}"
    return _let_in[terms.marker], function(argument)
