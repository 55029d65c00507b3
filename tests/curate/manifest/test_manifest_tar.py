"""WebDataset shards as a source, friendly and hostile."""

import io
import json
import os
import tarfile

import pytest
from reading import outcomes

from curate.manifest.contract import ReadError, SourceOptions
from curate.manifest.memory import read_uri
from curate.manifest.sources import open_manifest
from curate.manifest.tar import _value
from scoring.errors import InputError


def write(path, members, **options):
    """Write a tar of (name, bytes) or of ready TarInfos."""
    with tarfile.open(path, "w", **options) as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
                continue
            name, data = member
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def link(name, target, kind=tarfile.SYMTYPE):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def rows(manifest):
    return manifest.rows(0, manifest.n_rows).to_pylist()


def test_samples_are_rows_and_their_members_columns(tmp_path):
    path = write(
        tmp_path / "s.tar",
        [
            ("a/1.jpg", b"one"),
            ("a/1.cls", b"7\n"),
            ("a/1.json", json.dumps({"author": "é", "n": 1, "deep": {"x": 1}, "format": "raw"}).encode()),
            ("a/2.txt", b"a caption"),
            ("a/2.png", b"two"),
            ("a/2.cls", b"-1"),
            ("a/3.WEBP", b"three"),
        ],
    )
    manifest = open_manifest(path)
    assert manifest.description == "tar s.tar: 3 images"
    assert manifest.renamed == {"format": "source_format"}
    nothing = {"label": None, "author": None, "n": None, "source_format": None, "text": None}
    assert rows(manifest) == [
        nothing | {"key": "a/1", "uri": f"{path}::a/1.jpg", "label": 7, "author": "é", "n": 1, "source_format": "raw"},
        nothing | {"key": "a/2", "uri": f"{path}::a/2.png", "label": -1, "text": "a caption"},
        nothing | {"key": "a/3", "uri": f"{path}::a/3.WEBP"},
    ]
    assert outcomes(manifest) == [b"one", b"two", b"three"]
    assert manifest.rows(1, 2).to_pylist() == rows(manifest)[1:2]
    assert manifest.rows(0, 1).schema == manifest.schema


def test_two_images_in_a_sample_have_the_rest_of_their_names_in_the_key(tmp_path):
    path = write(tmp_path / "s.tar", [("1.left.jpg", b"l"), ("1.right.jpg", b"r"), ("2.jpg", b"2"), ("1.cls", b"x")])
    manifest = open_manifest(path)
    assert [(row["key"], row["label"]) for row in rows(manifest)] == [
        ("1.left.jpg", "x"),
        ("1.right.jpg", "x"),
        ("2", None),
    ]
    assert "with several images" in manifest.description


def test_types_agree_over_shards_or_become_text(tmp_path):
    def sample(name, **values):
        return [(f"{name}.jpg", b""), (f"{name}.json", json.dumps(values).encode())]

    write(tmp_path / "0.tar", [*sample("a", i=1, f=1, s=1, b=True, big=1), ("a.cls", b"1")])
    write(tmp_path / "1.tar", [*sample("b", i=2, f=0.5, s="x", b=False, big=1 << 70, new=None), ("b.cls", b"cat")])
    assert rows(open_manifest(f"{tmp_path}/{{0..1}}.tar")) == [
        {"key": "a", "uri": f"{tmp_path}/0.tar::a.jpg", "i": 1, "f": 1.0, "s": "1", "b": True, "big": "1"}
        | {"label": "1", "new": None},
        {"key": "b", "uri": f"{tmp_path}/1.tar::b.jpg", "i": 2, "f": 0.5, "s": "x", "b": False}
        | {"big": str(1 << 70), "label": "cat", "new": None},
    ]


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_form_of_tar_with_long_and_odd_names_is_read(tmp_path, form):
    names = ["d" * 90 + "/" + "n" * 90 + ".jpg", "é b.jpg", "./c.jpg"]
    path = write(tmp_path / "s.tar", [(name, name.encode()) for name in names], format=form)
    manifest = open_manifest(path)
    assert [row["key"] for row in rows(manifest)] == [names[0][:-4], "é b", "c"]
    assert outcomes(manifest) == [name.encode() for name in names]
    assert [read_uri(row["uri"]) for row in rows(manifest)] == outcomes(manifest)


