"""Parquet as a source: bytes inside, the struct that Hugging Face writes, and paths."""

import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reading import keys, read_all
from small_parquet import images, payload, write

from curate.manifest import parquet_stream as stream
from curate.manifest.contract import SourceOptions
from curate.manifest.layout import find_layout
from curate.manifest.places import find_place
from curate.manifest.sources import open_manifest
from scoring.errors import InputError

DATA = Path(__file__).resolve().parents[3].parent / "shared" / "data"


def test_text_that_is_not_utf_8_is_refused_with_its_column(tmp_path):
    """Arrow reads it, and would refuse to write it when the rows are scored."""
    label = pa.array([b"cat", b"c\xff"], pa.binary()).view(pa.string())
    manifest = open_manifest(write(tmp_path / "t.parquet", {"image": images(2), "label": label}, use_dictionary=False))
    with pytest.raises(InputError, match=r"column 'label' of .*t\.parquet.*UTF8"):
        manifest.rows(0, 2)


@pytest.mark.parametrize("dictionary", [True, False])
def test_every_range_of_rows_and_readers_is_that_part_of_the_files(tmp_path, dictionary):
    written = {"image": images(60), "id": list(range(60)), "tags": [["x"] * (row % 3) for row in range(60)]}
    for part, (low, high) in enumerate([(0, 25), (25, 26), (26, 60)]):
        columns = {name: values[low:high] for name, values in written.items()}
        write(tmp_path / f"{part}.parquet", columns, row_group_size=7, use_dictionary=dictionary)
    manifest = open_manifest(tmp_path)
    assert manifest.n_rows == 60
    assert manifest.schema.names == ["key", "uri", "id", "tags"]
    expected_keys = [f"{part}.parquet#{row}" for part, n in enumerate((25, 1, 34)) for row in range(n)]
    rng = random.Random(1)
    ranges = [(0, 60), (0, 0), (60, 60), (59, 60), (10, 20), (20, 30), (30, 60)]
    ranges += [tuple(sorted((rng.randrange(61), rng.randrange(61)))) for _ in range(40)]
    for start, stop in ranges:
        assert [read() for read in manifest.readers(start, stop)] == written["image"][start:stop]
        rows = manifest.rows(start, stop)
        assert rows.schema == manifest.schema
        assert rows["id"].to_pylist() == written["id"][start:stop]
        assert rows["tags"].to_pylist() == written["tags"][start:stop]
        assert rows["key"].to_pylist() == expected_keys[start:stop]
        assert rows["uri"].null_count == stop - start


def test_readers_of_several_calls_at_once_do_not_disturb_one_another(tmp_path):
    manifest = open_manifest(write(tmp_path / "a.parquet", {"image": images(40)}, row_group_size=16))
    first, second = manifest.readers(0, 40), manifest.readers(5, 40)
    held = []
    for a, b in zip(first, second, strict=False):
        held.append((a, b))
    assert [(a(), b()) for a, b in reversed(held)] == [(payload(n), payload(n + 5)) for n in reversed(range(35))]


def test_going_on_does_not_decode_a_row_group_again(tmp_path, monkeypatch):
    manifest = open_manifest(write(tmp_path / "a.parquet", {"image": images(64)}, row_group_size=32))
    opened = []
    monkeypatch.setattr(stream.ParquetFiles, "open", lambda files, index: opened.append(index) or files._open(index))
    for start in range(0, 64, 8):
        assert read_all(manifest.readers(start, start + 8)) == images(64)[start : start + 8]
    assert len(opened) == 2
    assert read_all(manifest.readers(40, 41)) == [payload(40)]


def hugging_face(values):
    """The storage of `datasets.Image`: struct<bytes: binary, path: string>."""
    return pa.array(values, pa.struct([("bytes", pa.binary()), ("path", pa.string())]))


