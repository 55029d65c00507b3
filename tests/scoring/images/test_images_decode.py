"""What decode makes of good images of every format: size, colours, orientation, counts."""

import hashlib
import io

import numpy as np
import pytest
from pictures import encoded
from PIL import Image, ImageOps

from scoring.images import DecodeError, Preprocessing, decode, decode_rgb
from scoring.images.geometry import MAX_ASPECT, dct_scale, resized_size
from scoring.images.raster import DecodeOptions

P16 = Preprocessing(size=16, resize=16)
LOSSLESS = {"png": {}, "webp": {"lossless": True}, "tiff": {}, "bmp": {}}
EXIF_FORMATS = {"jpeg": {"quality": 95, "subsampling": 0}, "png": {}, "webp": {"lossless": True}, "tiff": {}}
EXIF_FORMATS["avif"] = {"quality": 95, "subsampling": "4:4:4"}


def scene(width, height, seed=0):
    """A smooth image, so that lossy formats change it little; no two corners alike."""
    rng = np.random.default_rng(seed)
    corners = rng.integers(0, 256, (3, 4, 3), dtype=np.uint8)
    corners[0, 0], corners[0, -1], corners[-1, 0], corners[-1, -1] = (255, 0, 0), (0, 255, 0), (0, 0, 255), (9, 9, 9)
    return Image.fromarray(corners).resize((width, height), Image.Resampling.BILINEAR)


def by_pillow(data, preprocessing):
    """The definition: full decode, turn, resize the short side, cut the centre; with Pillow throughout."""
    picture = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    width, height = picture.size
    short = min(width, height)
    size = (int(width * preprocessing.resize / short), int(height * preprocessing.resize / short))
    filters = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}
    picture = picture.resize(size, filters[preprocessing.interpolation])
    left, top = (round((side - preprocessing.size) / 2) for side in picture.size)
    return np.asarray(picture.crop((left, top, left + preprocessing.size, top + preprocessing.size)))


@pytest.mark.parametrize("name", LOSSLESS)
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize(("width", "height"), [(100, 60), (61, 97), (40, 40), (7, 5)])
def test_lossless_formats_give_pillows_pixels_to_within_one(name, interpolation, width, height):
    preprocessing = Preprocessing(size=20, resize=24, interpolation=interpolation)
    data = encoded(scene(width, height), name, **LOSSLESS[name])
    outcome = decode(data, preprocessing)
    difference = outcome.pixels.astype(int) - by_pillow(data, preprocessing)
    assert (outcome.status, outcome.format, outcome.error) == ("ok", name, None)
    assert np.abs(difference).max() <= 1


def test_pixels_are_contiguous_writable_uint8_of_the_size_requested():
    pixels = decode(encoded(scene(50, 30), "png"), P16).pixels
    assert (pixels.shape, pixels.dtype) == ((16, 16, 3), np.uint8)
    assert pixels.flags["C_CONTIGUOUS"]
    assert pixels.flags["WRITEABLE"]


def test_facts_of_the_file_are_its_own():
    data = encoded(scene(50, 30), "jpeg")
    outcome = decode(data, P16)
    assert outcome.sha256 == hashlib.sha256(data).hexdigest()
    assert (outcome.n_bytes, outcome.width, outcome.height) == (len(data), 50, 30)
    assert (outcome.format, outcome.n_frames) == ("jpeg", 1)


@pytest.mark.parametrize("name", EXIF_FORMATS)
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_applied_exactly_once(name, orientation):
    upright = scene(48, 32)
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(upright, name, exif=exif.tobytes(), **EXIF_FORMATS[name])
    turn = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_270,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_90,
    }.get(orientation)
    expected = upright if turn is None else upright.transpose(turn)
    outcome = decode(data, P16)
    assert (outcome.width, outcome.height) == expected.size
    decoded = decode_rgb(data)
    assert np.abs(decoded.astype(int) - np.asarray(expected)).mean() < 4
    assert np.abs(outcome.pixels.astype(int) - decode(encoded(expected, "png"), P16).pixels).mean() < 4


