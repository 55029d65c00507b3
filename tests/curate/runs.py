"""Small scoring runs that several test modules make."""

import http.server
import threading
from functools import partial

from buckets import Server

from curate.engines.score import score

SMALL = {"device": "cpu", "batch_size": 4, "shard_size": 8, "white": 65535}


def run_again(folder, out, checkpoint, **changes):
    return score(folder, out, model=checkpoint, **SMALL | changes)


class PhotoServer:
    """Serves a folder at one port, now and then."""

    def __init__(self, folder):
        self.folder, self.port = folder, 0

    def start(self):
        handler = partial(http.server.SimpleHTTPRequestHandler, directory=self.folder)
        self.server = Server(("127.0.0.1", self.port), handler)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def listed(self, path):
        names = [path.name for path in sorted(self.folder.iterdir())]
        path.write_text("".join(f"http://127.0.0.1:{self.port}/{name}\n" for name in names))
        return path
