"""The result of a check."""

from dataclasses import dataclass

OK, NOTE, PROBLEM = "ok", "note", "problem"


@dataclass(frozen=True)
class MachineFact:
    """One fact of this machine or installation.

    Attributes:
        section: heading it stands under, such as ``memory``.
        name: what it is of.
        value: in words, with its unit; no secrets, no name of a reviewer or a machine.
        state: ``ok``; ``note`` where something could be better or faster; ``problem`` where something will not work.
        advice: what to do, in words or as a command line; empty where there is nothing to do.
    """

    section: str
    name: str
    value: str
    state: str = OK
    advice: str = ""