def test_orientation_behind_the_pixels_of_a_png_is_found():
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded(scene(48, 32), "png", exif=exif.tobytes())
    start = data.index(b"eXIf") - 4
    end = start + 12 + int.from_bytes(data[start : start + 4], "big")
    moved = data[:start] + data[end:-12] + data[start:end] + data[-12:]  # before IEND
    outcome = decode(moved, P16)
    assert (outcome.status, outcome.width, outcome.height) == ("ok", 32, 48)
    assert (outcome.pixels == decode(data, P16).pixels).all()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_heif_orientation_is_applied_exactly_once(orientation):
    pillow_heif = pytest.importorskip("pillow_heif", reason="the heif extra is not installed")
    upright = scene(64, 48)
    exif = Image.Exif()
    exif[0x0112] = orientation
    stream = io.BytesIO()
    pillow_heif.from_pillow(upright).save(stream, quality=95, exif=exif.tobytes())
    as_stored = encoded(upright, "png", exif=exif.tobytes())
    outcome = decode(stream.getvalue(), P16)
    assert outcome.format == "heif"
    expected = decode(as_stored, P16)
    assert (outcome.width, outcome.height) == (expected.width, expected.height)
    assert np.abs(outcome.pixels.astype(int) - expected.pixels).mean() < 6


def test_missing_heif_extra_is_named_with_its_pip_line(monkeypatch):
    monkeypatch.setattr("scoring.images.raster.find_spec", lambda name: None)
    outcome = decode(b"\x00\x00\x00\x18ftypheic" + bytes(200), P16)
    assert (outcome.status, outcome.format) == ("unsupported", "heif")
    assert "pip install 'kappa-curate[heif]'" in outcome.error


def plain(outcome):
    """The one colour of an image of one colour."""
    assert outcome.status == "ok", outcome.error
    assert np.ptp(outcome.pixels.reshape(-1, 3), axis=0).max() <= 1
    return tuple(int(value) for value in outcome.pixels[8, 8])


def test_sixteen_bit_grey_is_divided_by_257_and_rounded():
    for value in (0, 128, 129, 32768, 40863, 65406, 65407, 65535):
        picture = Image.fromarray(np.full((20, 20), value, dtype=np.uint16))
        expected = round(value / 257)
        for name in ("png", "tiff"):
            assert plain(decode(encoded(picture, name), P16)) == (expected,) * 3, (name, value)


def test_sixteen_bit_tiff_whose_zero_is_white_is_inverted():
    picture = Image.fromarray(np.full((20, 20), 257 * 200, dtype=np.uint16))
    data = encoded(picture, "tiff", tiffinfo={262: 0})
    assert plain(decode(data, P16)) == (55, 55, 55)


def test_float_grey_in_the_unit_interval_is_scaled_and_any_other_is_unsupported():
    def tiff(value):
        return encoded(Image.fromarray(np.full((20, 20), value, dtype=np.float32)), "tiff")

    assert plain(decode(tiff(0.2), P16)) == (51, 51, 51)
    for value in (1.5, -0.1, np.nan, np.inf):
        outcome = decode(tiff(value), P16)
        assert outcome.status == "unsupported"
        assert "float pixels" in outcome.error


@pytest.mark.parametrize("name", ["png", "webp", "tiff", "avif"])
def test_transparency_shows_white_and_never_the_hidden_colour(name):
    options = {"webp": {"lossless": True, "exact": True}, "avif": {"quality": 100}}.get(name, {})
    hidden = encoded(Image.new("RGBA", (20, 20), (255, 0, 0, 0)), name, **options)
    half = encoded(Image.new("RGBA", (20, 20), (255, 0, 0, 51)), name, **options)
    assert plain(decode(hidden, P16)) == (255, 255, 255)
    assert np.allclose(plain(decode(half, P16)), (255, 204, 204), atol=2)


def test_transparent_palette_grey_and_gif_show_white():
    palette = Image.new("P", (20, 20), 3)
    palette.putpalette([7 * i % 256 for i in range(768)])
    assert plain(decode(encoded(palette, "png", transparency=3), P16)) == (255, 255, 255)
    assert plain(decode(encoded(palette, "gif", transparency=3), P16)) == (255, 255, 255)
    assert plain(decode(encoded(palette, "png"), P16)) == tuple(7 * i % 256 for i in (9, 10, 11))
    assert plain(decode(encoded(Image.new("L", (20, 20), 80), "png", transparency=80), P16)) == (255, 255, 255)
    assert plain(decode(encoded(Image.new("LA", (20, 20), (100, 0)), "png"), P16)) == (255, 255, 255)
    assert plain(decode(encoded(Image.new("LA", (20, 20), (100, 255)), "png"), P16)) == (100, 100, 100)
    grey16 = Image.fromarray(np.full((20, 20), 999, dtype=np.uint16))
    assert plain(decode(encoded(grey16, "png", transparency=999), P16)) == (255, 255, 255)


