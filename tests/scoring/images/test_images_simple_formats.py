"""PBM, PGM, PPM, ICO and MPO: the pixels of Pillow's own reading, and bounds that hold before memory is taken."""

import io
import struct
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from test_images_hostile import MALFORMED, P16, noise, png_claiming

from scoring.images import decode, decode_rgb
from scoring.images.deep import may_be_deep
from scoring.images.netpbm import LONGEST_HEADER, MOST_LOOPED_PIXELS
from scoring.images.sniff import sniff
from scoring.images.supervised import CHILDREN

VALUES = np.random.default_rng(5).integers(0, 65_536, (7, 9, 3))  # of 16 bits, rows x columns x channels


def written(kind, largest, values):
    """Return a Netpbm file of one kind; binary values of more than 8 bits are written big end first."""
    head = f"P{kind}\n# a comment\n{values.shape[1]} {values.shape[0]}\n"
    head += "" if largest is None else f"{largest}\n"
    if kind == 4:
        return head.encode() + np.packbits(values, axis=1).tobytes()
    if kind in (5, 6):
        return head.encode() + values.astype(">u2" if largest > 255 else "u1").tobytes()
    return head.encode() + " ".join(map(str, values.flatten().tolist())).encode() + b"\n"


def by_pillow(data):
    """Return Pillow's own reading as RGB; its 32-bit grey holds values of 16 bits."""
    with Image.open(io.BytesIO(data)) as picture:
        if picture.mode == "I":
            grey = np.rint(np.asarray(picture) * 255 / 65_535).astype(np.uint8)
            return np.stack([grey] * 3, axis=2)
        return np.asarray(picture.convert("RGB"))


@pytest.mark.parametrize("kind", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("largest", [100, 255, 4095, 65_535])
def test_netpbm_of_every_kind_has_the_pixels_of_pillow(kind, largest):
    is_bits = kind in (1, 4)
    values = VALUES[:, :, 0] % 2 if is_bits else VALUES % (largest + 1)
    values = values if kind in (1, 3, 4, 6) else values[:, :, 0]
    data = written(kind, None if is_bits else largest, values)
    outcome = decode(data, P16)
    assert (outcome.status, outcome.format, outcome.width, outcome.height) == ("ok", "pnm", 9, 7), outcome.error
    assert (decode_rgb(data) == by_pillow(data)).all()
    if is_bits:
        assert (decode_rgb(data)[:, :, 0] == 255 * (1 - values)).all()  # 1 is black


def test_a_white_is_for_grey_of_16_bits_and_not_for_what_pillow_scaled():
    grey = VALUES[:, :, 0] % 4096
    full, with_white = written(5, 65_535, grey), written(5, 4095, grey)
    expected = np.rint(grey * 255 / 4095)
    assert np.abs(decode_rgb(full, white=4095)[:, :, 1] - expected).max() <= 1
    assert np.abs(decode_rgb(with_white, white=4095)[:, :, 1] - expected).max() <= 1
    assert decode(full, P16).highest == grey.max()
    assert decode(with_white, P16).highest is None
    assert may_be_deep(full)
    assert not may_be_deep(written(6, 255, VALUES % 256))


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"P6\n40000 25000\n255\n" + bytes(100), "too_large"),
        (b"P3\n40000 25000\n255\n1 2 3\n", "too_large"),
        (b"P1\n99999 9999\n0 1\n", "too_large"),
        (b"P6\n9000 9000\n255\n" + bytes(100), "truncated"),
        (b"P4\n9000 9000\n" + bytes(100), "truncated"),
        (b"P5\n9000 9000\n65535\n" + bytes(100), "truncated"),
        (b"P2\n1500 1500\n255\n" + b"1 " * 100, "truncated"),
        (b"P3\n3000 3000\n255\n" + b"1 " * 100, "too_large"),  # text of more than 4 million pixels
        (b"P6\n3000 3000\n100\n" + bytes(100), "too_large"),  # scaled, in a Python loop
        (b"P5\n2 2\n70000\n" + bytes(8), "corrupt"),
        (b"P2\n2 2\n255\n1 2 3 -4\n", "corrupt"),
        (b"P2\n2 2\n255\n1 2 3 " + b"9" * 4000, "corrupt"),
        (b"P1\n2 2\n0 1 2 0", "corrupt"),
        (b"P6\n#" + b"c" * (LONGEST_HEADER + 10) + b"\n4 4\n255\n" + bytes(48), "corrupt"),
        (b"P6\n0 4\n255\n" + bytes(48), "corrupt"),
    ],
)
def test_a_hostile_netpbm_is_a_row_with_a_status(data, status):
    outcome = decode(data, P16)
    assert (outcome.status, outcome.format) == (status, "pnm"), outcome.error
    assert outcome.pixels is None


def test_a_header_that_claims_a_billion_pixels_takes_no_memory():
    decode(b"P6\n2 2\n255\n" + bytes(12), P16)  # its process is there, and idle
    (pid,) = CHILDREN.pids()[-1:]
    before = _peak(pid)
    for data in (b"P6\n40000 25000\n255\n", b"P6\n9999 9999\n255\n", b"P1\n1999 1999\n"):
        assert decode(data + bytes(1000), P16).status in ("too_large", "truncated")
    assert _peak(pid) - before < 1 << 20


