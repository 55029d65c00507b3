"""URLs as rows and as sources: a server on this machine, and fsspec's memory."""

import builtins
import io
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from buckets import Server
from reading import outcomes

from curate.manifest import remote
from curate.manifest.contract import ReadError, SourceOptions
from curate.manifest.memory import read_uri
from curate.manifest.sources import open_manifest
from scoring.errors import InputError, MissingExtraError


class Handler(BaseHTTPRequestHandler):
    files: dict[str, bytes] = {}  # noqa: RUF012
    failures: dict[str, int] = {}  # noqa: RUF012
    requests: list[str] = []  # noqa: RUF012

    def do_GET(self):
        type(self).requests.append(f"{self.command} {self.path}")
        if self.failures.get(self.path, 0) > 0:
            self.failures[self.path] -= 1
            self.send_error(503)
        elif self.path.startswith("/forbidden"):
            self.send_error(403)
        elif self.path in self.files:
            data = self.files[self.path]
            self.send_response(200)
            self.send_header("Content-Length", str(len(data) + 9 * self.path.startswith("/short")))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)
        else:
            self.send_error(404)

    do_HEAD = do_GET

    def log_message(self, *_):
        return


@pytest.fixture
def server(monkeypatch):
    pytest.importorskip("aiohttp", reason="the http extra is not installed")
    monkeypatch.setattr(remote, "PAUSE", 0.01)
    monkeypatch.setenv("CURATE_ALLOW_PRIVATE_HOSTS", "1")
    Handler.files, Handler.failures, Handler.requests = {}, {}, []
    http = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{http.server_port}"
    http.shutdown()
    http.server_close()
    thread.join()


@pytest.fixture
def memory():
    system = fsspec.filesystem("memory")
    yield system
    system.rm("/", recursive=True)


def test_urls_of_a_list_are_fetched_and_failures_are_rows(tmp_path, server):
    Handler.files = {"/a b.jpg": b"", "/a%20b.jpg": b"spaced", "/c.jpg": b"c" * 3_000_000, "/short.jpg": b"s"}
    names = ["a%20b.jpg", "c.jpg", "gone.jpg", "forbidden.jpg", "short.jpg"]
    (tmp_path / "l.txt").write_text("".join(f"{server}/{name}\n" for name in names))
    manifest = open_manifest(tmp_path / "l.txt")
    assert outcomes(manifest) == [b"spaced", b"c" * 3_000_000, "missing", "denied", "io_error"]
    assert manifest.rows(0, 1).to_pylist() == [{"key": f"{server}/a%20b.jpg", "uri": f"{server}/a%20b.jpg"}]
    assert not any(request.startswith("HEAD") for request in Handler.requests)
    assert Handler.requests.count("GET /forbidden.jpg") == 1


def test_urls_are_fetched_from_many_threads(server, tmp_path):
    Handler.files = {f"/{n}.jpg": b"%d" % n for n in range(60)}
    (tmp_path / "t.csv").write_text("url,n\n" + "".join(f"{server}/{n}.jpg,{n}\n" for n in range(60)))
    manifest = open_manifest(tmp_path / "t.csv")
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda read: read(), manifest.readers(0, 60))) == [b"%d" % n for n in range(60)]


def test_a_failure_that_passes_is_tried_again_and_one_that_lasts_is_a_row(server):
    Handler.files, Handler.failures = {"/a.jpg": b"a"}, {"/a.jpg": 2}
    assert read_uri(f"{server}/a.jpg") == b"a"
    Handler.failures = {"/a.jpg": remote.TRIES}
    with pytest.raises(ReadError, match="HTTP status 503") as caught:
        read_uri(f"{server}/a.jpg")
    assert caught.value.status == "io_error"


def test_a_large_answer_is_cut_at_the_bound(server):
    Handler.files = {"/a.jpg": bytes(5_000_000)}
    with pytest.raises(ReadError, match="of 1,000 bytes") as caught:
        read_uri(f"{server}/a.jpg", max_bytes=1000)
    assert caught.value.status == "too_large"
    assert len(read_uri(f"{server}/a.jpg", max_bytes=5_000_000)) == 5_000_000


