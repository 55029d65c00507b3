"""A folder as a source."""

import os
import re
from pathlib import Path

import pytest
from reading import keys, outcomes

from curate.manifest.contract import SourceOptions
from curate.manifest.memory import read_uri
from curate.manifest.names import key_of
from curate.manifest.sources import open_manifest
from scoring.errors import InputError


def put(root, *names, data=None):
    for name in names:
        path = Path(root) / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.fsencode(name) if data is None else data)


def test_a_folder_lists_images_of_all_depths_in_the_order_of_their_path_bytes(tmp_path):
    names = ["b.jpg", "a/z.PNG", "a.jpg", "a-b.webp", "a/b/c.gif", "A.tif", "a b.jpeg", "é.jpg", "a/b.bmp"]
    put(tmp_path, *names)
    manifest = open_manifest(tmp_path)
    assert keys(manifest) == sorted(names, key=os.fsencode)
    assert outcomes(manifest) == sorted(map(os.fsencode, names))
    assert manifest.rows(0, 2)["uri"].to_pylist() == [f"{tmp_path}/{name}" for name in keys(manifest)[:2]]
    assert manifest.schema.names == ["key", "uri"]


def test_folders_and_images_in_a_sequence_are_rows_whose_keys_start_in_the_folder_around_them(tmp_path, monkeypatch):
    put(tmp_path, "a/x/1.jpg", "a/2.jpg", "b/1.jpg", "c/3.jpg", "here/notes.txt")
    places = [tmp_path / "b", tmp_path / "c/3.jpg", tmp_path / "a"]
    options = SourceOptions(label_from_folder=True)
    manifest = open_manifest(places, options)
    assert keys(manifest) == ["b/1.jpg", "c/3.jpg", "a/2.jpg", "a/x/1.jpg"]
    assert outcomes(manifest) == [key.encode() for key in keys(manifest)]
    assert manifest.rows(0, 4)["label"].to_pylist() == ["b", "c", "a", "x"]
    monkeypatch.chdir(tmp_path / "here")
    assert keys(open_manifest(["../b", "../c/3.jpg", "../a"], options)) == keys(manifest)
    assert keys(open_manifest(["../c/3.jpg", "../b/1.jpg"])) == ["c/3.jpg", "b/1.jpg"]
    for twice in (["../a", "../a/x"], ["../b", "../b"], ["../b", "../b/1.jpg"]):
        with pytest.raises(InputError, match="twice"):
            open_manifest(twice)
    with pytest.raises(InputError, match="one kind"):
        open_manifest(["../a", "../c/3.jpg", "../list.txt"])


def test_rows_and_readers_of_a_part_are_the_part_of_the_whole(tmp_path):
    put(tmp_path, *(f"{n:02}.jpg" for n in range(9)))
    manifest = open_manifest(tmp_path)
    assert manifest.rows(3, 7).to_pylist() == manifest.rows(0, 9).to_pylist()[3:7]
    assert [read() for read in manifest.readers(3, 7)] == outcomes(manifest)[3:7]
    assert list(manifest.readers(4, 4)) == []
    assert manifest.rows(4, 4).schema == manifest.schema
    with pytest.raises(ValueError, match=r"inside \[0, 9\)"):
        manifest.rows(5, 10)


def test_other_files_and_hidden_ones_are_left_out_and_counted(tmp_path):
    put(tmp_path, "a.jpg", "notes.txt", "b.md", "c.txt", ".hidden.jpg", ".git/x.jpg", "README")
    manifest = open_manifest(tmp_path)
    assert keys(manifest) == ["a.jpg"]
    assert "1 file; skipped 4 files of other kinds (2 .txt, 1 without suffix, 1 .md)" in manifest.description
    assert "2 hidden" in manifest.description


def test_hidden_files_are_rows_when_requested(tmp_path):
    put(tmp_path, "a.jpg", ".b.jpg", ".c/d.jpg")
    assert keys(open_manifest(tmp_path, SourceOptions(hidden=True))) == [".b.jpg", ".c/d.jpg", "a.jpg"]


def test_a_label_is_the_own_folder_of_an_image_or_null(tmp_path):
    put(tmp_path, "cat/x/1.jpg", "dog/1.jpg", "top.jpg")
    rows = open_manifest(tmp_path, SourceOptions(label_from_folder=True)).rows(0, 3)
    assert rows["label"].to_pylist() == ["x", "dog", None]
    assert "split" not in rows.column_names


