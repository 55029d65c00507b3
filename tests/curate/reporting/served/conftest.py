"""A table of images and the server that browses it."""

import threading

import numpy as np
import pyarrow as pa
import pytest
from browsed import N, view
from choosing import columns_of, write
from PIL import Image

import curate

HOSTILE = [
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "\u202egnp.elif",
    "ÄRGER/ß.png",
    "100%&x=y",
]


@pytest.fixture(scope="session")
def browsed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("view")
    keys = [HOSTILE[row] if row < len(HOSTILE) else f"img/{row:03}.png" for row in range(N)]
    columns = columns_of(N, seed=5, key=keys)
    score = [None if row % 50 == 7 else float(np.round(v, 1)) for row, v in enumerate(columns["unc_losspred"].tolist())]
    for row in range(0, N, 2):
        Image.new("RGB", (60, 40), (row % 256, 50, 100)).save(folder / f"{row}.png")
    columns |= {
        "unc_losspred": pa.array(score, pa.float32()),
        "uri": [str(folder / f"{row}.png") if row != 9 else None for row in range(N)],
        "width": list(range(N)),
        "status": ["truncated" if row % 50 == 7 else "ok" for row in range(N)],
    }
    write(folder / "scores.parquet", columns)
    curate.filter(folder / "scores.parquet", folder / "kept.parquet", keep_top=200, column="unc_losspred")
    return folder


@pytest.fixture(scope="session")
def server(browsed):
    server = view(browsed / "scores.parquet", [browsed / "kept.parquet"], column="unc_losspred", points=0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
