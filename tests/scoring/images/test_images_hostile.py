"""Broken, hostile and refused bytes: one outcome each, with a name, bounded time and bounded memory."""

import io
import logging
import random
import struct
import threading
import time
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from pictures import encoded
from PIL import Image

from scoring.images import STATUSES, Preprocessing, decode, decode_rgb
from scoring.images.budget import PixelBudget
from scoring.images.outcome import DecodeError, single_line
from scoring.images.pillow import count_gif, count_tiff
from scoring.images.quiet import quiet
from scoring.images.raster import DecodeOptions
from scoring.images.sniff import sniff, webp_canvas

P16 = Preprocessing(size=16, resize=16)
MALFORMED = Path(__file__).parents[4] / "shared" / "data" / "malformed.parquet"


def noise(width, height, seed=0):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def png_claiming(width, height, colour=0, depth=1):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def test_every_kind_of_failure_has_its_status_and_a_sentence():
    cases = {
        "empty": b"",
        "not_an_image": b"hello, this is a text file with some words in it",
        "unsupported": b"%!PS-Adobe-3.0 EPSF-3.0",
        "truncated": encoded(noise(64, 64), "png")[:5000],
        "corrupt": encoded(noise(64, 64), "png")[:40] + bytes(4000),
        "too_large": png_claiming(20_000, 20_000),
    }
    for status, data in cases.items():
        outcome = decode(data, P16)
        assert outcome.status == status, (status, outcome.error)
        assert outcome.pixels is None
        assert outcome.phash is None
        assert outcome.error
        assert "\n" not in outcome.error
        assert outcome.n_bytes == len(data)
    assert set(cases) < set(STATUSES)


def test_refused_formats_are_named_and_never_reach_a_decoder():
    for data, name in [
        (b"%PDF-1.7 ", "pdf"),
        (b"8BPS\x00\x01", "psd"),
        (b"P7\nWIDTH 4\n", "pam"),
        (b"Pf\n4 4\n-1.0\n", "pfm"),
        (b"<?xml version='1.0'?><svg xmlns='x'>", "svg"),
        (b"\x00\x00\x00\x0cJXL \r\n\x87\n", "jpegxl"),
    ]:
        outcome = decode(data, P16)
        assert (outcome.status, outcome.format) == ("unsupported", name)
        assert f"got {name}" in outcome.error


def test_a_name_in_the_bytes_decides_and_stray_beginnings_do_not():
    assert sniff(b"BMW is a car and not an image") is None
    assert sniff(b"P6x is no image") is None
    assert sniff(b"\x00\x00\x00\x14ftypisom\x00\x00\x00\x00isom") is None
    assert sniff(b"\x00\x00\x00\x1cftypmif1\x00\x00\x00\x00mif1avifmiaf") == "avif"


@pytest.mark.parametrize("name", ["jpeg", "png", "gif", "bmp", "webp", "tiff", "avif"])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_file_that_ends_early_is_truncated_in_every_format(name, share):
    data = encoded(noise(96, 64), name)
    outcome = decode(data[: int(len(data) * share)], P16)
    assert outcome.status == "truncated", outcome.error
    assert name in (outcome.format, None)


@pytest.mark.parametrize("name", ["jpeg", "png", "gif", "bmp"])
def test_truncated_data_is_kept_with_a_warning_only_on_request(name):
    picture = Image.new("RGB", (64, 64), (250, 250, 250))
    picture.paste(noise(64, 64), (0, 0))
    data = encoded(picture, name, **({"interlace": 0} if name == "gif" else {}))
    cut = data[: int(len(data) * 0.6)]
    outcome = decode(cut, P16, DecodeOptions(allow_truncated=True))
    full = decode(data, P16)
    assert outcome.status == "ok"
    assert outcome.error.startswith("truncated, the missing part is empty")
    same = slice(10, 16) if name == "bmp" else slice(0, 6)  # BMP stores the last row first
    assert np.abs(outcome.pixels[same].astype(int) - full.pixels[same]).mean() < 5


@pytest.mark.parametrize(
    "data",
    [
        png_claiming(13_000, 13_000),
        png_claiming(20_000, 20_000),
        png_claiming(1, 70_000),
        b"RIFF\x1e\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00" + b"\xfe\x3f\x00" * 2 + bytes(8),
        b"BM" + struct.pack("<IHHIIiiHHI", 60, 0, 0, 54, 40, 5000, 5000, 1, 8, 1) + bytes(1100),
        b"GIF89a" + struct.pack("<HH", 65_535, 65_535) + bytes(3) + b",\0\0\0\0\xff\xff\xff\xff\0\x08\0;",
    ],
    ids=["png", "larger-png", "long-side", "webp", "run-length-bmp", "gif"],
)
def test_a_bomb_is_refused_by_its_header(data):
    began = time.thread_time()
    outcome = decode(data, P16)
    assert outcome.status == "too_large", outcome.error
    assert time.thread_time() - began < 0.1


