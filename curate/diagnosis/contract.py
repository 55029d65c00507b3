"""The result of a check."""

from dataclasses import dataclass

OK, NOTE, PROBLEM = "ok", "note", "problem"


@dataclass(frozen=True)
class MachineFact:
    """One fact of this machine or installation.

    Attributes:
        section: heading in the output, such as ``memory``.
        name: of the fact.
        value: in words, with its unit; contains no secrets and no names of users or machines.
        state: ``ok``; ``note`` if something could be better or faster; ``problem`` if something will not work.
        advice: next step, in words or as a command line; empty if there is none.
    """

    section: str
    name: str
    value: str
    state: str = OK
    advice: str = ""
