"""What a Ray cluster is asked for, and clear refusals where it does not answer."""

import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from curate.cli import app
from curate.engines import ray_cluster
from curate.engines.contract import Cluster
from curate.engines.ray_cluster import Share, share_of
from curate.engines.score import score
from scoring.errors import InputError

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'kappa-curate[ray]'")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--num-gpus", "1"], "--num-gpus is for"),
        (["--actors", "2"], "--actors is for"),
        (["--engine", "ray", "--device", "cuda"], "assigns GPUs with --num-gpus"),
        (["--engine", "ray", "--num-gpus", "1", "--device", "cpu"], "got --device cpu"),
        (["--engine", "ray", "--num-gpus", "2"], "got 2.0"),
        (["--engine", "ray:localhost"], "ray://HOST:PORT, got 'localhost'"),
        (["--engine", "ray:127.0.0.1:1"], "at 127.0.0.1:1"),
        (["--engine", "ray:ray://127.0.0.1:1"], "at ray://127.0.0.1:1"),
    ],
)
def test_an_impossible_request_is_one_line(options, said, folder, tmp_path):
    done = CliRunner().invoke(app, ["score", str(folder), "-o", str(tmp_path / "s.parquet"), *options])
    assert done.exit_code == 1
    assert done.stderr.count("\n") == 1
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "says", [b"", b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"], ids=["nothing", "HTTP/1"]
)
def test_a_server_that_is_not_ray_is_reported_in_seconds(says, monkeypatch):
    monkeypatch.setattr(ray_cluster, "GREETED_WITHIN", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            with suppress(OSError), server.accept()[0] as caller:
                caller.sendall(says)
                caller.recv(1)
                time.sleep(1)

        threading.Thread(target=answer, daemon=True).start()
        port = server.getsockname()[1]
        with pytest.raises(InputError, match=rf"127\.0\.0\.1:{port} .*not Ray"):
            ray_cluster.require_listener(f"127.0.0.1:{port}")


@pytest.mark.slow
def test_the_head_of_a_cluster_greets(cluster):
    ray_cluster.require_listener(cluster.address)


def test_without_ray_the_pip_line_is_named(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"'kappa-curate\[ray\]'"):
        score(folder, tmp_path / "s.parquet", engine="ray:auto")


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("Could not find\nany running Ray instance."),
        RuntimeError("Version mismatch: The cluster was started with:\n  Ray: 2.52.0\n  Python: 3.12.1"),
        ray.exceptions.AuthenticationError("Token authentication is enabled but\n no token was found"),
    ],
)
def test_a_cluster_that_does_not_take_this_process_is_one_line(error, folder, tmp_path, monkeypatch):
    def refuse(**options):
        raise error

    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(InputError, match="Ray cluster at auto") as caught:
        score(folder, tmp_path / "s.parquet", engine="ray:auto")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("nodes", "options", "threads", "share"),
    [
        ([{"CPU": 16}, {"CPU": 16}], Cluster(), 4, Share(4, 0, 8, 2)),
        ([{"CPU": 2}, {"CPU": 8}, {}], Cluster(), 16, Share(8, 0, 1, 1)),
        ([{"CPU": 2}, {"CPU": 3}], Cluster(), 2, Share(2, 0, 2, 2)),
        ([{"CPU": 4}, {"CPU": 16, "GPU": 2}], Cluster(num_gpus=1), 4, Share(8, 1, 2, 1)),
        ([{"CPU": 16, "GPU": 2}, {"CPU": 6, "GPU": 1}], Cluster(num_gpus=0.5), 4, Share(3, 0.5, 6, 2)),
        ([{"CPU": 1, "GPU": 4}], Cluster(num_gpus=1), 4, Share(1, 1, 1, 1)),
    ],
)
def test_what_an_actor_gets_of_a_cluster(nodes, options, threads, share):
    assert share_of(nodes, options, threads) == share


def test_the_job_for_slurm_that_the_documents_show_is_a_script(tmp_path):
    _, _, rest = (Path(__file__).parents[3] / "docs" / "scale.md").read_text().partition("```bash\n")
    (tmp_path / "job.sh").write_text(rest.partition("```")[0])
    subprocess.run(["bash", "-n", str(tmp_path / "job.sh")], check=True)
    assert "--engine ray:auto" in rest
