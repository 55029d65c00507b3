"""The digest of pixels: which files of one image agree, and which images must not."""

import contextlib
import hashlib
import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from pictures import encoded
from PIL import Image, ImageOps

from scoring.images import DecodeError, pixel_digest
from scoring.images import exact as subject

PHOTOS = sorted((Path(__file__).parents[3] / "examples" / "photos").glob("*.jpg"))
CALTECH = Path(__file__).parents[4] / "shared" / "data" / "caltech_subset.parquet"


def scene(seed=0, width=61, height=43, mode="RGB"):
    shape = (height, width, len(mode)) if len(mode) > 1 else (height, width)
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8), mode)


def naive_digest(picture, kind="RGB"):
    """By hand: a line that says what follows, then the pixels from left to right and from top to bottom."""
    values = bytes(
        value for y in range(picture.height) for x in range(picture.width) for value in picture.getpixel((x, y))
    )
    return hashlib.sha256(f"{kind} {picture.width} {picture.height}\n".encode() + values).hexdigest()


def png_of(rows, bit_depth, colour, extra=b""):
    """Return a PNG made by hand: ``rows`` are the bytes of each row."""

    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    channels = {0: 1, 2: 3, 4: 2, 6: 4}[colour]
    width = len(rows[0]) * 8 // bit_depth // channels
    header = struct.pack(">IIBBBBB", width, len(rows), bit_depth, colour, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def transparent_value(value):
    body = struct.pack(">H", value)
    return struct.pack(">I", 2) + b"tRNS" + body + struct.pack(">I", zlib.crc32(b"tRNS" + body))


def grey_png(values, extra=b""):
    return png_of([row.astype(">u2").tobytes() for row in np.asarray(values)], 16, 0, extra)


def outcome(data):
    try:
        return "a digest" if len(pixel_digest(data, max_pixels=1_000_000)) == 64 else "no digest"
    except DecodeError as failure:
        return failure.status


LOSSLESS = {
    "png": {},
    "png, other level": {"compress_level": 1, "optimize": False},
    "bmp": {},
    "webp": {"lossless": True},
    "tiff": {},
    "tiff, LZW": {"compression": "tiff_lzw"},
    "png with metadata": {"icc_profile": b"whatever", "dpi": (72, 72)},
}


@pytest.mark.parametrize("name", LOSSLESS)
def test_every_lossless_file_of_an_image_has_the_digest_of_its_pixels(name):
    assert pixel_digest(encoded(scene(), name.split(",")[0].split()[0], **LOSSLESS[name])) == naive_digest(scene())


@pytest.mark.parametrize("path", PHOTOS[:8], ids=lambda path: path.stem)
def test_a_photograph_and_its_decoded_copies_agree_and_its_recompression_does_not(path):
    data = path.read_bytes()
    picture = Image.open(path).convert("RGB")
    assert pixel_digest(data) == pixel_digest(encoded(picture)) == pixel_digest(encoded(picture, "bmp"))
    assert pixel_digest(data) == hashlib.sha256(b"RGB %d %d\n" % picture.size + picture.tobytes()).hexdigest()
    assert pixel_digest(data) != pixel_digest(encoded(picture, "jpeg", quality=85))


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
@pytest.mark.parametrize("size", [(64, 48), (61, 43), (1, 1), (17, 2)])
def test_a_jpeg_of_any_kind_agrees_with_the_png_that_pillow_makes_of_it(size, subsampling, progressive):
    smooth = scene(1, 9, 7).resize(size, Image.Resampling.BICUBIC)
    data = encoded(smooth, "jpeg", quality=80, subsampling=subsampling, progressive=progressive)
    assert pixel_digest(data) == pixel_digest(encoded(Image.open(io.BytesIO(data)).convert("RGB")))


@pytest.mark.skipif(not CALTECH.is_file(), reason=f"{CALTECH.name} is not next to the checkout")
def test_real_jpegs_agree_with_their_decoded_copies():
    parquet = pytest.importorskip("pyarrow.parquet")
    files = parquet.read_table(CALTECH, columns=["image"]).slice(0, 2000)["image"].to_pylist()[::40]
    digests = {pixel_digest(data) for data in files}
    assert digests == {pixel_digest(encoded(Image.open(io.BytesIO(data)).convert("RGB"), "bmp")) for data in files}
    assert len(digests) == len({hashlib.sha256(data).hexdigest() for data in files})


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ["jpeg", "png", "webp", "tiff"])
def test_orientation_is_applied(name, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"lossless": True} if name == "webp" else {}
    data = encoded(scene(), name, exif=exif.tobytes() if name != "tiff" else exif, **options)
    shown = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    assert pixel_digest(data) == naive_digest(shown)
    assert shown.size == ((43, 61) if orientation > 4 else (61, 43))


def test_one_level_in_one_pixel_is_another_image():
    picture = scene()
    before = pixel_digest(encoded(picture))
    r, g, b = picture.getpixel((60, 42))
    picture.putpixel((60, 42), (r, g, b ^ 1))
    assert pixel_digest(encoded(picture)) != before