def test_the_struct_of_hugging_face_gives_its_bytes_or_else_the_file_of_its_path(tmp_path):
    (tmp_path / "x.jpg").write_bytes(b"file")
    values = [
        {"bytes": b"one", "path": "one.jpg"},
        {"bytes": None, "path": "x.jpg"},
        {"bytes": b"", "path": None},
        {"bytes": None, "path": "gone.jpg"},
        {"bytes": None, "path": None},
        None,
    ]
    path = write(tmp_path / "hf.parquet", {"image": hugging_face(values), "label": range(6)}, row_group_size=4)
    manifest = open_manifest(path)
    assert read_all(manifest.readers(0, 6)) == [b"one", b"file", b"", "missing", "missing", "missing"]
    rows = manifest.rows(0, 6)
    assert rows["uri"].to_pylist() == [None, f"{tmp_path}/x.jpg", None, f"{tmp_path}/gone.jpg", None, None]
    assert rows["key"].to_pylist() == [f"hf.parquet#{row}" for row in range(6)]
    assert manifest.schema.field("image").type == pa.struct([("path", pa.string())])
    assert rows["image"].to_pylist()[0] == {"path": "one.jpg"}
    before = manifest.digest
    (tmp_path / "x.jpg").write_bytes(b"changed")
    assert open_manifest(path).digest != before


def test_the_file_name_next_to_the_bytes_is_the_key_unless_it_repeats(tmp_path):
    columns = {"file": ["a/1.jpg", "a/2.jpg"], "image": [b"1", b"2"]}
    manifest = open_manifest(write(tmp_path / "t.parquet", columns))
    assert keys(manifest) == ["a/1.jpg", "a/2.jpg"]
    assert manifest.rows(0, 2)["uri"].to_pylist() == [None, None]
    columns["file"] = ["a/1.jpg", "a/1.jpg"]
    path = write(tmp_path / "t.parquet", columns)
    with pytest.raises(InputError, match=r"1 row .*--key '#'"):
        open_manifest(path)
    assert keys(open_manifest(path, SourceOptions(key="#"))) == ["t.parquet#0", "t.parquet#1"]


def test_types_pass_untouched(tmp_path):
    table = pa.table(
        {
            "image": pa.array([b"x"]),
            "small": pa.array([1], pa.int8()),
            "half": pa.array([0.5], pa.float16()),
            "list": pa.array([[1, 2]], pa.list_(pa.int16())),
            "struct": pa.array([{"a": {"b": "c"}}]),
            "when": pa.array([0], pa.timestamp("ms", "UTC")),
            "category": pa.array(["c"]).dictionary_encode(),
            "hash": pa.array([b"1234"], pa.binary(4)),
            "a.b": pa.array(["dotted"]),
        }
    )
    manifest = open_manifest(write(tmp_path / "t.parquet", table))
    expected = pq.read_table(tmp_path / "t.parquet").drop_columns("image")
    assert manifest.rows(0, 1).drop_columns(["key", "uri"]).to_pylist() == expected.to_pylist()
    assert [field.type for field in manifest.schema][2:] == [field.type for field in expected.schema]


def test_paths_in_parquet_are_read_and_typed_columns_of_text_work(tmp_path):
    (tmp_path / "1.jpg").write_bytes(b"one")
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        paths = pa.array(["1.jpg", "gone.jpg", str(tmp_path / "1.jpg")]).cast(kind)
        manifest = open_manifest(write(tmp_path / "t.parquet", {"image": paths}))
        assert read_all(manifest.readers(0, 3)) == [b"one", "missing", b"one"]
        assert keys(manifest) == ["1.jpg", "gone.jpg", f"{tmp_path}/1.jpg"]


def test_the_image_column_must_be_plain_or_named(tmp_path):
    path = write(tmp_path / "t.parquet", {"left": [b"l"], "right": [b"r"]})
    with pytest.raises(InputError, match=r"left, right; .*--image-column"):
        open_manifest(path)
    manifest = open_manifest(path, SourceOptions(image_column="right"))
    assert read_all(manifest.readers(0, 1)) == [b"r"]
    assert manifest.rows(0, 1)["left"].to_pylist() == [b"l"]
    with pytest.raises(InputError, match=r"got the columns a"):
        open_manifest(write(tmp_path / "u.parquet", {"a": [1]}))


def test_bad_files_are_errors_of_one_line(tmp_path):
    good = write(tmp_path / "a.parquet", {"image": [b"x"], "n": [1]})
    (tmp_path / "cut.parquet").write_bytes(good.read_bytes()[:-20])
    (tmp_path / "text.parquet").write_text("hello")
    (tmp_path / "void.parquet").write_bytes(b"")
    for name in ("cut", "text", "void"):
        with pytest.raises(InputError, match=rf"{name}\.parquet is not readable") as caught:
            open_manifest(tmp_path / f"{name}.parquet")
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="at least one row"):
        open_manifest(write(tmp_path / "zero.parquet", pa.table({"image": pa.array([], pa.binary())})))
    other = write(tmp_path / "b.parquet", {"image": [b"x"], "m": [1]})
    with pytest.raises(InputError, match=r"no n .*m in b\.parquet"):
        open_manifest([good, other])
    other = write(tmp_path / "b.parquet", {"image": [b"x"], "n": ["1"]})
    with pytest.raises(InputError, match="string instead of int64"):
        open_manifest([good, other])


