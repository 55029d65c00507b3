"""Files whose names have no suffix, as crawls name them by hash: their first bytes say whether they are images."""

import hashlib
import io
import os
import tarfile

import pytest
from packed import a_tar
from PIL import Image
from reading import keys, outcomes

from curate.manifest.contract import SourceOptions
from curate.manifest.memory import read_uri
from curate.manifest.sources import open_manifest
from scoring.errors import InputError
from scoring.images.sniff import HEAD

FORMATS = ("jpeg", "png", "gif", "webp", "tiff", "bmp", "avif", "ppm", "ico", "mpo")


def encoded(name, colour=(200, 30, 60), mode="RGB"):
    out = io.BytesIO()
    Image.new("RGB", (24, 16), colour).convert(mode).save(out, name)
    return out.getvalue()


def images():
    """Return one image of each format by the hash of its bytes, as crawls name them."""
    every = [encoded(name) for name in FORMATS] + [encoded("ppm", mode="L"), encoded("ppm", mode="1")]
    return {hashlib.sha256(data).hexdigest()[:16]: data for data in every}


OTHERS = {
    "README": b"# About\nThese are photographs.\n",
    "script": b"#!/bin/sh\nexit 0\n",
    "notes": b"P1 is the first of five priorities\n",
    "BM": b"BMW is a car\n",
    "archive": b"PK\x03\x04" + bytes(60),
    "page": b"<!doctype html><html>",
    "document": b"%PDF-1.7 ",
    "empty": b"",
    "short": b"\xff\xd8",
    "zeros": bytes(100),
}


def test_a_folder_lists_files_without_a_suffix_whose_bytes_are_an_images(tmp_path):
    for name, data in {**images(), **OTHERS, "a.jpg": b"by its name", "b.txt": encoded("png")}.items():
        (tmp_path / name).write_bytes(data)
    manifest = open_manifest(tmp_path)
    assert keys(manifest) == sorted([*images(), "a.jpg"])
    assert dict(zip(keys(manifest), outcomes(manifest), strict=True)) == {**images(), "a.jpg": b"by its name"}
    assert f"{len(OTHERS)} without suffix, 1 .txt" in manifest.description


def test_heic_without_a_suffix_is_listed_where_its_reader_is_not_installed_too(tmp_path):
    (tmp_path / "a1").write_bytes(b"\0\0\0\x1cftypheic\0\0\0\0mif1heicmiaf" + bytes(40))
    (tmp_path / "film").write_bytes(b"\0\0\0\x1cftypisom\0\0\0\0isomiso2mp41" + bytes(40))
    assert keys(open_manifest(tmp_path)) == ["a1"]


def test_only_files_without_a_suffix_are_opened(tmp_path, monkeypatch):
    for name in ("a.jpg", "b.txt", "c.d2", "d4", "e5", "f.jpg.1", "g.png?w=2", "h.x.png"):
        (tmp_path / name).write_bytes(encoded("png"))
    opened, ours = [], os.open

    def counted(path, *arguments, **named):
        opened.append(os.fsencode(path).rpartition(b"/")[2])
        return ours(path, *arguments, **named)

    monkeypatch.setattr(os, "open", counted)
    assert keys(open_manifest(tmp_path)) == ["a.jpg", "d4", "e5", "f.jpg.1", "g.png?w=2", "h.x.png"]
    assert sorted(opened) == [b"d4", b"e5", b"f.jpg.1", b"g.png?w=2"]


def test_links_hidden_files_and_devices_are_as_they_are_with_a_suffix(tmp_path):
    outside = tmp_path / "outside"
    outside.write_bytes(encoded("png"))
    root = tmp_path / "root"
    root.mkdir()
    (root / "a1").write_bytes(encoded("jpeg"))
    (root / ".b2").write_bytes(encoded("jpeg"))
    (root / "inside").symlink_to(root / "a1")
    (root / "out").symlink_to(outside)
    os.mkfifo(root / "pipe")
    manifest = open_manifest(root)
    assert keys(manifest) == ["a1", "inside"]
    assert "1 hidden, 1 link, 1 special file" in manifest.description
    assert keys(open_manifest(root, SourceOptions(hidden=True))) == [".b2", "a1", "inside"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_without_a_suffix_that_cannot_be_read_is_counted(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"1")
    (tmp_path / "b2").write_bytes(encoded("png"))
    (tmp_path / "b2").chmod(0)
    assert "1 file without a suffix that cannot be read" in open_manifest(tmp_path).description


def test_a_folder_of_files_without_suffix_that_are_no_images_is_reported(tmp_path):
    for name, data in OTHERS.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=f"{len(OTHERS)} without suffix"):
        open_manifest(tmp_path)


def test_members_of_a_tar_without_a_suffix_are_tried(tmp_path):
    named = {f"part.v2/{name}": data for name, data in images().items()}
    others = {f"x.y/{name}": data for name, data in OTHERS.items()}
    path = tmp_path / "crawl.tar"
    path.write_bytes(a_tar({**named, **others, "plain.jpg": b"by its name", "z.md": b"text"}))
    manifest = open_manifest(path)
    assert keys(manifest) == [*named, "plain"]
    assert outcomes(manifest) == [*named.values(), b"by its name"]
    assert f"{len(OTHERS)} without suffix, 1 .md" in manifest.description
    first = next(iter(named))
    assert read_uri(f"{path}::{first}") == named[first]


def test_a_member_without_a_suffix_keeps_its_sidecars(tmp_path):
    path = tmp_path / "s.tar"
    path.write_bytes(a_tar({"0a": encoded("png"), "0a.cls": b"3", "0b.cls": b"4", "0b": encoded("gif")}))
    assert open_manifest(path).rows(0, 2).column("label").to_pylist() == [3, 4]


def test_a_cut_tar_that_ends_inside_an_image_without_suffix_says_where(tmp_path):
    path = tmp_path / "s.tar"
    with tarfile.open(path, "w") as archive:
        for name in ("a1", "b2"):
            data = encoded("bmp")
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    data_of_tar = path.read_bytes()
    path.write_bytes(data_of_tar[: 512 + -(-len(data) // 512) * 512 + 512 + HEAD])
    manifest = open_manifest(path)
    assert keys(manifest) == ["a1", "b2"]
    assert "cut off" in manifest.description


def test_a_single_file_is_taken_by_its_bytes(tmp_path):
    for name, data in images().items():
        (tmp_path / name).write_bytes(data)
        assert outcomes(open_manifest(tmp_path / name)) == [data]
        assert outcomes(open_manifest(f"file://{tmp_path / name}")) == [data]
    (tmp_path / "photo.dat").write_bytes(encoded("png"))
    assert outcomes(open_manifest(tmp_path / "photo.dat")) == [encoded("png")]
    several = open_manifest([tmp_path / name for name in images()])
    assert outcomes(several) == list(images().values())
    every = {**images(), "photo.dat": encoded("png")}
    assert outcomes(open_manifest(str(tmp_path / "*"))) == [every[name] for name in sorted(every)]
    (tmp_path / "notes").write_bytes(OTHERS["notes"])
    with pytest.raises(InputError, match="notes"):
        open_manifest(tmp_path / "notes")


@pytest.mark.parametrize("suffix", ["mpo", "ppm", "PGM", "pbm", "pnm", "ico"])
def test_formats_that_are_decoded_are_listed_by_their_suffix(tmp_path, suffix):
    (tmp_path / f"a.{suffix}").write_bytes(b"1")
    assert keys(open_manifest(tmp_path)) == [f"a.{suffix}"]