def test_the_shape_counts_and_not_only_the_bytes():
    flat = np.zeros((4, 6, 3), np.uint8)
    assert pixel_digest(encoded(Image.fromarray(flat))) != pixel_digest(encoded(Image.fromarray(flat.reshape(6, 4, 3))))


def test_palette_grey_and_one_bit_agree_with_their_rgb_copies():
    few = scene(2).quantize(16)
    for picture in (few, scene(mode="L"), scene(mode="L").convert("1")):
        expected = naive_digest(picture.convert("RGB"))
        assert pixel_digest(encoded(picture)) == expected
        assert pixel_digest(encoded(picture, "tiff")) == expected
    assert pixel_digest(encoded(few, "gif")) == naive_digest(few.convert("RGB"))


def test_opaque_alpha_is_no_alpha():
    opaque = scene().convert("RGBA")
    assert pixel_digest(encoded(opaque)) == naive_digest(scene())
    assert pixel_digest(encoded(scene(mode="L").convert("LA"))) == naive_digest(scene(mode="L").convert("RGB"))


def test_alpha_counts_and_the_colour_of_what_is_not_seen_does_not():
    values = np.array(scene(mode="RGBA"))
    values[:, :, 3] = np.where(values[:, :, 3] < 128, 0, values[:, :, 3])
    cleared = values.copy()
    cleared[cleared[:, :, 3] == 0] = 0
    expected = naive_digest(Image.fromarray(cleared), "RGBA")
    assert pixel_digest(encoded(Image.fromarray(values))) == expected
    assert pixel_digest(encoded(Image.fromarray(values), "webp", lossless=True)) == expected  # which clears it
    assert pixel_digest(encoded(Image.fromarray(values), "webp", lossless=True, exact=True)) == expected
    fainter = values.copy()
    fainter[0, 0, 3] = 129 if values[0, 0, 3] != 129 else 130
    assert pixel_digest(encoded(Image.fromarray(fainter))) != expected
    assert pixel_digest(encoded(Image.fromarray(values[:, :, :3].copy()))) != expected


def test_a_transparent_gif_agrees_with_its_png():
    picture = scene(3).quantize(8)
    picture.info["transparency"] = 5
    gif = encoded(picture, "gif", transparency=5)
    seen = Image.open(io.BytesIO(gif)).convert("RGBA")
    assert 0 < (np.asarray(seen)[:, :, 3] == 0).mean() < 1
    assert pixel_digest(gif) == pixel_digest(encoded(seen)) == pixel_digest(encoded(picture, transparency=5))


def test_sixteen_bit_grey_counts_in_all_its_bits():
    dark = np.random.default_rng(0).integers(0, 100, (30, 40))  # black, if only the high byte is seen
    darker = dark // 2
    assert pixel_digest(grey_png(dark)) != pixel_digest(grey_png(darker))
    assert pixel_digest(grey_png(dark)) == pixel_digest(encoded(Image.fromarray(dark.astype(np.uint16)), "tiff"))
    expected = hashlib.sha256(b"grey to 65535 40 30\n" + dark.astype("<u2").tobytes()).hexdigest()
    assert pixel_digest(grey_png(dark)) == expected


def test_sixteen_bit_grey_that_holds_no_more_than_eight_agrees_with_its_copy():
    picture = scene(mode="L")
    wide = np.asarray(picture).astype(int) * 257
    assert pixel_digest(grey_png(wide)) == pixel_digest(encoded(picture))
    wide[0, 0] += 1 if wide[0, 0] < 65535 else -1
    assert pixel_digest(grey_png(wide)) != pixel_digest(encoded(picture))


def test_a_transparent_value_of_sixteen_bit_grey_counts():
    values = np.random.default_rng(1).integers(0, 5, (20, 30)) * 1000
    with_hole = pixel_digest(grey_png(values, transparent_value(3000)))
    assert with_hole != pixel_digest(grey_png(values))
    assert with_hole != pixel_digest(grey_png(values, transparent_value(2000)))
    assert pixel_digest(grey_png(values, transparent_value(999))) == pixel_digest(grey_png(values))
    eight = np.random.default_rng(1).integers(0, 5, (20, 30)).astype(np.uint8)
    seen = np.where(eight == 3, 0, eight)
    rgba = np.stack([seen, seen, seen, np.where(eight == 3, 0, 255)], axis=2).astype(np.uint8)
    wide = grey_png(eight.astype(int) * 257, transparent_value(3 * 257))
    assert pixel_digest(wide) == pixel_digest(encoded(Image.fromarray(rgba)))


@pytest.mark.parametrize("colour", [2, 6, 4])
def test_sixteen_bit_colour_agrees_with_nothing_but_its_own_bytes(colour):
    channels = {2: 3, 6: 4, 4: 2}[colour]
    values = np.random.default_rng(2).integers(0, 65536, (10, 12 * channels))
    low = values ^ 1  # another image, in the bytes that Pillow does not read
    first, two = (png_of([row.astype(">u2").tobytes() for row in v], 16, colour) for v in (values, low))
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(first))), np.asarray(Image.open(io.BytesIO(two))))
    assert pixel_digest(first) != pixel_digest(two)
    assert pixel_digest(first) == pixel_digest(bytes(first))
    assert pixel_digest(first) != pixel_digest(encoded(Image.open(io.BytesIO(first))))