def test_a_folder_of_a_side_gives_the_split_and_no_class(tmp_path):
    put(
        tmp_path,
        "data/train/cat/1.jpg",
        "data/valid/dog/2.jpg",
        "data/test/3.jpg",
        "Testing/cat/4.jpg",
        "val2017/5.jpg",
    )
    rows = open_manifest(tmp_path, SourceOptions(label_from_folder=True)).rows(0, 5)
    by_key = {row["key"]: (row["label"], row["split"]) for row in rows.to_pylist()}
    assert by_key == {
        "data/train/cat/1.jpg": ("cat", "train"),
        "data/valid/dog/2.jpg": ("dog", "val"),
        "data/test/3.jpg": (None, "test"),
        "Testing/cat/4.jpg": ("cat", "test"),
        "val2017/5.jpg": (None, "val"),
    }


def test_names_that_are_not_utf8_have_separate_keys_and_are_read(tmp_path):
    put(tmp_path, b"a\xff.jpg", "a%FF.jpg", b"d\xe9/100%.jpg", "é.jpg")
    manifest = open_manifest(tmp_path)
    assert sorted(keys(manifest)) == sorted(["./a%FF.jpg", "a%FF.jpg", "./d%E9/100%25.jpg", "é.jpg"])
    assert sorted(outcomes(manifest)) == sorted([b"a\xff.jpg", b"a%FF.jpg", b"d\xe9/100%.jpg", "é.jpg".encode()])
    uris = manifest.rows(0, 4)["uri"].to_pylist()
    assert [read_uri(uri) for uri in uris] == outcomes(manifest)


def test_no_two_names_share_a_key():
    names = [b"a%FF", b"a\xff", b"a%25FF", b"a%\xff", b"a%25\xff", b"\xff%", b"\xff%25", b"%FF%25"]
    assert len({key_of(name) for name in names}) == len(names)


def test_a_folder_whose_own_name_is_not_utf8_is_read(tmp_path):
    put(tmp_path, b"r\xff/a.jpg")
    manifest = open_manifest(os.fsdecode(os.fsencode(tmp_path) + b"/r\xff"))
    assert keys(manifest) == ["a.jpg"]
    assert outcomes(manifest) == [b"r\xff/a.jpg"]


def test_a_loop_of_links_ends_and_is_only_entered_when_requested(tmp_path):
    put(tmp_path, "a/1.jpg")
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to(tmp_path / "self")
    plain = open_manifest(tmp_path)
    assert keys(plain) == ["a/1.jpg"]
    assert "2 links" in plain.description
    followed = open_manifest(tmp_path, SourceOptions(follow_symlinks=True))
    assert keys(followed) == ["a/1.jpg"]
    assert "1 folder reached twice" in followed.description


def test_a_folder_that_two_links_reach_is_listed_once_where_it_comes_first(tmp_path):
    put(tmp_path, "m/1.jpg", "z/2.jpg")
    (tmp_path / "b").symlink_to(tmp_path / "m")
    (tmp_path / "a").symlink_to(tmp_path / "m")
    assert keys(open_manifest(tmp_path, SourceOptions(follow_symlinks=True))) == ["a/1.jpg", "z/2.jpg"]


def test_a_link_to_a_file_is_read_inside_the_root_and_skipped_outside(tmp_path):
    put(tmp_path, "root/a.jpg", "secret.jpg", "root-2/c.jpg")
    (tmp_path / "root" / "b.jpg").symlink_to("a.jpg")
    (tmp_path / "root" / "out.jpg").symlink_to("../secret.jpg")
    (tmp_path / "root" / "near.jpg").symlink_to(tmp_path / "root-2" / "c.jpg")
    (tmp_path / "root" / "nothing.jpg").symlink_to("no-such")
    manifest = open_manifest(tmp_path / "root")
    assert keys(manifest) == ["a.jpg", "b.jpg"]
    assert outcomes(manifest) == [b"root/a.jpg"] * 2
    assert "3 links" in manifest.description
    (tmp_path / "way").symlink_to("root")
    for root in (tmp_path / "root", tmp_path / "way"):
        rows = open_manifest(root, SourceOptions(follow_symlinks=True)).rows(0, 4).to_pylist()
        assert {row["key"]: row["uri"] for row in rows} == {
            "a.jpg": str(root / "a.jpg"),
            "b.jpg": str(root / "a.jpg"),
            "near.jpg": str(tmp_path / "root-2/c.jpg"),
            "out.jpg": str(tmp_path / "secret.jpg"),
        }


