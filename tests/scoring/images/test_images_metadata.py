"""Damage next to the pixels: the image is decoded all the same, and a warning says what was ignored."""

import struct
import zlib

import numpy as np
import pytest
from pictures import encoded
from PIL import Image

from scoring.images import Preprocessing, decode, decode_rgb

P32 = Preprocessing(size=32, resize=32)
PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 255, (48, 64, 3), dtype=np.uint8))
GARBAGE = b"\x01\x02garbage!!"


def exif(orientation=None):
    values = Image.Exif()
    values[0x010F] = "a maker of cameras " * 4
    if orientation:
        values[0x0112] = orientation
    data = values.tobytes()
    return data.removeprefix(b"Exif\0\0")


def png_with(*chunks, behind=False):
    """A PNG with (kind, body, whether its checksum is right) before or behind its pixels."""
    data = encoded(PICTURE)
    at = len(data) - 12 if behind else 33
    made = b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body) ^ (not sound))
        for kind, body, sound in chunks
    )
    return data[:at] + made + data[at:]


def webp_with(body):
    data = encoded(PICTURE, "webp", exif=b"Exif\0\0" + exif(), lossless=True)
    at = data.index(b"EXIF")
    chunk = b"EXIF" + struct.pack("<I", len(body)) + body + b"\0" * (len(body) & 1)
    rest = data[12:at] + chunk
    return b"RIFF" + struct.pack("<I", len(rest) + 4) + b"WEBP" + rest


BAD_PNG = {
    "EXIF that is invalid": (b"eXIf", GARBAGE, True),
    "EXIF behind a prefix": (b"eXIf", b"Exif\0\0" + GARBAGE, True),
    "EXIF with a wrong checksum": (b"eXIf", exif(6), False),
    "EXIF as text that is no number": (b"tEXt", b"Raw profile type exif\0\nexif\n 20\nzzzz", True),
    "colour profile": (b"iCCP", b"icc\0\5x", True),
    "empty colour profile": (b"iCCP", b"", True),
    "text": (b"tEXt", b"a\0b", False),
    "resolution": (b"pHYs", b"\0", True),
    "gamma": (b"gAMA", b"\0", True),
    "primaries": (b"cHRM", b"\0", True),
    "intent": (b"sRGB", b"", True),
    "a chunk of another program": (b"vpAg", b"\0", False),
    "too much text": (b"zTXt", b"a\0\0" + zlib.compress(bytes(80_000_000)), True),
}


@pytest.mark.parametrize("name", BAD_PNG)
def test_a_png_with_damaged_metadata_is_ok_with_a_warning(name):
    data = png_with(BAD_PNG[name])
    outcome = decode(data, P32)
    assert (outcome.status, outcome.width, outcome.height) == ("ok", 64, 48)
    assert "ignored" in outcome.error
    assert (decode_rgb(data) == np.asarray(PICTURE)).all()


def test_damaged_exif_behind_the_pixels_of_a_png_is_ignored_too():
    outcome = decode(png_with((b"eXIf", GARBAGE, True), behind=True), P32)
    assert (outcome.status, outcome.width) == ("ok", 64)
    assert "EXIF" in outcome.error


def test_a_sound_orientation_next_to_other_damage_is_kept():
    data = png_with((b"eXIf", exif(6), True), (b"tEXt", b"a\0b", False))
    outcome = decode(data, P32)
    assert (outcome.status, outcome.width, outcome.height) == ("ok", 48, 64)
    assert (decode_rgb(data) == np.rot90(np.asarray(PICTURE), -1)).all()


@pytest.mark.parametrize("body", [GARBAGE, b"Exif\0\0" + GARBAGE, b"zz", exif()[:9]])
def test_a_webp_with_damaged_exif_is_ok(body):
    data = webp_with(body)
    outcome = decode(data, P32)
    assert (outcome.status, outcome.width) == ("ok", 64)
    assert (decode_rgb(data) == np.asarray(PICTURE)).all()
    if body.endswith(GARBAGE):
        assert "EXIF" in outcome.error


def test_an_avif_with_damaged_exif_is_ok_and_its_rotation_holds():
    values = Image.Exif()
    values[0x010F] = "a maker of cameras " * 4
    data = encoded(PICTURE, "avif", exif=values.tobytes(), quality=100)
    damaged = data.replace(exif(), GARBAGE.ljust(len(exif()), b"z"))
    assert damaged != data
    assert decode(data, P32).error is None
    outcome = decode(damaged, P32)
    assert (outcome.status, outcome.width) == ("ok", 64)
    assert "Exif" in outcome.error
    assert (decode_rgb(damaged) == decode_rgb(data)).all()


def test_damage_to_what_decides_the_pixels_is_still_corrupt():
    data = encoded(PICTURE.quantize(8), transparency=1)
    at = data.index(b"tRNS")
    assert decode(data[: at + 5] + b"\x99" + data[at + 6 :], P32).status == "corrupt"
    at = data.index(b"IDAT")
    assert decode(data[: at + 9] + b"\x99\x99" + data[at + 11 :], P32).status == "corrupt"
    assert decode(png_with((b"tEXt", b"a\0b", False))[:900], P32).status == "truncated"
