"""A server that speaks what `HfFileSystem` uses of the hub of Hugging Face, to be put behind the proxy of `buckets`."""

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha1, sha256
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, unquote, urlsplit

from buckets import Faults, Server, proxy

LARGE = 100  # bytes from which a file is not in the repository itself, but behind a redirection
PAGE = 20  # entries of a listing


@dataclass
class Repository:
    """Files of a data set by revision, and what its pages say of who may read it."""

    files: dict = field(default_factory=lambda: {"main": {}})
    token: str = ""
    gated: bool = False

    def put(self, path, data, revision="main"):
        self.files.setdefault(revision, {})[path] = data


@dataclass(frozen=True)
class Hub:
    """The hub: its URL, the faults before it, and its data sets by name."""

    endpoint: str
    faults: Faults
    sets: dict

    def __getitem__(self, name):
        return self.sets.setdefault(name, Repository())


def entry(path, data):
    known = {"type": "file", "path": path, "size": len(data), "oid": sha1(b"blob %d\0" % len(data) + data).hexdigest()}
    if len(data) >= LARGE:
        known["lfs"] = {"oid": sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
    commit = {"id": "c" * 40, "title": "a commit", "date": "2026-01-02T03:04:05.000Z"}
    return {**known, "lastCommit": commit}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    sets: dict = {}  # noqa: RUF012

    def serve(self):
        length = int(self.headers.get("Content-Length") or 0)
        self.form = parse_qs(self.rfile.read(length).decode())
        parts = urlsplit(self.path)
        self.query = parse_qs(parts.query)
        path = parts.path
        if path.startswith("/cdn/"):
            if "Authorization" in self.headers:  # a token of the hub is nothing for a host that it redirects to
                return self.refuse(400, "", "a token came along")
            return self.send_part(self.blobs()[path.removeprefix("/cdn/")])
        words = path.split("/")
        name = "/".join(words[3:5] if words[1] == "api" else words[2:4])
        dataset = self.sets.get(name)
        if self.headers.get("Authorization", "").endswith("hf_wrong"):
            return self.refuse(401, "", "Invalid credentials in Authorization header")
        if dataset is None or (dataset.token and self.headers.get("Authorization") != f"Bearer {dataset.token}"):
            known = "Authorization" in self.headers
            return self.refuse(404 if known else 401, "RepoNotFound", "Repository not found")
        if words[1] == "api":
            return self.api(dataset, name, words[5:])
        if dataset.gated:
            return self.refuse(403, "GatedRepo", "Access to this dataset is restricted")
        return self.resolve(dataset, unquote(words[5]), unquote("/".join(words[6:])))

    def blobs(self):
        every = [files for each in self.sets.values() for files in each.files.values()]
        return {sha256(data).hexdigest(): data for files in every for data in files.values()}

    def api(self, dataset, name, words):
        what = words[0] if words else "revision"
        revision = unquote(words[1]) if len(words) > 1 else "main"
        if revision not in dataset.files:
            return self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        files = dataset.files[revision]
        if what == "tree":
            return self.tree(files, unquote("/".join(words[2:])))
        if what == "paths-info":
            return self.send([entry(path, files[path]) for path in self.form["paths"] if path in files])
        siblings = [{"rfilename": path} for path in files]
        return self.send(
            {"_id": "1", "id": name, "sha": "c" * 40, "private": bool(dataset.token), "siblings": siblings}
        )

    def tree(self, files, folder):
        prefix = folder + "/" if folder else ""
        inside = {path: data for path, data in files.items() if path.startswith(prefix)}
        if not inside:
            return self.refuse(404, "EntryNotFound", f"{folder} does not exist")
        recursive = self.query.get("recursive", [""])[0].lower() == "true"
        names = {path.rpartition("/")[0] for path in inside} if recursive else set()
        folders = {prefix + path[len(prefix) :].split("/")[0] for path in inside if "/" in path[len(prefix) :]} | names
        entries = [
            {"type": "directory", "path": each, "oid": "d" * 40, "size": 0} for each in sorted(folders - {folder, ""})
        ]
        entries += [
            entry(path, data) for path, data in sorted(inside.items()) if recursive or "/" not in path[len(prefix) :]
        ]
        start = int(self.query.get("cursor", ["0"])[0])
        more = {}
        if len(entries) > start + PAGE:
            base = f"http://{self.headers['Host']}{urlsplit(self.path).path}"
            flag = "true" if recursive else "false"
            more = {"Link": f'<{base}?recursive={flag}&expand=false&cursor={start + PAGE}>; rel="next"'}
        return self.send(entries[start : start + PAGE], more)

    def resolve(self, dataset, revision, path):
        if revision not in dataset.files:
            return self.refuse(404, "RevisionNotFound", "no such revision")
        if path not in dataset.files[revision]:
            return self.refuse(404, "EntryNotFound", "no such entry")
        data = dataset.files[revision][path]
        if len(data) < LARGE:
            return self.send_part(data)
        self.send_response(302)
        self.send_header(
            "Location", f"http://localhost:{self.headers['Host'].split(':')[1]}/cdn/{sha256(data).hexdigest()}"
        )
        self.send_header("Content-Length", "0")
        self.end_headers()
        return None

    def send_part(self, data):
        span = self.headers.get("Range", "")
        if span:
            start, _, stop = span.removeprefix("bytes=").partition("-")
            if int(start) >= len(data):
                return self.refuse(416, "", "Requested range not satisfiable")
            data = data[int(start) : int(stop) + 1 if stop else None]
        self.send_response(206 if span else 200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        return None

    def send(self, value, more=()):
        text = json.dumps(value).encode()
        self.send_response(200)
        for name, header in {
            "Content-Type": "application/json",
            "Content-Length": str(len(text)),
            **dict(more),
        }.items():
            self.send_header(name, header)
        self.end_headers()
        self.wfile.write(text)

    def refuse(self, status, code, message):
        text = json.dumps({"error": message}).encode()
        self.send_response(status)
        self.send_header("X-Error-Message", message)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_HEAD = serve

    def log_message(self, *_):
        return


@contextmanager
def hub_server():
    """Yield a hub behind its proxy."""
    sets = {}
    server = Server(("127.0.0.1", 0), type("Bound", (Handler,), {"sets": sets}))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    with proxy(("127.0.0.1", server.server_port)) as (url, faults):
        yield Hub(url, faults, sets)
    server.shutdown()
    server.server_close()