def test_fifos_are_not_rows_and_one_that_takes_a_files_place_does_not_block(tmp_path):
    put(tmp_path, "a.jpg", "b.jpg")
    os.mkfifo(tmp_path / "pipe.jpg")
    manifest = open_manifest(tmp_path)
    assert keys(manifest) == ["a.jpg", "b.jpg"]
    assert "1 special file" in manifest.description
    (tmp_path / "a.jpg").unlink()
    os.mkfifo(tmp_path / "a.jpg")
    (tmp_path / "b.jpg").unlink()
    (tmp_path / "b.jpg").mkdir()
    assert outcomes(manifest) == ["io_error", "io_error"]


def test_a_file_that_vanished_is_a_missing_row_and_one_that_is_too_large_is_reported(tmp_path):
    put(tmp_path, "a.jpg", "b.jpg", "empty.jpg")
    (tmp_path / "empty.jpg").write_bytes(b"")
    manifest = open_manifest(tmp_path, SourceOptions(max_bytes=4))
    (tmp_path / "a.jpg").unlink()
    assert outcomes(manifest) == ["missing", "too_large", b""]


def test_the_digest_changes_with_content_time_name_and_order_only(tmp_path):
    put(tmp_path, "a.jpg", "b.jpg")
    os.utime(tmp_path / "a.jpg", ns=(1, 1))
    first = open_manifest(tmp_path).digest
    assert re.fullmatch("[0-9a-f]{64}", first)
    assert open_manifest(tmp_path).digest == first
    put(tmp_path, "c.txt")
    assert open_manifest(tmp_path).digest == first
    os.utime(tmp_path / "a.jpg", ns=(1, 2))
    touched = open_manifest(tmp_path).digest
    put(tmp_path, "b.jpg", data=b"longer")
    longer = open_manifest(tmp_path).digest
    (tmp_path / "b.jpg").rename(tmp_path / "c.jpg")
    renamed = open_manifest(tmp_path).digest
    assert len({first, touched, longer, renamed}) == 4


def test_a_limit_takes_the_first_rows(tmp_path):
    put(tmp_path, "c.jpg", "a/1.jpg", "b.jpg")
    assert keys(open_manifest(tmp_path, SourceOptions(limit=2))) == ["a/1.jpg", "b.jpg"]
    with pytest.raises(InputError, match=r"--limit .*got 0"):
        SourceOptions(limit=0)


def test_a_folder_without_images_says_what_is_there(tmp_path):
    with pytest.raises(InputError, match="got no files"):
        open_manifest(tmp_path)
    put(tmp_path, *(f"{n}.txt" for n in range(10)), "a.md", "b/c.md", ".x.jpg")
    with pytest.raises(InputError, match=r"10 \.txt, 2 \.md; .*1 hidden") as caught:
        open_manifest(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_path_that_is_not_there_and_an_unknown_kind_of_file_are_errors(tmp_path):
    with pytest.raises(InputError, match=r"nowhere.*No such file"):
        open_manifest(tmp_path / "nowhere")
    put(tmp_path, "a.docx", "a.tar.gz")
    with pytest.raises(InputError, match=r"ends in \.txt.*got .*a\.docx"):
        open_manifest(tmp_path / "a.docx")
    with pytest.raises(InputError, match=r"compressed .*decompress"):
        open_manifest(tmp_path / "a.tar.gz")
    with pytest.raises(InputError, match="folder, file or URL"):
        open_manifest([])


def test_a_folder_that_cannot_be_listed_is_an_error(tmp_path, monkeypatch):
    put(tmp_path, "a.jpg", "closed/b.jpg")
    scandir = os.scandir

    def refuse(path):
        if os.fsencode(path).rstrip(b"/").endswith(b"closed"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(InputError, match=r"cannot list .*closed.*Permission denied"):
        open_manifest(tmp_path)


def test_several_images_are_a_list(tmp_path, monkeypatch):
    put(tmp_path, "a.jpg", "b 1.jpg")
    monkeypatch.chdir(tmp_path)
    manifest = open_manifest(["b 1.jpg", Path("a.jpg")])
    assert keys(manifest) == ["b 1.jpg", "a.jpg"]
    assert outcomes(manifest) == [b"b 1.jpg", b"a.jpg"]


def test_the_walk_gives_the_order_of_sorted_paths_on_awkward_names(tmp_path):
    names = [b"a", b"a.", b"a-", b"a b", b"a\x01", b"ab", b"a\xff", b"b"]
    files = [folder + b"/" + name + b".jpg" for folder in names for name in names]
    files += [name + b".jpg" for name in names]
    put(tmp_path, *files)
    read = outcomes(open_manifest(tmp_path))
    assert read == sorted(files)
