"""``curate train --engine ray``: the processes of a run on a Ray cluster, started by Ray Train.

Ray Train schedules the processes, creates their group and sets the same variables as ``torchrun``; each process runs
``curate.train``. The state of the run is in its folder, next to the model, so that it can be resumed with or without
Ray; Ray's checkpoints are not used.
"""

import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from curate.counted import counted
from curate.engines.contract import Cluster
from curate.engines.on_ray import REASONS, START_WITHIN, nodes_of, reason, refuse_node
from curate.engines.ray_actor import process_facts
from curate.engines.ray_cluster import Share, connected, share_of
from curate.manifest.reach import VARIABLE
from curate.training.options import TrainOptions
from curate.training.train import TrainResult, check_out, run_train
from scoring.atomic_folder import held_folder
from scoring.errors import InputError, MissingExtraError
from trainers.ranks import PATIENCE, LostError

MARKER = "marker"
POLLED = 0.2  # seconds
GOODBYE = 5.0  # seconds for Ray Train to end its helpers after a signal
AGAIN = "repeat the command to resume from the last saved state"


def train_on_ray(request: TrainOptions, address: str | None, n: int) -> TrainResult:
    """Train in several processes on a Ray cluster; equal to as many processes on this machine.

    Args:
        request: as for ``run_train``; its ``report`` and ``announce`` are called here.
        address: of the cluster; None to start Ray on this machine for the run.
        n: number of processes; each has a GPU, except with ``device="cpu"`` and on clusters without GPUs.

    Raises:
        InputError: if Ray is missing, the cluster has too few resources, a process is lost, or as ``run_train`` does.
    """
    if "RANK" in os.environ:
        raise InputError("torchrun started this process, and --engine ray starts its own; leave one of the two out")
    out = Path(request.out).absolute()
    check_out(out, request.overwrite)
    with connected(address) as ray, held_folder(out) as folder:
        share = _share(nodes_of(ray), Cluster(address), request.device, n)
        gpus = " and a GPU" if share.gpus else ""
        request.announce(f"Ray {ray.__version__}: processes: {n}, with {counted(share.cores, 'core')}{gpus} each")
        return _trained(ray, request, share, n, folder)


def _share(nodes: list[dict[str, float]], cluster: Cluster, device: str, n: int) -> Share:
    """Return the resources of each of n processes, with as many cores as available; InputError if there are too few."""
    has_gpus = any(node.get("GPU", 0) for node in nodes)
    needed = replace(cluster, num_gpus=1) if device == "cuda" or (device == "auto" and has_gpus) else cluster
    most = max(1, int(sum(node.get("CPU", 0) for node in nodes)) // max(1, n))
    shares = [share_of(nodes, needed, cores) for cores in range(most, 0, -1)]  # fewer cores each: room for more
    share = next((each for each in shares if each.room >= n), shares[-1])
    if share.room < n:
        kind = "a GPU and a core" if share.gpus else "a core"
        raise InputError(
            f"expected a Ray cluster with {kind} for each of {n} processes, got room for {share.room} on "
            f"{counted(len(nodes), 'node')}; use --devices {share.room}{', or --device cpu' if share.gpus else ''}"
        )
    return share


def _trained(ray: Any, request: TrainOptions, share: Share, n: int, folder: Path) -> TrainResult:
    """Train, return the first process's result, and forward its messages.

    Ray Train runs in a task of the cluster. This process never blocks inside Ray, which would swallow signals, and
    crash if a thread is waiting when the connection ends.
    """
    from ray.util.queue import Queue

    messages = Queue(actor_options={"num_cpus": 0})
    (folder / MARKER).write_bytes(secrets.token_hex(16).encode())
    marker = str(folder / MARKER)
    work = {
        "request": replace(request, report=_ignore, announce=_ignore),
        "messages": messages,
        "folder": str(Path.cwd()),
        "marker": marker,
        "facts": process_facts(marker),
    }
    environment = {
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(share.cores)),
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        VARIABLE: os.environ.get(VARIABLE, ""),
    }
    fit = ray.remote(_fit).options(num_cpus=0, max_retries=0)
    end = fit.remote(_train_in_worker, work, share, n, str(folder), environment)
    results: list[TrainResult] = []
    is_over = False
    take = {"report": request.report, "announce": request.announce, "result": results.append}
    try:
        while not is_over:
            time.sleep(POLLED)
            is_over = bool(ray.wait([end], timeout=0)[0])
            for kind, value in messages.get_nowait_batch(messages.qsize()):
                take[kind](value)
        ray.get(end)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ImportError):
            raise InputError(f"a node of the Ray cluster lacks what this one has ({error.cause}); install it") from None
        raise error.cause if isinstance(error.cause, InputError) else error from None
    except ray.exceptions.RayError as error:
        raise InputError(f"the Ray cluster was lost ({_reason(error)}); {AGAIN}") from None
    except BaseException:  # on a signal, Ray Train ends its helpers, which could remain otherwise
        ray.cancel(end)
        until = time.monotonic() + GOODBYE
        while not ray.wait([end], timeout=0)[0] and time.monotonic() < until:
            time.sleep(POLLED)
        raise
    return results[0]


