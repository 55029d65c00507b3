"""Reads the footers of Parquet files in a separate process, so that a damaged one cannot crash this process.

An inconsistent footer makes Arrow's C++ code throw outside of Python's reach, and the process aborts (seen with pyarrow
26: level histograms of the wrong length). So each footer is read once in another process first.
"""

import struct
import subprocess
import sys
from collections.abc import Iterable
from typing import IO

from curate.manifest.places import Place
from scoring.errors import InputError

MAX_FOOTER = 256 << 20
_MAGIC = b"PAR1"
# Reads frames of (length, footer) and responds with one byte each; the first response shows that it started.
_CHILD = """
import io, struct, sys
import pyarrow.parquet as pq
say = sys.stdout.buffer
def answer(byte):
    say.write(byte)
    say.flush()
answer(b"R")
while head := sys.stdin.buffer.read(8):
    footer = pq.read_metadata(io.BytesIO(sys.stdin.buffer.read(struct.unpack("<Q", head)[0])))
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for index in range(group.num_columns):
            chunk = group.column(index)
            chunk.path_in_schema, chunk.encodings, chunk.total_uncompressed_size
            chunk.has_dictionary_page, chunk.dictionary_page_offset
            if chunk.statistics is not None:
                chunk.statistics.has_null_count, chunk.statistics.null_count
    answer(b"K")
"""


def check_footers(places: Iterable[Place]) -> None:
    """Check that the footers of Parquet files can be read safely.

    Starts a Python process (about 0.3 s), and reads each footer twice. If no process can be started, the check is
    skipped.

    Raises:
        InputError: if a file has no footer, or reading it fails; names the file.
    """
    if not sys.executable:
        return
    command = [sys.executable, "-P", "-c", _CHILD]
    with subprocess.Popen(  # noqa: S603 (our own interpreter and a constant script)
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        if child.stdin is None or child.stdout is None:
            raise ValueError("both pipes were requested")
        if child.stdout.read(1) != b"R":
            return
        try:
            for place in places:
                if not _answers(_footer(place), child.stdin, child.stdout):
                    raise InputError(
                        f"{place.name} is not readable Parquet: its footer contradicts itself; write or fetch it again"
                    )
        finally:
            child.stdin.close()


def _answers(footer: bytes, to_child: IO[bytes], from_child: IO[bytes]) -> bool:
    try:
        to_child.write(struct.pack("<Q", len(footer)) + footer)
        to_child.flush()
    except BrokenPipeError:
        return False
    return from_child.read(1) == b"K"


def _footer(place: Place) -> bytes:
    """Return the smallest Parquet file with the same footer."""
    with place.open() as file:
        end = file.seek(0, 2)
        if end < 12:
            raise InputError(f"{place.name} is not readable Parquet: it has {end} bytes; write or fetch it again")
        file.seek(end - 8)
        size, magic = struct.unpack("<I4s", file.read(8))
        if magic != _MAGIC or size > min(end - 12, MAX_FOOTER):
            raise InputError(
                f"{place.name} is not readable Parquet: it does not end in a footer; write or fetch it again"
            )
        file.seek(end - 8 - size)
        return _MAGIC + file.read(size + 8)
