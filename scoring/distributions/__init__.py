"""Distributions on the unit sphere: functions in modules, and ``torch.distributions`` classes by name."""

from typing import Any

CLASSES = ("NonIsotropicVMF", "PowerSpherical", "VonMisesFisher")


def __getattr__(name: str) -> Any:
    """Return a class of ``CLASSES``, importing its module."""
    if name not in CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from scoring.distributions import classes

    return getattr(classes, name)
