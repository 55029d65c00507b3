"""Decoders in their own processes: the same outcome, and nobody else harmed when one fails."""

import gc
import io
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import failing_decoder as failing
import numpy as np
import pytest
from pictures import encoded
from PIL import Image

from scoring.errors import InputError
from scoring.images import DecodeError, Preprocessing, decode, decode_rgb, supervised
from scoring.images.decoding import is_plain as is_plain_by_chunks
from scoring.images.jpeg import read_jpeg_header
from scoring.images.raster import DecodeOptions, LocalImage

P16 = Preprocessing(size=16, resize=16)
FORMATS = ("jpeg", "png", "webp", "gif", "tiff", "bmp", "avif")


def noise(width, height, seed=0):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def is_plain(data, name):
    if name != "jpeg":
        return is_plain_by_chunks(data, name)
    header = read_jpeg_header(data)
    return header is not None and header.is_plain


def smooth(mode="RGB", size=(90, 60)):
    return noise(9, 6).resize(size, Image.Resampling.BICUBIC).convert(mode)


@pytest.fixture
def failing_children(monkeypatch):
    monkeypatch.setattr(supervised, "_SCRIPT", supervised._SCRIPT)
    failing.install_in_children()
    yield
    supervised.CHILDREN.end()


def outcome_of(open_image, data, name, options, short_side):
    """All that a process says of an image, as a value that compares."""
    try:
        image = open_image(data, name, options)
    except DecodeError as failure:
        return failure.status, str(failure), failure.width, failure.height, failure.n_frames
    try:
        raster, warning = image.raster(short_side)
    except DecodeError as failure:
        return image.header, failure.status, str(failure), failure.width, failure.height
    except MemoryError:
        return image.header, "memory"
    finally:
        if hasattr(image, "close"):
            image.close()
    pixels = raster.pixels
    return image.header, warning, raster.width, raster.height, raster.orientation, pixels.shape, pixels.tobytes()


def samples():
    """Files of every format, as they should be and broken in many ways."""
    rng = random.Random(0)
    for name in FORMATS:
        for mode in ("RGB", "L", "RGBA", "P", "1", "LA", "CMYK", "I;16", "F"):
            try:
                data = encoded(smooth(mode), name)
            except (OSError, ValueError, KeyError):
                continue
            yield name, data
            yield name, data[: int(len(data) * rng.uniform(0.2, 0.95))]
            for _ in range(3):
                broken = bytearray(data)
                for _ in range(rng.choice((1, 3, 9))):
                    broken[rng.randrange(4, len(broken))] = rng.randrange(256)
                yield name, bytes(broken)


def test_another_process_gives_the_same_outcome_bit_for_bit():
    seen = set()
    for name, data in samples():
        for short_side, allow_truncated in ((16, False), (None, True)):
            arguments = data, name, DecodeOptions(allow_truncated=allow_truncated), short_side
            local, elsewhere = (
                outcome_of(image_class, *arguments) for image_class in (LocalImage, supervised.ChildImage)
            )
            assert local == elsewhere, (name, local[:5], elsewhere[:5])
            seen.add(local[0] if isinstance(local[0], str) else local[1])
    assert {None, "truncated", "corrupt"} <= seen


def test_the_whole_outcome_of_a_plain_image_is_the_same_when_it_is_supervised():
    p = Preprocessing(size=100, resize=128)
    for data in (encoded(noise(1600, 1200), "jpeg"), encoded(smooth(), "png"), encoded(smooth(), "webp")):
        local, elsewhere = decode(data, p, with_quality=True), decode(data, p, with_quality=True, supervised=True)
        assert (local.pixels == elsewhere.pixels).all()
        assert elsewhere.pixels.flags.writeable
        assert (local.phash, local.quality, local.status, local.width) == (
            elsewhere.phash,
            elsewhere.quality,
            "ok",
            elsewhere.width,
        )


def exif(orientation):
    made = Image.Exif()
    made[0x0112] = orientation
    return made


def test_what_cameras_and_programs_write_is_plain_and_needs_no_process(monkeypatch):
    monkeypatch.setattr("scoring.images.decoding.opened_in_child", lambda *_: pytest.fail("a process was requested"))
    picture = smooth()
    for options in (
        *({"quality": q, "progressive": p, "optimize": p} for q in (30, 95) for p in (False, True)),
        *({"subsampling": s} for s in (0, 1, 2)),
        {"exif": exif(6), "icc_profile": bytes(300), "comment": b"made by hand", "restart_marker_rows": 1},
    ):
        assert decode(encoded(picture, "jpeg", **options), P16).status == "ok"
    for mode in ("RGB", "L", "RGBA", "P", "1", "LA", "I;16"):
        assert decode(encoded(picture.convert(mode), "png", exif=exif(3)), P16).status == "ok"
    for options in ({"lossless": True}, {"quality": 80}, {"exif": exif(8), "icc_profile": bytes(300)}):
        for mode in ("RGB", "RGBA"):
            assert decode(encoded(picture.convert(mode), "webp", **options), P16).status == "ok"
    trailed = encoded(picture, "jpeg") + bytes(100)  # some programs fill up a block
    assert decode(trailed, P16).status == "ok"


