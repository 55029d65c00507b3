"""Distributed training: several processes (ranks) train one model, each on its own device.

Each rank runs its part of every batch through the backbone. The features of all parts are gathered, so that heads,
losses, queues and centres see the whole batch on every rank, as in a single process; then gradients are summed.
PyTorch's collectives do the communication; ranks are configured by the variables that ``torchrun`` sets.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from scoring.errors import InputError

PATIENCE = timedelta(days=1)  # while others wait for a rank that decodes or measures
ARRIVAL = timedelta(minutes=10)  # until all ranks have started
SENT = 1 << 28  # bytes per broadcast
NOTICED = 1.0  # seconds for the launcher to report which process ended


class LostError(InputError):
    """Another process of the run has ended or cannot be reached."""

    def __init__(self, reason: object) -> None:
        self.reason = short = (str(reason).splitlines() or [""])[0][:120]
        super().__init__(
            f"another process of this run has ended or cannot be reached ({short}); repeat the command to "
            "resume from the last saved state"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return LostError, (self.reason,)


@dataclass(frozen=True)
class Group:
    """The process group of a run, seen from one process.

    Attributes:
        rank: of this process, from 0; only rank 0 reads images into memory, prints and writes.
        size: number of processes.
        local: rank of this process on its machine.
        n_local: number of processes on its machine.
        store: key-value store of texts that all processes can read.
        parent: process that started this one.
    """

    rank: int = 0
    size: int = 1
    local: int = 0
    n_local: int = 1
    store: dist.Store | None = None
    parent: int = 0


_ALONE = Group()
_group = _ALONE
_stores: list[dist.Store] = []  # the connection, created once, and texts by run
_used: Counter[str] = Counter()  # how often ``first`` was called with a name in this run


def group() -> Group:
    """Return the process group of this run; a single process unless ``joined``."""
    return _group


def is_first() -> bool:
    """Return whether this is the process that prints and writes."""
    return _group.rank == 0


def cores() -> int:
    """Return the number of this process's share of the machine's cores."""
    return max(1, (os.cpu_count() or 1) // _group.n_local)


@contextmanager
def joined(device: str) -> Iterator[str]:
    """Join the processes started by ``torchrun``, ``--devices`` or Ray Train, if any; yield this process's device.

    An existing process group, as in Ray Train, is used and stays open. If several processes meet an error, only the
    first to report it raises it; the others exit silently.

    Args:
        device: requested device: ``auto``, ``cpu`` or ``cuda``; each process takes one of several GPUs.

    Raises:
        InputError: if there are more processes than GPUs on the machine, another process has ended, or an existing
            group cannot communicate CPU tensors.
    """
    global _group
    size = int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1
    if size == 1 or _group is not _ALONE:
        yield device
        return
    _used.clear()
    is_open = dist.is_initialized()
    store = _new_store(size)
    _group = _environment_group(size, store)
    try:
        taken = _device_of(device, _group)
        backend = "cpu:gloo,cuda:nccl" if taken.startswith("cuda") else "gloo"
        within = dist.PrefixStore("group", store)
        if is_open and "cpu:gloo" not in dist.get_backend_config():
            raise InputError(
                f"expected an open process group with gloo for the CPU, got {dist.get_backend_config()}; pass "
                "TorchConfig(backend='cpu:gloo,cuda:nccl') to Ray Train"
            )
        with _short_peer_errors():
            if not is_open:
                dist.init_process_group(backend, store=within, rank=_group.rank, world_size=size, timeout=PATIENCE)
        yield taken
        summed(torch.zeros(1))  # all have the first text; its process may hold the store
        if not is_open:
            dist.destroy_process_group()
    except BaseException as error:
        raise _final_error(error, store) from None
    finally:
        _group = _ALONE


def _final_error(error: BaseException, store: dist.Store) -> BaseException:
    """Return the error that ends this process, or a silent exit if another process reports the cause."""
    if isinstance(error, dist.DistError):
        error = LostError(error)
    try:
        time.sleep(NOTICED * isinstance(error, LostError))
    except BaseException as signalled:
        error = signalled
    return error if claims(store) else SystemExit(1)


def claims(store: dist.Store) -> bool:
    """Return whether this process is the first to report the cause; True if the store is gone."""
    with suppress(RuntimeError):
        return store.add("ended", 1) == 1
    return True


def run_store(store: dist.Store, number: int = 1) -> dist.Store:
    """Return a sub-store shared by the runs of the same number in each process."""
    return dist.PrefixStore(f"curate/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{number}", store)


def _new_store(size: int) -> dist.Store:
    """Return the store of the next run at the address in the environment."""
    if not _stores:
        host, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "29500"))
        has_host = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" or dist.is_initialized()
        is_host = os.environ.get("RANK") == "0" and not has_host
        with _short_peer_errors():
            _stores.append(dist.TCPStore(host, port, size, is_host, timeout=ARRIVAL, wait_for_workers=False))
            _stores[0].set_timeout(PATIENCE)
    _stores.append(run_store(_stores[0], len(_stores)))
    return _stores[-1]


def _environment_group(size: int, store: dist.Store) -> Group:
    """Return the process group described by the environment variables."""
    rank, local = (int(os.environ.get(name, "0")) for name in ("RANK", "LOCAL_RANK"))
    n_local = int(os.environ.get("LOCAL_WORLD_SIZE", str(size)))
    return Group(rank, size, local, n_local, store, os.getppid())


def _device_of(device: str, members: Group) -> str:
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return "cpu"
    if device not in ("auto", "cuda") or torch.cuda.device_count() < members.n_local:
        raise InputError(
            f"expected a GPU for each of {members.n_local} processes, got --device {device} and "
            f"{torch.cuda.device_count()} GPUs; use fewer --devices, or --device cpu"
        )
    torch.cuda.set_device(members.local)
    return f"cuda:{members.local}"


@contextmanager
def _short_peer_errors() -> Iterator[None]:
    """Convert torch's error about a lost process to one line."""
    try:
        yield
    except RuntimeError as error:
        raise LostError(error) from None


