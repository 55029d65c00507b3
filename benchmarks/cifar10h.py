"""Does kappa know where annotators disagree? CIFAR-10H as in tables 4 and 5 of MCInfoNCE (Kirchhof et al. 2023).

    python benchmarks/cifar10h.py [--data DATA] --cache SCRATCH [--only soft clean ...] [--json FILE]

Heads are trained on the frozen backbone of the model that ships (or on the same network with random weights), from
features that are computed once into the folder --cache (500 MB; a few minutes on two cores). Positives are images of
one class: drawn from the votes of CIFAR-10N ("soft"), from the labels ("clean") or from CIFAR-10N's majority
("aggregate"); or from the votes, or their majority, of CIFAR-10H in five folds of 400 images ("folds-soft",
"folds-hard").

Every number is the mean over seeds (or folds), its standard error over them, and the 95 % bootstrap interval over
images. The checkpoint is chosen on CIFAR-10 test images 0-999 (in folds: on the fold after the training ones), by the
paper's rule: the rank correlation with the crop size, which asks no person. No number comes from those images.
"""

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from cifar10h_features import CLASSES, Features, Votes, entropies, open_features, read_votes
from cifar10h_numbers import Number, Replicate, retrieval_numbers, spearman_number
from named_data import add_data, open_data
from torch import Tensor, nn

from scoring.checkpoint import load_model
from scoring.errors import InputError
from scoring.metrics import classifier as classifier_metrics
from scoring.metrics import neighbours, ranking
from trainers.config import TrainConfig
from trainers.methods.concentration import mu_and_kappa
from trainers.methods.method import Task
from trainers.methods.table import METHODS

FILES = ("cifar10_train", "cifar10n_train", "cifar10_test", "cifar10h_test_0-1999")
TRAIN = slice(0, 20_000)  # heads learn from CIFAR-10 train images 25000-44999 (see cifar10h_features.FIRST)
TUNING = slice(20_000, 22_500)  # 45000-47499, on whose CIFAR-10N votes the settings below were chosen
HELD_OUT = slice(22_500, 25_000)  # 47500-49999, on which the second human source is reported
CHOOSE = slice(0, 1_000)  # CIFAR-10 test images that choose the checkpoint
REPORT = slice(1_000, 2_000)  # those with CIFAR-10H votes that are reported
REST = slice(1_000, 10_000)  # reported where no votes are needed
CHECKPOINTS = 5
FOLDS = 5

CASES: dict[
    str, tuple[str, dict[str, Any]]
] = {  # name -> method and its settings; docs/studies/cifar10h.md has the choice
    "MCInfoNCE": ("mcinfonce", {}),
    "MCInfoNCE norm": ("mcinfonce", {"kappa": "norm"}),
    "HIB": ("hib", {"hib_a": 4.0}),
    "HIB norm": ("hib", {"kappa": "norm", "hib_a": 4.0}),
    "ELK": ("elk", {"kappa_pos": 1.0}),
    "ELK norm": ("elk", {"kappa": "norm", "kappa_pos": 1.0}),
    "InfoNCE": ("infonce", {}),
}
NAMES = {"InfoNCE": ["InfoNCE, length", "InfoNCE, cosine to class mean"]}  # cases with more than one certainty
EXPERIMENTS = {
    "soft": "positives from CIFAR-10N's three votes an image",
    "clean": "positives from the labels",
    "aggregate": "positives from CIFAR-10N's majority label",
    "baselines": "no contrastive training",
    "regressions": "no contrastive training: the rank of the disagreement itself, by ridge regression",
    "folds-soft": "positives from CIFAR-10H's votes, five folds",
    "folds-hard": "positives from CIFAR-10H's majority label, five folds",
    "plain-soft": "as soft, but heads learn from whole images and see no crop",
    "random-soft": "as soft, on a backbone with random weights",
    "random-clean": "as clean, on a backbone with random weights",
}
MEASURES = {
    "entropy": "Spearman, CIFAR-10H entropy",
    "by votes": "the same, checkpoint by votes",
    "crop": "Spearman, crop size",
    "10N": "Spearman, CIFAR-10N entropy",
    "R@1": "Recall@1",
    "R@1 half": "Recall@1 of the more certain half",
    "R-AUROC": "R-AUROC",
}


Numbers = dict[str, Number]


@dataclass(frozen=True)
class Reading:
    """What one checkpoint says of images it did not learn from: mu (N, M) and certainties, higher is more certain."""

    mu: Tensor
    test: np.ndarray
    crops: np.ndarray
    held_out: np.ndarray


