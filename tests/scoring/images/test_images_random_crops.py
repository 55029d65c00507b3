"""Random crops are parts of the whole image, of the share and shape that was requested."""

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from scoring.images import Preprocessing, decode
from scoring.images.decoders import DECODERS, Crops, crops_elsewhere, decode_crops

READ = Preprocessing(size=32, resize=40)


def encoded(pixels, kind="png", **options):
    with BytesIO() as file:
        Image.fromarray(pixels).save(file, kind, **options)
        return file.getvalue()


def photo(height, width, seed=0):
    """Smooth colours, as photographs have them."""
    small = np.random.default_rng(seed).integers(0, 256, (9, 9, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))


def test_boxes_have_the_share_and_shape_of_the_papers_and_are_inside():
    drawn = [Crops((8,), ((0.2, 0.9),), (0, 1, row)).boxes(400, 400)[0] for row in range(3000)]
    share = np.array([box.width * box.height / 160_000 for box in drawn])
    shape = np.array([box.width / box.height for box in drawn])
    assert 0.195 < share.min() < 0.21
    assert 0.85 < share.max() < 0.905
    assert abs(np.log(shape)).max() < np.log(4 / 3) + 0.02
    assert abs(np.log(shape).mean()) < 0.02
    assert min(min(box.left, box.top, 400 - box.left - box.width, 400 - box.top - box.height) for box in drawn) == 0
    assert 0.45 < np.mean([box.mirrored for box in drawn]) < 0.55


def test_of_an_image_that_no_box_fits_the_middle_is_taken():
    box = Crops((8,), ((0.9, 1.0),), (5,)).boxes(1000, 10)[0]
    assert (box.left, box.top, box.width, box.height) == (493, 0, 13, 10)


@pytest.mark.parametrize("orientation", [1, 6])
def test_a_crop_is_what_pillow_makes_of_the_box_and_the_plain_square_what_a_model_scores(orientation):
    pixels = photo(120, 90)
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(pixels, exif=exif)
    crops = Crops((24, 48), ((0.3, 0.6), (0.05, 0.1)), (1, 2, 3), plain=True)
    plain, *cut = decode_crops(data, READ, crops).pixels
    assert np.array_equal(plain, decode(data, READ).pixels)
    for box, side, got in zip(crops.boxes(90, 120), crops.sides, cut, strict=True):
        edges = (box.left, box.top, box.left + box.width, box.top + box.height)
        expected = np.asarray(Image.fromarray(pixels).resize((side, side), Image.Resampling.BILINEAR, box=edges))
        expected = np.rot90(expected, -1) if orientation == 6 else expected
        expected = expected[:, ::-1] if box.mirrored else expected
        # Pillow's filter reads over the edges of a box inside the image; only there it may differ more
        assert np.abs(expected.astype(int) - got)[2:-2, 2:-2].max() <= 2


def test_a_large_jpeg_is_shrunk_while_it_is_decoded_and_its_crops_stay():
    pixels = photo(2400, 3200)
    data = encoded(pixels, "jpeg", quality=95)
    crops = Crops((32, 32), ((0.5, 1.0), (0.5, 1.0)), (9,))
    exact = decode_crops(encoded(pixels, compress_level=1), READ, crops).pixels
    for one, other in zip(decode_crops(data, READ, crops).pixels, exact, strict=True):
        assert np.abs(one.astype(int) - other).mean() < 1.5


def test_another_process_gives_the_same_crops_and_statuses():
    crops = Crops((24, 12), ((0.3, 0.6), (0.1, 0.2)), (4, 5), plain=True)
    data = encoded(photo(60, 80), "jpeg")
    try:
        for image in (data, data[:300], b"no image"):
            one, other = decode_crops(image, READ, crops), crops_elsewhere(image, READ, crops)
            assert one.status == other.status
            assert all(map(np.array_equal, one.pixels, other.pixels))
            assert len(one.pixels) == len(other.pixels)
        assert [len(square) for square in decode_crops(data, READ, crops).pixels] == [32, 24, 12]
    finally:
        DECODERS.end()
