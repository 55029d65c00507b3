"""A decoder whose C code fails where an image says so: bytes ``<<SEGV>>`` anywhere in it, and so on."""

import os
import signal
import sys
import time
from pathlib import Path

SEGV, ABORT, SPIN, SLEEP, GROW, LEAVE = (
    f"<<{word}>>".encode() for word in ("SEGV", "ABRT", "SPIN", "SLEEP", "GROW", "LEAVE")
)
SCRIPT = """
import sys
sys.path[:] = {{paths}}
sys.path.append({folder!r})
import failing_decoder
failing_decoder.install()
from scoring.images.child import serve
serve({{fd}})
"""


def fail(data):
    if SEGV in data:
        os.kill(os.getpid(), signal.SIGSEGV)
    if ABORT in data:
        os.abort()
    if LEAVE in data:
        os._exit(3)
    while SPIN in data:
        pass
    if SLEEP in data:
        time.sleep(1000)
    if GROW in data:
        grown = []
        while True:
            grown.append(bytearray(1 << 24))


def install():
    """Make the libraries written in C fail in this process."""
    import simplejpeg

    from scoring.images import jpeg, pillow

    decode_jpeg, read_image = simplejpeg.decode_jpeg, pillow.PillowFile.read

    def decode(data, *arguments, **options):
        fail(data)
        return decode_jpeg(data, *arguments, **options)

    def read(file, **options):
        fail(file._data)
        return read_image(file, **options)

    jpeg.simplejpeg = type(
        "simplejpeg", (), {"decode_jpeg": decode, "decode_jpeg_header": simplejpeg.decode_jpeg_header}
    )
    pillow.PillowFile.read = read


def install_in_children():
    """Make them fail in the processes that decode, too."""
    from scoring.images import supervised

    supervised._SCRIPT = SCRIPT.format(folder=str(Path(__file__).parent))
    supervised.CHILDREN.end()


if __name__ == "__main__":  # a run of the command line with such a decoder
    install()
    install_in_children()
    from curate.cli import main

    sys.exit(main())