def recipe(case: str, *, seed: int, steps: int, **changes: Any) -> TrainConfig:
    """Return the recipe of a case; ``changes`` are of the method's settings, or ``names``."""
    method, settings = CASES[case]
    settings = {"positives": "labels", **settings, **changes}
    names = ("lr", "batch_size", "weight_decay")
    shared = {name: settings.pop(name) for name in names if name in settings}
    kind = METHODS[method]
    method_settings = kind.Settings(**settings)
    return TrainConfig(
        method, epochs=steps, seed=seed, settings=method_settings, **{**kind.defaults, "batch_size": 256, **shared}
    )


def train(config: TrainConfig, views: Tensor, targets: Tensor) -> Iterator[tuple[nn.Module, nn.Module | None]]:
    """Yield method and head in evaluation mode at every checkpoint of a run.

    Args:
        config: the recipe; ``epochs`` is the number of steps.
        views: features, shape (V, N, D); each image of a batch takes one view at random.
        targets: labels (N,) or votes (N, C).
    """
    torch.manual_seed(config.seed)
    kind = METHODS[config.method]
    spec = kind.head(config.settings, config.size)
    head = None if spec is None else spec.build(views.shape[2])
    method = kind(config.settings, Task(views.shape[2], CLASSES, config.seed))
    modules = nn.ModuleList([method] if head is None else [method, head])
    optimizer = torch.optim.AdamW(modules.parameters(), lr=config.lr, weight_decay=config.weight_decay)
    steps, every = config.epochs, max(1, config.epochs // CHECKPOINTS)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / (0.05 * steps + 1)) * 0.5 * (1 + math.cos(math.pi * step / steps))
    )
    for step in range(steps):
        rows = torch.randperm(views.shape[1])[: config.batch_size]
        chosen = views[torch.randint(len(views), rows.shape), rows]
        modules.train()
        method.share = step / steps
        loss = method(chosen.unsqueeze(0), head, targets[rows]).loss
        if not loss.isfinite():
            raise InputError(f"the loss of {config.method} is {float(loss)} at step {step}; lower its lr")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if (step + 1) % every == 0:
            yield method.eval(), None if head is None else head.eval()


@torch.no_grad()
def read(method: Any, head: nn.Module | None, features: Tensor) -> tuple[Tensor, np.ndarray]:
    """Return mu (N, M) and certainty (N,), higher is more certain; without a head it is the length before it is cut."""
    if head is None:
        projected = method.projector(features)
        return F.normalize(projected, dim=1), projected.norm(dim=1).double().numpy()
    mu, kappa = mu_and_kappa(features, head, method.projector)
    return mu, kappa.double().numpy()


def readings(
    config: TrainConfig, views: Tensor, targets: Tensor, features: Features, held_out: slice = HELD_OUT
) -> list[list[Reading]]:
    """Train one head and return what every checkpoint says.

    Returns:
        One list for each certainty of the method: kappa; for InfoNCE the length before normalisation, and the cosine
        with the nearest class mean.
    """
    checkpoints: list[list[Reading]] = [[], []] if config.method == "infonce" else [[]]
    for method, head in train(config, views, targets):
        parts = [features.test, features.crops, features.train[0, held_out]]
        mus, certainties = zip(*(read(method, head, part) for part in parts), strict=True)
        checkpoints[0].append(Reading(mus[0], *certainties))
        if len(checkpoints) == 2:
            means = class_means(read(method, head, views[0])[0], targets)
            checkpoints[1].append(Reading(mus[0], *((mu @ means.T).amax(1).double().numpy() for mu in mus)))
    return checkpoints


def class_means(mu: Tensor, targets: Tensor) -> Tensor:
    """Return the direction of each class, shape (C, M), of mu (N, M) and labels (N,) or votes (N, C)."""
    votes = targets if targets.ndim == 2 else F.one_hot(targets, CLASSES).float()
    return F.normalize(votes.T @ mu, dim=1)


def best(scores: list[float]) -> int:
    """Return the checkpoint with the highest score; NaN, from a constant certainty, is the lowest."""
    return int(np.argmax([-2.0 if math.isnan(score) else score for score in scores]))


