"""Scoring on a real Ray cluster of two nodes: the bytes of one machine, whatever is killed, and clear refusals."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from runs import SMALL, PhotoServer, run_again

from curate.engines import on_ray, ray_actor
from curate.engines.job import Job, open_all, score_span
from curate.engines.journal import JOURNAL, WorkFolder, journal_lines
from curate.engines.on_ray import Crew
from curate.engines.ray_cluster import Share
from curate.engines.run import ScoreRun
from curate.engines.score import score
from curate.engines.settings import ScoreSettings
from curate.engines.shard import Span
from curate.manifest.contract import SourceOptions
from curate.manifest.reach import VARIABLE
from scoring.errors import InputError

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'kappa-curate[ray]'")


def on_cluster(folder, out, checkpoint, cluster, **changes):
    return run_again(folder, out, checkpoint, engine=f"ray:{cluster.address}", **changes)


def stop_after(monkeypatch, n):
    """Let ``n`` shards be committed and then be interrupted; the number as it stands is returned as a list."""
    real, done = WorkFolder.commit, []

    def commit(self, part):
        if len(done) == n:
            raise KeyboardInterrupt
        done.append(part.shard)
        real(self, part)

    monkeypatch.setattr(WorkFolder, "commit", commit)
    return done


@pytest.mark.slow
def test_a_run_passes_from_this_machine_to_a_cluster_and_back_with_the_same_bytes(
    folder, full_table, tiny_checkpoint, tmp_path, cluster, monkeypatch
):
    out = tmp_path / "s.parquet"
    with monkeypatch.context() as patch:
        stop_after(patch, 1)
        with pytest.raises(KeyboardInterrupt):
            run_again(folder, out, tiny_checkpoint)
    with monkeypatch.context() as patch:
        done = stop_after(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            on_cluster(folder, out, tiny_checkpoint, cluster)
    journal = journal_lines(out.with_name(f".{out.name}.work") / JOURNAL)
    assert [line["shard"] for line in journal] == [0, *done]
    assert set(done) < {1, 2, 3}
    assert not ray.is_initialized()
    result = run_again(folder, out, tiny_checkpoint)
    assert 22 <= result.resumed <= 24  # three of four shards, one of which has six rows
    assert out.read_bytes() == full_table.read_bytes()


@pytest.mark.slow
def test_a_cluster_writes_the_same_bytes_though_an_actor_is_killed(
    folder, full_table, tiny_checkpoint, tmp_path, cluster, monkeypatch
):
    out, seen, said, killed = tmp_path / "s.parquet", [], [], []
    checked = Crew._check

    def kill_the_first(self, facts):
        checked(self, facts)
        if not killed:
            killed.append(facts["pid"])
            os.kill(facts["pid"], signal.SIGKILL)

    monkeypatch.setattr(Crew, "_check", kill_the_first)
    result = on_cluster(folder, out, tiny_checkpoint, cluster, report=seen.append, announce=said.append)
    assert out.read_bytes() == full_table.read_bytes()
    assert (result.rows, result.statuses["ok"], result.device) == (30, 28, "cpu")
    assert [step.done for step in seen] == sorted(step.done for step in seen)
    assert (seen[-1].done, seen[-1].failed) == (30, 2)
    assert len({step.done for step in seen}) == 5  # none, and each shard as it comes in
    assert f"Ray {ray.__version__}, 2 nodes: 2 actors, 1 core each" in said
    lost = f"lost an actor on {os.uname().nodename} (its process was killed, ran out of memory or crashed)"
    assert [text for text in said if text.startswith(lost)], said


@pytest.mark.parametrize(
    ("differs", "said"),
    [({"versions": {"curate": "0.0.1"}}, r"curate 0\.0\.1"), ({"marker": None}, r"does not see .*\.s\.parquet\.work")],
)
@pytest.mark.slow
def test_a_node_that_differs_is_refused_by_name(differs, said, folder, tiny_checkpoint, tmp_path, cluster, monkeypatch):
    checked = Crew._check
    monkeypatch.setattr(Crew, "_check", lambda self, facts: checked(self, facts | differs))
    with pytest.raises(InputError, match=said) as caught:
        on_cluster(folder, tmp_path / "s.parquet", tiny_checkpoint, cluster, actors=1)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_node_without_the_source_is_refused_by_name(folder, tiny_checkpoint, tmp_path, cluster, monkeypatch):
    copy, hire = tmp_path / "photos", Crew._start_actor
    shutil.copytree(folder, copy)

    def after_it_is_gone(self):
        copy.rename(tmp_path / "elsewhere")
        hire(self)

    monkeypatch.setattr(Crew, "_start_actor", after_it_is_gone)
    with pytest.raises(InputError, match=r"^node \S+: .*photos") as caught:
        on_cluster(copy, tmp_path / "s.parquet", tiny_checkpoint, cluster, actors=1)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_gpu_that_no_node_has_is_refused_before_anything_is_opened(tmp_path, cluster):
    with pytest.raises(InputError, match=r"got 2 nodes.* 0 GPUs"):
        score(tmp_path / "none", tmp_path / "s.parquet", engine=f"ray:{cluster.address}", num_gpus=1)


@pytest.mark.slow
def test_no_actor_that_starts_is_an_error_in_bounded_time(folder, tiny_checkpoint, tmp_path, cluster, monkeypatch):
    monkeypatch.setattr(on_ray, "START_WITHIN", 0.01)
    with pytest.raises(InputError, match=r"within 0\.01 s"):
        on_cluster(folder, tmp_path / "s.parquet", tiny_checkpoint, cluster)


class Hands(SimpleNamespace):
    """An actor, as itself and no other."""

    __hash__ = object.__hash__
    __eq__ = object.__eq__


class TwoHands:
    """What `Crew` asks of Ray, with two actors in this process: the second dies when nothing is left to hand out."""

    class exceptions:
        class RayError(Exception):
            pass

        class RayTaskError(RayError):
            pass

    class cloudpickle:
        register_pickle_by_value = staticmethod(lambda module: None)

    def __init__(self, job):
        self.job, self.actors, self.asked = job, 0, {}

    def remote(self, kind):
        return SimpleNamespace(options=lambda **options: SimpleNamespace(remote=self.hired))

    def hired(self, folder):
        number, self.actors = self.actors, self.actors + 1
        return Hands(
            facts=self.method(number, ray_actor.process_facts),
            open=self.method(number, lambda job: None),
            score=self.method(number, lambda span: score_span(self.job, span)),
        )

    def method(self, number, call):
        def ask(argument):
            reference = object()
            self.asked[reference] = (number, argument, call)
            return reference

        return SimpleNamespace(remote=ask)

    def wait(self, references, *, num_returns, timeout):
        of = {ref: self.asked[ref] for ref in references}
        first = [ref for ref, (number, argument, _) in of.items() if number == 0 or not isinstance(argument, Span)]
        able = [ref for ref in first if of[ref][0] < 2] or [ref for ref in of if of[ref][0] == 1]
        return able[:1], []  # the third, instead of the second, never starts

    def get(self, reference):
        number, argument, call = self.asked.pop(reference)
        if number == 1 and isinstance(argument, Span):
            raise self.exceptions.RayError("its node has died")
        return call(argument)

    def kill(self, actor):
        pass


def test_shards_that_are_lost_when_all_others_are_done_go_to_who_is_idle(folder, full_table, tiny_checkpoint, tmp_path):
    settings = ScoreSettings(**SMALL)
    opened = open_all(folder, SourceOptions(), tiny_checkpoint, settings)
    with WorkFolder(tmp_path / "work", tmp_path / "out") as work:
        fingerprint = opened.fingerprint(settings)
        _, metadata = work.begin(fingerprint, {"kind": "scores"})
        job = Job(
            folder, SourceOptions(), tiny_checkpoint, settings, 1, work.folder, fingerprint, metadata, 1 << 30, opened
        )
        said = []
        run = ScoreRun(job, work, {}, lambda progress: None, announce=said.append)
        Crew(TwoHands(job), Share(1, 0, 2, 2), 2, run).score()
        run.check_complete()
    assert [text.partition(" on ")[0] for text in said] == ["lost an actor"]
    assert "2 shards go" in said[0]


def processes(session):
    """Return the processes of a session, by the kernel's own list."""
    numbers = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # one that ended meanwhile
            if stat.read_text().rpartition(")")[2].split()[3] == str(session):
                numbers.append(int(stat.parent.name))
    return numbers