def test_max_pixels_holds_on_every_path_and_the_size_is_reported():
    for name in ("jpeg", "png", "webp", "gif", "tiff", "bmp", "avif"):
        data = encoded(noise(40, 30), name)
        outcome = decode(data, P16, DecodeOptions(max_pixels=1199))
        assert (outcome.status, outcome.width, outcome.height) == ("too_large", 40, 30), name
        assert "40 x 30" in outcome.error
        assert "1199" in outcome.error
        assert decode(data, P16, DecodeOptions(max_pixels=1200)).status == "ok"


def test_a_jpeg_that_changes_its_size_after_the_header_is_not_trusted():
    data = bytearray(encoded(noise(40, 30), "jpeg"))
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = struct.pack(">HH", 30_000, 30_000)
    assert decode(bytes(data), P16).status == "too_large"


def test_a_progressive_jpeg_of_a_thousand_scans_is_refused():
    data = encoded(noise(2000, 2000), "jpeg", progressive=True, quality=30)
    bomb = data[:-2] + b"\xff\xda\x00\x08\x01\x01\x00\x3f\x10\x00" * 1001 + b"\xff\xd9"
    outcome = decode(bomb, P16)
    assert outcome.status == "too_large"
    assert "scans" in outcome.error


def test_one_flipped_byte_never_raises_and_always_has_a_status():
    rng = random.Random(0)
    for name in ("jpeg", "png", "gif", "bmp", "webp", "tiff", "avif"):
        data = encoded(noise(24, 24), name)
        for _ in range(60):
            broken = bytearray(data)
            for _ in range(rng.choice((1, 4))):
                broken[rng.randrange(len(broken))] = rng.randrange(256)
            length = rng.choice((len(broken), rng.randrange(len(broken))))
            outcome = decode(bytes(broken[:length]), P16)
            assert outcome.status in STATUSES
            assert (outcome.pixels is None) == (outcome.status != "ok")


def test_random_bytes_behind_a_good_beginning_never_raise():
    rng = random.Random(1)
    heads = [b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"II*\x00\x08\x00\x00\x00", b"MM\x00+", b"RIFF"]
    heads += [b"BM" + bytes(12) + b"\x28\0\0\0", b"\x00\x00\x00\x18ftypavif", b"\x00\x00\x00\x18ftypheic"]
    for head in heads:
        for n_bytes in (0, 1, 7, 40, 400):
            data = head + rng.randbytes(n_bytes)
            assert decode(data, P16).status in ("truncated", "corrupt", "unsupported", "not_an_image", "too_large")


def test_a_jpeg_with_stray_bytes_is_ok_with_a_warning():
    data = encoded(noise(32, 32), "jpeg")
    at = data.index(b"\xff\xdb")
    outcome = decode(data[:at] + b"\x00\x01\x02" + data[at:], P16)
    assert outcome.status == "ok"
    assert "libjpeg-turbo says" in outcome.error


def test_a_decoder_out_of_memory_leaves_a_row(monkeypatch):
    def greedy(*args, **kwargs):
        raise MemoryError

    data = encoded(noise(32, 32), "jpeg")
    monkeypatch.setattr("scoring.images.jpeg.simplejpeg.decode_jpeg", greedy)
    assert decode(data, P16).status == "ok"  # Pillow still can
    monkeypatch.setattr("scoring.images.decoding.resize", greedy)
    outcome = decode(data, P16)
    assert outcome.status == "too_large"
    assert "memory" in outcome.error


def test_counting_images_is_bounded_on_hostile_files():
    began = time.thread_time()
    assert count_gif(b"GIF89a" + bytes(7) + b"\x21\xfe" + b"\x01a" * 1_000_000) is None
    chain = b"".join(struct.pack("<HI", 0, 8 + 6 * (i + 1)) for i in range(300_000))
    assert count_tiff(b"II*\x00\x08\x00\x00\x00" + chain) is None
    assert count_tiff(b"II*\x00\x08\x00\x00\x00" + struct.pack("<HI", 0, 8)) == 1  # a loop ends
    assert time.thread_time() - began < 2


def test_webp_canvas_reads_the_three_kinds_of_header():
    for options in ({"lossless": True}, {"quality": 50}, {"save_all": True, "append_images": [noise(37, 21, 1)]}):
        assert webp_canvas(encoded(noise(37, 21), "webp", **options)) == (37, 21)
    assert webp_canvas(b"RIFF\x04\x00\x00\x00WEBP") is None


def test_warnings_are_silent_while_decoding_and_nowhere_else():
    with warnings.catch_warnings(record=True) as seen:
        for _ in range(3):
            with quiet():
                warnings.simplefilter("always")  # its filter goes in front of all
        n_filters = len(warnings.filters)
        with quiet():
            assert len(warnings.filters) == n_filters
            warnings.warn("inside", UserWarning, stacklevel=1)
            other = threading.Thread(target=lambda: warnings.warn("other thread", UserWarning, stacklevel=1))
            other.start()
            other.join()
        warnings.warn("after", UserWarning, stacklevel=1)
    assert [str(entry.message) for entry in seen] == ["other thread", "after"]


