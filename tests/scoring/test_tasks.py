"""Searches cut into tasks that somebody else runs: the same bytes as where nothing is cut."""

import pickle

import numpy as np
import pytest
import torch

from scoring.search.cosine import CosineIndex
from scoring.search.graph import knn_graph
from scoring.search.kmeans import assign, spherical_kmeans
from scoring.tasks import IN_PROCESS, Held, cuts, tasks_for, tasks_run_by


class Elsewhere:
    """Runs tasks late, several at a time and the last first, and copies what goes there and back."""

    least, grain = 0.0, 3e5

    def __init__(self):
        self.n = {}

    def shared(self, value):
        return Held(value.clone() if isinstance(value, torch.Tensor) else value.copy())

    def room(self, shape, dtype):
        return Held(torch.empty(tuple(shape), dtype=dtype))

    def run(self, function, arguments):
        tasks = [pickle.dumps((function, argument)) for argument in arguments]
        self.n[function.__name__] = self.n.get(function.__name__, 0) + len(tasks)
        done = []
        for task in reversed(tasks):
            called, argument = pickle.loads(task)
            done.append(pickle.loads(pickle.dumps(called(argument))))
        yield from reversed(done)


def clustered(n=4000, width=24, seed=0):
    """Rows around some directions, with copies that differ a little."""
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(30, width))[generator.integers(0, 30, n)] + generator.normal(0, 0.5, (n, width))
    rows[::7] = rows[1::7][: len(rows[::7])] + 0.02
    rows[5] = 0
    return rows.astype(np.float16)


def both(search):
    """Return what a search returns here and elsewhere, and how many tasks of each kind there were."""
    tasks = Elsewhere()
    local = search()
    with tasks_run_by(tasks):
        remote = search()
    return local, remote, tasks.n


def assert_equal_bytes(local, remote):
    for a, b in zip(local, remote, strict=True):
        assert a.dtype == b.dtype
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("exact_rows", [100, 10_000])
@pytest.mark.parametrize("first", [False, True])
def test_links_are_the_same_bytes(exact_rows, first, monkeypatch):
    monkeypatch.setattr("scoring.search.layout.CPU_BLOCK", (200, 300))
    rows = clustered()
    among = np.random.default_rng(1).random(len(rows)) < 0.8

    def search():
        index = CosineIndex(rows, 0.9, exact_rows=exact_rows, sample=256)
        links = index.search(rows[:3000], among, first=first)
        share = np.array([index.probes, index.recall.estimate])
        return links.query, links.row, links.similarity, share

    local, remote, n = both(search)
    assert len(local[0]) > 300
    assert n["scanned"] > 4
    assert_equal_bytes(local, remote)


def test_clusters_are_the_same_bytes(monkeypatch):
    monkeypatch.setattr("scoring.search.kmeans.PRODUCTS", 4096)
    monkeypatch.setattr("scoring.search.kmeans.ROWS", 500)
    monkeypatch.setattr("scoring.search.kmeans.BLOCK", 512)
    rows = clustered()

    def search():
        centroids = spherical_kmeans(rows, 40, seed=3)
        return centroids, *assign(rows, centroids, 3)

    local, remote, n = both(search)
    assert n["near_some"] > 10
    assert n["assigned"] == 8
    assert_equal_bytes(local, remote)


def test_graphs_are_the_same_bytes(monkeypatch):
    monkeypatch.setattr("scoring.search.graph.QUERIES", 300)
    rows = clustered()

    def search():
        graph = knn_graph(rows, 9, exact_rows=100, recall=0.9)
        return graph.index, graph.cosine, np.array(graph.recall.estimate)

    local, remote, n = both(search)
    assert (local[0] >= 0).mean() > 0.99
    assert 3 < n["neighboured"] <= 14
    assert_equal_bytes(local, remote)


def test_a_row_that_is_not_finite_is_named_by_a_task_as_well():
    rows = clustered().astype(np.float32)
    rows[2222, 3] = np.nan
    with tasks_run_by(Elsewhere()), pytest.raises(ValueError, match="in row 2222"):
        assign(rows, np.eye(3, 24, dtype=np.float32))


def test_ranges_cover_all_rows_in_whole_blocks():
    assert list(cuts(10, 4, 100, 0)) == [(0, 10)]
    assert list(cuts(10, 4, 100, 500)) == [(0, 4), (4, 8), (8, 10)]
    assert list(cuts(10, 4, 100, 900)) == [(0, 8), (8, 10)]
    assert list(cuts(0, 4, 100, 500)) == list(cuts(0, 4, 100, 0)) == []


def test_a_runner_of_tasks_is_used_only_where_there_is_enough_work_and_no_longer():
    tasks = Elsewhere()
    tasks.least = 10.0
    with tasks_run_by(tasks):
        assert tasks_for(10) is tasks
        assert tasks_for(9) is IN_PROCESS
    assert tasks_for(10) is IN_PROCESS