def addresses(pids):
    """Return the addresses, in the kernel's hexadecimals, at which processes wait for connections over TCP."""
    sockets = set()
    for pid in pids:
        with suppress(OSError):
            sockets |= {str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir()}
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()]
    return {line[1].partition(":")[0] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in sockets}


@pytest.mark.slow
def test_a_local_ray_is_private_and_gone_at_the_end(folder, full_table, tiny_checkpoint, tmp_path):
    command = [sys.executable, "-m", "curate", "score", str(folder), "-o", str(tmp_path / "s.parquet"), "--quiet"]
    sizes = ["--model", str(tiny_checkpoint), "--batch-size", "4", "--shard-size", "8", "--actors", "1"]
    with subprocess.Popen([*command, *sizes, "--engine", "ray"], start_new_session=True) as run:
        listens = set()
        while run.poll() is None:
            listens |= addresses(processes(run.pid))
            time.sleep(0.2)
    assert run.returncode == 0
    assert listens == {"0100007F", "0000000000000000FFFF00000100007F"}  # 127.0.0.1, as itself and as IPv6
    assert processes(run.pid) == []
    assert (tmp_path / "s.parquet").read_bytes() == full_table.read_bytes()


@pytest.fixture(scope="module")
def large(folder, tmp_path_factory):
    """Three hundred images: enough shards to kill something between two of them."""
    path = tmp_path_factory.mktemp("large") / "photos"
    path.mkdir()
    for i in range(10):
        for photo in folder.iterdir():
            (path / f"{i}-{photo.name}").write_bytes(photo.read_bytes())
    return path


