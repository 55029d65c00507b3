"""The cost table of the URL benchmark: what each estimator adds to a classifier, in training and in scoring.

    python examples/url_costs.py --csv costs.csv
    python examples/url_costs.py --backbone resnet50 --size 224 --batch 128 --classes 1000 --steps 20 --device cuda

Whole networks take steps on random images by the loop of `curate train`, with the settings of `url_estimators.py`.
Time is of the processor (on a GPU of the clock), by the step, after a first one; memory is what a step keeps for its
backward pass. Every round measures all estimators, so that each is compared with the classifier of its round.
"""

import argparse
import csv
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from study_results import half_width
from torch import Tensor
from url_estimators import ESTIMATORS, Estimator, Fitted, config_of

from scoring.errors import InputError
from trainers.build import build
from trainers.data import TrainingSet
from trainers.loop import train

# ResNet-50, table 1: parameters in millions, and seconds of the first epoch and its evaluation; HET-XL had another GPU
PAPER = {
    "CE": (25.6, 5971),
    "InfoNCE": (23.5, 6703),
    "MCInfoNCE": (27.7, 6656),
    "ELK": (29.8, 6703),
    "nivMF": (29.8, 6256),
    "HIB": (29.8, 7279),
    "loss prediction, squares": (29.8, 6526),
    "MC dropout": (25.6, 7105),
    "shallow ensemble": (46.0, 6002),
    "SNGP": (28.7, 7632),
}
FIRST = "CE"  # what the others are compared with
MEASURES = ("parameters", "step", "memory", "scoring")


@dataclass
class Watch:
    """The time of steps, and the most bytes that one kept for its backward pass."""

    device: torch.device
    weights: list[Tensor]
    kept: dict[int, int] = field(default_factory=dict)
    times: list[float] = field(default_factory=list)
    most: int = 0

    def now(self) -> float:
        """Return seconds: of the processor, or of the clock once the GPU is done."""
        if self.device.type != "cuda":
            return time.process_time()
        torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def keep(self, saved: Tensor) -> Tensor:
        """Note a tensor that is kept."""
        storage = saved.untyped_storage()
        self.kept[storage.data_ptr()] = storage.nbytes()
        return saved

    def end_step(self) -> None:
        """Note the end of a step; its weights are not counted."""
        self.times.append(self.now())
        weights = {weight.untyped_storage().data_ptr() for weight in self.weights}
        self.most = max(self.most, sum(size for at, size in self.kept.items() if at not in weights))
        self.kept.clear()


def cost(estimator: Estimator, a: argparse.Namespace, seed: int) -> dict[str, float]:
    """Return parameters, seconds and bytes of a step, and seconds of an image that is scored."""
    shared = {"epochs": 1, "batch_size": a.batch, "seed": seed, "backbone": a.backbone, "size": a.size}
    n, device = a.batch * (a.steps + 1), torch.device(a.device)
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (n, 3, a.size, a.size), generator=generator, dtype=torch.uint8)
    classes = [str(number) for number in range(a.classes)]
    data = TrainingSet(pixels, torch.arange(n) % a.classes, classes, {})
    config = config_of(estimator, estimator.candidates[0], **shared)
    model, method = build(config, a.classes, n=n)
    weights = [*model.parameters(), *method.parameters()]
    watch = Watch(device, weights)
    usual = method.after_step

    def after_step(step: int) -> None:
        usual(step)
        watch.end_step()

    method.after_step = after_step
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        with torch.autograd.graph.saved_tensors_hooks(watch.keep, lambda kept: kept):
            train(config, data, state=state, device=device, start=(model, method))
    fitted, block = Fitted(model.to(device).eval(), method.to(device).eval()), pixels[: a.batch].to(device)
    with torch.inference_mode():
        begun = watch.now()
        for _ in range(2):
            estimator.read(fitted, fitted.model.features(block))
        scoring = (watch.now() - begun) / (2 * a.batch)
    step = float(np.median(np.diff(watch.times)))
    return {"parameters": sum(w.numel() for w in weights), "step": step, "memory": watch.most, "scoring": scoring}


def table(results_of: dict[str, dict[str, np.ndarray]]) -> list[list[str]]:
    """Return a row an estimator: parameters in millions, and ratios to the first, with half the 95 % interval."""
    ratios = [f"{name}, of {FIRST}" for name in MEASURES[1:]]
    rows = [["estimator", "parameters, M", *ratios, "paper: parameters, M", f"paper: epoch, of {FIRST}"]]
    for name, by in results_of.items():
        cells = [f"{by['parameters'].mean() / 1e6:.2f}"]
        for measure in MEASURES[1:]:
            ratio = by[measure] / results_of[FIRST][measure]
            half = float(half_width(ratio))
            cells.append(f"{ratio.mean():.2f}" + ("" if np.isnan(half) else f"±{half:.2f}"))
        cells += [f"{PAPER[name][0]}", f"{PAPER[name][1] / PAPER[FIRST][1]:.2f}"] if name in PAPER else ["", ""]
        rows.append([name, *cells])
    return rows


def main(typed: list[str] | None = None) -> None:
    """Measure what was requested, and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--estimators", nargs="+", default=list(ESTIMATORS), choices=list(ESTIMATORS))
    parser.add_argument("--backbone", default="resnet10t", help="timm's name")
    parser.add_argument("--size", type=int, default=48, help="side in pixels")
    parser.add_argument("--batch", type=int, default=64, help="images a step")
    parser.add_argument("--classes", type=int, default=140)
    parser.add_argument("--steps", type=int, default=3, help="timed, after a first")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--csv", type=Path, help="write the table as CSV too")
    a = parser.parse_args(typed)
    a.estimators = list(dict.fromkeys([FIRST, *a.estimators]))
    costs: dict[str, list[dict[str, Any]]] = {name: [] for name in a.estimators}
    if a.rounds < 1 or a.steps < 1:
        parser.error(f"expected at least a round and a step, got {a.rounds} and {a.steps}")
    cost(ESTIMATORS[FIRST], a, 0)  # the first use of anything counts for none
    for seed in range(a.rounds):
        for name in a.estimators:
            try:
                costs[name].append(cost(ESTIMATORS[name], a, seed))
            except InputError as error:
                raise SystemExit(f"error: {name}: {error}") from None
            print(f"round {seed} {name}: {costs[name][-1]}", flush=True)
    rows = table({name: {m: np.array([each[m] for each in every]) for m in MEASURES} for name, every in costs.items()})
    print(f"\n{a.backbone}, {a.size} pixels, {a.classes} classes, {a.rounds} rounds of {a.steps} steps of {a.batch}\n")
    print("\n".join(["| " + " | ".join(rows[0]) + " |", "|" + " --- |" * len(rows[0])]))
    print("\n".join("| " + " | ".join(row) + " |" for row in rows[1:]))
    if a.csv:
        with a.csv.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)


if __name__ == "__main__":
    main()