def test_pillows_warnings_do_not_become_errors_or_noise(capfd):
    exif = b"Exif\x00\x00MM\x00\x2a\x00\x00\x00\x08\x00\x03" + b"\xff" * 20
    data = encoded(noise(32, 32), "jpeg")
    data = data[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + data[2:]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcome = decode(data, P16)
    assert outcome.status == "ok"
    logging.getLogger("PIL.TiffImagePlugin").error("kept from the last-resort printer")
    assert capfd.readouterr().err == ""


def test_large_images_wait_for_one_another_and_small_ones_do_not():
    budget = PixelBudget(limit=100, small=10)
    order = []
    entered = threading.Event()

    def second():
        entered.set()
        with budget.hold(60):
            order.append("second")

    with budget.hold(60):
        thread = threading.Thread(target=second)
        thread.start()
        entered.wait(5)
        with budget.hold(10):
            order.append("small")
        time.sleep(0.05)
        order.append("first")
    thread.join(5)
    assert order == ["small", "first", "second"]
    with budget.hold(1000):  # larger than the budget: alone
        order.append("alone")
    assert order[-1] == "alone"


def test_many_threads_give_what_one_gives():
    files = [encoded(noise(80, 60, seed), name) for seed in range(6) for name in ("jpeg", "png", "webp", "gif", "avif")]
    files += [b"", b"junk" * 9, files[0][:900]]
    expected = [decode(data, P16) for data in files]
    got: dict[int, list] = {}

    def work(number):
        got[number] = [decode(data, P16) for data in files]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for outcomes in got.values():
        for first, two in zip(expected, outcomes, strict=True):
            assert (first.status, first.error, first.phash) == (two.status, two.error, two.phash)
            assert first.pixels is None or (first.pixels == two.pixels).all()
    assert len(got) == 8


def test_messages_are_one_printable_line_of_bounded_length():
    assert single_line("a\r\nb\tc\x1b") == "a b c?"
    assert len(single_line("x" * 1000)) == 200
    with pytest.raises(ValueError, match="failure in STATUSES"):
        DecodeError("ok", "no")


@pytest.mark.skipif(not MALFORMED.is_file(), reason=f"{MALFORMED.name} is not next to the checkout")
def test_pillows_own_odd_files_each_give_one_outcome_in_bounded_time():
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = parquet.read_table(MALFORMED, columns=["name", "pillow_outcome", "format", "bytes"]).to_pylist()
    ours = {"PNG", "JPEG", "MPO", "GIF", "BMP", "TIFF", "WEBP", "AVIF"}
    counts: dict[str, int] = {}
    for row in rows:
        began = time.thread_time()
        outcome = decode(row["bytes"], P16)
        assert time.thread_time() - began < 5, row["name"]
        assert outcome.status in STATUSES
        counts[outcome.status] = counts.get(outcome.status, 0) + 1
        if outcome.status == "ok":
            assert outcome.pixels.shape == (16, 16, 3)
            sound = row["name"].endswith(
                ("png_decompression_dos.png", "unknown_compression_method.png")
            )  # but metadata
            assert row["pillow_outcome"] in ("ok", "ok-warn") or outcome.format == "heif" or sound, row["name"]
        elif row["pillow_outcome"] in ("ok", "ok-warn") and row["format"] in ours:
            assert outcome.status == "unsupported", (row["name"], outcome.error)  # LAB, 32-bit integer, free float
    assert sum(counts.values()) == len(rows) == 1002
    assert counts["ok"] >= 650
    with pytest.raises(DecodeError):
        decode_rgb(rows[0]["bytes"])


def test_broken_tiffs_print_nothing_from_c(capfd):
    """libtiff writes to file descriptor 2 on its own, past Python's sys.stderr."""
    generator = np.random.default_rng(0)
    stream = io.BytesIO()
    Image.fromarray(generator.integers(0, 255, (64, 64, 3), np.uint8)).save(stream, "TIFF", compression="tiff_lzw")
    content = stream.getvalue()
    statuses = set()
    for _ in range(30):
        broken = bytearray(content)
        for at in generator.integers(8, len(content) - 200, 20):
            broken[at] = generator.integers(256)
        statuses.add(decode(bytes(broken), Preprocessing(size=32, resize=32)).status)
    assert "corrupt" in statuses
    assert capfd.readouterr().err == ""


def test_the_filter_of_warnings_can_be_copied_as_text():
    """scikit-learn copies all filters into its threads, by the text of their patterns."""
    with quiet():
        patterns = [each[1] for each in warnings.filters if each[1] is not None]
    assert patterns
    assert all(isinstance(each.pattern, str) for each in patterns)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=patterns[0].pattern)
        with pytest.warns(UserWarning, match="heard"):
            warnings.warn("heard", UserWarning, stacklevel=1)