@pytest.fixture(scope="module")
def large_bytes(large, tiny_checkpoint, tmp_path_factory):
    out = tmp_path_factory.mktemp("large_bytes") / "scores.parquet"
    run_again(large, out, tiny_checkpoint)
    return out.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(12))
def test_what_dies_in_a_run_costs_nothing_but_time(
    turn, large, large_bytes, tiny_checkpoint, tmp_path, cluster, monkeypatch
):
    """A process is killed, an actor ended by Ray, or a node removed, at another shard in each turn."""
    kill, at, killed, lines = turn % 3, 2 + 2 * turn, [], []
    real, hired, checked, pids = WorkFolder.commit, Crew._start_actor, Crew._check, []
    crews = []

    def hire(self):
        crews.append(self)
        hired(self)

    def check(self, facts):
        pids.append(facts["pid"])
        checked(self, facts)

    def commit(self, part):
        real(self, part)
        lines.append(part.shard)
        if len(lines) >= at and not killed:
            killed.append(kill)
            if kill == 0:
                os.kill(pids[-1], signal.SIGKILL)
            elif kill == 1:
                ray.kill(next(iter(crews[0]._at)))
            else:
                cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)

    monkeypatch.setattr(WorkFolder, "commit", commit)
    monkeypatch.setattr(Crew, "_start_actor", hire)
    monkeypatch.setattr(Crew, "_check", check)
    out, said = tmp_path / "s.parquet", []
    result = on_cluster(large, out, tiny_checkpoint, cluster, announce=said.append)
    if kill == 2:
        cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
    assert killed == [kill]
    assert sorted(lines) == list(range(38))  # nothing lost, nothing twice
    assert result.rows == 300
    assert out.read_bytes() == large_bytes
    if kill < 2:  # an actor outlives its node by a second or two, and a run may end by then
        assert [text for text in said if text.startswith("lost an actor")]


@pytest.mark.slow
def test_a_shard_that_kills_every_actor_ends_the_run_and_keeps_the_rest(
    large, large_bytes, tiny_checkpoint, tmp_path, cluster, monkeypatch
):
    handed = Crew._assign

    def deadly(self):
        handed(self)
        for actor, what in list(self._asked.values()):
            if getattr(what, "index", None) == 5:
                ray.kill(actor)

    monkeypatch.setattr(Crew, "_assign", deadly)
    out = tmp_path / "s.parquet"
    with pytest.raises(InputError, match="lost 4 times"):
        on_cluster(large, out, tiny_checkpoint, cluster)
    monkeypatch.undo()
    assert run_again(large, out, tiny_checkpoint).resumed > 0
    assert out.read_bytes() == large_bytes


@pytest.mark.slow
def test_a_folder_that_goes_away_ends_a_run_which_goes_on_once_it_is_back(
    large, large_bytes, tiny_checkpoint, tmp_path, cluster
):
    out, away = tmp_path / "s.parquet", large.with_name("away")

    def go_away(step):
        if step.done and large.exists():
            large.rename(away)

    with pytest.raises(InputError, match="source is gone"):
        on_cluster(large, out, tiny_checkpoint, cluster, report=go_away)
    away.rename(large)
    assert not out.exists()
    assert on_cluster(large, out, tiny_checkpoint, cluster).resumed > 0
    assert out.read_bytes() == large_bytes


@pytest.mark.slow
def test_a_server_that_stops_ends_a_run_which_goes_on_once_it_is_back(
    large, tiny_checkpoint, tmp_path, cluster, monkeypatch
):
    """The nodes were started without leave to read private addresses: it comes from this process."""
    monkeypatch.setenv(VARIABLE, "1")
    server, stopped = PhotoServer(large), []
    server.start()
    urls = server.listed(tmp_path / "urls.txt")

    def stop(step):
        if step.done and not stopped:
            stopped.append(step)
            server.stop()

    with pytest.raises(InputError, match="source is gone"):
        on_cluster(urls, tmp_path / "s.parquet", tiny_checkpoint, cluster, report=stop)
    server.start()
    on_cluster(urls, tmp_path / "s.parquet", tiny_checkpoint, cluster)
    run_again(urls, tmp_path / "here.parquet", tiny_checkpoint)
    server.stop()
    assert (tmp_path / "s.parquet").read_bytes() == (tmp_path / "here.parquet").read_bytes()
