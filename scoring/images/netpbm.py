"""PBM, PGM and PPM: header sizes checked against the bytes present, and 16-bit grey."""

import io

from PIL import Image, PpmImagePlugin

from scoring.images.outcome import DecodeError

MOST_LOOPED_PIXELS = 4_000_000  # of text, and scaled binary values, which Pillow reads in a Python loop
LONGEST_HEADER = 1 << 16  # bytes, comments included; Pillow reads it byte by byte
_DEEP = 65535  # the largest value of 16 bits


class NetpbmFile(PpmImagePlugin.PpmImageFile):
    """An opened PBM, PGM or PPM; grey of more than 8 bits has the same mode as in other formats."""

    def load(self) -> "Image.core.PixelAccess | None":
        """Decode the values."""
        access = super().load()
        if self.mode != "I":
            return access
        self.im = self.im.convert("I;16", Image.Dither.NONE)
        self._mode = "I;16"
        return super().load()

    @property
    def is_looped(self) -> bool:
        """Whether Pillow decodes the values one by one in Python."""
        return self.tile[0].codec_name != "raw"

    @property
    def is_text(self) -> bool:
        """Whether the values are written as text."""
        return self.tile[0].codec_name == "ppm_plain"

    @property
    def bits(self) -> int:
        """16 for grey with 16-bit values, else 8, since Pillow scales by the largest value."""
        args = self.tile[0].args
        largest = args[-1] if isinstance(args, tuple) else args
        return 16 if self.mode == "I" and largest in ("I;16B", _DEEP) else 8

    @property
    def fewest_bytes(self) -> int:
        """The minimal number of bytes of the values."""
        width, height = self.size
        if self.mode == "1":
            return width * height if self.is_text else -(-width // 8) * height
        n_values = width * height * len(self.getbands())
        if self.is_text:
            return 2 * n_values - 1  # one digit each, and separators
        args = self.tile[0].args
        is_wide = self.mode == "I" or (isinstance(args, tuple) and isinstance(args[-1], int) and args[-1] > 255)
        return n_values * (2 if is_wide else 1)


def open_netpbm(stream: io.BytesIO) -> NetpbmFile:
    """Read the header; DecodeError (``corrupt``) if it is too long."""
    head = stream.read(LONGEST_HEADER)
    is_entire_file = not stream.read(1)
    stream.seek(0)
    try:
        NetpbmFile(io.BytesIO(head), "")
    except ValueError as error:
        if is_entire_file or "EOF" not in str(error):
            raise
        message = f"expected a header of at most {LONGEST_HEADER:,} bytes, got a longer one"
        raise DecodeError("corrupt", message) from None
    return NetpbmFile(stream, "")


def check_values(opened: NetpbmFile, n_bytes: int) -> None:
    """Raise DecodeError (``truncated``) if a file of ``n_bytes`` cannot hold all values; before memory is allocated."""
    n_left = n_bytes - opened.tile[0].offset
    if n_left < opened.fewest_bytes:
        width, height = opened.size
        raise DecodeError(
            "truncated",
            f"pnm: {width} x {height} pixels take at least {opened.fewest_bytes:,} bytes, the file has {n_left:,}",
        )
