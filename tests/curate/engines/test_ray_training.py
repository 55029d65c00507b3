"""``curate train --engine ray``: processes that Ray Train starts on a cluster of two nodes, and clear refusals."""

import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from curate.cli import app
from curate.engines.contract import Cluster
from curate.engines.ray_cluster import Share
from curate.training import on_ray
from curate.training.options import TrainOptions
from scoring.errors import InputError
from trainers.ranks import LostError

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'kappa-curate[ray]'")
CPUS = [{"CPU": 8.0}, {"CPU": 2.0}]
GPUS = [{"CPU": 8.0, "GPU": 2.0}, {"CPU": 8.0}]


@pytest.fixture
def request_(tmp_path, monkeypatch):
    """A request for a model of a network without batch normalisation, on images of noise."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    for number in range(16):
        pixels = np.random.default_rng(number).integers(0, 255, (32, 32, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{number:02}.png")
    return TrainOptions(
        "simclr", "photos", out="m.safetensors", backbone="test_vit", backbone_set={"img_size": 32}, size=32, epochs=2,
        batch_size=8, set={"schedule": "constant", "warmup": 0}, device="cpu", course="course",
    )  # fmt: skip


def local(folder, out, *args):
    """Run the same command in two processes of this machine."""
    command = [sys.executable, "-m", "curate", "train", "simclr", "photos", "-o", out, "--backbone", "test_vit"]
    command += ["--backbone-set", "img_size=32", "--size", "32", "--batch-size", "8", "--device", "cpu"]
    command += ["--set", "schedule=constant", "--set", "warmup=0", "--devices", "2", *args]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


class Waiting:
    """A queue whose worker waits where a run goes on, so that it does not end before it is killed."""

    def __init__(self, queue):
        self.queue = queue

    def put(self, message):
        self.queue.put(message)
        if str(message[1]).startswith("resuming from"):
            time.sleep(10)


def with_pid(task):
    """Let the command know which process this is, and train."""
    task["messages"].put(("announce", f"pid {os.getpid()}"))
    on_ray._train_in_worker({**task, "messages": Waiting(task["messages"])})


@pytest.mark.slow
def test_a_run_of_two_processes_goes_on_as_two_ray_workers_though_one_is_killed(
    request_, tmp_path, cluster, monkeypatch
):
    local(tmp_path, "m.safetensors", "--epochs", "1", "--keep-state", "--course", "course")
    (tmp_path / "m.safetensors").unlink()
    local(tmp_path, "unbroken.safetensors", "--epochs", "2")
    said, pids = [], []

    def kill(text):
        if text.startswith("pid "):
            pids.append(int(text.split()[1]))
        elif text.startswith("resuming from"):
            os.kill(pids[-1], signal.SIGKILL)

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with monkeypatch.context() as patch:
        patch.setattr(on_ray, "_train_in_worker", with_pid)
        with pytest.raises(InputError, match=r"process [01] of 2") as caught:
            on_ray.train_on_ray(replace(request_, announce=kill), cluster.address, 2)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="--batch-size 6"):
        on_ray.train_on_ray(replace(request_, out="odd.safetensors", batch_size=7, course=None), cluster.address, 2)
    result = on_ray.train_on_ray(replace(request_, announce=said.append, report=said.append), cluster.address, 2)
    assert (tmp_path / "m.safetensors").read_bytes() == (tmp_path / "unbroken.safetensors").read_bytes()
    assert (result.images, result.path.name) == (16, "m.safetensors")
    assert sum(str(each).startswith("resuming from") for each in said) == 1
    assert [each.step for each in said if hasattr(each, "step")][-1] == 4
    assert len((tmp_path / "course" / "course.csv").read_text().splitlines()) == 3
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["course", "m.safetensors", "photos", "unbroken.safetensors"]


def test_a_lost_process_is_named_though_another_reports_it_first():
    said = LostError("reset by peer")
    for _ in range(2):  # as often as it is passed on
        said = pickle.loads(pickle.dumps(said))
    assert str(said) == str(LostError("reset by peer"))
    lost = {0: said, 1: ray.exceptions.WorkerCrashedError()}
    assert "process 1 of 2 was lost" in str(on_ray._first_cause(lost, 2))
    assert on_ray._first_cause({**lost, 0: InputError("bad")}, 2).args == ("bad",)


def test_each_process_gets_as_many_cores_as_all_have_room_for():
    assert on_ray._share(CPUS, Cluster(), "auto", 2) == Share(4, 0, 2, 1)
    assert on_ray._share(CPUS, Cluster(), "cpu", 10).cores == 1
    assert on_ray._share(GPUS, Cluster(), "auto", 2) == Share(4, 1, 2, 1)
    assert on_ray._share(GPUS, Cluster(), "cpu", 2).gpus == 0
    with pytest.raises(InputError, match=r"--devices 10$"):
        on_ray._share(CPUS, Cluster(), "cpu", 11)
    with pytest.raises(InputError, match="--device cpu"):
        on_ray._share(GPUS, Cluster(), "auto", 3)


def test_ray_without_ray_train_names_the_extra_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray.train", None)
    with pytest.raises(InputError, match=r"kappa-curate\[ray\]"):
        on_ray._fit(print, {}, Share(1, 0, 2, 2), 2, str(tmp_path), {})


@pytest.mark.parametrize(
    ("engine", "said"), [("dask", "'dask'"), ("local:auto", "ray:auto"), ("ray:127.0.0.1:1", "no Ray cluster")]
)
def test_an_engine_that_is_not_there_is_refused(engine, said):
    run = CliRunner().invoke(app, ["train", "simclr", "photos", "-o", "m.safetensors", "--engine", engine])
    assert run.exit_code == 1
    assert said in run.stderr


def test_processes_that_torchrun_started_start_no_others(request_, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(InputError, match="torchrun"):
        on_ray.train_on_ray(request_, None, 2)
