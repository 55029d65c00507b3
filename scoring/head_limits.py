"""What a head may be: bounds that keep what a checkpoint asks for within memory."""

from scoring.errors import InputError

WIDEST = 65536
WIDEST_INSIDE = 8192  # of a layer between two others, whose weights are their product
MOST_SAMPLES = 1024
LARGEST_SCALE = 1e9  # in float32 a larger factor gives infinite scores, and a smaller one than its inverse zeros


def check_width(what: str, got: int, most: int = WIDEST) -> None:
    """Raise ``InputError`` unless a count is between 1 and ``most``."""
    if not 1 <= got <= most:
        raise InputError(f"{what} between 1 and {most}, got {got}")


def check_scale(what: str, got: float) -> None:
    """Raise ``InputError`` unless a factor is between 1 / ``LARGEST_SCALE`` and ``LARGEST_SCALE``."""
    if not 1 / LARGEST_SCALE <= got <= LARGEST_SCALE:
        shown = f"{got:g}" if isinstance(got, float) else f"a number of {len(str(got))} digits"
        raise InputError(f"{what} needs a scale between {1 / LARGEST_SCALE:g} and {LARGEST_SCALE:g}, got {shown}")
