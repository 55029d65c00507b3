"""A number and its noun, as one says it: 1 image, 2 images."""


def counted(n: int, one: str, many: str | None = None) -> str:
    """Return a count in words.

    Args:
        n: how many.
        one: what follows 1, a noun or more: "image", "image is left".
        many: what follows any other number; None for ``one`` with an s.

    >>> counted(1, "class", "classes"), counted(2_500, "image"), counted(0, "is left", "are left")
    ('1 class', '2,500 images', '0 are left')
    """
    return f"{n:,} {one if n == 1 else many if many is not None else one + 's'}"