def _fit(
    train: Callable[[dict[str, Any]], None],
    work: dict[str, Any],
    share: Share,
    n: int,
    folder: str,
    environment: dict[str, str],
) -> None:
    """Run a function in n processes through Ray Train, inside a process of the cluster.

    Raises the InputError of a process, or one on a lost process; other errors are bugs.
    """
    os.environ.setdefault("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", f"{START_WITHIN:g}")
    try:
        from ray.train import ControllerError, FailureConfig, RunConfig, ScalingConfig, WorkerGroupError
        from ray.train.torch import TorchConfig, TorchTrainer
    except ImportError:
        raise MissingExtraError("training with --engine ray", "ray") from None
    resources = {"CPU": share.cores, **({"GPU": 1} if share.gpus else {})}
    backend = "cpu:gloo,cuda:nccl" if share.gpus else "gloo"
    trainer = TorchTrainer(
        train,
        train_loop_config=work,
        scaling_config=ScalingConfig(num_workers=n, use_gpu=share.gpus > 0, resources_per_worker=resources),
        torch_config=TorchConfig(backend=backend, timeout_s=int(PATIENCE.total_seconds())),
        run_config=RunConfig(  # type: ignore[call-arg]  # typed as in an earlier Ray
            storage_path=folder,
            failure_config=FailureConfig(controller_failure_limit=0),  # type: ignore[call-arg]
            worker_runtime_env={"env_vars": environment},
        ),
    )
    try:
        trainer.fit()
    except WorkerGroupError as error:
        raise _first_cause(error.worker_failures, n) or error from None
    except ControllerError as error:
        raise InputError(
            f"{counted(n, 'worker')} could not start on the Ray cluster ({_reason(error.controller_failure)}): "
            f"its cores or GPUs may be busy; {AGAIN} when some are free"
        ) from None


def _first_cause(failures: Mapping[int, BaseException], n: int) -> InputError | None:
    """Return the InputError of one of n processes, else an error on a lost process; None for a bug.

    ``failures`` is by index of the process; if several processes have the same error, one reports it.
    """
    from ray.exceptions import RayError

    lost = {rank: getattr(error, "health_check_failure", error) for rank, error in failures.items()}
    errors = [error for error in lost.values() if isinstance(error, InputError)]
    gone = [
        f"process {rank} of {n} was lost ({_reason(error)})"
        for rank, error in lost.items()
        if isinstance(error, RayError)
    ]
    if gone and all(isinstance(error, LostError) for error in errors):
        return InputError(f"{gone[0]}; {AGAIN}")
    return next(iter(errors), None)


def _reason(error: BaseException) -> str:
    """Return the reason of a loss in Ray: the last line of a forwarded error."""
    why = reason(error)
    return why if why in REASONS.values() else str(error).strip().splitlines()[-1][:160]


def _ignore(message: object) -> None:
    """Do nothing: the callback of a pending request."""


def _train_in_worker(task: dict[str, Any]) -> None:
    """Train in this worker process, and send its messages to the command."""
    facts = process_facts(task["marker"])
    refuse_node(task["facts"], facts, f"the folder of {task['request'].out}")
    try:
        os.chdir(task["folder"])
    except OSError as error:
        raise InputError(
            f"node {facts['node']} cannot access {task['folder']} ({error.strerror}); start the command in a folder "
            "that all nodes share"
        ) from None

    def say(kind: str, value: object) -> None:
        task["messages"].put((kind, value))

    result = run_train(
        replace(
            task["request"],
            report=lambda progress: say("report", progress),
            announce=lambda text: say("announce", text),
        )
    )
    if os.environ["RANK"] == "0":
        say("result", result)