def test_names_that_are_not_utf8_are_read(tmp_path):
    path = write(tmp_path / "s.tar", [(os.fsdecode(b"\xff.jpg"), b"x")], format=tarfile.GNU_FORMAT)
    manifest = open_manifest(path)
    assert rows(manifest)[0]["key"] == "./%FF"
    assert outcomes(manifest) == [b"x"]
    assert read_uri(rows(manifest)[0]["uri"]) == b"x"


def test_hostile_names_and_links_reach_nothing_outside(tmp_path):
    (tmp_path / "secret.jpg").write_bytes(b"secret")
    path = write(
        tmp_path / "s.tar",
        [
            ("/etc/abs.jpg", b"abs"),
            ("../up.jpg", b"up"),
            link("sym.jpg", "/etc/passwd"),
            link("up.png", "../secret.jpg"),
            link("hard.jpg", "../secret.jpg", tarfile.LNKTYPE),
            link("pipe.jpg", "", tarfile.FIFOTYPE),
            link("device.jpg", "", tarfile.CHRTYPE),
        ],
    )
    manifest = open_manifest(path)
    assert [row["key"] for row in rows(manifest)] == ["/etc/abs", "../up"]
    assert outcomes(manifest) == [b"abs", b"up"]
    assert "skipped 5 links" in manifest.description
    assert sorted(item.name for item in tmp_path.iterdir()) == ["s.tar", "secret.jpg"]


def huge(name, size):
    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(("size", "status"), [(10_000, "io_error"), (1 << 60, "too_large")])
def test_a_member_that_claims_more_than_there_is_becomes_a_failed_row(tmp_path, size, status):
    path = write(tmp_path / "s.tar", [("a.jpg", b"a")])
    data = path.read_bytes()[:1024] + huge("b.jpg", size) + b"short"
    path.write_bytes(data)
    manifest = open_manifest(path)
    assert outcomes(manifest) == [b"a", status]
    assert "ends inside 'b.jpg'" in manifest.description


def test_a_member_of_large_metadata_is_not_read_into_memory(tmp_path):
    path = tmp_path / "s.tar"
    for kind in (tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME):
        info = tarfile.TarInfo("x")
        info.type, info.size = kind, 1 << 40
        path.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(2048))
        with pytest.raises(InputError, match="not a readable tar"):
            open_manifest(path)
    chain = tarfile.TarInfo("x")
    chain.type, chain.size = tarfile.GNUTYPE_LONGNAME, 1
    path.write_bytes((chain.tobuf(tarfile.GNU_FORMAT) + b"y".ljust(512, b"\0")) * 5000)
    with pytest.raises(InputError, match="not a readable tar"):
        open_manifest(path)


def test_a_header_broken_in_the_middle_is_an_error_and_not_an_early_end(tmp_path):
    path = write(tmp_path / "s.tar", [(f"{n}.jpg", b"x") for n in range(4)])
    data = bytearray(path.read_bytes())
    data[2 * 1024 + 5] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(InputError, match="at byte 2,048"):
        open_manifest(path)


def test_a_tar_without_its_end_marker_is_whole(tmp_path):
    path = write(tmp_path / "s.tar", [("a.jpg", b"a"), ("b.jpg", b"b")])
    path.write_bytes(path.read_bytes()[: 4 * 512])
    assert outcomes(open_manifest(path)) == [b"a", b"b"]


def test_compressed_and_foreign_files_are_errors(tmp_path):
    write(tmp_path / "s.tar", [("a.jpg", b"a")])
    with tarfile.open(tmp_path / "z.tar", "w:gz") as archive:
        archive.add(tmp_path / "s.tar", "a.jpg")
    with pytest.raises(InputError, match="compressed with gzip"):
        open_manifest(tmp_path / "z.tar")
    (tmp_path / "t.tar").write_bytes(b"hello" * 500)
    (tmp_path / "e.tar").write_bytes(b"")
    for name in ("t", "e"):
        with pytest.raises(InputError, match=rf"{name}\.tar is not"):
            open_manifest(tmp_path / f"{name}.tar")
    with pytest.raises(InputError, match=r"1 member .*1 \.doc"):
        open_manifest(write(tmp_path / "n.tar", [("a.doc", b"")]))