def measure(runs: list[list[Reading]], features: Features, votes: Votes) -> Numbers:
    """Return every measure of a case: one list of checkpoints for each seed."""
    human, second = entropies(votes.test), entropies(votes.train[HELD_OUT])
    by_crop, by_votes = [], []
    for run in runs:
        by_crop.append(run[best([ranking.spearman(reading.crops[CHOOSE], features.shares[CHOOSE]) for reading in run])])
        by_votes.append(run[best([ranking.spearman(-reading.test[CHOOSE], human[CHOOSE]) for reading in run])])

    def against(readings: list[Reading], part: slice) -> Number:
        rows = np.arange(10_000)[part]
        return spearman_number([Replicate(rows, -reading.test[rows], human[rows]) for reading in readings], 10_000)

    rest = np.arange(10_000)[REST]
    right = [neighbours.recall_at_1(reading.mu, votes.test_labels) for reading in by_crop]
    recall, half, area = retrieval_numbers(
        [Replicate(rest, reading.test[rest], good[rest]) for reading, good in zip(by_crop, right, strict=True)], 10_000
    )
    every = np.arange(len(second))
    return {
        "entropy": against(by_crop, REPORT),
        "by votes": against(by_votes, REPORT),
        "crop": spearman_number(
            [Replicate(rest, reading.crops[rest], features.shares[rest]) for reading in by_crop], 10_000
        ),
        "10N": spearman_number([Replicate(every, -reading.held_out, second) for reading in by_crop], len(every)),
        "R@1": recall,
        "R@1 half": half,
        "R-AUROC": area,
    }


