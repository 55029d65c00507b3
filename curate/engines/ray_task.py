"""A task of a search on a node of a Ray cluster.

It is sent there as it is, not by its name; see ``ray_actor``, whose facts it shows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from curate.engines.ray_actor import process_facts  # sent along

_let_in: dict[str, str] = {}  # marker -> what this process computes with, and on which node


@dataclass(frozen=True)
class Terms:
    """What a process on a node has to be like to run tasks.

    Attributes:
        marker: a small file in the folder that all nodes see.
        content: what is in it.
        versions: of what decides the bytes.
        threads: of products.
    """

    marker: str
    content: bytes
    versions: dict[str, str]
    threads: int


def run_task(terms: Terms, function: Callable[[Any], Any], argument: Any) -> tuple[str, Any]:
    """Run a task; return what computed it, and its result.

    Where this process is not what the terms ask for, nothing is run: nothing, and its facts.
    """
    if terms.marker not in _let_in:
        facts = process_facts(terms.marker)
        if facts["marker"] != terms.content or facts["versions"] != terms.versions:
            return "", facts
        import torch

        torch.set_num_threads(terms.threads)
        _let_in[terms.marker] = f"{facts['computes']} on {facts['node']}"
    return _let_in[terms.marker], function(argument)