def test_truncated_animated_or_inconsistent_files_are_not_plain():
    picture, more = smooth(), {"save_all": True, "append_images": [noise(90, 60)]}
    for name in ("jpeg", "png", "webp"):
        data = encoded(picture, name)
        assert is_plain(data, name)
        assert not any(is_plain(data[:n], name) for n in range(0, len(data) - 2, 7)), name
    assert not is_plain(encoded(picture, "png", **more), "png")
    assert not is_plain(encoded(picture, "webp", **more), "webp")
    assert not is_plain(encoded(picture.convert("CMYK"), "jpeg"), "jpeg")
    png = bytearray(encoded(picture))
    png[30] ^= 1  # of the header's checksum
    assert not is_plain(bytes(png), "png")
    jpeg = encoded(picture, "jpeg")
    at = jpeg.index(b"\xff\xc0")
    for offset, value in ((4, 12), (9, 4), (11, 0x55), (1, 0xC9)):  # precision, colours, factors, arithmetic coding
        broken = bytearray(jpeg)
        broken[at + offset] = value
        assert not is_plain(bytes(broken), "jpeg")
    second = jpeg[at : at + 2 + int.from_bytes(jpeg[at + 2 : at + 4], "big")]
    assert not is_plain(jpeg[:at] + second + jpeg[at:], "jpeg")  # two frames


@pytest.mark.parametrize(
    ("marker", "status", "words"),
    [
        (failing.SEGV, "crashed", "SIGSEGV"),
        (failing.ABORT, "crashed", "SIGABRT"),
        (failing.LEAVE, "crashed", "exit code 3"),
        (failing.SPIN, "timeout", "time for decoding"),
        (failing.SLEEP, "timeout", "no answer in"),
        (failing.GROW, "too_large", "fit in memory"),
    ],
)
def test_a_decoder_that_fails_costs_its_image_alone(failing_children, monkeypatch, marker, status, words):
    monkeypatch.setattr(supervised, "LEAST_WAIT", 0.5)
    monkeypatch.setattr(supervised, "PATIENCE", 2.0)
    gif = encoded(noise(20, 20), "gif")
    began = time.monotonic()
    outcome = decode(
        gif + marker, P16, DecodeOptions(seconds=5 if marker == failing.GROW else 0.3, max_pixels=1_000_000)
    )
    assert time.monotonic() - began < 20
    assert (outcome.status, outcome.pixels, outcome.width) == (status, None, 20)
    assert words in outcome.error
    assert decode(gif, P16, DecodeOptions(seconds=5)).status == "ok"


def test_images_next_to_one_that_crashes_its_decoder_are_what_they_would_be(failing_children):
    files = [encoded(noise(30, 20, seed), "gif") for seed in range(12)]
    expected = [decode(data, P16) for data in files]
    files[5] += failing.SEGV
    files[8] += failing.ABORT
    got = [None] * len(files)

    def work(number):
        for i in range(number, len(files), 4):
            got[i] = decode(files[i], P16)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, (first, two) in enumerate(zip(expected, got, strict=True)):
        assert two.status == ("crashed" if i in (5, 8) else "ok")
        assert i in (5, 8) or (first.pixels == two.pixels).all()


def test_a_decoder_that_was_ended_from_outside_is_replaced_and_its_image_lives():
    gif = encoded(noise(20, 20), "gif")
    assert decode(gif, P16).status == "ok"
    for child in list(supervised.CHILDREN._idle):
        os.kill(child._process.pid, signal.SIGKILL)
    assert decode(gif, P16).status == "ok"
    with supervised.opened_in_child(gif, "gif", DecodeOptions()) as image:
        os.kill(image._child._process.pid, signal.SIGKILL)  # between header and pixels
        raster, _ = image.raster(None)
    assert raster.pixels.shape == (20, 20, 3)


def test_a_decoder_that_read_a_header_alone_serves_the_next_image():
    supervised.CHILDREN.end()
    gif = encoded(noise(20, 20), "gif")
    for _ in range(3):
        with supervised.opened_in_child(gif, "gif", DecodeOptions()) as image:
            assert (image.header.width, image.header.height) == (20, 20)
    with pytest.raises(ZeroDivisionError), supervised.opened_in_child(gif, "gif", DecodeOptions()):
        1 / 0  # noqa: B018
    [child] = supervised.CHILDREN._idle
    decode(gif, P16)
    assert supervised.CHILDREN._idle == [child]


