"""Sources and tables on the hub of Hugging Face: `HfFileSystem`, and a server that speaks what it uses of the hub."""

import os
import time
from types import SimpleNamespace

import pyarrow as pa
import pytest
from commandline import run
from packed import a_parquet, a_tar
from reading import keys, outcomes, read_all
from runs import run_again

from curate.manifest import remote
from curate.manifest.ahead import ahead
from curate.manifest.contract import ReadError, SourceOptions
from curate.manifest.failures import CredentialsError
from curate.manifest.memory import read_uri
from curate.manifest.reach import VARIABLE
from curate.manifest.sources import open_manifest
from curate.tables.table import open_table
from scoring.errors import InputError

ROOT = "hf://datasets/o/n"


def answer(status, headers):
    def do(handler):
        handler.send_response(status)
        for name, value in {"Content-Length": "0", **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()

    return do


def test_a_folder_of_images_is_one_request_an_image_and_one_question_about_the_repository(hub, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)  # the hub is where the user's configuration says
    large = bytes(range(256)) * (remote.PIECE // 256) + b"more"
    names = ["cats/a.png", "cats/b c%20#1?ü@.png", "dogs/x.png", "large.jpg", "no.jpg"]
    for name in [*names, "notes.txt", ".hidden/x.png"]:
        hub["o/n"].put(f"img/{name}", large if name == "large.jpg" else b"" if name == "no.jpg" else name.encode())
    for number in range(60):  # more than a page
        hub["o/n"].put(f"img/z/{number:02}.png", b"%d" % number)
    manifest = open_manifest(f"{ROOT}/img", SourceOptions(label_from_folder=True))
    assert keys(manifest)[:6] == [*names, "z/00.png"]
    assert manifest.n_rows == 65
    assert manifest.rows(0, 6)["label"].to_pylist() == ["cats", "cats", "dogs", None, None, "z"]
    hub.faults.requests.clear()
    expected = [*(name.encode() for name in names[:3]), large, b"", *(b"%d" % n for n in range(60))]
    assert read_all(ahead(manifest.readers(0, 65), 16)) == expected
    assert hub.faults.count("/api/datasets/o/n") <= 1
    assert hub.faults.count("resolve/main/img/cats/a.png") == 1
    assert hub.faults.count("resolve") == 67  # the one that is larger than a piece is not held, and takes three


def test_shards_of_a_revision_are_read_in_parts_and_by_patterns(hub, tmp_path):
    for n in "ab":
        hub["o/n"].put(f"data/{n}.parquet", a_parquet(pa.table({"id": [f"{n}1", f"{n}2"], "image": [b"1", b"2"]})))
        hub["o/n"].put(f"t/{n}.tar", a_tar({f"{n}.jpg": n.encode() * 300}))
        hub["o/n"].put("data/c.parquet", a_parquet(pa.table({"id": ["c1"], "image": [b"3"]})), "refs/convert/parquet")
    for source in (f"{ROOT}/data", f"{ROOT}/data/*.parquet", f"{ROOT}@main/data/{{a,b}}.parquet"):
        manifest = open_manifest(source, SourceOptions(key="id"))
        assert (keys(manifest), outcomes(manifest)) == (["a1", "a2", "b1", "b2"], [b"1", b"2"] * 2)
    for revision in ("refs/convert/parquet", "refs%2Fconvert%2Fparquet"):
        manifest = open_manifest(f"{ROOT}@{revision}/data/*.parquet", SourceOptions(key="id"))
        assert outcomes(manifest) == [b"3"]
    assert outcomes(open_manifest(f"{ROOT}/t/*.tar")) == [b"a" * 300, b"b" * 300]
    assert outcomes(open_manifest(f"{ROOT}/t/a.tar")) == [b"a" * 300]
    (tmp_path / "l.txt").write_text(f"{ROOT}/t/gone.jpg\n{ROOT}@no/t/gone.jpg\nhf://datasets/o\n")
    assert outcomes(open_manifest(tmp_path / "l.txt")) == ["missing", "missing", "refused"]


def test_what_is_not_there_or_not_for_us_is_one_line(hub, monkeypatch):
    hub["o/secret"].token = "hf_right"
    hub["o/secret"].put("a.jpg", os.urandom(300))
    hub["o/gated"].gated = True
    hub["o/gated"].put("a.jpg", b"a")
    hub["o/n"].put("a.txt", b"")
    for open_it in (open_manifest, open_table):
        for url, reason in {
            "hf://datasets/o/none/t.parquet": "there is no such repository, or it is a private one and no token",
            "hf://datasets/o/secret/t.parquet": "there is no such repository, or it is a private one and no token",
            f"{ROOT}@nope/t.parquet": "the repository has no such revision",
            f"{ROOT}/t.parquet": "the server has no such file|does not exist",
            "hf://datasets/o": "expected a URL such as hf://datasets/OWNER/NAME/FOLDER, got 'hf://datasets/o'",
        }.items():
            with pytest.raises(InputError, match=reason) as caught:
                open_it(url)
            assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=r"o/secret': .*no such repository"):
        open_manifest("hf://datasets/o/secret")
    with pytest.raises(InputError, match="got no files"):
        open_manifest(f"{ROOT}/none")
    with pytest.raises(ReadError, match="repository is gated") as caught:
        read_uri("hf://datasets/o/gated/a.jpg")
    assert caught.value.status == "denied"

    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(CredentialsError, match=r"status 401\); renew"):
        open_manifest("hf://datasets/o/secret")
    monkeypatch.setenv("HF_TOKEN", "hf_right")  # what was reported before is not remembered
    assert [len(data) for data in outcomes(open_manifest("hf://datasets/o/secret"))] == [300]
    with pytest.raises(InputError, match="no such repository"):
        open_manifest("hf://datasets/o/none/t.parquet")


@pytest.mark.parametrize("fault", [503, "cut", "reset"])
def test_a_fault_that_passes_is_tried_again_and_one_that_lasts_is_its_row(hub, fault):
    for name in ("a", "b"):
        hub["o/n"].put(f"{name}.jpg", b"bytes of an image")
    manifest = open_manifest(ROOT)
    hub.faults.add("a.jpg", fault, times=2)
    hub.faults.add("b.jpg", fault)
    assert outcomes(manifest) == [b"bytes of an image", "io_error"]
    assert hub.faults.count("b.jpg") == remote.TRIES
    with pytest.raises(ReadError, match="fetching failed: ") as caught:
        read_uri(f"{ROOT}/b.jpg")
    assert "127.0.0.1" not in str(caught.value)


def test_the_hub_says_how_long_to_wait(hub, monkeypatch):
    """It counts requests over five minutes, and reports when the next ones begin."""
    hub["o/n"].put("a.jpg", b"a")
    waits = []
    monkeypatch.setattr(remote, "time", SimpleNamespace(sleep=waits.append))
    hub.faults.add("a.jpg", answer(429, {"RateLimit": '"resolvers";r=0;t=113'}), times=1)
    hub.faults.add("a.jpg", answer(429, {"Retry-After": "9000"}), times=1)
    assert read_uri(f"{ROOT}/a.jpg") == b"a"
    assert waits == [113, 300]


def test_a_slow_answer_is_cut_off(hub, monkeypatch):
    hub["o/n"].put("a.jpg", b"a")
    monkeypatch.setattr(remote, "TIME_LIMIT", 0.2)
    monkeypatch.setattr(remote, "TRIES", 2)
    hub.faults.add("a.jpg", "hang")
    started = time.monotonic()
    with pytest.raises(ReadError, match=r"within 0\.2 s") as caught:
        read_uri(f"{ROOT}/a.jpg")
    assert (caught.value.status, time.monotonic() - started < 3) == ("io_error", True)


def test_a_source_that_changed_is_noticed_when_a_run_goes_on(hub, folder, tiny_checkpoint, tmp_path):
    for path in sorted(folder.iterdir())[:4]:
        hub["o/n"].put(f"img/{path.name}", path.read_bytes())
    out = tmp_path / "s.parquet"
    assert run_again(f"{ROOT}/img", out, tiny_checkpoint).statuses["ok"] == 4
    assert run_again(f"{ROOT}/img", out, tiny_checkpoint).resumed == 4
    hub["o/n"].put("img/00.png", (folder / "09.png").read_bytes())
    with pytest.raises(InputError, match="another input"):
        run_again(f"{ROOT}/img", out, tiny_checkpoint)
    hub["o/n"].put("t.parquet", a_parquet(pa.table({"image": [b"1"]})))
    before = open_manifest(f"{ROOT}/t.parquet").digest
    assert open_manifest(f"{ROOT}/t.parquet").digest == before
    hub["o/n"].put("t.parquet", a_parquet(pa.table({"image": [b"2"]})))
    assert open_manifest(f"{ROOT}/t.parquet").digest != before


def test_a_scored_table_is_read_in_place_and_nothing_is_written_there(hub, full_table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hub["o/n"].put("run/s.parquet", full_table.read_bytes())
    hub["o/n"].put("parts/part-000000.parquet", full_table.read_bytes())
    assert open_table(f"{ROOT}/run/s.parquet").read().equals(open_table(full_table).read())
    assert open_table(f"{ROOT}/parts").n_rows == 30
    for arguments in (
        ["info", f"{ROOT}/run/s.parquet"],
        ["filter", f"{ROOT}/run/s.parquet", "--keep-top", "50%", "-o", "k.parquet"],
        ["verify", "k.receipt.json"],
    ):
        result = run(*arguments)
        assert result.exit_code == 0, result.stderr
    result = run("score", str(tmp_path), "-o", f"{ROOT}/s.parquet")
    text = " ".join(result.stderr.split())
    assert result.exit_code == 1
    assert "expected a path, or a URL of s3://, s3a://, gs://, gcs://, got 'hf://datasets/o/n/s.parquet'" in text
    assert "(hf upload)" in text