def test_a_server_that_is_not_there_is_a_failed_row_whose_text_hides_the_url(server):
    with pytest.raises(ReadError) as caught:
        read_uri("http://127.0.0.1:9/secret.jpg?signature=abc")
    assert caught.value.status == "io_error"
    assert "signature" not in str(caught.value)


def test_a_table_behind_a_url_is_a_source_and_its_paths_start_next_to_it(server):
    Handler.files = {"/d/t.csv": b"path,label\na.jpg,1\n", "/d/a.jpg": b"a"}
    manifest = open_manifest(f"{server}/d/t.csv")
    assert manifest.rows(0, 1).to_pylist() == [
        {"key": "a.jpg", "uri": f"{server}/d/a.jpg", "path": "a.jpg", "label": 1}
    ]
    assert outcomes(manifest) == [b"a"]
    with pytest.raises(InputError, match="HTTP cannot list folders"):
        open_manifest(f"{server}/d/")
    with pytest.raises(InputError, match="no such file"):
        open_manifest(f"{server}/none.csv")


def test_a_folder_of_a_store_is_a_source(memory):
    for name in ("b.jpg", "a/c.PNG", "a/.hidden.jpg", "notes.txt", ".git/x.jpg"):
        memory.pipe(f"/photos/{name}", name.encode())
    manifest = open_manifest("memory://photos")
    assert manifest.rows(0, 2).to_pylist() == [
        {"key": "a/c.PNG", "uri": "memory://photos/a/c.PNG"},
        {"key": "b.jpg", "uri": "memory://photos/b.jpg"},
    ]
    assert outcomes(manifest) == [b"a/c.PNG", b"b.jpg"]
    with pytest.raises(InputError, match="got no files"):
        open_manifest("memory://nothing")
    labelled = open_manifest("memory://photos", SourceOptions(label_from_folder=True))
    assert labelled.rows(0, 2)["label"].to_pylist() == ["a", None]


def test_parquet_and_tar_behind_urls_are_read_in_parts(memory):
    with memory.open("/d/a.parquet", "wb") as file:
        pq.write_table(pa.table({"image": [b"1", b"2"], "id": [1, 2]}), file)
    with memory.open("/t/s.tar", "wb") as file, tarfile.open(fileobj=file, mode="w") as archive:
        info = tarfile.TarInfo("x.jpg")
        info.size = 3
        archive.addfile(info, io.BytesIO(b"xyz"))
    manifest = open_manifest("memory://d")
    assert manifest.rows(0, 2)["key"].to_pylist() == ["a.parquet#0", "a.parquet#1"]
    assert outcomes(manifest) == [b"1", b"2"]
    shards = open_manifest("memory://t/s.tar")
    assert outcomes(shards) == [b"xyz"]
    uri = shards.rows(0, 1)["uri"][0].as_py()
    assert uri == "memory://t/s.tar::x.jpg"
    assert read_uri(uri) == b"xyz"


def test_relative_paths_may_start_at_a_url(memory, tmp_path):
    memory.pipe("/photos/a.jpg", b"a")
    (tmp_path / "l.txt").write_text("a.jpg\ngone.jpg\n")
    manifest = open_manifest(tmp_path / "l.txt", SourceOptions(root="memory://photos"))
    assert outcomes(manifest) == [b"a", "missing"]


def test_a_file_url_is_percent_decoded(tmp_path):
    (tmp_path / "a b.jpg").write_bytes(b"x")
    (tmp_path / "l.txt").write_text(f"file://{tmp_path}/a%20b.jpg\n")
    assert outcomes(open_manifest(tmp_path / "l.txt")) == [b"x"]
    assert outcomes(open_manifest(f"file://{tmp_path}")) == [b"x"]


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [("https://h/a.jpg", "aiohttp", "http"), ("s3://b/a.jpg", "s3fs", "s3"), ("gs://b/a.jpg", "gcsfs", "gcs")],
)
def test_a_missing_driver_is_an_error_that_names_the_pip_line(tmp_path, monkeypatch, url, module, extra):
    load = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.split(".")[0] == module:
            raise ImportError(name)
        return load(name, *args, **kwargs)

    monkeypatch.setattr("importlib.import_module", lambda name: refuse(name))
    (tmp_path / "l.txt").write_text(f"{url}\n")
    with pytest.raises(MissingExtraError, match=rf"pip install 'kappa-curate\[{extra}\]'"):
        open_manifest(tmp_path / "l.txt")
