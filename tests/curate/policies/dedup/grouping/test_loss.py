"""What copies of an image have lost: real files, made worse in known ways."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFilter, ImageOps

from curate.policies.dedup.grouping.loss import RESOLUTION, bits, detail, enlarged, fidelity, ranks
from curate.policies.dedup.request import COMPARED, Appearance, change_words
from curate.tables.rows import Codes, Numbers, Rows
from scoring.images import Preprocessing, decode

NAMES = ["astronaut", "chelsea", "china", "coffee", "flower", "hubble", "retina", "rocket"]
PHOTOS = [Path(__file__).parents[5] / "examples" / "photos" / f"{name}.jpg" for name in NAMES]
P64 = Preprocessing(size=64, resize=64)


def photo(path=PHOTOS[0], side=200):
    picture = Image.open(path).convert("RGB")
    picture.thumbnail((side, side))
    return picture


def drawing():
    picture = Image.new("RGB", (160, 120), "white")
    draw = ImageDraw.Draw(picture)
    draw.ellipse([20, 20, 90, 90], fill="#c03020")
    draw.rectangle([70, 50, 140, 100], fill="#2040a0")
    return picture


def coded(picture, name, **options):
    stream = io.BytesIO()
    picture.save(stream, name, **options)
    return stream.getvalue()


def rows_of(*files):
    """Rows as the table of a scored folder has them."""
    images = [decode(data, P64, with_quality=True) for data in files]
    rows = Rows(np.ones(len(files), bool), np.arange(len(files), dtype=np.uint64))
    for name in dict.fromkeys((*COMPARED, RESOLUTION)):
        if name == "format":
            continue
        short = name.removeprefix("quality_")
        values = [getattr(image.quality if name != short else image, short) for image in images]
        has_value = np.array([value is not None for value in values])
        rows.exact[name] = Numbers(np.array([value or 0 for value in values], np.float64), has_value)
    formats = sorted({image.format for image in images})
    rows.names["format"] = Codes(np.array([formats.index(image.format) for image in images], np.int32), formats)
    return rows


WORSE = {
    "quality 10": lambda p: coded(p, "jpeg", quality=10),
    "quality 50": lambda p: coded(p, "jpeg", quality=50),
    "grey": lambda p: coded(p.convert("L"), "jpeg", quality=95),
    "grey png": lambda p: coded(p.convert("L"), "png"),
    "one bit": lambda p: coded(p.convert("1"), "png"),
    "8 colours": lambda p: coded(p.quantize(8), "png"),
    "posterised": lambda p: coded(ImageOps.posterize(p, 2), "png"),
    "gif": lambda p: coded(p.quantize(256), "gif"),
    "half the size": lambda p: coded(p.resize((p.width // 2, p.height // 2)), "png"),
    "quality 10 saved as png": lambda p: coded(Image.open(io.BytesIO(coded(p, "jpeg", quality=10))), "png"),
}


@pytest.mark.parametrize("original", ["png", "jpeg"])
def test_the_original_of_a_photograph_has_lost_least(original):
    for path in PHOTOS:
        picture = photo(path)
        best = coded(picture, original, **({"quality": 95} if original == "jpeg" else {}))
        rank = ranks(rows_of(best, *(make(picture) for make in WORSE.values())))
        worst = dict(zip(WORSE, rank[1:], strict=True))
        assert {name for name, place in worst.items() if place >= rank[0]} <= {"quality 10 saved as png"}, path.stem
        if path == PHOTOS[0]:
            assert worst["quality 10 saved as png"] < rank[0]


def with_noise(picture, sigma):
    pixels = np.asarray(picture, np.float64)
    return Image.fromarray((pixels + np.random.default_rng(0).normal(0, sigma, pixels.shape)).clip(0, 255).astype("u1"))


@pytest.mark.parametrize("quality", [75, 90])
def test_a_copy_with_noise_has_lost_more_than_its_original_and_shows_no_detail(quality):
    for path in (path for path in PHOTOS if path.stem != "retina"):  # on black, which cuts off half of the noise
        picture = photo(path)
        smaller = picture.resize((picture.width * 3 // 4, picture.height * 3 // 4))
        noisy = [coded(with_noise(each, 50), "jpeg", quality=90) for each in (picture, smaller)]
        rows = rows_of(coded(picture, "jpeg", quality=quality), *noisy)
        rank = ranks(rows, enlarged(rows, np.zeros(3, np.int64)))
        assert rank.argmax() == 0, path.stem


def test_noise_of_a_sensor_that_only_the_original_has_is_no_loss():
    for picture in map(photo, PHOTOS):
        grainy = with_noise(picture, 5)
        copies = [coded(grainy, "jpeg", quality=quality) for quality in (90, 75)]
        for original in (coded(grainy, "png"), coded(grainy, "jpeg", quality=95, subsampling=0)):
            assert ranks(rows_of(original, *copies)).argmax() == 0


def test_the_bits_of_a_pixel_count_its_colours():
    picture = photo()
    kinds = (picture, picture.convert("L"), picture.quantize(12), picture.convert("1"))
    assert bits(rows_of(*(coded(kind, "png") for kind in kinds))).tolist() == [24, 8, 4, 1]
    assert bits(rows_of(coded(picture, "jpeg"), coded(picture.convert("L"), "jpeg"))).tolist() == [24, 8]


def test_a_drawing_is_no_worse_for_having_few_colours_than_its_jpeg():
    """Compression adds colours to a drawing: more of them are no sign of an original."""
    files = [coded(drawing(), "png"), *(coded(drawing(), "jpeg", quality=quality) for quality in (90, 50, 10))]
    assert ranks(rows_of(*files)).argmax() == 0
    webp = coded(drawing(), "webp", quality=80)
    assert ranks(rows_of(files[0], webp))[0] == 1


def test_detail_is_pixels_times_bits_and_a_quarter_where_compression_shows():
    picture = photo()
    plain, heavy = rows_of(coded(picture, "png")), rows_of(coded(picture, "jpeg", quality=10))
    assert detail(plain)[0] == picture.width * picture.height * 24
    assert detail(heavy)[0] == picture.width * picture.height * 6


@pytest.mark.parametrize("path", PHOTOS[:4], ids=NAMES[:4])
@pytest.mark.parametrize("way", [Image.Resampling.BILINEAR, Image.Resampling.BICUBIC, Image.Resampling.LANCZOS])
def test_an_enlarged_copy_has_lost_more_than_its_original_and_a_shrunk_one_too(path, way):
    picture = photo(path, 240)
    sizes = [tuple(round(share * side) for side in picture.size) for share in (1, 2, 1.5, 0.7, 0.5)]
    rows = rows_of(*(coded(picture.resize(size, way), "jpeg", quality=85) for size in sizes))
    large = enlarged(rows, np.zeros(5, np.int64))
    assert large.tolist() == [False, True, True, False, False]
    assert np.argmax(detail(rows, large)) == np.argmax(ranks(rows, large)) == 0
    assert not enlarged(rows, np.arange(5)).any()  # each alone in its group
    assert not enlarged(rows, np.full(5, -1)).any()


def test_fidelity_is_the_quality_of_a_jpeg_and_above_it_for_lossless_files():
    picture = photo()
    files = [coded(picture, "png"), coded(picture, "bmp"), coded(picture, "jpeg", quality=80), coded(picture, "webp")]
    assert fidelity(rows_of(*files)).tolist() == [101, 101, 80, 75]
    assert fidelity(rows_of(coded(picture.quantize(256), "gif"), coded(picture.convert("L"), "png"))).tolist() == [
        60,
        101,
    ]


def test_rows_of_a_table_without_the_columns_have_lost_nothing():
    rows = Rows(np.ones(3, bool), np.arange(3, dtype=np.uint64))
    assert bits(rows).tolist() == [24, 24, 24]
    assert ranks(rows).tolist() == [0, 0, 0]


def test_ranks_are_equal_where_nothing_differs():
    data = coded(photo(), "png")
    assert ranks(rows_of(data, coded(photo(), "jpeg", quality=40), data)).tolist() == [1, 0, 1]


CHANGES = {
    "reduced to 50%": lambda p: coded(p.resize((p.width // 2, p.height // 2)), "png"),
    "enlarged to 200%": lambda p: coded(p.resize((p.width * 2, p.height * 2)), "png"),
    "grey": lambda p: coded(p.convert("L"), "png"),
    "two colours": lambda p: coded(p.convert("1"), "png"),
    "few colours": lambda p: coded(p.quantize(8), "png"),
    "a palette of colours": lambda p: coded(p.quantize(200), "png"),
    "JPEG quality 10": lambda p: coded(p, "jpeg", quality=10),
    "saved as webp": lambda p: coded(p, "webp", quality=95),
    "brighter": lambda p: coded(Image.eval(p, lambda value: min(255, value + 40)), "png"),
    "darker": lambda p: coded(Image.eval(p, lambda value: max(0, value - 40)), "png"),
    "less contrast": lambda p: coded(Image.blend(Image.new("RGB", p.size, "#808080"), p, 0.5), "png"),
    "blurred": lambda p: coded(p.filter(ImageFilter.GaussianBlur(2)), "png"),
    "with a border": lambda p: coded(ImageOps.expand(p, 12, "white"), "png"),
    "pixels instead of": lambda p: coded(p.resize((p.width, p.height // 2)), "png"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_was_done_to_a_copy_is_named(name):
    picture = photo(PHOTOS[1])
    of = Appearance.of(rows_of(coded(picture, "png"), CHANGES[name](picture)))
    words = change_words(of, 1, of, 0, turned=False, part=False)
    assert any(name in word for word in words), words


def test_nothing_is_named_where_nothing_was_done():
    data = coded(photo(), "png")
    of = Appearance.of(rows_of(data, data))
    assert change_words(of, 1, of, 0, turned=False, part=False) == []
    bare = Appearance.of(Rows(np.ones(2, bool), np.arange(2, dtype=np.uint64)))
    assert change_words(bare, 1, bare, 0, turned=False, part=False) == []


def test_a_turned_copy_of_the_same_size_is_not_of_another_size_and_a_part_not_either():
    picture = photo()
    turned = coded(picture.transpose(Image.Transpose.ROTATE_90), "png")
    part = coded(picture.crop((10, 10, picture.width - 10, picture.height - 10)), "png")
    of = Appearance.of(rows_of(coded(picture, "png"), turned, part))
    assert change_words(of, 1, of, 0, turned=True, part=False) == []
    assert not any(
        "pixels" in word or "reduced" in word for word in change_words(of, 2, of, 0, turned=False, part=True)
    )