def split_folds(n: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return the rows that train, that choose the checkpoint and that are reported, for each of five folds of n."""
    parts = torch.randperm(n, generator=torch.Generator().manual_seed(0)).chunk(FOLDS)
    turned = [[parts[(number + ahead) % FOLDS] for ahead in range(FOLDS)] for number in range(FOLDS)]
    return [(torch.cat(some[:3]), some[3], some[4]) for some in turned]


def measure_folds(runs: list[list[Reading]], features: Features, votes: Votes) -> Numbers:
    """Return every measure of a case in folds: one list of checkpoints for each fold."""
    human = entropies(votes.test)
    chosen, parts = [], []
    for run, (_, choose, part) in zip(runs, split_folds(len(human)), strict=True):
        chosen.append(run[best([ranking.spearman(reading.crops[choose], features.shares[choose]) for reading in run])])
        parts.append(part.numpy())
    pairs = list(zip(chosen, parts, strict=True))
    right = [neighbours.recall_at_1(reading.mu[part], votes.test_labels[part]) for reading, part in pairs]
    recall, half, area = retrieval_numbers(
        [Replicate(part, reading.test[part], good) for (reading, part), good in zip(pairs, right, strict=True)],
        len(human),
    )
    return {
        "entropy": spearman_number(
            [Replicate(part, -reading.test[part], human[part]) for reading, part in pairs], len(human)
        ),
        "crop": spearman_number(
            [Replicate(part, reading.crops[part], features.shares[part]) for reading, part in pairs], len(human)
        ),
        "R@1": recall,
        "R@1 half": half,
        "R-AUROC": area,
    }


def run_seeds(
    source: str, cases: list[str], features: Features, votes: Votes, *, seeds: int, steps: int, plain: bool = False
) -> Iterator[tuple[str, Numbers]]:
    """Yield name and measures of each case, trained from one kind of label."""
    targets = {"soft": votes.train, "clean": votes.clean, "aggregate": votes.aggregate}[source][TRAIN]
    views = features.train[:1, TRAIN] if plain else features.train[:, TRAIN]
    for case in cases:
        runs = [readings(recipe(case, seed=seed, steps=steps), views, targets, features) for seed in range(seeds)]
        for name, of_seeds in zip(NAMES.get(case, [case]), zip(*runs, strict=True), strict=True):
            yield name, measure(list(of_seeds), features, votes)


def run_folds(
    kind: str, cases: list[str], features: Features, votes: Votes, *, steps: int
) -> Iterator[tuple[str, Numbers]]:
    """Yield name and measures of each case, trained on three folds of the images that have CIFAR-10H votes."""
    targets = votes.test if kind == "soft" else votes.test.argmax(1)
    for case in cases:
        runs = []
        for number, (rows, _, _) in enumerate(split_folds(len(targets))):
            views = torch.stack([features.test[rows], features.crops[rows]])
            config = recipe(case, seed=number, steps=steps, batch_size=128)
            runs.append(readings(config, views, targets[rows], features))
        for name, of_folds in zip(NAMES.get(case, [case]), zip(*runs, strict=True), strict=True):
            yield name, measure_folds(list(of_folds), features, votes)


def baselines(features: Features, votes: Votes) -> Iterator[tuple[str, Numbers]]:
    """Yield what needs no contrastive training: class entropy, length of the features, and the kappa that ships."""
    mu = F.normalize(features.test, dim=1)
    parts = [features.test, features.crops, features.train[0, HELD_OUT]]
    clean, hard = features.train[0, TRAIN], {"clean": votes.clean[TRAIN], "aggregate": votes.aggregate[TRAIN]}
    people = votes.train[TRAIN]
    who, answer = people.nonzero(as_tuple=True)
    count = people[who, answer].long()
    fits = {name: (clean, labels) for name, labels in hard.items()}
    fits["soft"] = (clean[who.repeat_interleave(count)], answer.repeat_interleave(count))
    for name, (rows, labels) in fits.items():
        classifier = classifier_metrics.fit_linear(rows, labels, CLASSES)
        surety = [-ranking.entropy(classifier.logits(part).double().softmax(1).numpy()) for part in parts]
        yield f"class entropy, {name} labels", measure([[Reading(mu, *surety)]], features, votes)
    lengths = [part.norm(dim=1).double().numpy() for part in parts]
    yield "length of the features", measure([[Reading(mu, *lengths)]], features, votes)
    head = load_model("trio")[0].heads["visimsiam"].eval()
    with torch.no_grad():
        kappas = [head(features.scale * part).double().numpy() for part in parts]
    yield "kappa_visimsiam, as shipped", measure([[Reading(mu, *kappas)]], features, votes)


def regressions(features: Features, votes: Votes) -> Iterator[tuple[str, Numbers]]:
    """Yield what these features know of disagreement when they are fitted to it: of CIFAR-10N, and of CIFAR-10H."""
    mu = F.normalize(features.test, dim=1)
    parts = [features.test, features.crops, features.train[0, HELD_OUT]]

    def fit(rows: Tensor, people: Tensor, penalty: float) -> list[Reading]:
        weights = ridge(rows, torch.from_numpy(ranking.ranks(entropies(people)) / len(people)), penalty=penalty)
        return [Reading(mu, *(-(part.double() @ weights[:-1] + weights[-1]).numpy() for part in parts))]

    for penalty in (0.1, 1.0):
        fitted = fit(features.train[0, TRAIN], votes.train[TRAIN], penalty)
        yield f"ridge on CIFAR-10N's entropy, penalty {penalty}", measure([fitted], features, votes)
        five = [fit(features.test[rows], votes.test[rows], penalty) for rows, _, _ in split_folds(len(votes.test))]
        yield f"ridge on CIFAR-10H's entropy, folds, penalty {penalty}", measure_folds(five, features, votes)


def ridge(rows: Tensor, target: Tensor, *, penalty: float = 0.01) -> Tensor:
    """Return weights and a last, free offset, float64, that minimise the mean squared error + penalty |w|^2."""
    x = torch.cat([rows, torch.ones(len(rows), 1)], 1).double()
    pull = penalty * torch.eye(x.shape[1], dtype=torch.float64)
    pull[-1, -1] = 0
    return torch.linalg.solve(x.T @ x / len(x) + pull, x.T @ target.double() / len(x))


def main() -> None:
    """Print one table for each kind of label."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser)
    parser.add_argument("--cache", type=Path, required=True, help="folder for features, outside the repository")
    parser.add_argument("--only", nargs="+", choices=EXPERIMENTS, default=EXPERIMENTS)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--crops", type=int, default=3, help="random crops of each training image")
    parser.add_argument("--json", type=Path, help="add the numbers to this file, too")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data = open_data(arguments.data, FILES).need(*FILES)
    votes = read_votes(data)
    held: dict[str, Features] = {}
    for name in arguments.only:
        backbone = "random" if name.startswith("random") else "trained"
        if backbone not in held:
            held = {backbone: open_features(data, arguments.cache, backbone, n_crops=arguments.crops)}
        print(f"\n{name}: {EXPERIMENTS[name]}", flush=True)
        numbers_of = {}
        for case, numbers in experiment(name, held[backbone], votes, arguments):
            numbers_of[case] = {measure: asdict(number) for measure, number in numbers.items()}
            print(f"  {case}", *(f"    {MEASURES[key]:<32} {number}" for key, number in numbers.items()), sep="\n")
            if arguments.json:
                before = json.loads(arguments.json.read_text()) if arguments.json.is_file() else {}
                before[name] = {**before.get(name, {}), **numbers_of}
                arguments.json.write_text(json.dumps(before, indent=1))


def experiment(
    name: str, features: Features, votes: Votes, arguments: argparse.Namespace
) -> Iterator[tuple[str, Numbers]]:
    """Return the cases of one of ``EXPERIMENTS``."""
    cases, seeds, steps = arguments.cases, arguments.seeds, arguments.steps
    if name == "baselines":
        return baselines(features, votes)
    if name == "regressions":
        return regressions(features, votes)
    if name.startswith("folds-"):
        return run_folds(name.removeprefix("folds-"), cases, features, votes, steps=steps // 2)
    source = name.removeprefix("random-").removeprefix("plain-")
    return run_seeds(source, cases, features, votes, seeds=seeds, steps=steps, plain=name.startswith("plain-"))


if __name__ == "__main__":
    main()
