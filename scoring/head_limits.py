"""What a head may be: bounds that keep what a checkpoint asks for within memory."""

from scoring.errors import InputError

WIDEST = 65536
WIDEST_INSIDE = 8192  # of a layer between two others, whose weights are their product
MOST_SAMPLES = 1024


def check_width(what: str, got: int, most: int = WIDEST) -> None:
    """Raise ``InputError`` unless a count is between 1 and ``most``."""
    if not 1 <= got <= most:
        raise InputError(f"{what} between 1 and {most}, got {got}")


def check_scale(what: str, got: float) -> None:
    """Raise ``InputError`` unless a factor is above 0 and finite."""
    if not 0 < got < float("inf"):
        raise InputError(f"{what} needs a scale above 0, got {got}")