def _peak(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def test_the_worst_text_is_decoded_in_a_bounded_time():
    side = int(MOST_LOOPED_PIXELS**0.5)
    data = b"P3\n%d %d\n255\n" % (side, side) + b"7 " * (3 * side * side)
    began = time.perf_counter()
    outcome = decode(data, P16)
    assert outcome.status in ("ok", "timeout")  # on a machine that is slower than 20 s of processor time
    assert time.perf_counter() - began < 90


def icon(*entries):
    """Return an icon of entries (width, height and bits by the directory, bytes)."""
    at, directory = 6 + 16 * len(entries), b""
    for width, height, bits, data in entries:
        directory += struct.pack("<BBBBHHII", width % 256, height % 256, 0, 0, 1, bits, len(data), at)
        at += len(data)
    return struct.pack("<HHH", 0, 1, len(entries)) + directory + b"".join(data for *_, data in entries)


def png_of(picture):
    out = io.BytesIO()
    picture.save(out, "png")
    return out.getvalue()


def test_the_largest_image_of_an_icon_is_decoded():
    small, large = noise(16, 16), noise(64, 64, seed=1)
    data = icon((16, 16, 32, png_of(small)), (64, 64, 32, png_of(large)), (16, 16, 8, png_of(small)))
    outcome = decode(data, P16)
    assert (outcome.status, outcome.format, outcome.width, outcome.n_frames) == ("ok", "ico", 64, 3)
    assert (decode_rgb(data) == np.asarray(large)).all()
    assert (decode_rgb(data) == by_pillow(data)).all()


@pytest.mark.parametrize("kind", ["png", "bmp"])
@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P", "1"])
def test_an_icon_that_pillow_wrote_has_the_pixels_of_pillow(kind, mode):
    out = io.BytesIO()
    noise(48, 48).convert(mode).save(out, "ico", sizes=[(16, 16), (48, 48)], bitmap_format=kind)
    with Image.open(io.BytesIO(out.getvalue())) as picture:
        seen = picture.convert("RGBA")
    canvas = Image.new("RGBA", seen.size, "white")
    canvas.alpha_composite(seen)
    assert (decode_rgb(out.getvalue()) == np.asarray(canvas.convert("RGB"))).all()


def test_a_hostile_icon_is_a_row_with_a_status():
    sound = icon((64, 64, 32, png_of(noise(64, 64))))
    mask = struct.pack("<IiiHHIIiiII", 40, 30_000, 60_000, 1, 32, 0, 0, 0, 0, 0, 0)
    cases = [
        (icon((16, 16, 32, png_claiming(20_000, 20_000))), "too_large"),
        (icon((0, 0, 32, png_claiming(3000, 3000))), "too_large"),
        (icon((16, 16, 32, mask)), "too_large"),
        (icon((16, 16, 8, struct.pack("<IiiHHIIiiII", 40, 1600, 3200, 1, 24, 0, 0, 0, 0, 0, 0))), "corrupt"),
        (sound[: len(sound) // 2], "truncated"),
        (b"\0\0\1\0" + struct.pack("<H", 65_535) + bytes(4), "corrupt"),
        (icon((16, 16, 32, b"no picture at all, just words" * 3)), "truncated"),
    ]
    for data, status in cases:
        outcome = decode(data, P16)
        assert (outcome.status, outcome.format) == (status, "ico"), outcome.error


def test_words_are_no_netpbm_and_zeros_are_no_icon():
    assert sniff(b"P1 is the first of five priorities") is None
    assert sniff(b"P5 2024 plans") is None
    assert sniff(b"\0\0\1\0\0\0") is None
    assert sniff(b"\0\0\1\0\1\0" + bytes(30)) is None
    assert sniff(b"P6 4 4 255 ") == "pnm"
    assert sniff(b"P4\n# by hand\n4 4\n") == "pnm"


def test_the_first_image_of_an_mpo_is_decoded():
    first, second = noise(64, 48), noise(64, 48, seed=1)
    out, alone = io.BytesIO(), io.BytesIO()
    first.save(out, "mpo", save_all=True, append_images=[second], quality=90)
    outcome = decode(out.getvalue(), P16)
    assert (outcome.status, outcome.format, outcome.n_frames) == ("ok", "jpeg", 2)
    first.save(alone, "jpeg", quality=90)
    assert (decode_rgb(out.getvalue()) == decode_rgb(alone.getvalue())).all()


@pytest.mark.skipif(not MALFORMED.exists(), reason="shared data are not there")
def test_pillows_own_files_have_the_pixels_of_pillow():
    import pyarrow.parquet as pq

    rows = pq.read_table(MALFORMED, columns=["name", "pillow_outcome", "mode", "bytes"]).to_pylist()
    seen = 0
    for row in rows:
        if row["name"].rpartition(".")[2] not in ("ppm", "pgm", "pbm", "pnm") or row["pillow_outcome"] != "ok":
            continue
        assert (decode_rgb(row["bytes"]) == by_pillow(row["bytes"])).all(), row["name"]
        seen += 1
    assert seen >= 13
