"""What the engine `ray` costs next to the engine `local` on the same cores, and what a second node brings.

    python benchmarks/engines.py [--images 1024] [--pairs 3]
    python benchmarks/engines.py --searches 1000000 [--pairs 3]
    python benchmarks/engines.py --nodes

The first scores the same photographs by both engines in turn, with one actor that has all cores. Rates are taken from
the first committed shard to the last but a few, which leaves out starts, the finishing pass, and shards that were
begun before the first was done; starts are printed apart. Next to the rates stand the
processor's milliseconds an image, of all processes, Ray's own included, which other work on the machine changes less.

The second deduplicates the same rows by embedding by both engines in turn, and compares the processor's seconds of all
processes from when Ray is there; that the processes of Ray load torch is in them.

The last starts a cluster of one node and one of two, with a core each, and scores images that come from a slow server
on this machine: waiting is what takes the time, so that the cores of one machine suffice for both.
"""

import os

os.environ.setdefault("GOMP_SPINCOUNT", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from datetime import datetime
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import torch
from dedup import MAKE
from score import make_photos

from curate.engines.score import score
from curate.policies.dedup.policy import dedup

SECOND = os.sysconf("SC_CLK_TCK")
BEGUN = 4  # shards at the end, left out: as many may have been begun before the first was done
WAIT = 0.2  # seconds that the slow server takes for an image


class ProcessorTime:
    """Samples the processor's seconds of this process and all below it; one that ends keeps what it had."""

    def __init__(self) -> None:
        self._used: dict[str, float] = {}  # by process
        self._ours: set[str] = set()
        self._samples: list[tuple[float, float]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def at(self, moment: float) -> float:
        """Return the seconds used until a moment of the clock."""
        return max((used for when, used in self._samples if when <= moment), default=0.0)

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            below: dict[str, list[str]] = {}
            for place in Path("/proc").glob("[0-9]*/stat"):
                try:
                    fields = place.read_text().rpartition(")")[2].split()
                except OSError:  # it ended meanwhile
                    continue
                below.setdefault(fields[1], []).append(place.parent.name)
                self._used[place.parent.name] = (int(fields[11]) + int(fields[12])) / SECOND
            todo = [str(os.getpid())]
            while todo:
                pid = todo.pop()
                self._ours.add(pid)
                todo += below.get(pid, [])
            self._samples.append((time.time(), sum(self._used.get(pid, 0.0) for pid in self._ours)))


def measured(source: Any, out: Path, **options: Any) -> dict[str, float]:
    """Score, and return what it took: seconds of starts, images a second, processor's milliseconds an image."""
    log = out.with_suffix(".jsonl")
    with ProcessorTime() as used:
        score(source, out, log=log, **options)
    events = [json.loads(line) for line in log.read_text().splitlines()]
    moments = {event["event"]: datetime.fromisoformat(event["time"]).timestamp() for event in reversed(events)}
    shards = [event for event in events if event["event"] == "shard"]
    ends = [datetime.fromisoformat(shard["time"]).timestamp() for shard in shards]
    n, begun, done = sum(shard["rows"] for shard in shards[1:-BEGUN]), ends[0], ends[-1 - BEGUN]
    log.unlink()
    return {
        "seconds to connect and open": moments["begin"] - moments["start"],
        "seconds until actors score": begun - moments["begin"] - (done - begun) / n * shards[0]["rows"],
        "images/s": n / (done - begun),
        "processor ms": (used.at(done) - used.at(begun)) / n * 1000,
    }


def in_turn(images: int, pairs: int, model: str) -> None:
    """Compare the engines."""
    with tempfile.TemporaryDirectory() as scratch:
        photos = Path(scratch) / "photos"
        photos.mkdir()
        make_photos(photos, images)
        measures: dict[str, list[dict[str, float]]] = {"local": [], "ray": []}
        tables: set[bytes] = set()
        for pair in range(pairs):
            for engine in ("local", "ray") if pair % 2 == 0 else ("ray", "local"):
                out = Path(scratch) / "scores.parquet"
                measures[engine].append(
                    measured(str(photos), out, engine=engine, model=model, shard_size=64, device="cpu", fit=False)
                )
                tables.add(out.read_bytes())
                out.unlink()
                print(engine, {name: round(value, 2) for name, value in measures[engine][-1].items()}, flush=True)
    print(f"model {model}, {torch.get_num_threads()} threads; tables the same, byte for byte: {len(tables) == 1}")
    for name, sign in (("images/s", -1), ("processor ms", 1)):
        ratios = [(b[name] / a[name]) ** sign for a, b in zip(measures["local"], measures["ray"], strict=True)]
        print(f"{name}: ray costs {statistics.median(ratios):.3f} of local ({min(ratios):.3f} to {max(ratios):.3f})")


def searches(rows: int, pairs: int) -> None:
    """Compare the engines on a search."""
    with tempfile.TemporaryDirectory() as scratch:
        table = Path(scratch) / "scores.parquet"
        subprocess.run([sys.executable, "-c", MAKE, str(table), str(rows), "384"], check=True)
        times: dict[str, list[tuple[float, float]]] = {"local": [], "ray": []}
        decisions: set[bytes] = set()
        for pair in range(pairs):
            for engine in ("local", "ray") if pair % 2 == 0 else ("ray", "local"):
                with ProcessorTime() as used:
                    time.sleep(0.5)  # so that there is a sample to begin with
                    begun = [time.time()]
                    options = {"finder": {"embedding": 0.95}, "engine": engine, "overwrite": True}
                    dedup(
                        table,
                        Path(scratch) / "unique.parquet",
                        announce=lambda _, begun=begun: begun.append(time.time()),
                        **options,
                    )
                    done = time.time()
                decisions.add((Path(scratch) / "unique.decisions.parquet").read_bytes())
                times[engine].append((used.at(done) - used.at(begun[-1]), done - begun[-1]))
                print(engine, "{:.1f} s of processor, {:.1f} s by the clock".format(*times[engine][-1]), flush=True)
    print(f"{rows:,} rows, {torch.get_num_threads()} threads; the same decisions, byte for byte: {len(decisions) == 1}")
    for at, name in enumerate(("processor", "clock")):
        ratios = [b[at] / a[at] for a, b in zip(times["local"], times["ray"], strict=True)]
        print(f"{name}: ray takes {statistics.median(ratios):.3f} of local ({min(ratios):.3f} to {max(ratios):.3f})")


class Slow(SimpleHTTPRequestHandler):
    """Serves files, each after a while."""

    def do_GET(self) -> None:
        time.sleep(WAIT)
        super().do_GET()

    def log_message(self, *_: object) -> None:
        pass


def nodes(images: int, pairs: int) -> None:
    """Compare one node with two."""
    from functools import partial

    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 80 << 20}
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        photos = Path(scratch) / "photos"
        photos.mkdir()
        make_photos(photos, images)
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Slow, directory=str(photos)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        urls = Path(scratch) / "urls.txt"
        urls.write_text("".join(f"http://127.0.0.1:{server.server_port}/{i:06}.jpg\n" for i in range(images)))
        rates: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(pairs):
            for n in rates:
                cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
                for _ in range(n - 1):
                    cluster.add_node(**node)
                out = Path(scratch) / "scores.parquet"
                options = {"engine": f"ray:{cluster.address}", "workers": 4, "model": "trio", "fit": False}
                rate = measured(str(urls), out, shard_size=16, allow_private_hosts=True, quality=False, **options)
                rates[n].append(rate["images/s"])
                print(n, {name: round(value, 2) for name, value in rate.items()}, flush=True)
                out.unlink()
                cluster.shutdown()
    ratios = [two / single for single, two in zip(rates[1], rates[2], strict=True)]
    print(f"two nodes: {statistics.median(ratios):.2f} of one ({min(ratios):.2f} to {max(ratios):.2f})")


def main() -> None:
    """Measure what was requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1024)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--model", default="world")
    parser.add_argument("--nodes", action="store_true", help="one node and two, instead of the engines")
    parser.add_argument("--searches", type=int, metavar="ROWS", help="a search among so many rows, instead of scoring")
    options = parser.parse_args()
    if options.nodes:
        nodes(options.images, options.pairs)
    elif options.searches:
        searches(options.searches, options.pairs)
    else:
        in_turn(options.images, options.pairs, options.model)


if __name__ == "__main__":
    main()
