"""Parquet in several files: their order, their keys, their digest, and names of folders."""

import pytest
from reading import keys, read_all
from small_parquet import images, write

from curate.manifest.contract import SourceOptions
from curate.manifest.sources import open_manifest
from scoring.errors import InputError


def test_keys_come_from_the_named_column_then_key_then_the_webdataset_name(tmp_path):
    columns = {"__key__": ["w1", "w2"], "id": [5, 6], "image": [b"1", b"2"]}
    path = write(tmp_path / "t.parquet", columns)
    assert keys(open_manifest(path)) == ["w1", "w2"]
    assert keys(open_manifest(path, SourceOptions(key="id"))) == ["5", "6"]
    path = write(tmp_path / "t.parquet", {"key": ["k1", "k2"], **columns})
    manifest = open_manifest(path)
    assert keys(manifest) == ["k1", "k2"]
    assert manifest.schema.names == ["key", "uri", "__key__", "id"]
    other = open_manifest(path, SourceOptions(key="__key__"))
    assert other.renamed == {"key": "source_key"}
    assert other.rows(0, 2)["source_key"].to_pylist() == ["k1", "k2"]


def test_null_and_unusable_keys_are_errors_that_name_the_row(tmp_path):
    n = 30
    names = [f"k{row}" for row in range(n)]
    names[17] = None
    columns = {"k": names, "f": [0.5] * n, "image": images(n)}
    path = write(tmp_path / "t.parquet", columns, row_group_size=7)
    with pytest.raises(InputError, match=r"row 17 .*'k'"):
        open_manifest(path, SourceOptions(key="k"))
    assert open_manifest(path, SourceOptions(key="k", limit=17)).n_rows == 17
    with pytest.raises(InputError, match="integers, got double"):
        open_manifest(path, SourceOptions(key="f"))


def test_repeated_keys_across_files_are_found(tmp_path):
    write(tmp_path / "a.parquet", {"key": ["a", "b"], "image": [b"", b""]})
    write(tmp_path / "b.parquet", {"key": ["c", "b"], "image": [b"", b""]})
    with pytest.raises(InputError, match=r"repeats .*\('b'\)"):
        open_manifest(tmp_path)


def test_patterns_and_sequences_of_files_open_in_order(tmp_path):
    for name in ("p-00", "p-01", "p-02", "q"):
        write(tmp_path / f"{name}.parquet", {"image": [name.encode()]})
    for source, names in (
        (f"{tmp_path}/p-*.parquet", ["p-00", "p-01", "p-02"]),
        (f"{tmp_path}/p-{{01..02}}.parquet", ["p-01", "p-02"]),
        (f"{tmp_path}/{{q,p-00}}.parquet", ["q", "p-00"]),
        ([tmp_path / "q.parquet", f"{tmp_path}/p-01.parquet"], ["q", "p-01"]),
    ):
        manifest = open_manifest(source)
        assert read_all(manifest.readers(0, manifest.n_rows)) == [name.encode() for name in names]
    with pytest.raises(InputError, match="files that match"):
        open_manifest(f"{tmp_path}/z*.parquet")
    with pytest.raises(InputError, match="at most 100,000"):
        open_manifest(f"{tmp_path}/{{0..999999999}}.parquet")


def test_files_of_one_name_in_two_folders_have_separate_keys(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder / "x.parquet", {"image": [b""]})
    expected = ["a/x.parquet#0", "b/x.parquet#0"]
    assert keys(open_manifest(tmp_path)) == expected
    assert keys(open_manifest([tmp_path / "a" / "x.parquet", tmp_path / "b" / "x.parquet"])) == expected
    with pytest.raises(InputError, match="each file once"):
        open_manifest([tmp_path / "a" / "x.parquet"] * 2)


def test_the_digest_of_parquet_changes_with_the_file_the_key_and_the_limit(tmp_path):
    path = write(tmp_path / "t.parquet", {"id": [1, 2], "image": [b"x", b"y"]})
    digests = [open_manifest(path).digest, open_manifest(path).digest]
    assert digests[0] == digests[1]
    digests.append(open_manifest(path, SourceOptions(key="id")).digest)
    digests.append(open_manifest(path, SourceOptions(limit=1)).digest)
    write(path, {"id": [1, 2], "image": [b"x", b"z!"]})
    digests.append(open_manifest(path).digest)
    assert len(set(digests)) == 4


def partitioned(folder, labels):
    for label in labels:
        (folder / f"year=2024/label={label}").mkdir(parents=True)
        write(folder / f"year=2024/label={label}/part-0.parquet", {"image": images(3)})
    return folder


def test_names_of_partitioned_folders_are_columns(tmp_path):
    folder = partitioned(tmp_path / "t", ["cat", "a%20b", "__HIVE_DEFAULT_PARTITION__"])
    for source in (folder, str(folder / "*/*/*.parquet")):
        manifest = open_manifest(source)
        assert manifest.schema.names == ["key", "uri", "label", "year"]
        assert manifest.rows(0, 9)["label"].to_pylist() == [None] * 3 + ["a b"] * 3 + ["cat"] * 3
        assert manifest.rows(2, 7)["label"].to_pylist() == [None] + ["a b"] * 3 + ["cat"]
        assert [table["year"].to_pylist() for table in manifest.columns(["year"])] == [["2024"] * 9]
        assert read_all(manifest.readers(0, 9)) == images(3) * 3


def test_a_column_of_the_file_wins_over_the_name_of_its_folder(tmp_path):
    (tmp_path / "id=9").mkdir()
    manifest = open_manifest(write(tmp_path / "id=9/a.parquet", {"image": images(2), "id": [1, 2]}))
    assert manifest.rows(0, 2)["id"].to_pylist() == [1, 2]


def test_a_folder_renamed_for_another_class_changes_the_digest(tmp_path):
    folder = partitioned(tmp_path / "t", ["cat"])
    before = open_manifest(str(folder / "year=2024/label=cat/part-0.parquet")).digest
    (folder / "year=2024/label=cat").rename(folder / "year=2024/label=dog")
    assert open_manifest(str(folder / "year=2024/label=dog/part-0.parquet")).digest != before


def test_folders_named_like_what_curate_writes_do_not_replace_it(tmp_path):
    (tmp_path / "key=9").mkdir()
    manifest = open_manifest(write(tmp_path / "key=9/a.parquet", {"image": images(2)}))
    assert manifest.schema.names == ["key", "uri", "source_key"]
    assert manifest.rows(0, 2)["source_key"].to_pylist() == ["9", "9"]
