"""Number of frames of a GIF or TIFF, counted in a bounded number of steps.

Pillow counts by walking the whole file with no bound, so a small hostile file can keep it busy for minutes.
"""

from typing import Literal

MOST_STEPS = 200_000  # blocks of a GIF, directories of a TIFF; beyond it the count is not known


def count_gif(data: bytes) -> int | None:
    """Return the number of frames in a GIF (at least 1); None if it has too many blocks.

    Source: GIF89a specification, sections 18 to 27.
    """
    at = 13 + _colour_table(data, 10)
    n_frames, in_blocks = 0, False
    for _ in range(MOST_STEPS):
        if at >= len(data):
            return max(1, n_frames)
        kind = data[at]
        if in_blocks:  # a sub-block: its length, then so many bytes; length 0 ends them
            in_blocks = kind != 0
            at += 1 + kind
        elif kind == 0x2C:  # image descriptor, perhaps a colour table, the code size
            n_frames, in_blocks = n_frames + 1, True
            at += 11 + _colour_table(data, at + 9)
        elif kind == 0x21:  # extension
            in_blocks = True
            at += 2
        elif kind == 0x3B:  # trailer
            return max(1, n_frames)
        else:
            at += 1
    return None


def count_tiff(data: bytes) -> int | None:
    """Return the number of directories in a TIFF or BigTIFF (at least 1); None if there are too many.

    A chain that comes back to a directory ends there.
    """
    order: Literal["big", "little"] = "big" if data[:2] == b"MM" else "little"
    is_big = b"+" in data[2:4]
    n_count, n_entry, n_offset = (8, 20, 8) if is_big else (2, 12, 4)

    def number(at: int, n_bytes: int) -> int:
        return int.from_bytes(data[at : at + n_bytes], order)

    at = number(8 if is_big else 4, n_offset)
    seen: set[int] = set()
    while 0 < at < len(data) and at not in seen:
        if len(seen) >= MOST_STEPS:
            return None
        seen.add(at)
        at = number(at + n_count + n_entry * number(at, n_count), n_offset)
    return max(1, len(seen))


def _colour_table(data: bytes, at: int) -> int:
    flags = data[at] if at < len(data) else 0
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0