def test_members_that_cannot_be_parsed_are_counted_and_the_image_is_kept(tmp_path):
    deep = b"[" * 100_000
    members = [("a.jpg", b""), ("a.json", b"{"), ("a.txt", b"\xff"), ("b.jpg", b""), ("b.json", b'{"x":' + deep)]
    members += [("c.jpg", b""), ("c.cls", b"9" * 5000), ("d.json", b"{}"), ("._a.jpg", b""), (".b/x.jpg", b"")]
    manifest = open_manifest(write(tmp_path / "s.tar", members))
    assert [row["key"] for row in rows(manifest)] == ["a", "b", "c"]
    assert manifest.schema.names == ["key", "uri"]
    for part in ("4 unreadable", "without an image", "2 hidden"):
        assert part in manifest.description


def test_json_keys_with_names_of_curate_are_kept_under_another(tmp_path):
    values = {"key": "k", "uri": "u", "width": 1, "source_width": 2, "label": 3}
    path = write(tmp_path / "s.tar", [("a.jpg", b""), ("a.json", json.dumps(values).encode()), ("a.cls", b"4")])
    manifest = open_manifest(path)
    assert manifest.renamed == {"key": "source_key", "uri": "source_uri", "width": "source_source_width"}
    assert rows(manifest) == [
        {"key": "a", "uri": f"{path}::a.jpg", "source_key": "k", "source_uri": "u"}
        | {"source_source_width": 1, "source_width": 2, "label": 4}
    ]


def test_too_many_columns_are_an_error(tmp_path):
    many = json.dumps({str(n): n for n in range(1001)}).encode()
    with pytest.raises(InputError, match="at most 1000"):
        open_manifest(write(tmp_path / "s.tar", [("a.jpg", b""), ("a.json", many)]))


def test_repeated_names_over_shards_are_an_error_that_says_how_to_number(tmp_path):
    for shard in "ab":
        write(tmp_path / f"{shard}.tar", [("0.jpg", b"")])
    with pytest.raises(InputError, match=r"repeats .*\('0'\); .*--key '#'"):
        open_manifest(tmp_path)
    numbered = open_manifest(tmp_path, SourceOptions(key="#"))
    assert [row["key"] for row in rows(numbered)] == ["a.tar#0", "b.tar#0"]
    with pytest.raises(InputError, match="no --key"):
        open_manifest(tmp_path, SourceOptions(key="id"))


def test_a_shard_that_changes_or_vanishes_gives_failed_rows(tmp_path):
    path = write(tmp_path / "s.tar", [("a.jpg", b"a")])
    manifest, again = open_manifest(path), open_manifest(path)
    assert manifest.digest == again.digest
    write(path, [("0.jpg", b"other" * 9000), ("a.jpg", b"a")])
    assert outcomes(manifest) == ["io_error"]
    assert open_manifest(path).digest != manifest.digest
    path.unlink()
    assert outcomes(manifest) == ["missing"]
    with pytest.raises(ReadError) as caught:
        read_uri(f"{path}::a.jpg")
    assert caught.value.status == "missing"


def test_a_shard_that_is_there_and_cannot_be_read_is_not_missing_whatever_its_name_says(tmp_path):
    shard = tmp_path / "No such file.tar"
    shard.mkdir()
    with pytest.raises(ReadError) as caught:
        read_uri(f"{shard}::a.jpg")
    assert caught.value.status == "io_error"


def test_a_shard_below_a_file_is_missing(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ReadError) as caught:
        read_uri(f"{tmp_path}/file/s.tar::a.jpg")
    assert caught.value.status == "missing"


def test_a_limit_takes_the_first_images(tmp_path):
    for shard in "ab":
        write(tmp_path / f"{shard}.tar", [(f"{shard}{n}.jpg", b"") for n in range(3)])
    manifest = open_manifest(tmp_path, SourceOptions(limit=4))
    assert [row["key"] for row in rows(manifest)] == ["a0", "a1", "a2", "b0"]


def test_a_class_with_leading_zeros_is_a_name():
    assert [_value("cls", text) for text in ("001", "7\n", "-1", "0", "cat")] == ["001", 7, -1, 0, "cat"]