def test_one_bit_images_are_black_and_white():
    assert plain(decode(encoded(Image.new("1", (20, 20), 1), "png"), P16)) == (255, 255, 255)
    assert plain(decode(encoded(Image.new("1", (20, 20), 0), "tiff"), P16)) == (0, 0, 0)


def test_cmyk_jpeg_and_tiff_are_converted_by_the_usual_formula():
    ink = (51, 102, 0, 25)
    expected = [(255 - c) * (255 - ink[3]) / 255 for c in ink[:3]]
    for name in ("jpeg", "tiff"):  # Pillow writes Adobe's inverted CMYK into a JPEG
        got = plain(decode(encoded(Image.new("CMYK", (32, 32), ink), name), P16))
        assert np.allclose(got, expected, atol=4), name


def test_grey_jpeg_becomes_three_equal_channels():
    data = encoded(scene(64, 48).convert("L"), "jpeg", quality=95)
    pixels = decode(data, P16).pixels
    assert (pixels[..., 0] == pixels[..., 1]).all()
    assert (pixels[..., 1] == pixels[..., 2]).all()
    assert np.abs(pixels[..., 0].astype(int) - by_pillow(data, P16)[..., 0]).max() <= 1


@pytest.mark.parametrize("name", ["gif", "png", "webp", "tiff", "avif"])
def test_first_image_of_several_is_decoded_and_all_are_counted(name):
    colours = [(200, 10, 10), (10, 200, 10), (10, 10, 200)]
    first, *rest = [Image.new("RGB", (24, 24), colour) for colour in colours]
    outcome = decode(encoded(first, name, save_all=True, append_images=rest), P16)
    assert outcome.n_frames == 3
    assert np.allclose(outcome.pixels[8, 8], colours[0], atol=6)


@pytest.mark.parametrize(("width", "height"), [(1, 10_000), (10_000, 1), (3, 2_000), (2_000, 16)])
@pytest.mark.parametrize("name", ["png", "jpeg"])
def test_a_very_long_image_gives_its_middle(name, width, height):
    pixels = np.full((height, width, 3), 10, dtype=np.uint8)
    if width > height:
        pixels[:, width // 2 - 40 : width // 2 + 40] = 240
    else:
        pixels[height // 2 - 40 : height // 2 + 40] = 240
    outcome = decode(encoded(Image.fromarray(pixels), name), Preprocessing(size=64, resize=64))
    assert (outcome.width, outcome.height) == (width, height)
    assert outcome.pixels.min() > 220
    decoded = decode_rgb(encoded(Image.fromarray(pixels), name), short_side=64)
    assert max(decoded.shape) <= MAX_ASPECT * 64


def test_resized_size_rounds_the_long_side_down_as_torchvision_does():
    for width, height in [(500, 375), (375, 500), (333, 1000), (64, 64), (301, 300)]:
        short, long = min(width, height), max(width, height)
        expected = (64, int(64 * long / short))
        assert resized_size(width, height, 64) == (expected if width <= height else expected[::-1])


def test_dct_scale_divides_both_sides_and_leaves_four_times_the_target():
    for width in range(500, 4200, 52):
        for height in range(480, 3100, 36):
            scale = dct_scale(width, height, 64)
            assert scale in (1, 2, 4, 8)
            assert scale == 1 or (width % scale == 0 and height % scale == 0)
            assert scale == 1 or min(width, height) / scale >= 3.3 * 64


def test_decode_rgb_gives_the_whole_image_and_resizes_its_short_side():
    data = encoded(scene(120, 80), "png")
    assert (decode_rgb(data) == np.asarray(scene(120, 80))).all()
    resized = decode_rgb(data, short_side=30)
    assert resized.shape == (30, 45, 3)
    reference = np.asarray(scene(120, 80).resize((45, 30), Image.Resampling.BICUBIC))
    assert np.abs(resized.astype(int) - reference).max() <= 1


def test_decode_rgb_raises_what_decode_records():
    with pytest.raises(DecodeError, match="got zero bytes") as caught:
        decode_rgb(b"")
    assert caught.value.status == "empty"
    with pytest.raises(ValueError, match=r"short_side .*got 0"):
        decode_rgb(b"", short_side=0)
    with pytest.raises(ValueError, match="max_pixels"):
        decode(b"", P16, DecodeOptions(max_pixels=0))


def test_large_images_are_converted_in_bands_without_a_seam(monkeypatch):
    data = encoded(scene(90, 70).convert("RGBA"), "png")
    decoded = decode_rgb(data)
    monkeypatch.setattr("scoring.images.deep._BAND", 1000)
    assert (decode_rgb(data) == decoded).all()
