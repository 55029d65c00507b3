"""Sources in Google's store: a server that speaks its protocol, with faults in front of it."""

import time

import fsspec.config
import pyarrow as pa
import pytest
from packed import a_parquet, a_tar
from reading import keys, outcomes, read_all

from curate.manifest import remote, schemes
from curate.manifest.ahead import ALL_DENIED, ahead
from curate.manifest.contract import ReadError, SourceOptions
from curate.manifest.memory import read_uri
from curate.manifest.reach import VARIABLE
from curate.manifest.sources import open_manifest
from curate.tables.table import open_table
from scoring.errors import InputError


def test_a_prefix_is_a_folder_and_a_list_names_its_objects(gs, tmp_path):
    names = ["cats/a.png", "dogs/b c%20.png", "dogs/ü#1?.png", "dogs/notes.txt", ".hidden/x.png", "large.jpg", "no.jpg"]
    large = bytes(range(256)) * (remote.PIECE // 256) + b"more"
    for name in names:
        gs.put(f"heap/{name}", large if name == "large.jpg" else b"" if name == "no.jpg" else name.encode())
    gs.put("heap/empty.jpg/", b"")  # what a browser's "new folder" leaves
    manifest = open_manifest(f"{gs}/heap", SourceOptions(label_from_folder=True))
    names = ["cats/a.png", "dogs/b c%20.png", "dogs/ü#1?.png", "large.jpg", "no.jpg"]
    assert keys(manifest) == names
    assert manifest.rows(0, 5)["label"].to_pylist() == ["cats", "dogs", "dogs", None, None]
    gs.faults.requests.clear()
    assert outcomes(manifest) == [*(name.encode() for name in names[:3]), large, b""]
    assert gs.faults.count("cats%2Fa.png") == 1
    assert keys(open_manifest(f"gcs://{gs.name}/heap/", SourceOptions(limit=2))) == names[:2]

    (tmp_path / "l.txt").write_text(f"{gs}/heap/cats/a.png\n{gs}/heap/gone.png\ngs://not-there/a.png\n")
    assert outcomes(open_manifest(tmp_path / "l.txt")) == [b"cats/a.png", "missing", "missing"]


def test_the_digest_changes_with_an_object_and_many_are_listed_in_pages(gs):
    for number in range(1030):
        gs.put(f"heap/{number:04}.png", b"a")
    manifest = open_manifest(f"{gs}/heap")
    assert manifest.n_rows == 1030
    assert open_manifest(f"{gs}/heap").digest == manifest.digest
    gs.put("heap/1029.png", b"a")  # the same bytes, and another generation
    assert open_manifest(f"{gs}/heap").digest != manifest.digest


def test_tars_parquet_and_csv_are_read_in_parts_and_by_patterns(gs):
    for n in "ab":
        members = {f"{n}-{i}.jpg": f"{n}-{i}".encode() * 1000 for i in range(3)}
        gs.put(f"t/x/{n}.tar", a_tar(members))
        gs.put(f"m/{n}.parquet", a_parquet(pa.table({"id": [f"{n}1", f"{n}2"], "image": [b"1", b"2"]})))
    expected = [f"{n}-{i}".encode() * 1000 for n in "ab" for i in range(3)]
    for source in ("t/x", "t/x/*.tar", "t/**/*.tar", "*/x/{a,b}.tar", "t/x/{a..b}.tar".replace("a..b", "a,b")):
        assert read_all(ahead(open_manifest(f"{gs}/{source}").readers(0, 6), 4)) == expected, source
    assert keys(open_manifest(f"{gs}/m/*.parquet", SourceOptions(key="id"))) == ["a1", "a2", "b1", "b2"]
    with pytest.raises(InputError, match="none; check the pattern"):
        open_manifest(f"{gs}/t/*.tar")
    gs.put("m/x.jpg", b"x")
    gs.put("m/u.csv", f"file,label\nx.jpg,1\n{gs}/m/x.jpg,2\n".encode())
    assert outcomes(open_manifest(f"{gs}/m/u.csv")) == [b"x", b"x"]


@pytest.mark.parametrize("fault", [429, "cut"])
def test_a_fault_that_passes_is_tried_again_and_one_that_lasts_is_its_row(gs, fault):
    for name in ("a", "b"):
        gs.put(f"heap/{name}.jpg", b"bytes of an image")
    gs.faults.add("a.jpg", fault, times=2)
    gs.faults.add("b.jpg", fault)
    gs.faults.add("prefix=heap", fault, times=2)
    assert outcomes(open_manifest(f"{gs}/heap")) == [b"bytes of an image", "io_error"]
    tries = gs.faults.count("b.jpg")  # aiohttp asks again on its own where a connection that it kept is gone
    assert tries == remote.TRIES or (fault == "reset" and tries == 2 * remote.TRIES)
    with pytest.raises(ReadError, match="fetching failed: ") as caught:
        read_uri(f"{gs}/heap/b.jpg")
    assert not {"\n", gs.name, "127.0.0.1"} & set(str(caught.value).split())


def test_a_slow_answer_is_cut_off(gs, monkeypatch):
    gs.put("heap/a.jpg", b"a")
    monkeypatch.setattr(remote, "TIME_LIMIT", 0.2)
    monkeypatch.setattr(remote, "TRIES", 2)
    gs.faults.add("a.jpg", "hang")
    started = time.monotonic()
    with pytest.raises(ReadError, match=r"within 0\.2 s") as caught:
        read_uri(f"{gs}/heap/a.jpg")
    assert (caught.value.status, time.monotonic() - started < 10) == ("io_error", True)


def test_what_is_denied_is_reported_at_once_and_where_all_is_denied_the_run_ends(gs):
    for number in range(ALL_DENIED):
        gs.put(f"heap/{number:02}.jpg", b"x")
    manifest = open_manifest(f"{gs}/heap")
    gs.faults.add("%2F0", 403)
    gs.faults.add("%2F15", 401)
    assert outcomes(manifest) == ["denied"] * 10 + [b"x"] * 5 + ["denied"]
    assert gs.faults.count("%2F00.jpg") == 1
    with pytest.raises(ReadError, match=r"HTTP status 401: .*credentials"):
        read_uri(f"{gs}/heap/15.jpg")
    gs.faults.add("%2F", 403)
    with pytest.raises(InputError, match=f"{ALL_DENIED} images .*denied"):
        read_all(ahead(manifest.readers(0, ALL_DENIED), 4))
    gs.faults.add("prefix", 403)
    with pytest.raises(InputError, match=r"listing .*own permission"):
        open_manifest(f"{gs}/heap")
    gs.faults.clear()
    with pytest.raises(InputError, match=r"no-such-bucket/x': .*no such place"):
        open_manifest("gs://no-such-bucket/x")


def test_the_store_is_within_reach_and_its_address_is_not(gs, monkeypatch, tmp_path):
    """The endpoint that the user configured may be private; a list that names its address itself may not go there."""
    monkeypatch.delenv(VARIABLE, raising=False)
    gs.put("heap/a.jpg", b"a")
    direct = f"{gs.endpoint}/download/storage/v1/b/{gs.name}/o/heap%2Fa.jpg?alt=media"
    (tmp_path / "l.txt").write_text(f"{gs}/heap/a.jpg\n{direct}\n")
    assert outcomes(open_manifest(tmp_path / "l.txt")) == [b"a", "refused"]
    assert outcomes(open_manifest(tmp_path / "l.txt", SourceOptions(allow_private_hosts=True))) == [b"a", b"a"]


def test_the_requested_number_of_connections_is_open_and_bad_credentials_are_one_line(gs, monkeypatch):
    for number in range(150):
        gs.put(f"heap/{number:03}.jpg", b"x")
    manifest = open_manifest(f"{gs}/heap")
    deadline = time.monotonic() + 10

    def more_than_a_hundred():
        while gs.faults.most <= 100 and time.monotonic() < deadline:
            time.sleep(0.01)

    gs.faults.most = 0
    monkeypatch.setattr(gs.faults, "wait", more_than_a_hundred)
    assert read_all(ahead(manifest.readers(0, 150), 150)) == [b"x"] * 150
    assert gs.faults.most > 100  # what aiohttp would open
    monkeypatch.setitem(fsspec.config.conf, "gs", {"token": "google_default"})
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/not/there.json")
    monkeypatch.setattr(schemes, "_SHARED", {})
    with pytest.raises(InputError, match="DefaultCredentialsError") as caught:
        open_manifest(f"{gs}/heap")
    assert "\n" not in str(caught.value)


def test_a_scored_table_is_read_in_place(gs, full_table):
    gs.put("run/s.parquet", full_table.read_bytes())
    assert open_table(f"{gs}/run/s.parquet").read().equals(open_table(full_table).read())
    for place, reason in (("run/none.parquet", "does not exist"), ("no.parquet", "does not exist")):
        with pytest.raises(InputError, match=reason):
            open_table(f"{gs}/{place}")