def test_cmyk_follows_pillows_conversion_to_rgb():
    cmyk = scene(mode="CMYK")
    for name in ("jpeg", "tiff"):
        data = encoded(cmyk, name)
        assert pixel_digest(data) == naive_digest(Image.open(io.BytesIO(data)).convert("RGB"))


def test_float_grey_counts_as_it_is():
    values = np.random.default_rng(3).random((8, 9), dtype=np.float32)
    data = encoded(Image.fromarray(values), "tiff")
    assert pixel_digest(data) == hashlib.sha256(b"float 9 8\n" + values.astype("<f4").tobytes()).hexdigest()
    with pytest.raises(DecodeError, match=r"in \[0, 1\]"):
        pixel_digest(encoded(Image.fromarray(values * 9), "tiff"))


@pytest.mark.parametrize("name", ["gif", "png", "webp", "tiff"])
def test_an_animation_agrees_with_nothing_but_its_own_bytes(name):
    """Two that begin alike may go on differently, and a page of a document is not the document."""
    first, second, third = (scene(seed).quantize(16).convert("RGB") for seed in (4, 5, 6))
    options = {"lossless": True} if name == "webp" else {}
    picture, other = (encoded(first, name, save_all=True, append_images=[rest], **options) for rest in (second, third))
    assert len({pixel_digest(picture), pixel_digest(other), pixel_digest(encoded(first))}) == 3
    assert pixel_digest(picture) == pixel_digest(bytes(picture))


def test_bands_change_nothing(monkeypatch):
    files = [encoded(scene(6, 50, 90)), encoded(scene(6, 50, 90, "RGBA")), grey_png(np.arange(6000).reshape(60, 100))]
    digests = [pixel_digest(data) for data in files]
    monkeypatch.setattr(subject, "_BAND", 130)
    monkeypatch.setattr("scoring.images.colour._BAND", 170)
    assert [pixel_digest(data) for data in files] == digests


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", "empty"),
        (b"hello", "not_an_image"),
        (b"%PDF-1.7", "unsupported"),
        (encoded(scene(0, 300, 300))[:9000], "truncated"),
        (encoded(scene(0, 300, 300), "jpeg")[:9000], "truncated"),
        (encoded(scene(0, 300, 300), "webp", lossless=True)[:9000], "truncated"),
        (encoded(Image.new("LAB", (5, 5)), "tiff"), "unsupported"),
    ],
)
def test_what_cannot_be_read_is_a_named_failure(data, status):
    with pytest.raises(DecodeError) as caught:
        pixel_digest(data)
    assert caught.value.status == status
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["jpeg", "png", "bmp", "webp", "tiff", "gif"])
def test_too_many_pixels_are_refused_before_they_are_decoded(name, monkeypatch):
    data = encoded(Image.new("RGB", (120, 100)), name)
    assert pixel_digest(data, max_pixels=12_000) == pixel_digest(encoded(Image.new("RGB", (120, 100))))
    monkeypatch.setattr(subject.PillowFile, "load", lambda *a, **k: pytest.fail("it was decoded"))
    with pytest.raises(DecodeError, match="120 x 100 pixels; expected at most 11999") as caught:
        pixel_digest(data, max_pixels=11_999)
    assert caught.value.status == "too_large"


@pytest.mark.parametrize("name", ["jpeg", "png"])
def test_a_cap_below_one_is_the_callers_bug(name):
    with pytest.raises(ValueError, match="max_pixels must be at least 1, got 0"):
        pixel_digest(encoded(scene(), name), max_pixels=0)


def test_lack_of_memory_is_too_large(monkeypatch):
    def hungry(*_args, **_options):
        raise MemoryError

    monkeypatch.setattr(subject, "to_rgb", hungry)
    with pytest.raises(DecodeError) as caught:
        pixel_digest(encoded(scene()))
    assert caught.value.status == "too_large"


def test_large_images_wait_for_the_budget_of_the_process(monkeypatch):
    held = []

    class Counting:
        def hold(self, n_pixels):
            held.append(n_pixels)
            return contextlib.nullcontext()

    monkeypatch.setattr("scoring.images.pixels.BUDGET", Counting())
    pixel_digest(encoded(scene(0, 61, 43)))
    assert held == [61 * 43]


@pytest.mark.parametrize("seed", range(150))
def test_damaged_files_give_a_digest_or_a_named_failure(seed):
    rng = np.random.default_rng(seed)
    name, options = [("png", {}), ("jpeg", {}), ("webp", {"lossless": True}), ("gif", {}), ("tiff", {}), ("bmp", {})][
        seed % 6
    ]
    data = bytearray(encoded(scene(seed, 30, 20, "RGB"), name, **options))
    for _ in range(rng.integers(1, 6)):
        data[rng.integers(2, len(data))] = rng.integers(0, 256)
    assert outcome(bytes(data)) in ("a digest", "truncated", "corrupt", "unsupported", "too_large", "not_an_image")
