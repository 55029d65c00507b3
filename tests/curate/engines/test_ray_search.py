"""Searches of commands on a real Ray cluster of two nodes: the bytes of one machine, whatever is killed."""

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import curate
from curate.cli import app
from curate.engines import ray_tasks
from curate.engines.ray_tasks import RayTasks
from curate.tables.table import embedding_field
from scoring.errors import InputError

pytest.importorskip("ray", reason="Ray is not installed: pip install 'kappa-curate[ray]'")
WIDTH = 16


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Three thousand rows, a fifth of them near copies of others."""
    generator = np.random.default_rng(0)
    n = 3000
    rows = generator.normal(size=(n, WIDTH))
    rows[::5] = rows[1::5] + generator.normal(0, 0.1, (n // 5, WIDTH))
    field = embedding_field(WIDTH)
    columns = {
        "key": [f"k{i}" for i in range(n)],
        "status": ["ok"] * n,
        "sha256": [f"s{i % 2900}" for i in range(n)],
        "phash": pa.array(generator.integers(0, 2**16, n).astype(np.uint64)),
        field.name: pa.FixedSizeListArray.from_arrays(pa.array(rows.astype(np.float16).ravel()), type=field.type),
    }
    path = tmp_path_factory.mktemp("ray_search") / "scores.parquet"
    metadata = {"curate": '{"kind": "scores"}'}
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), path)
    return path


@pytest.fixture
def small_tasks(monkeypatch):
    """Let small searches be cut as well, and count tasks."""
    monkeypatch.setattr(ray_tasks, "LEAST", 1e6)
    monkeypatch.setattr(ray_tasks, "GRAIN", 4e6)
    run, names = RayTasks.run, []

    def counted(self, function, arguments):
        for result in run(self, function, arguments):
            names.append(function.__name__)
            yield result

    monkeypatch.setattr(RayTasks, "run", counted)
    return names


def bytes_beside(path):
    """Return the tables that a command wrote, by what follows their name."""
    return {
        each.name.removeprefix(path.stem): each.read_bytes()
        for each in path.parent.glob(f"{path.stem}.*")
        if "receipt" not in each.name
    }


def after(monkeypatch, n, what):
    """Let something happen after n answers of the cluster; returns a list that is filled when it does."""
    answer, seen, happened = RayTasks._receive, [], []

    def counted(self, reference):
        seen.append(reference)
        if len(seen) > n and not happened:
            happened.extend(what() or ())
        return answer(self, reference)

    monkeypatch.setattr(RayTasks, "_receive", counted)
    return happened


def kill_soon(killed):
    """Kill a process that runs a task of the search as soon as there is one, from a thread; shows its number."""

    def watch():
        until = time.monotonic() + 20
        while not killed and time.monotonic() < until:
            killed.extend(kill_a_worker())

    threading.Thread(target=watch, daemon=True).start()
    return ["watched"]


def kill_a_worker():
    """Kill a process that runs a task of the search, if there is one right now."""
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if command.read_bytes().startswith(b"ray::run_task"):
                os.kill(int(command.parent.name), signal.SIGKILL)
                return [command.parent.name]
    return []


@pytest.mark.slow
def test_dedup_writes_the_same_bytes_though_a_worker_is_killed(table, tmp_path, cluster, small_tasks, monkeypatch):
    finders = {"hash": 1, "embedding": 0.97}
    curate.dedup(table, tmp_path / "here.parquet", finders)
    killed, said = [], []
    after(monkeypatch, 4, lambda: kill_soon(killed))
    on_cluster = tmp_path / "there.parquet"
    result = curate.dedup(table, on_cluster, finders, engine=f"ray:{cluster.address}", announce=said.append)
    assert killed
    assert small_tasks.count("scanned") > 6
    assert 500 < result.dropped < 2000  # neither none nor all of 3,000
    assert bytes_beside(on_cluster) == bytes_beside(tmp_path / "here.parquet")
    assert len(bytes_beside(on_cluster)) == 3
    assert said[0].endswith("2 nodes: large searches as tasks of 1 core, 2 at a time")
    assert not [each for each in tmp_path.iterdir() if each.name.startswith(".")]  # no arrays are left


@pytest.mark.slow
def test_choices_and_fits_are_the_same_bytes_on_a_cluster(table, tmp_path, cluster, small_tasks, monkeypatch):
    monkeypatch.setattr("scoring.search.graph.QUERIES", 400)
    monkeypatch.setattr("scoring.relative.neighbours.COMPARED", 500)
    monkeypatch.setattr("scoring.relative.neighbours.EXACT_ROWS", 500)
    cluster_options = {"engine": f"ray:{cluster.address}"}
    for where in ("here", "there"):
        (tmp_path / where).mkdir()
    for where, options in (("here", {}), ("there", cluster_options)):
        curate.select(table, tmp_path / where / "batch.parquet", "typiclust", 40, **options)
        chosen = small_tasks.count("near_some")
        curate.fit(table, apply=tmp_path / where / "fitted.parquet", **options)
    assert chosen > 0
    assert small_tasks.count("neighboured") == 8
    for name in ("batch", "fitted"):
        pair = [bytes_beside(tmp_path / where / f"{name}.parquet") for where in ("here", "there")]
        assert pair[0] == pair[1] != {}


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 4, 6])
def test_dedup_lives_through_the_loss_of_a_node(n, table, tmp_path, cluster, small_tasks, monkeypatch):
    curate.dedup(table, tmp_path / "here.parquet", "embedding")

    def remove():
        cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
        return ["gone"]

    gone = after(monkeypatch, n, remove)
    curate.dedup(table, tmp_path / "there.parquet", "embedding", engine=f"ray:{cluster.address}")
    cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
    assert gone
    assert bytes_beside(tmp_path / "there.parquet") == bytes_beside(tmp_path / "here.parquet")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("differs", "said"),
    [({"versions": {"torch": "0.0.1"}}, r"torch 0\.0\.1"), ({"marker": None}, r"does not see .*give --out")],
)
def test_a_node_that_differs_is_refused_by_name(differs, said, table, tmp_path, cluster, small_tasks, monkeypatch):
    answer = RayTasks._receive

    def answered(self, reference):
        facts = answer(self, reference)
        return facts | {name: {**facts[name], **new} if new else new for name, new in differs.items()}

    monkeypatch.setattr(RayTasks, "_receive", answered)
    with pytest.raises(InputError, match=said):
        curate.dedup(table, tmp_path / "u.parquet", "embedding", engine=f"ray:{cluster.address}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--engine", "local:auto"], "is for --engine ray"),
        (["--engine", "rya"], "rya"),
        (["--engine", "ray:localhost"], "ray://HOST:PORT, got 'localhost'"),
        (["--engine", "ray:127.0.0.1:1"], "at 127.0.0.1:1"),
    ],
)
def test_an_impossible_request_is_one_line(options, said, table, tmp_path):
    done = CliRunner().invoke(app, ["dedup", str(table), "-o", str(tmp_path / "u.parquet"), *options])
    assert done.exit_code == 1
    assert done.stderr.count("\n") == 1
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []
