"""Images of 16 bits a channel that hold fewer: all their bits, by the white that the caller states."""

import io
import struct
import zlib

import numpy as np
import pytest
from pictures import encoded
from PIL import Image

from scoring.images import Preprocessing, decode, decode_rgb
from scoring.images.deep import white_for
from scoring.images.raster import DecodeOptions

P16 = Preprocessing(size=16, resize=16)


def values(seed, channels, white, shape=(23, 31)):
    size = shape if channels == 1 else (*shape, channels)
    return np.random.default_rng(seed).integers(0, white + 1, size).astype(np.uint16)


def png16(pixels, *, interlaced=False):
    """Write a PNG of 16 bits by hand: Pillow writes grey alone."""
    height, width = pixels.shape[:2]
    colour = {2: 0}.get(pixels.ndim) if pixels.ndim == 2 else {2: 4, 3: 2, 4: 6}[pixels.shape[2]]

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    def lines(part):
        return b"".join(b"\0" + row.astype(">u2").tobytes() for row in part) if part.size else b""

    if interlaced:  # Adam7: PNG specification, section 8
        starts = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
        body = b"".join(lines(pixels[y::down, x::across]) for y, x, down, across in starts)
    else:
        body = lines(pixels)
    head = struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, int(interlaced))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(body)) + chunk(b"IEND", b"")


def tiff16(pixels, order="<"):
    """Write an uncompressed RGB TIFF of 16 bits by hand."""
    height, width, channels = pixels.shape
    body = pixels.astype(f"{order}u2").tobytes()
    extra = 8 + 2 + 12 * 10 + 4
    entries = [(256, 3, 1, width), (257, 3, 1, height), (258, 3, channels, extra), (259, 3, 1, 1), (262, 3, 1, 2)]
    entries += [(273, 4, 1, extra + 2 * channels), (277, 3, 1, channels), (278, 3, 1, height), (279, 4, 1, len(body))]
    entries += [(284, 3, 1, 1)]
    out = io.BytesIO()
    out.write((b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}IH", 8, len(entries)))
    for tag, kind, count, value in entries:
        short = kind == 3 and count == 1
        out.write(struct.pack(f"{order}HHI", tag, kind, count))
        out.write(struct.pack(f"{order}HH", value, 0) if short else struct.pack(f"{order}I", value))
    out.write(struct.pack(f"{order}I", 0) + struct.pack(f"{order}{channels}H", *[16] * channels) + body)
    return out.getvalue()


def scaled(pixels, white):
    """By hand: v x 255 / white, rounded."""
    return np.floor(np.minimum(pixels.astype(float), white) * 255 / white + 0.5)


@pytest.mark.parametrize("white", [255, 1023, 4095, 16383, 65535])
@pytest.mark.parametrize("name", ["png", "tiff"])
def test_grey_is_divided_by_the_white_that_is_stated(white, name):
    pixels = values(1, 1, white)
    got = decode_rgb(encoded(Image.fromarray(pixels), name), white=white)
    assert (got == scaled(pixels, white)[..., None]).all()


def test_twelve_bits_decode_as_their_eight_bit_copy():
    eight = np.random.default_rng(0).integers(0, 256, (40, 50)).astype(np.uint16)
    deep = decode(encoded(Image.fromarray(eight * 16)), P16, DecodeOptions(white=4095))
    plain = decode(encoded(Image.fromarray(eight.astype(np.uint8))), P16)
    assert np.abs(deep.pixels.astype(int) - plain.pixels).max() <= 1
    assert (deep.highest, plain.highest) == (int(eight.max()) * 16, None)
    assert decode(encoded(Image.fromarray(eight * 16)), P16).pixels.max() < 17


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("white", [1023, 4095])
def test_colour_png_keeps_all_its_bits(white, interlaced):
    pixels = values(2, 3, white)
    outcome = decode(
        png16(pixels, interlaced=interlaced), Preprocessing(size=23, resize=23), DecodeOptions(white=white)
    )
    assert outcome.highest == pixels.max()
    assert (decode_rgb(png16(pixels, interlaced=interlaced), white=white) == scaled(pixels, white)).all()


@pytest.mark.parametrize("channels", [2, 4])
def test_colour_with_alpha_is_scaled_and_its_alpha_is_not(channels):
    pixels = values(3, channels, 4095)
    pixels[..., -1] = 65535
    pixels[:5, :, -1] = 0
    got = decode_rgb(png16(pixels), white=4095)
    colours = pixels[..., :-1].repeat(3, 2) if channels == 2 else pixels[..., :3]
    assert (got[5:] == scaled(colours, 4095)[5:]).all()
    assert (got[:5] == 255).all()


@pytest.mark.parametrize("order", ["<", ">"])
def test_colour_tiff_keeps_all_its_bits_in_either_byte_order(order):
    pixels = values(4, 3, 4095)
    assert (decode_rgb(tiff16(pixels, order), white=4095) == scaled(pixels, 4095)).all()
    assert (decode_rgb(tiff16(pixels, order)) == pixels >> 8).all()


def test_a_tiff_that_states_its_bits_and_eight_bit_files_use_their_white():
    eight = encoded(Image.fromarray(values(5, 3, 255).astype(np.uint8)))
    assert (decode_rgb(eight, white=4095) == decode_rgb(eight)).all()


def test_what_is_above_white_is_white_and_reported():
    pixels = values(6, 1, 4095)
    pixels[0, 0] = 60000
    outcome = decode(encoded(Image.fromarray(pixels)), P16, DecodeOptions(white=4095))
    assert outcome.status == "ok"
    assert "60,000" in outcome.error
    assert decode_rgb(encoded(Image.fromarray(pixels)), white=4095)[0, 0, 0] == 255
    assert decode(encoded(Image.fromarray(pixels)), P16).error is None


def test_the_white_of_a_largest_value_is_the_smallest_depth_that_holds_it():
    for bits in (8, 10, 12, 14, 16):
        assert white_for(2**bits - 1) == 2**bits - 1
    assert [white_for(value) for value in (0, 256, 1024, 4096, 16384)] == [255, 1023, 4095, 16383, 65535]


@pytest.mark.parametrize("white", [0, 254, 65536])
def test_a_white_out_of_range_is_a_mistake_of_the_caller(white):
    with pytest.raises(ValueError, match="white"):
        decode_rgb(encoded(Image.new("L", (4, 4))), white=white)


def test_a_separate_process_reads_the_same():
    for data in (png16(values(7, 3, 4095)), encoded(Image.fromarray(values(8, 1, 4095)))):
        local, elsewhere = (
            decode(data, P16, DecodeOptions(white=4095), supervised=supervised) for supervised in (False, True)
        )
        assert (local.pixels == elsewhere.pixels).all()
        assert local.highest == elsewhere.highest
