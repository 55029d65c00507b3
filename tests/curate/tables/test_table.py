"""Parquet in and out: checked, bounded, whole or not at all."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_tables import rows, written

from curate.tables import batches as batches_module
from curate.tables.table import embedding_field, embedding_matrix, open_table
from scoring.errors import InputError


def test_a_table_comes_back_as_it_was_written(tmp_path):
    table = rows(1000)
    opened = open_table(written(tmp_path / "a.parquet", table), require=["key"])
    assert opened.n_rows == 1000
    assert opened.read().equals(table)
    assert pq.read_table(tmp_path / "a.parquet").equals(table)  # and any other reader sees the same


def test_metadata_names_kind_version_and_columns(tmp_path):
    metadata = open_table(written(tmp_path / "a.parquet", rows(1))).metadata
    assert metadata["kind"] == "scores"
    assert metadata["model"] == {"name": "m"}
    assert metadata["columns"]["kappa_a"]["higher"] == "more certain"
    assert set(metadata["columns"]) == {"key", "kappa_a", "embedding"}
    assert metadata["curate"]


def test_every_changed_byte_is_noticed(tmp_path):
    table = rows(500)
    good = written(tmp_path / "a.parquet", table).read_bytes()
    generator = np.random.default_rng(0)
    silent = 0
    for _ in range(150):
        data = bytearray(good)
        data[int(generator.integers(len(data)))] ^= int(generator.integers(1, 256))
        (tmp_path / "b.parquet").write_bytes(data)
        with suppress(InputError):  # noticed
            silent += not open_table(tmp_path / "b.parquet").read().equals(table)
    # Pages carry checksums; the footer has none, and a renamed column or changed statistic is the footer's.
    assert silent <= 3


def test_a_damaged_footer_never_takes_the_process_down(tmp_path):
    table = rows(100).append_column("label", pa.array(["cat", "dog"] * 50))
    written(tmp_path / "good.parquet", table)
    code = (
        "import sys, numpy as np\n"
        "from pathlib import Path\n"
        "from curate.tables.table import open_table\n"
        "from scoring.errors import InputError\n"
        "folder = Path(sys.argv[1])\n"
        "good = (folder / 'good.parquet').read_bytes()\n"
        "footer = len(good) - 8 - int.from_bytes(good[-8:-4], 'little')\n"
        "generator, refused = np.random.default_rng(1), 0\n"
        "for _ in range(1500):\n"
        "    data = bytearray(good)\n"
        "    for _ in range(int(generator.integers(1, 4))):\n"
        "        data[int(generator.integers(footer, len(good)))] = int(generator.integers(256))\n"
        "    (folder / 'bad.parquet').write_bytes(data)\n"
        "    try:\n        table = open_table(folder / 'bad.parquet')\n"
        "        assert table.n_rows == table.read().num_rows\n"
        "    except InputError as error:\n        refused += '\\n' not in str(error)\n"
        "print(refused)\n"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 500


def test_a_page_that_was_damaged_is_named(tmp_path):
    path = written(tmp_path / "a.parquet", rows(5000))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1  # in the middle of the embeddings
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"a\.parquet is damaged"):
        open_table(path).read()


@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.list_(pa.string())])
def test_text_that_is_not_utf8_is_damage_even_without_a_checksum(tmp_path, kind, dictionary):
    texts = pa.array(["abcd", "efgh", "ijkl"]).cast(pa.string())
    column = pa.array([["abcd"], ["efgh"], ["ijkl"]]) if pa.types.is_list(kind) else texts.cast(kind)
    pq.write_table(pa.table({"key": column}), tmp_path / "a.parquet", compression=None, use_dictionary=dictionary)
    data = (tmp_path / "a.parquet").read_bytes()
    assert data.count(b"efgh") == 1
    (tmp_path / "a.parquet").write_bytes(data.replace(b"efgh", b"ef\xb1h"))
    with pytest.raises(InputError, match=r"a\.parquet is damaged") as refused:
        open_table(tmp_path / "a.parquet").read()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"hello", b"PAR1", b"\x80\x04pickle" * 50])
def test_a_file_that_is_not_parquet_is_refused_in_one_line(tmp_path, content):
    path = tmp_path / "a.parquet"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"a\.parquet") as caught:
        open_table(path)
    assert "\n" not in str(caught.value)


def test_a_truncated_file_is_refused(tmp_path):
    path = written(tmp_path / "a.parquet", rows(500))
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(InputError, match=r"a\.parquet"):
        open_table(path)


def test_a_missing_column_of_a_wide_table_names_the_nearest_dozen(tmp_path):
    names = ["key", *(f"feature_{i:04}" for i in range(3000)), "species"]
    path = written(tmp_path / "wide.parquet", pa.table({name: [0] for name in names}))
    with pytest.raises(InputError, match="did you mean 'species'") as error:
        open_table(path, require=["specie"])
    assert str(error.value).endswith(" and 2,990 more)")
    assert len(str(error.value)) < 400
    narrow = written(tmp_path / "narrow.parquet", pa.table({name: [0] for name in "badc"}))
    with pytest.raises(InputError, match="b, a, d, c"):
        open_table(narrow, require=["specie"])


def test_a_missing_path_and_an_empty_folder_name_what_was_expected(tmp_path):
    with pytest.raises(InputError, match=r"x+\.\.\.; pass"):
        open_table("x" * 10**6)
    with pytest.raises(InputError, match="does not exist"):
        open_table(tmp_path / "none.parquet")
    with pytest.raises(InputError, match=r"part-\*\.parquet .*got none"):
        open_table(tmp_path)


def test_an_unknown_column_names_the_closest_one(tmp_path):
    path = written(tmp_path / "a.parquet", rows(3))
    with pytest.raises(InputError, match="did you mean 'kappa_a'"):
        list(open_table(path).batches(["kapa_a"]))
    with pytest.raises(InputError, match="no column 'label'"):
        open_table(path, require=["key", "label"])


def test_a_folder_of_parts_reads_in_order_of_names(tmp_path):
    table = rows(30)
    for index in (2, 0, 1):
        written(tmp_path / f"part-{index}.parquet", table.slice(10 * index, 10))
    (tmp_path / "other.txt").write_text("not a part")
    opened = open_table(tmp_path)
    assert [file.name for file in opened.files] == ["part-0.parquet", "part-1.parquet", "part-2.parquet"]
    assert opened.read().equals(table)
    assert opened.n_rows == 30


def test_parts_of_another_schema_are_refused(tmp_path):
    written(tmp_path / "part-0.parquet", rows(2))
    written(tmp_path / "part-1.parquet", rows(2).drop_columns("kappa_a"))
    with pytest.raises(InputError, match=r"part-1\.parquet has other columns"):
        open_table(tmp_path)


def test_a_repeated_column_name_is_refused(tmp_path):
    pq.write_table(pa.table([[1], [2]], names=["a", "a"]), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="several columns named 'a'"):
        open_table(tmp_path / "a.parquet")


def test_batches_have_at_most_the_rows_requested_and_the_columns_in_order(tmp_path):
    path = written(tmp_path / "a.parquet", rows(100))
    batches = list(open_table(path).batches(["kappa_a", "key"], rows=30))
    assert max(b.num_rows for b in batches) <= 30
    assert all(b.schema.names == ["kappa_a", "key"] for b in batches)
    assert np.concatenate([b.column(0).to_numpy() for b in batches]).tolist() == list(range(100))


@pytest.mark.parametrize("numbers", [[], [5], [99, 0, 41, 41, 40], list(range(100))[::-1]])
def test_rows_are_taken_by_their_numbers_in_the_order_given_also_over_parts(tmp_path, numbers):
    table = rows(100)
    for part in range(4):
        written(tmp_path / f"part-{part}.parquet", table.slice(25 * part, 25))
    taken = open_table(tmp_path).take(np.array(numbers, np.int64), ["kappa_a", "key"])
    assert taken.equals(table.take(pa.array(numbers, pa.int64())).select(["kappa_a", "key"]))


@pytest.mark.parametrize("numbers", [[-1], [0, 100]])
def test_a_row_that_is_not_there_is_not_taken(tmp_path, numbers):
    with pytest.raises(IndexError, match="numbered 0 to 99"):
        open_table(written(tmp_path / "a.parquet", rows(100))).take(numbers, ["key"])


def test_no_columns_still_give_the_number_of_rows(tmp_path):
    path = written(tmp_path / "a.parquet", rows(100))
    assert sum(b.num_rows for b in open_table(path).batches([], rows=30)) == 100


def test_a_table_without_rows_reads_and_writes(tmp_path):
    opened = open_table(written(tmp_path / "a.parquet", rows(0)))
    assert opened.n_rows == 0
    assert opened.read().equals(rows(0))


def test_text_repeated_by_a_dictionary_unfolds_in_bounded_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(batches_module, "BATCH_BYTES", 1 << 20)
    values = ["x" * 100_000, None, "y"] * 1000  # 100 MB when written out, a few kB in the file
    pq.write_table(pa.table({"key": values}), tmp_path / "a.parquet")
    batches = list(open_table(tmp_path / "a.parquet").batches())
    assert max(b.nbytes for b in batches) < 2 << 20
    assert [v for b in batches for v in b.column(0).to_pylist()] == values
    assert batches[0].schema.field(0).type == pa.string()


def test_types_of_other_writers_come_through(tmp_path):
    table = pa.table(
        {
            "key": pa.array(["a", "b"], pa.large_string()),
            "tags": pa.array([["x"], None]),
            "box": pa.array([{"x": 1, "y": [1.0]}, None]),
            "label": pa.array(["cat", None]).dictionary_encode(),
            "when": pa.array([0, 1], pa.timestamp("ms", "UTC")),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    opened = open_table(tmp_path / "a.parquet")
    assert opened.read().to_pylist() == table.to_pylist()
    written(tmp_path / "b.parquet", opened.read())
    assert open_table(tmp_path / "b.parquet").read().to_pylist() == table.to_pylist()


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_an_embedding_column_becomes_a_matrix(dtype):
    values = np.random.default_rng(0).standard_normal((7, 3)).astype(dtype)
    kind = embedding_field(3, dtype).type
    array = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), type=kind)
    matrix = embedding_matrix(array)
    assert matrix.dtype == np.dtype(dtype)
    assert (matrix == values).all()
    assert matrix.__array_interface__["data"][0] == array.values.buffers()[1].address  # not a copy
    assert (embedding_matrix(array.slice(2, 4)) == values[2:6]).all()
    assert (embedding_matrix(pa.chunked_array([array.slice(0, 2), array.slice(2)])) == values).all()
    assert embedding_matrix(array.slice(0, 0)).shape == (0, 3)


def test_a_null_embedding_becomes_nan_and_only_that():
    array = pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float32(), 2))
    matrix = embedding_matrix(array)
    assert matrix[[0, 2]].tolist() == [[1, 2], [3, 4]]
    assert np.isnan(matrix[1]).all()


def test_lists_of_one_length_are_a_matrix_and_others_are_refused():
    assert embedding_matrix(pa.array([[1.0, 2.0], [3.0, 4.0]])).tolist() == [[1, 2], [3, 4]]
    with pytest.raises(InputError, match="one length, got lengths"):
        embedding_matrix(pa.array([[1.0, 2.0], [3.0]]))
    with pytest.raises(InputError, match="expected an embedding column"):
        embedding_matrix(pa.array(["text"]))


def test_reading_one_huge_row_group_takes_little_memory(tmp_path):
    n, width = 60_000, 512
    values = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(n * width, np.float32)), width)
    pq.write_table(
        pa.table({"e": values}), tmp_path / "a.parquet", row_group_size=n, use_dictionary=False, compression=None
    )
    code = (
        "import resource, sys\nfrom curate.tables.table import open_table\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "n = sum(b.num_rows for b in open_table(sys.argv[1]).batches(rows=1000))\n"
        "print(n, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.parquet")], cwd=root, capture_output=True, text=True, check=True
    )
    n_read, grown = done.stdout.split()
    assert int(n_read) == n
    assert float(grown) < 60  # MB, of a row group of 123 MB


def test_views_of_text_and_bytes_are_read_as_what_can_be_compared(tmp_path):
    views = {"key": ["a", "b", None], "data": [b"x", None, b"z"]}
    columns = [pa.array(views["key"]).cast(pa.string_view()), pa.array(views["data"]).cast(pa.binary_view())]
    pq.write_table(pa.table(columns, names=list(views)), tmp_path / "v.parquet")
    opened = open_table(tmp_path / "v.parquet")
    assert opened.schema.types == [pa.large_string(), pa.large_binary()]
    assert opened.read().to_pydict() == views
    assert opened.take([2, 0], ["data"]).to_pydict() == {"data": [b"z", b"x"]}


def test_rows_by_number_match_the_table_whatever_its_files_and_row_groups(tmp_path):
    generator = np.random.default_rng(0)
    schema = pa.schema([("key", pa.string()), ("x", pa.float64())])
    parts = [
        pa.table([[f"{part}-{i}" for i in range(n)], generator.random(n)], schema=schema)
        for part, n in enumerate((7, 0, 23))
    ]
    for part, (few, size) in enumerate(zip(parts, (3, 1, 5), strict=True)):
        pq.write_table(few, tmp_path / f"part-{part}.parquet", row_group_size=size)
    table, expected = open_table(tmp_path), pa.concat_tables(parts)
    for n in (0, 1, 4, 30):
        rows = generator.integers(0, 30, n)
        assert table.take(rows, ["x", "key"]).to_pylist() == expected.select(["x", "key"]).take(rows).to_pylist()