def part(n: int) -> slice:
    """Return the slice of n consecutive images that belongs to this process."""
    each = n // _group.size
    return slice(_group.rank * each, (_group.rank + 1) * each)


def gather(mine: Tensor, dim: int = 0) -> Tensor:
    """Return the parts of all processes, concatenated along a dimension; gradients flow to every part.

    All parts have the same shape. Every process computes the same loss from the result, divided by the number of
    processes, since gradients are summed afterwards. The gradient of a part is therefore a slice of the local gradient
    times the number of processes: as large as in one process, which float16 needs.
    """
    return mine if _group.size == 1 else _Gather.apply(mine, dim)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, mine: Tensor, dim: int) -> Tensor:
        ctx.dim, ctx.n = dim, mine.shape[dim]
        parts = [torch.empty_like(mine, memory_format=torch.contiguous_format) for _ in range(_group.size)]
        with _short_peer_errors():
            dist.all_gather(parts, mine.contiguous())
        return torch.cat(parts, dim)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0].narrow(ctx.dim, _group.rank * ctx.n, ctx.n) * _group.size, None


def add_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Replace each gradient by its sum over the processes, bit-identical in all of them."""
    grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if _group.size == 1 or not grads:
        return
    if os.getppid() != _group.parent:  # also ends the others when one fails
        ended = InputError(
            "the command that started this process has ended; repeat it to resume from the last saved state"
        )
        raise ended if is_first() else SystemExit(1)
    for dtype in {grad.dtype for grad in grads}:
        alike = [grad for grad in grads if grad.dtype == dtype]
        flat = torch.cat([grad.flatten() for grad in alike])
        with _short_peer_errors():
            dist.all_reduce(flat)
        for grad, total in zip(alike, flat.split([grad.numel() for grad in alike]), strict=True):
            grad.copy_(total.view_as(grad))


def summed(values: Tensor) -> Tensor:
    """Return the sum over the processes of values without gradient."""
    if _group.size > 1:
        with _short_peer_errors():
            dist.all_reduce(values)
    return values


def synchronized(backbone: nn.Module) -> nn.Module:
    """Return a network whose batch normalisation is synchronised over all processes.

    Raises:
        InputError: on a CPU, for which PyTorch has no synchronised batch normalisation.
    """
    is_normalised = any(isinstance(each, nn.modules.batchnorm._BatchNorm) for each in backbone.modules())
    if _group.size == 1 or not is_normalised:
        return backbone
    if next(backbone.parameters()).device.type == "cpu":
        raise InputError(
            "batch normalisation over several processes needs GPUs; on the CPU use --freeze-batchnorm, a network "
            "without it, such as a ViT, or leave --devices out"
        )
    from scoring.backbones import synchronize_batchnorm

    return synchronize_batchnorm(backbone)


def send(values: Tensor) -> None:
    """Broadcast the values of the first process, in place; on the CPU."""
    if _group.size > 1:
        for some in values.split(max(1, SENT // max(1, values[:1].nbytes))):
            with _short_peer_errors():
                dist.broadcast(some, 0)


def first(name: str, make: Callable[[], str]) -> str:
    """Return the text made by the first process only; the others wait for it.

    All processes request the same names in the same order.
    """
    if _group.store is None:
        return make()
    _used[name] += 1
    key, text = f"{name}/{_used[name]}", make() if _group.rank == 0 else ""
    with _short_peer_errors():
        if _group.rank:
            return _group.store.get(key).decode()
        _group.store.set(key, text)
    return text


def publish(name: str, text: str) -> None:
    """Publish a text of this process for the first process, replacing an earlier text."""
    if _group.store is not None:
        with _short_peer_errors():
            _group.store.set(f"{name}/{_group.rank}", text)


def published(name: str) -> list[str]:
    """Return the texts that the other processes have published so far."""
    if _group.store is None:
        return []
    names = [f"{name}/{other}" for other in range(_group.size) if other != _group.rank]
    with _short_peer_errors():
        return [_group.store.get(each).decode() for each in names if _group.store.check([each])]


def require_same(facts: Mapping[str, Any]) -> None:
    """Raise ``InputError`` unless this process has the same JSON facts as the first one."""
    text = json.dumps(facts)
    ours = json.loads(first("facts", lambda: text))
    for name, value in json.loads(text).items():
        if ours.get(name) != value:
            raise InputError(
                f"process {_group.rank} has {name} = {str(value)[:80]}, process 0 has {str(ours.get(name))[:80]}; each "
                "must see the same images, with the same options, and the folder of the run; nothing was changed"
            )