def test_a_broken_page_costs_its_row_group_and_no_more(tmp_path):
    path = write(
        tmp_path / "t.parquet",
        {"image": [b"%04d" % row * 50 for row in range(40)]},
        row_group_size=10,
        use_dictionary=False,
        compression="none",
        write_page_checksum=True,
    )
    data = bytearray(path.read_bytes())
    data[data.index(b"0015") + 4] ^= 1
    path.write_bytes(data)
    data_of_rows = read_all(open_manifest(path).readers(5, 38))
    assert data_of_rows[:5] == [b"%04d" % row * 50 for row in range(5, 10)]
    assert data_of_rows[5:15] == ["io_error"] * 10
    assert data_of_rows[15:] == [b"%04d" % row * 50 for row in range(20, 38)]


def test_a_file_that_changes_while_it_is_read_gives_failed_rows(tmp_path):
    path = write(tmp_path / "t.parquet", {"image": images(4)})
    manifest = open_manifest(path)
    write(path, {"image": images(8)})
    assert read_all(manifest.readers(0, 4)) == ["io_error"] * 4
    with pytest.raises(InputError, match="changed while"):
        manifest.rows(0, 4)


def test_an_image_above_the_bound_is_a_row_with_that_error(tmp_path):
    path = write(tmp_path / "t.parquet", {"image": [b"1234", b"12345"]})
    assert read_all(open_manifest(path, SourceOptions(max_bytes=4)).readers(0, 2)) == [b"1234", "too_large"]


@pytest.mark.slow
def test_a_small_file_of_a_repeated_large_value_is_read_in_bounded_memory(tmp_path):
    value = bytes(1 << 20)
    indices = pa.array([0] * 100_000, pa.int32())
    column = pa.DictionaryArray.from_arrays(indices, pa.array([value]))
    path = write(tmp_path / "bomb.parquet", {"image": column}, compression="zstd", store_schema=False)
    assert path.stat().st_size < 1 << 20  # represents 100 GB
    pool = pa.default_memory_pool()
    manifest = open_manifest(path)
    seen = 0
    for read in manifest.readers(0, 600):
        seen += len(read())
        assert pool.bytes_allocated() < 1 << 30
    assert seen == 600 << 20


def test_own_columns_that_explode_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("curate.manifest.parquet.MAX_ROWS_BYTES", 1 << 20)
    path = write(tmp_path / "t.parquet", {"image": [b""] * 4000, "text": ["x" * 10_000] * 4000})
    with pytest.raises(InputError, match="next to the image"):
        open_manifest(path).rows(0, 4000)


