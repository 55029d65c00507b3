"""An S3-compatible server (moto), and a proxy in front of it that is slow, fails, cuts off or throttles on demand."""

import http.client
import socket
import struct
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ERROR = '<?xml version="1.0"?><Error><Code>{}</Code><Message>{}</Message></Error>'


S3_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "a",
    "AWS_SECRET_ACCESS_KEY": "b",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
}


@dataclass(frozen=True)
class Bucket:
    """A bucket, the URL of its server, the faults in front of it, and a client that goes around them."""

    name: str
    endpoint: str
    faults: "Faults"
    client: Any

    def __str__(self):
        return f"s3://{self.name}"

    def put(self, key, data):
        self.client.put_object(Bucket=self.name, Key=key, Body=data)

    def get(self, key):
        return self.client.get_object(Bucket=self.name, Key=key)["Body"].read()

    def names(self, prefix=""):
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        return [each["Key"] for page in pages for each in page.get("Contents", [])]


class Faults:
    """What the proxy does to requests; a rule is requested (method, path) and returns what to do, or None."""

    def __init__(self):
        self.rules, self.requests, self.delay, self.at_once, self.most = [], [], 0.0, 0, 0
        self.lock = threading.Lock()

    def clear(self):
        self.rules, self.requests, self.delay, self.most = [], [], 0.0, 0

    def wait(self):
        """Let time pass before an answer."""
        time.sleep(self.delay)

    def add(self, contains, do, times=None, method="GET"):
        """Do something to the next requests whose path holds a text."""
        left = [times]

        def rule(asked, path):
            if asked != method or contains not in path or left[0] == 0:
                return None
            left[0] = None if left[0] is None else left[0] - 1
            return do

        self.rules.append(rule)

    def of(self, method, path):
        with self.lock:
            self.requests.append(f"{method} {path}")
            return next((do for rule in self.rules if (do := rule(method, path))), None)

    def count(self, contains, method="GET"):
        return sum(contains in each and each.startswith(method + " ") for each in self.requests)


class Handler(BaseHTTPRequestHandler):
    """Serve what lies behind, with faults on demand; ``handler_of`` gives both."""

    faults, behind = None, None
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer takes 40 ms

    def serve(self):
        with self.faults.lock:
            self.faults.at_once += 1
            self.faults.most = max(self.faults.most, self.faults.at_once)
        try:
            self.answer()
        finally:
            with self.faults.lock:
                self.faults.at_once -= 1

    def answer(self):
        body = self.body()
        do = self.faults.of(self.command, self.path)
        self.faults.wait()
        if isinstance(do, int):
            self.fail(do, {503: "SlowDown", 500: "InternalError", 403: "AccessDenied"}.get(do, "Error"))
        elif do == "expired":
            self.fail(400, "ExpiredToken")
        elif do == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()
        elif do == "hang":
            time.sleep(5)
            self.close_connection = True
        elif callable(do):
            do(self)
        else:
            self.forward(body, cut=do == "cut")

    def body(self):
        if self.headers.get("Transfer-Encoding", "") == "chunked":
            pieces = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            del self.headers["Transfer-Encoding"]
            return b"".join(pieces)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def fail(self, status, code):
        text = b"" if self.command == "HEAD" else ERROR.format(code, "on demand").encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def forward(self, body, *, cut):
        connection = http.client.HTTPConnection(*self.behind, timeout=30)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in ("connection", "content-length", "expect")}
        connection.request(self.command, self.path, body, headers)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length", "date", "server"):
                self.send_header(name, value)
        size = answer.getheader("Content-Length") if self.command == "HEAD" else len(data)
        self.send_header("Content-Length", str(size or 0))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if cut else data)
        self.close_connection = self.close_connection or cut

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = serve

    def log_message(self, *_):
        return

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except OSError:  # a client that went away, or a connection that was reset on demand
            self.close_connection = True


def handler_of(faults, behind):
    return type("Handler", (Handler,), {"faults": faults, "behind": behind})


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, *_):
        return


@contextmanager
def proxy(behind, faults=None):
    """Yield the URL of a proxy in front of (host, port), and its faults."""
    faults = faults or Faults()
    server = Server(("127.0.0.1", 0), handler_of(faults, behind))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", faults
    server.shutdown()
    server.server_close()
