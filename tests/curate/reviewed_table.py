"""A small table with suspected images of two sorts, and a server of its review."""

import hashlib
import http.client
import json
import threading
from contextlib import contextmanager

import numpy as np
import polars as pl
from PIL import Image

from curate.reviewing.serve import review

HOSTILE = "</script><img src=x onerror=alert(1)>\u202e.png"
GREY, RED, GOOD = 12, 8, 30  # images: two sorts of junk, and those that nothing is suspected of
N = GREY + RED + GOOD


def write_table(folder, name="scores.parquet"):
    """Junk first: grey images, then red ones, each sort in one direction of the embedding; the rest is spread."""
    draw = np.random.default_rng(3)
    colours = [(90, 90, 90)] * GREY + [(200, 10, 10)] * RED + [(0, 0, 5 * row) for row in range(GOOD)]
    keys = [HOSTILE, *(f"img/{row:03}.png" for row in range(1, N))]
    middles = np.eye(16)[[0] * GREY + [1] * RED + [2 + row % 14 for row in range(GOOD)]]
    embedding = (middles + 0.05 * draw.normal(size=(N, 16))).astype(np.float32)
    uris, digests = [], []
    for row, colour in enumerate(colours):
        path = folder / f"{row}.png"
        Image.new("RGB", (40, 30), colour).save(path)
        uris.append(str(path))
        digests.append(hashlib.sha256(path.read_bytes()).hexdigest())
    table = pl.DataFrame(
        {
            "key": keys,
            "uri": uris,
            "sha256": digests,
            "status": ["ok"] * N,
            "label": ["cat", "dog"] * (N // 2),
            "p_junk": [0.9] * GREY + [0.8] * RED + [0.1] * GOOD,
            "quality_contrast": [0.5] * N,
            "embedding": embedding,
        },
        schema_overrides={"p_junk": pl.Float32, "quality_contrast": pl.Float32, "embedding": pl.Array(pl.Float32, 16)},
    )
    table.write_parquet(folder / name)
    return folder / name


@contextmanager
def serving(table, **options):
    server = review(table, points=0, **options)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def call(server, path, sent=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    body = None if sent is None else json.dumps(sent)
    all_headers = {"Content-Type": "application/json", **headers} if sent is not None else headers
    connection.request("GET" if sent is None else "POST", f"/{server.site.token}/{path}", body, all_headers)
    answer = connection.getresponse()
    content = json.loads(answer.read())
    connection.close()
    return answer.status, content


def act(server, action, group="", **more):
    """Do something as the page does, which knows the state."""
    seq = call(server, "state")[1]["seq"]
    return call(server, "decide", {"seq": seq, "action": action, "group": group, **more})


def queue(server):
    return call(server, "state")[1]["queue"]
