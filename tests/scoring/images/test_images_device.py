"""JPEGs on a device, tried on the CPU, where the same calls run: nobody ran this on a GPU."""

import io
import random

import numpy as np
import pytest
import simplejpeg
import torch
from numpy.testing import assert_array_equal
from pictures import encoded
from PIL import Image, ImageOps

from scoring.errors import InputError
from scoring.images import Preprocessing, decode
from scoring.images.device_jpegs import DeviceJpegs, sound_jpeg
from scoring.images.jpeg import check_strictly, decode_strictly

CPU = torch.device("cpu")
P = Preprocessing(size=56, resize=64)
MOST = 10**8


def scene(width, height, seed=0):
    """A smooth image with edges: probability colours at a twelfth of the size, enlarged, and a dark bar."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (max(2, height // 12), max(2, width // 12), 3), dtype=np.uint8)
    picture = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    picture.paste((20, 30, 40), (width // 4, height // 3, width // 3, height // 2))
    return picture


def turned(picture, orientation, **options):
    exif = Image.Exif()
    exif[274] = orientation
    return encoded(picture, "jpeg", exif=exif.tobytes(), **options)


def sound(data, resize=P.resize, **options):
    return sound_jpeg(data, resize, max_pixels=MOST, **options)


def by_pillow(data, preprocessing):
    """What the model should see: Pillow's full decode, its resize, EXIF orientation and the middle."""
    picture = Image.open(io.BytesIO(data))
    orientation = picture.getexif().get(274, 1)
    picture = picture.convert("RGB")
    scale = preprocessing.resize / min(picture.size)
    size = tuple(preprocessing.resize if side == min(picture.size) else int(side * scale) for side in picture.size)
    picture = picture.resize(size, Image.Resampling[preprocessing.interpolation.upper()])
    exif = picture.getexif()
    exif[274] = orientation
    picture = ImageOps.exif_transpose(picture)
    left, top = (round((side - preprocessing.size) / 2) for side in picture.size)
    return np.asarray(picture)[top : top + preprocessing.size, left : left + preprocessing.size]


def psnr(first, other):
    return 10 * np.log10(255**2 / max(1e-9, np.mean((first.astype(float) - other.astype(float)) ** 2)))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_square_is_the_turned_resized_middle(orientation):
    expected = Preprocessing(size=55, resize=64)
    data = turned(scene(211, 150), orientation, quality=92)
    (made,) = DeviceJpegs(CPU, expected).decode([sound(data)])
    assert made.pixels.shape == (55, 55, 3)
    assert psnr(made.pixels, by_pillow(data, expected)) > 45
    assert psnr(made.pixels[::-1], by_pillow(data, expected)) < 30  # or any image would do


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize(
    ("size", "options"),
    [((300, 200), {}), ((200, 300), {"progressive": True}), ((97, 131), {"subsampling": 0}), ((40, 30), {})],
)
def test_image_and_small_image_match_the_cpu_to_a_few_levels(size, options, interpolation):
    expected = Preprocessing(size=60, resize=64, interpolation=interpolation)
    data = encoded(scene(*size), "jpeg", quality=90, **options)
    (made,) = DeviceJpegs(CPU, expected).decode([sound(data)])
    assert psnr(made.pixels, decode(data, expected).pixels) > 45
    small = Image.open(io.BytesIO(data)).convert("RGB").resize((32, 32), Image.Resampling.BILINEAR)
    assert psnr(made.small, np.asarray(small)) > 45


def test_grey_is_grey_in_three_channels():
    data = encoded(scene(120, 90).convert("L"), "jpeg", quality=90)
    (made,) = DeviceJpegs(CPU, P).decode([sound(data)])
    assert (made.pixels[..., :1] == made.pixels).all()
    assert psnr(made.pixels, by_pillow(data, P)) > 45


