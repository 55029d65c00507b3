"""Sources in an object store: a server of S3, with faults in front of it."""

import time
from concurrent.futures import CancelledError

import pyarrow as pa
import pytest
from packed import a_parquet, a_tar
from reading import keys, outcomes, read_all

from curate.manifest import remote
from curate.manifest.ahead import ALL_DENIED, ReadAhead, ahead
from curate.manifest.contract import ReadError, RemoteReader, SourceOptions
from curate.manifest.failures import CredentialsError
from curate.manifest.memory import read_uri
from curate.manifest.sources import open_manifest
from scoring.errors import InputError


def test_a_prefix_is_a_folder_with_labels_a_limit_and_one_request_an_image(s3):
    names = ["cats/a.png", "dogs/b c%20.png", "dogs/ü#1?.png", "dogs/notes.txt", ".hidden/x.png", "large.jpg", "no.jpg"]
    large = bytes(range(256)) * (remote.PIECE // 256) + b"more"
    for name in names:
        s3.put(f"heap/{name}", large if name == "large.jpg" else b"" if name == "no.jpg" else name.encode())
    manifest = open_manifest(f"{s3}/heap", SourceOptions(label_from_folder=True))
    assert keys(manifest) == ["cats/a.png", "dogs/b c%20.png", "dogs/ü#1?.png", "large.jpg", "no.jpg"]
    assert manifest.rows(0, 5)["label"].to_pylist() == ["cats", "dogs", "dogs", None, None]
    s3.faults.requests.clear()
    assert outcomes(manifest) == [*(name.encode() for name in names[:3]), large, b""]
    assert s3.faults.count("cats/a.png") == 1
    assert s3.faults.count("cats/a.png", "HEAD") == 0
    assert keys(open_manifest(f"{s3}/heap/", SourceOptions(limit=2))) == ["cats/a.png", "dogs/b c%20.png"]
    assert f"folder {s3}/heap: 5 files" == manifest.description


def test_objects_without_a_suffix_are_images_by_their_first_bytes_which_alone_are_read(s3):
    with pytest.raises(InputError, match="no files"):
        open_manifest(f"{s3}/")
    png = b"\x89PNG\r\n\x1a\n" + bytes(1000)
    names = [f"{number:04x}" for number in range(40)]
    for name in names:
        s3.put(f"heap/{name}", png if int(name, 16) % 2 else b"no image at all")
    for name, data in {"b.jpg": b"", "LICENSE": b"text", "empty": b"", "notes.txt": png}.items():
        s3.put(f"heap/{name}", data)
    s3.faults.requests.clear()
    s3.faults.most = 0
    manifest = open_manifest(f"{s3}/heap", SourceOptions(connections=8))
    assert keys(manifest) == [*names[1::2], "b.jpg"]
    assert s3.faults.count("heap/0") == 40
    assert s3.faults.count("heap/notes.txt") == s3.faults.count("heap/empty") == 0
    assert s3.faults.most <= 8
    assert outcomes(manifest)[:2] == [png, png]
    assert keys(open_manifest(f"{s3}/heap", SourceOptions(limit=2))) == names[1:4:2]
    s3.faults.add("heap/0003", 403)
    denied = open_manifest(f"{s3}/heap")
    assert "0003" not in keys(denied)
    assert "1 file without a suffix" in denied.description
    s3.faults.clear()
    assert outcomes(open_manifest(f"{s3}/heap/0001")) == [png]
    with pytest.raises(InputError, match="expected images"):
        open_manifest(f"{s3}/heap/LICENSE")


def test_the_digest_of_a_prefix_changes_with_an_object(s3):
    s3.put("heap/a.png", b"a")
    before = open_manifest(f"{s3}/heap").digest
    assert open_manifest(f"{s3}/heap").digest == before
    s3.put("heap/a.png", b"b")
    assert open_manifest(f"{s3}/heap").digest != before


def test_a_name_in_a_store_is_nothing_but_a_name(s3, tmp_path):
    (tmp_path / "secret.jpg").write_bytes(b"secret")
    for name in (f"/{tmp_path}/secret.jpg".replace("//", "/"), f"file:{tmp_path}/secret.jpg", "a::b.jpg"):
        s3.put(f"heap/{name}", b"object")
    assert outcomes(open_manifest(f"{s3}/heap")) == [b"object"] * 3
    s3.put("heap/a.tar::b.jpg", b"")
    with pytest.raises(InputError, match=r"without '\.tar::'"):
        open_manifest(f"{s3}/heap")


def test_tars_parquet_and_csv_in_a_bucket_are_read_in_parts(s3):
    shards = {n: {f"{n}-{i}.jpg": f"{n}-{i}".encode() * 1000 for i in range(3)} | {f"{n}-0.cls": b"7"} for n in "ab"}
    for name, members in shards.items():
        s3.put(f"t/{name}.tar", a_tar(members))
    manifest = open_manifest(f"{s3}/t")
    assert keys(manifest) == [f"{n}-{i}" for n in "ab" for i in range(3)]
    expected = [f"{n}-{i}".encode() * 1000 for n in "ab" for i in range(3)]
    assert read_all(ahead(manifest.readers(0, 6), 4)) == expected
    assert read_uri(manifest.rows(4, 5)["uri"][0].as_py()) == b"b-1" * 1000
    assert keys(open_manifest(f"{s3}/t/{{a..b}}.tar".replace("{a..b}", "{a,b}"))) == keys(manifest)

    s3.put("m/i.parquet", a_parquet(pa.table({"id": ["p", "q"], "image": [b"1", b"2"]})))
    assert outcomes(open_manifest(f"{s3}/m/i.parquet", SourceOptions(key="id"))) == [b"1", b"2"]
    table = pa.table({"id": ["p", "q"], "file": ["x.jpg", f"{s3}/t/gone.jpg"]})
    s3.put("m/x.jpg", b"x")
    s3.put("m/u.parquet", a_parquet(table))
    manifest = open_manifest(f"{s3}/m/u.parquet", SourceOptions(key="id"))
    assert (keys(manifest), outcomes(manifest)) == (["p", "q"], [b"x", "missing"])
    s3.put("m/u.csv", f"file,label\nx.jpg,1\n{s3}/m/x.jpg,2\ns3://{s3.name}-not/x.jpg,3\n".encode())
    manifest = open_manifest(f"{s3}/m/u.csv")
    assert outcomes(manifest) == [b"x", b"x", "missing"]
    assert manifest.rows(0, 3)["label"].to_pylist() == [1, 2, 3]


def test_many_requests_are_in_flight_in_order_and_no_more_than_allowed(s3):
    for number in range(120):
        s3.put(f"heap/{number:03}.jpg", b"%d" % number)
    manifest = open_manifest(f"{s3}/heap", SourceOptions(connections=24))
    s3.faults.delay, s3.faults.most = 0.1, 0
    started = time.monotonic()
    assert read_all(ahead(manifest.readers(0, 120), manifest.connections)) == [b"%d" % n for n in range(120)]
    assert 12 <= s3.faults.most <= 24
    assert time.monotonic() - started < 6  # 12 s one after another
    with pytest.raises(InputError, match=r"--connections.* 512, got 0"):
        SourceOptions(connections=0)


@pytest.mark.parametrize("fault", [503, 500, "reset", "cut"])
def test_a_fault_that_passes_is_tried_again_and_one_that_lasts_is_its_row(s3, fault):
    for name in ("a", "b"):
        s3.put(f"heap/{name}.jpg", b"bytes of an image")
    s3.faults.add("a.jpg", fault, times=2)
    s3.faults.add("b.jpg", fault)
    manifest = open_manifest(f"{s3}/heap")
    assert outcomes(manifest) == [b"bytes of an image", "io_error"]
    tries = s3.faults.count("b.jpg")  # aiohttp asks again on its own where a connection that it kept is gone
    assert tries == remote.TRIES or (fault == "reset" and tries == 2 * remote.TRIES)
    with pytest.raises(ReadError, match="fetching failed: ") as caught:
        read_uri(f"{s3}/heap/b.jpg")
    assert "\n" not in str(caught.value)
    assert s3.name not in str(caught.value)
    assert "127.0.0.1" not in str(caught.value)


def test_a_slow_answer_is_cut_off(s3, monkeypatch):
    s3.put("heap/a.jpg", b"a")
    monkeypatch.setattr(remote, "TIME_LIMIT", 0.2)
    monkeypatch.setattr(remote, "TRIES", 2)
    s3.faults.add("a.jpg", "hang")
    started = time.monotonic()
    with pytest.raises(ReadError, match=r"within 0\.2 s") as caught:
        read_uri(f"{s3}/heap/a.jpg")
    assert caught.value.status == "io_error"
    assert time.monotonic() - started < 3


def test_what_is_missing_or_denied_is_reported_at_once(s3):
    s3.put("heap/a.jpg", b"a")
    s3.faults.add("a.jpg", 403)
    assert outcomes(open_manifest(f"{s3}/heap")) == ["denied"]
    assert s3.faults.count("a.jpg") == 1
    with pytest.raises(ReadError, match="no such file") as caught:
        read_uri(f"{s3}/heap/gone.jpg")
    assert (caught.value.status, s3.faults.count("gone.jpg")) == ("missing", 1)


def test_a_bucket_that_cannot_be_listed_is_one_line(s3):
    with pytest.raises(InputError, match=r"no-such-bucket/x': .*no such place"):
        open_manifest("s3://no-such-bucket/x")
    s3.faults.add("list-type", 403)
    with pytest.raises(InputError, match=r"listing .*own permission"):
        open_manifest(f"{s3}/heap")
    s3.faults.add(".csv", 403, method="HEAD")
    with pytest.raises(InputError, match=r"cannot open .*denies access"):
        open_manifest(f"{s3}/heap/a.csv")


def test_where_all_of_the_first_are_denied_the_run_ends(s3, tmp_path):
    n = ALL_DENIED + 8
    for number in range(n):
        s3.put(f"heap/{number:02}.jpg", b"x")
    manifest = open_manifest(f"{s3}/heap")
    s3.faults.add("/0", 403)
    assert read_all(ahead(manifest.readers(0, n), 1)) == ["denied"] * 10 + [b"x"] * (n - 10)
    s3.faults.add(".jpg", 403)
    with pytest.raises(InputError, match=f"{ALL_DENIED} images .*denied"):
        read_all(ahead(manifest.readers(0, n), 4))


def test_credentials_that_end_stop_everything(s3):
    s3.put("heap/a.jpg", b"a")
    manifest = open_manifest(f"{s3}/heap")
    s3.faults.add("a.jpg", "expired")
    with pytest.raises(CredentialsError, match=r"\(ExpiredToken\); renew"):
        outcomes(manifest)


def test_what_is_read_ahead_is_bounded():
    held, taken = [], []

    def read(bound):
        held.append(bound)
        return bytes(100)

    with ReadAhead(8, held_bytes=1000) as reading:
        for reader in reading.readers(RemoteReader(read, 1000) for _ in range(100)):
            time.sleep(0.001)
            taken.append(reader)
        deadline = time.monotonic() + 5
        while len(held) < 10 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(held) <= 18  # 1000 bytes, and the 8 that were under way
        assert [len(reader()) for reader in taken] == [100] * 100
    assert len(held) == 100


def test_a_reader_that_waits_ends_when_reading_is_stopped(s3):
    s3.put("heap/a.jpg", b"a")
    s3.faults.add("a.jpg", "hang")
    reading = ReadAhead(2)
    (reader,) = reading.readers(open_manifest(f"{s3}/heap").readers(0, 1))
    started = time.monotonic()
    reading.stop()
    with pytest.raises(CancelledError):
        reader()
    assert time.monotonic() - started < 3