def test_a_decoder_cannot_shrink_the_pixels_that_it_gave():
    with supervised.opened_in_child(encoded(noise(20, 20), "gif"), "gif", DecodeOptions()) as image:
        about, place = image._get(
            {"what": "raster", "short_side": None, "allow_truncated": False, "white": 65535}, fresh=False
        )
    pixels = supervised.pixels_in(place, tuple(about["shape"]))
    with pytest.raises(PermissionError):
        os.ftruncate(place, 0)
    os.close(place)
    assert pixels.sum() > 0
    other = os.memfd_create("short", os.MFD_ALLOW_SEALING)
    with pytest.raises(ValueError, match=r"1200 bytes .*got 0"):
        supervised.pixels_in(other, (20, 20, 3))
    os.close(other)


def test_pixels_in_shared_memory_are_freed_with_their_array():
    gif = encoded(noise(60, 60), "gif")
    decode_rgb(gif)
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir())), len(Path("/proc/self/maps").read_text().splitlines())
    for _ in range(50):
        decode_rgb(gif)
    after = len(list(Path("/proc/self/fd").iterdir())), len(Path("/proc/self/maps").read_text().splitlines())
    assert after[0] == before[0]
    assert after[1] - before[1] < 10


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except FileNotFoundError:
        return False


def test_decoders_end_with_the_process_that_started_them():
    script = """
import io, os, signal
from PIL import Image
from scoring.images import supervised
from scoring.images.raster import DecodeOptions
stream = io.BytesIO()
Image.new("RGB", (9, 9)).save(stream, "gif")
with supervised.opened_in_child(stream.getvalue(), "gif", DecodeOptions()) as image:
    image.raster(None)
print(supervised.CHILDREN._idle[0]._process.pid, flush=True)
{end}
"""
    for end in ("os.kill(os.getpid(), signal.SIGKILL)", ""):
        finished = subprocess.run([sys.executable, "-c", script.format(end=end)], capture_output=True, text=True)
        pid = int(finished.stdout)
        until = time.monotonic() + 10
        while is_running(pid) and time.monotonic() < until:
            time.sleep(0.02)
        assert not is_running(pid)
        assert finished.stderr == ""


def test_a_fork_starts_its_own_decoders():
    gif = encoded(noise(20, 20), "gif")
    expected = decode_rgb(gif)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if (decode_rgb(gif) == expected).all() and len(supervised.CHILDREN._idle) == 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert (decode_rgb(gif) == expected).all()


def test_a_decoder_gets_no_secrets_and_little_else(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    supervised.CHILDREN.end()
    decode(encoded(noise(20, 20), "gif"), P16)
    process = Path(f"/proc/{supervised.CHILDREN._idle[-1]._process.pid}")
    assert b"AWS_SECRET_ACCESS_KEY" not in (process / "environ").read_bytes()
    assert "torch" not in (process / "maps").read_text()
    resident = int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    assert resident < 100e6
    until = time.monotonic() + 5
    while (streams := open_in(process)) != ["/dev/null"] * 3 + ["socket"] and time.monotonic() < until:
        time.sleep(0.01)  # it may still be closing the memory that it handed over
    assert streams == ["/dev/null"] * 3 + ["socket"]


def open_in(process):
    return sorted(str(entry.readlink()).split(":")[0] for entry in (process / "fd").iterdir())


def test_a_decoder_that_cannot_be_started_is_one_clear_line(monkeypatch):
    supervised.CHILDREN.end()
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(InputError, match="'/nowhere/python'"):
        decode(encoded(noise(20, 20), "gif"), P16)


def test_a_bug_in_a_decoder_is_a_traceback_and_no_status(monkeypatch):
    bug = "raise KeyError('a bug')"
    monkeypatch.setattr(
        supervised,
        "_SCRIPT",
        "import sys; sys.path[:] = {paths}\nimport scoring.images.child as c\n"
        f"def bad(*a): {bug}\nc.LocalImage = bad\nc.serve({{fd}})",
    )
    supervised.CHILDREN.end()
    with pytest.raises(RuntimeError, match="a bug"):
        decode(encoded(noise(20, 20), "gif"), P16)
    supervised.CHILDREN.end()


def test_a_time_for_decoding_has_to_be_above_zero():
    with pytest.raises(ValueError, match="seconds"):
        decode(b"", P16, DecodeOptions(seconds=0))


def test_a_hang_is_ended_by_processor_time_however_busy_the_machine_is(failing_children):
    began = time.process_time()
    outcome = decode(encoded(noise(20, 20), "gif") + failing.SPIN, P16, DecodeOptions(seconds=0.2))
    assert outcome.status == "timeout"
    assert time.process_time() - began < 2  # ours


def test_nothing_that_a_library_prints_reaches_the_terminal(capfd):
    stream = io.BytesIO()
    noise(64, 64).save(stream, "TIFF", compression="tiff_lzw")
    broken = bytearray(stream.getvalue())
    broken[100:2000:7] = bytes(len(range(100, 2000, 7)))
    decode(bytes(broken), P16)
    assert capfd.readouterr().err == ""
