"""Words that annotators type, name files with or send to a page, and the first bytes of images."""

import io
import struct

import numpy as np
import pyarrow as pa
import pytest
from fuzzing import NASTY, broken_bytes, fuzz, survives
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from curate.counted import single_line
from curate.manifest import remote
from curate.manifest.memory import read_uri
from curate.manifest.names import key_of, uri_of
from curate.manifest.text import guarded, unguarded
from curate.reporting.served.index import BadQuery, read_query
from curate.tables.where import parse_condition
from scoring.images.decoding import is_plain
from scoring.images.jpeg import read_jpeg_header
from scoring.images.outcome import DecodeError
from scoring.images.pillow import count_gif, count_tiff
from scoring.images.raster import format_of
from scoring.images.sniff import ends_early, sniff, webp_canvas


@pytest.fixture(scope="module", autouse=True)
def tries_follow_at_once():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote, "PAUSE", 0)
        yield


BATCH = pa.record_batch(
    {
        "width": pa.array([1, 2, None], pa.int32()),
        "unc": pa.array([0.5, float("nan"), None], pa.float32()),
        "label": ["cat", None, "do'g"],
        "ok": [True, False, None],
        "at": pa.array([0, 1, None], pa.timestamp("us")),
        "odd name": [1, 2, 3],
    }
)
TOKENS = (
    *("width", "unc", "label", "ok", "at", "`odd name`", "nothing", "and", "or", "not", "in", "is", "null", "like"),
    *("==", "!=", "<", ">=", "(", ")", ",", "+", "-", "*", "/", "1", "-2.5e308", "0", "9" * 400, "'cat'", '"a%"'),
    *("true", "false", "length", "lower", "abs", "is not null", "'", '"', "`", "\\", "\0", "1e", ".", "\u202e", "()"),
)


@fuzz(800)
@given(text=st.lists(st.sampled_from(TOKENS), max_size=12).map(" ".join) | st.text(max_size=30))
def test_conditions(text):
    condition = survives(parse_condition, text, BATCH.schema)
    if condition is not None:
        parsed = survives(condition, BATCH)
        assert parsed is None or (len(parsed) == 3 and set(parsed) <= {1, 0, -1})


def test_conditions_of_great_depth_and_length():
    for text in (
        "(" * 5000,
        "not " * 2000,
        "-" * 9000 + "1 > 0",
        "abs(" * 2000,
        "width > 0 or " * 700 + "ok",
        "x" * 20_000,
    ):
        survives(parse_condition, text, BATCH.schema)


@fuzz(500)
@given(path=st.binary(min_size=1, max_size=60).filter(lambda path: b"\0" not in path and not path.startswith(b"./")))
def test_names_of_files_become_keys_that_are_text_and_differ(path):
    key = key_of(path)
    assert key.encode("utf-8")
    other = path[:-1] + bytes([path[-1] ^ 0x80 or 1])
    assert key_of(other) != key or other == path
    assert uri_of(b"/" + path).encode("utf-8")


@fuzz(500)
@given(text=st.text(max_size=30) | st.sampled_from(NASTY) | st.from_regex(r"['=+\-@\t\r]{1,4}a?", fullmatch=True))
def test_cells_are_no_formulas_and_come_back(text):
    cell = guarded(text)
    assert unguarded(cell) == text
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    line = single_line(text)
    assert "\n" not in line
    assert line.isprintable()


@fuzz(300)
@given(
    uri=st.text(max_size=40)
    | st.sampled_from([*NASTY[:5], *NASTY[6:], "file://%00", "file://[", "s3://", "http://[::1", "x.tar::y", "::"])
)
def test_paths_that_lead_nowhere(uri):
    try:
        read_uri(uri)
    except Exception as error:
        assert type(error).__name__ == "ReadError", error  # noqa: PT017
        assert error.status in ("missing", "io_error", "too_large")  # noqa: PT017


@fuzz(500)
@given(
    text=st.text(max_size=60)
    | st.lists(
        st.sampled_from(
            [
                "sort=unc",
                "min.unc=1",
                "max.unc=nan",
                "row=1,2",
                "row=",
                "offset=-1",
                "limit=9999",
                "search=%00",
                "x=%FF",
                "class=",
                "sort=row",
                "min.x=1e999",
                "descending=1",
            ]
        ),
        max_size=5,
    ).map("&".join)
)
def test_queries_of_a_page(text):
    try:
        query = read_query(text, 10, sortable={"unc"}, numbers={"unc"}, galleries={"g"})
    except BadQuery as error:
        assert len(str(error)) < 500  # noqa: PT017
        return
    assert query.offset >= 0
    assert 0 <= query.limit <= 1000
    assert all(np.isfinite(bound) or np.isinf(bound) for _, *pair in query.bounds for bound in pair)


def encoded(picture, name, **options):
    stream = io.BytesIO()
    picture.save(stream, name, **options)
    return stream.getvalue()


PICTURE = Image.fromarray(np.arange(30 * 20 * 3, dtype=np.uint8).reshape(20, 30, 3))
FILES = [encoded(PICTURE, name) for name in ("jpeg", "png", "webp", "gif", "tiff", "bmp", "avif")]
FILES += [encoded(PICTURE, "jpeg", progressive=True, exif=Image.Exif().tobytes()), b"II*\0" + struct.pack("<I", 8)]


@fuzz(1500)
@given(data=st.sampled_from(FILES).flatmap(broken_bytes) | st.binary(max_size=60))
def test_the_structure_of_images(data):
    """Nothing here may raise but the one named failure, whatever the bytes."""
    try:
        name = format_of(data)
    except DecodeError as failure:
        assert failure.status in ("empty", "not_an_image", "unsupported")  # noqa: PT017
        name = sniff(data)
    header = survives(read_jpeg_header, data)
    assert header is None or (0 <= header.width < 65536 and 0 <= header.height < 65536)
    assert webp_canvas(data) is None or min(webp_canvas(data)) >= 0
    assert count_gif(data) is None or count_gif(data) >= 1
    assert count_tiff(data) is None or count_tiff(data) >= 1
    for kind in ("png", "webp", "gif", "avif", "heif"):
        assert isinstance(is_plain(data, kind), bool)
        assert isinstance(ends_early(data, kind), bool)
    assert name is None or name == sniff(data)