def test_batches_are_bounded_by_bytes_and_small_where_values_may_repeat(tmp_path):
    n, size = 100, 1 << 16
    for dictionary, most in ((False, stream.BATCH_BYTES // size), (True, 40)):
        path = write(
            tmp_path / "t.parquet",
            {"image": [random.Random(row).randbytes(size) for row in range(n)]},
            use_dictionary=dictionary,
        )
        files = stream.ParquetFiles([find_place(path)])
        batches = list(stream.RowStream(files, ["image"], 1000).batches(0, n))
        assert max(batch.num_rows for batch in batches) <= most
        assert sum(batch.num_rows for batch in batches) == n


@pytest.mark.parametrize("limit", [1 << 10, 1 << 18, 1 << 20, 1 << 22])
def test_the_stated_size_of_a_dictionary_counts_the_values_in_it(tmp_path, limit):
    texts = [f"{row:0100}" for row in range(50_000)]
    path = write(tmp_path / "t.parquet", {"path": texts}, dictionary_pagesize_limit=limit, data_page_size=1 << 12)
    chunk = pq.read_metadata(path).row_group(0).column(0)
    header = path.read_bytes()[chunk.dictionary_page_offset :][:16]
    size = stream.dictionary_size(header)
    assert size % 104 == 0  # a length of 4 bytes and 100 of text a value
    assert limit <= size < limit + 1024 * 104 + 104 * 4096 or size == 104 * 50_000
    for broken in (b"", b"\x15", b"hello", b"\x15\x00\x15\x02", bytes(16)):
        assert stream.dictionary_size(broken) is None


def test_parquet_without_its_suffix_is_known_by_its_first_bytes(tmp_path):
    path = write(tmp_path / "blob", {"image": [b"x"]})
    assert read_all(open_manifest(path).readers(0, 1)) == [b"x"]


@pytest.mark.skipif(not DATA.is_dir(), reason="the data folder next to the repository is absent")
def test_the_odd_files_of_a_decoders_own_tests_come_out_as_they_were_stored():
    path = DATA / "malformed.parquet"
    manifest = open_manifest(path)
    stored = pq.read_table(path)
    assert read_all(manifest.readers(0, manifest.n_rows)) == stored["bytes"].to_pylist()
    assert manifest.renamed == {name: f"source_{name}" for name in ("format", "width", "height")}
    rows = manifest.rows(150, 450)
    for name in stored.column_names:
        if name != "bytes":
            assert rows[manifest.renamed.get(name, name)].to_pylist() == stored[name].to_pylist()[150:450]


def layout_of(options=None, **columns):
    kinds = {
        "text": pa.string(),
        "bytes": pa.binary(),
        "struct": pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
    }
    schema = pa.schema([(name, kinds[kind]) for name, kind in columns.items()])
    layout = find_layout(schema, options or SourceOptions(), "t")
    return layout.path, layout.image


def test_a_column_of_bytes_is_the_image_only_by_its_name():
    assert layout_of(file_name="text", mask="bytes") == ("file_name", None)
    assert layout_of(file_name="text", data="bytes", options=SourceOptions(path_column="file_name")) == (
        "file_name",
        None,
    )
    assert layout_of(path="text", image="bytes") == ("path", "image")  # bytes, or the path where they are null
    assert layout_of(photo="struct") == ("photo.path", "photo")
    assert layout_of(data="bytes") == (None, "data")
    for columns in ({"mask": "bytes"}, {"file_name": "text", "data": "bytes"}, {"image": "bytes", "png": "bytes"}):
        with pytest.raises(InputError, match="--image-column"):
            layout_of(**columns)


def test_a_mask_next_to_the_paths_of_images_is_not_the_image(tmp_path):
    """In structs as of `datasets`, whose bytes are null, of no type, or under a name that is not known."""
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    masks = pa.array([{"bytes": b"mask", "path": None}] * 2, kind)
    photos = [{"bytes": None, "path": f"{row}.jpg"} for row in range(2)]
    for row in range(2):
        (tmp_path / f"{row}.jpg").write_bytes(b"photo%d" % row)
    for image in (pa.array(photos, kind), pa.array(photos)):
        manifest = open_manifest(write(tmp_path / "t.parquet", {"mask": masks, "image": image}))
        assert read_all(manifest.readers(0, 2)) == [b"photo0", b"photo1"]
    write(tmp_path / "t.parquet", {"photo_file": ["0.jpg", "1.jpg"], "mask": masks})
    with pytest.raises(InputError, match=r"mask; .*--image-column.*--path-column"):
        open_manifest(tmp_path / "t.parquet")


def test_views_of_text_and_bytes_are_read_as_large_ones(tmp_path):
    inside = pa.struct([("bytes", pa.binary_view()), ("path", pa.string_view())])
    image = pa.array([{"bytes": data, "path": "x"} for data in images(3)]).cast(inside)
    columns = {"image": image, "label": pa.array(["a", None, "b"], pa.string_view())}
    manifest = open_manifest(write(tmp_path / "t.parquet", columns))
    assert read_all(manifest.readers(0, 3)) == images(3)
    assert manifest.rows(0, 3)["label"].to_pylist() == ["a", None, "b"]
    assert manifest.schema.field("label").type == pa.large_string()


def test_scores_of_an_earlier_model_are_not_taken_for_new_ones(tmp_path):
    columns = {"key": ["a"], "image": [b"x"], "kappa_mcinfonce": [3.0], "unc_mine": [1.0], "year": [2020]}
    for noted, renamed in (({"model": {"digest": "12"}}, {"kappa_mcinfonce", "unc_mine"}), ({}, set())):
        table = pa.table(columns).replace_schema_metadata({b"curate": json.dumps(noted).encode()})
        pq.write_table(table, tmp_path / "scores.parquet")
        manifest = open_manifest(tmp_path / "scores.parquet")
        assert manifest.renamed == {name: f"source_{name}" for name in renamed}
        assert "year" in manifest.schema.names
