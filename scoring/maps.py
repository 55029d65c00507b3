"""The size of a decoder's first feature map."""

from scoring.errors import InputError

LARGEST = 1 << 15  # largest side of an image, in pixels


def map_of_decoder(size: int) -> tuple[int, int]:
    """Return the side of a decoder's first map, 4 to 7, and the number of doublings; InputError for an impossible size.

    >>> map_of_decoder(32), map_of_decoder(224)
    ((4, 3), (7, 5))
    """
    doublings = max(0, size.bit_length() - 3)
    side, rest = divmod(size, 1 << doublings)
    if rest or doublings < 1 or size > LARGEST:
        able = [side << n for n in range(1, 15) for side in range(4, 8)]
        near = sorted(sorted(able, key=lambda able_size: abs(able_size - size))[:2])
        raise InputError(
            f"a decoder doubles a map of 4 to 7 pixels until it is an image: expected a size such as {near[0]} or "
            f"{near[1]}, got {size}"
        )
    return side, doublings