def test_no_pixel_depends_on_the_batch():
    jpegs = [sound(turned(scene(100 + 7 * i, 160 - 9 * i, i), i + 1)) for i in range(8)]
    device = DeviceJpegs(CPU, P)
    together, turned_round = device.decode(jpegs), device.decode(jpegs[::-1])[::-1]
    for i, jpeg in enumerate(jpegs):
        (alone,) = device.decode([jpeg])
        for made in (together[i], turned_round[i]):
            assert_array_equal(made.pixels, alone.pixels)
            assert_array_equal(made.small, alone.small)


def cut(data):
    return data[: len(data) * 2 // 3]


def spoilt(data):
    middle = len(data) // 2
    return data[:middle] + bytes(200) + data[middle + 200 :]


WHOLE = encoded(scene(160, 120), "jpeg", quality=90)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        encoded(scene(160, 120)),
        encoded(scene(160, 120).convert("CMYK"), "jpeg"),
        simplejpeg.encode_jpeg(np.asarray(scene(160, 120)), colorspace="RGB", colorsubsampling="444")[:-2],
        encoded(scene(160, 120), "jpeg", keep_rgb=True),
        encoded(scene(900, 100), "jpeg"),
        encoded(scene(1024, 768), "jpeg"),  # shrunk by two while the CPU decodes it
        cut(WHOLE),
        cut(WHOLE) + b"\xff\xd9",
        spoilt(WHOLE),
        WHOLE[:-2] + bytes(40),
    ],
    ids=[
        "nothing",
        "png",
        "cmyk",
        "no-end",
        "rgb",
        "long",
        "shrunk",
        "cut",
        "cut-with-end",
        "spoilt",
        "no-end-but-zeros",
    ],
)
def test_whatever_is_no_plain_whole_jpeg_is_left_to_the_cpu(data):
    assert sound(data) is None


def test_what_is_larger_than_allowed_is_left_to_the_cpu():
    assert sound_jpeg(WHOLE, 64, max_pixels=160 * 120) is not None
    assert sound_jpeg(WHOLE, 64, max_pixels=160 * 120 - 1) is None


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}, {"restart_marker_blocks": 3}])
def test_the_check_finds_whatever_the_strict_decoder_objects_to(options):
    """On 300 files with a byte changed, bytes zeroed, removed or doubled, or an early end."""
    intact = encoded(scene(150, 110), "jpeg", quality=85, **options)
    assert decode_strictly(intact, None, MOST).width == 150
    rng, refused = random.Random(1), 0
    for _ in range(300):
        at, n = rng.randrange(len(intact) // 4, len(intact) - 2), rng.randrange(1, 60)
        changed = [
            intact[:at] + bytes([rng.randrange(256)]) + intact[at + 1 :],
            intact[:at] + bytes(n) + intact[at + n :],
            intact[:at] + intact[at + n :],
            intact[: at + n] + intact[at:],
            intact[:at] + b"\xff\xd9",
        ][rng.randrange(5)]
        said = []
        for work in (check_strictly, lambda data: decode_strictly(data, None, MOST)):
            try:
                work(changed)
                said.append("sound")
            except ValueError:
                said.append("objects")
        assert said[0] == said[1]
        refused += said[0] == "objects"
    assert 50 < refused < 300


def test_the_codes_of_what_was_checked_are_not_read_again():
    assert sound(spoilt(WHOLE), is_checked=True) is not None


class Swapped(DeviceJpegs):
    """A decoder that takes red for blue."""

    def _decoded(self, coded):
        return [picture.flip(0) for picture in super()._decoded(coded)]


class Broken(DeviceJpegs):
    """A decoder that is missing."""

    def _decoded(self, coded):
        raise RuntimeError("no decoder was built in\nat a place")


def test_a_decoder_is_tried_before_any_image_depends_on_it():
    with pytest.raises(InputError, match=r"\d+\.\d levels apart"):
        Swapped(CPU, P)
    with pytest.raises(InputError, match=r"on cpu.* --decode"):
        Broken(CPU, P)
