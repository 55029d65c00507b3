"""From finders and thresholds in the order typed to what was asked."""

from collections.abc import Sequence

from curate.dedup.finders import FINDERS
from scoring.errors import InputError
from scoring.lookup import lookup


def finders_in_order(typed: Sequence[tuple[str, str]]) -> dict[str, float | None] | None:
    """Return finder -> threshold, or None where no finder was typed.

    A threshold belongs to the finder before it.

    Args:
        typed: (parameter, value) in the order of the command line.

    Raises:
        InputError: for an unknown or repeated finder, a threshold without one, or one that is not a number.
    """
    found: dict[str, float | None] = {}
    last: str | None = None
    for name, value in typed:
        if name == "finder":
            lookup(FINDERS, value, kind="finder")
            if value in found:
                raise InputError(
                    f"--finder {value} was given twice; give each finder once, with its --threshold after it"
                )
            found[value] = None
            last = value
        elif name == "threshold":
            if last is None:
                raise InputError(
                    f"--threshold {value} belongs to the --finder before it, and there is none; write it like: "
                    "--finder hash --threshold 4"
                )
            if found[last] is not None:
                raise InputError(f"--finder {last} has two thresholds; give it one")
            try:
                found[last] = float(value)
            except ValueError:
                raise InputError(f"--threshold takes a number, got {value!r}") from None
    return found or None
