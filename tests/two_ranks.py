"""Every method trained for two steps of a tiny network; run as a script, in one of several processes."""

import hashlib
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist

from scoring.errors import InputError
from trainers import ranks
from trainers.config import TrainConfig
from trainers.data import TrainingSet
from trainers.loop import train
from trainers.methods.moco import MoCo
from trainers.methods.settings import Augmentation
from trainers.methods.table import METHODS
from trainers.monitor import Monitor

SMALL = {
    "latent_dim": 8, "hidden_dim": 8, "n_small": 1, "small_size": 16, "channels": 8, "views": 2, "prototypes": 16,
    "bottleneck": 8, "features": 32, "folds": 2, "queue": 24, "key_groups": 4, "samples": 3, "members": 2, "rank": 2,
}  # fmt: skip


def data():
    """Return 24 images of noise with labels and losses."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (24, 3, 32, 32), generator=generator, dtype=torch.uint8)
    losses = torch.rand(24, generator=generator, dtype=torch.float64)
    return TrainingSet(pixels, torch.arange(24) % 3, ["a", "b", "c"], {}, losses)


def recipe(method, **settings):
    """Return a recipe whose first step leaves its gradient in the momentum of the optimiser."""
    kind = METHODS[method]
    small = {name: value for name, value in SMALL.items() if name in kind.Settings.about()}
    if method == "umm":
        small["samples"] = "3"
    views = Augmentation(scale=(0.5, 1.0), corrupt=0.5, damage=1.0 if method == "junk" else 0.0)
    return TrainConfig(
        method,
        "test_vit",
        size=32,
        epochs=1,
        batch_size=12,
        lr=0.01,
        optimizer="sgd",
        weight_decay=0.0,
        augmentation=views,
        settings=kind.Settings(**{**small, **settings}),
    )


def cases():
    """Return name -> recipe: every method, and what some of them do only if it is requested."""
    made = {name: recipe(name) for name in METHODS.where}
    made |= {
        "dino-teacher": recipe("dino", momentum=0.9),
        "umm-moco": recipe("umm", learner="moco"),
        "umm-bank": recipe("umm", learner="bank", queue=8),
        "supcon": recipe("mcinfonce", positives="labels"),
        "losspred-column": recipe("losspred", loss_column="loss", form="l2", stop_gradient=False),
        "moco-groups": replace(recipe("moco"), backbone="test_resnet", freeze="batchnorm"),
        "accumulate": replace(recipe("simclr"), batch_size=6, accumulate=2, clip=0.1),
        "damage": replace(recipe("simclr"), augmentation=Augmentation(scale=(0.5, 1.0), damage=0.5)),
    }
    return made


def trained(name, folder, **changes):
    """Train one case to its state in a folder; return the digest of the model."""
    options = {"state": Path(folder) / name, "device": torch.device("cpu"), **changes}
    model, _ = train(replace(cases()[name], epochs=options.pop("epochs", 1)), options.pop("images", data()), **options)
    bits = b"".join(value.contiguous().numpy().tobytes() for value in model.state_dict().values())
    return hashlib.sha256(bits).hexdigest()


def then_killed(after_step):
    """Let the second process do what follows a step, and kill it."""

    def last(self, step):
        after_step(self, step)
        if ranks.group().rank:
            os.kill(os.getpid(), signal.SIGKILL)

    return last


def then_signalled(after_step):
    """Let both processes do what follows the first step, and receive SIGTERM there, the second one a step early."""

    def last(self, step):
        after_step(self, step)
        if step == 1 - ranks.group().rank:
            signal.raise_signal(signal.SIGTERM)

    return last


def work(act, folder, names):
    """Train cases in this process of several; note the digest of each model; end as the act says."""
    for name in names:
        digest = trained(name, folder, epochs=2 if act == "resume" else 1)
        (Path(folder) / f"{name}.{ranks.group().rank}").write_text(digest)
    if act == "other data":
        few = replace(data(), labels=None, losses=None, pixels=data().pixels[: 24 - ranks.group().rank])
        trained("simclr", folder, images=few, epochs=2)
    if act == "kill":
        MoCo.after_step = then_killed(MoCo.after_step)
        trained("moco", folder, monitor=Monitor(save_every=-1))
    if act == "signal":
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
        MoCo.after_step = then_signalled(MoCo.after_step)
        trained("moco", folder, epochs=2)


def start(act, folder, names=()):
    """Run this script in two processes; return what each printed, and their exit codes."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "OMP_NUM_THREADS": "1"}
    shared |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "PYTHONPATH": os.pathsep.join(sys.path)}
    workers = [
        subprocess.Popen(
            [sys.executable, __file__, act, str(folder), *names],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **shared, "RANK": rank, "LOCAL_RANK": rank},
        )
        for rank in "01"
    ]
    return [worker.communicate()[0].strip() for worker in workers], [worker.returncode for worker in workers]


if __name__ == "__main__":
    torch.set_num_threads(1)
    try:
        with ranks.joined("cpu"):
            work(sys.argv[1], sys.argv[2], sys.argv[3:])
    except InputError as error:
        print(error)
