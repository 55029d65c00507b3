"""The URL benchmark: train an estimator of uncertainty on some classes, and ask it of images of others.

    python examples/url.py --data DATA --work build/url
    python examples/url.py --data DATA --work build/url --trunks upstream --estimators CE MCInfoNCE
    python examples/url.py --data DATA --estimators "loss prediction, ranks: depth=1 hidden=256"
    python examples/url.py --data DATA --work build/url --print

DATA holds the files that `url_data.py` names. Two frozen backbones, apart: the one that ships, which has learned from
ImageNet and so has seen some of the classes downstream, and ``upstream``, a small one that is trained here on nothing
but the upstream classes to train on. Features are cached once; every estimator then learns on features of the upstream
classes, by the loop of `curate train --cached`, and says how uncertain it is of

- upstream images of classes that it saw and of classes that it never saw, and every set downstream: is it less
  certain where the nearest other image is of another class (R-AUROC)?
- crops: is it less certain of them than of their whole images?
- CIFAR-10 images: do its uncertainties go with the entropy of annotators' votes?
- downstream images among upstream ones: are they the less certain (OOD), and are the mistaken (mixed)?
- a set downstream of which it then learned a few images a class: R-AUROC on the others.

Settings are the paper's where it gives them. Where there are several candidates, the one with the highest R-AUROC on
upstream classes held out for that is taken, tried with another seed than those reported; never by anything downstream.

Results are kept in --work, one JSON file for each backbone, estimator and seed: a run that was cut off goes on. --out
writes them as JSON lines. Source: Kirchhof et al. 2023, "URL: A Representation Learning Benchmark for Transferable
Uncertainty Estimates".
"""

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from study_results import Ledger
from url_baselines import BASELINES, Known, Plain, baseline_answers, embedded
from url_data import CHOOSING, DOWNSTREAM, SEEN, Amounts, add_data, use_data, votes, write_all
from url_estimators import ESTIMATORS, Estimator, Fitted, add_variant, fit, fit_few, uncertainty
from url_measures import Floats, Measured, crops_of, few_of, questions, unit
from url_tables import Judge, few_sets, tables
from url_trunks import UPSTREAM, Backbone, backbone_of, keys_of, some_of

from scoring.errors import InputError
from scoring.metrics.neighbours import knn_predict
from scoring.metrics.ranking import auroc
from scoring.model_names import DEFAULT
from trainers.cache import PLAIN, CachedFeatures

TRIAL = 1000  # the seed of the runs that choose
RANDOM = ("chance level",)  # baselines that a seed changes


@dataclass
class Bench:
    """One backbone: its caches, what is measured, and where results are kept."""

    study: argparse.Namespace
    backbone: Backbone
    train: CachedFeatures
    shots: CachedFeatures
    measured: Measured
    ledger: Ledger

    def chosen(self, name: str) -> dict[str, Any]:
        """Return the candidate of an estimator with the highest R-AUROC on the classes held out for choosing."""
        candidates = [dict(candidate) for candidate in ESTIMATORS[name].candidates]
        if len(candidates) == 1:
            return candidates[0]
        rows = self.measured.sets[CHOOSING]
        mistaken = self.measured.mistaken(rows)

        def tried(candidate: Mapping[str, Any]) -> float:
            fitted = self.fit(name, candidate, TRIAL)
            return auroc(self.said(name, candidate, fitted, self.measured.features[rows]), mistaken)

        accuracies = []
        for candidate in candidates:
            key = f"{self.backbone.name} {name} {json.dumps(candidate)}"
            result = self.ledger.of(key, TRIAL, lambda trial=candidate: {"R-AUROC": tried(trial)})  # type: ignore[misc]
            accuracies.append(result["R-AUROC"])
            print(f"{key}: {accuracies[-1]:.3f} on held-out upstream classes", flush=True)
        return candidates[int(np.argmax(accuracies))]

    def fit(self, name: str, chosen: Mapping[str, Any], seed: int) -> Fitted:
        """Return an estimator, trained on the upstream classes to train on."""
        state = self.ledger.path(f"{self.backbone.name} {name} {json.dumps(dict(chosen))}", seed).with_suffix(".state")
        model, epochs = self.backbone.bare, self.study.epochs
        return fit(ESTIMATORS[name], chosen, model, self.train, seed=seed, epochs=epochs, state=state)

    def said(self, name: str, chosen: Mapping[str, Any], fitted: Fitted, features: torch.Tensor) -> Floats:
        """Return the uncertainties of an estimator."""
        return np.asarray(uncertainty(ESTIMATORS[name], chosen, fitted, features).numpy())

    def run(self, name: str, seed: int) -> dict[str, Any]:
        """Return the answers of an estimator: trained, requested, and trained on with a few images."""
        chosen, begun = self.chosen(name), time.perf_counter()
        fitted = self.fit(name, chosen, seed)
        seconds = time.perf_counter() - begun
        answers_of = self.said(name, chosen, fitted, self.measured.features)
        crops = self.said(name, chosen, fitted, self.measured.crops)
        answers = {dataset: answers_of[rows] for dataset, rows in self.measured.datasets.items()}
        for dataset in self.measured.sets:
            answers[crops_of(dataset)] = crops[self.measured.crops_in(dataset)]
        for dataset in few_sets():
            answers[few_of(dataset)] = self.few(name, chosen, fitted, (seed, dataset))
        return {**self.kept(answers, seed), "chosen": chosen, "seconds": seconds}

    def few(self, name: str, chosen: Mapping[str, Any], fitted: Fitted, which: tuple[int, str]) -> Floats:
        """Return what an estimator says of the other rows of a set, after a few images of each class."""
        seed, dataset = which
        estimator: Estimator = ESTIMATORS[name]
        rows = np.flatnonzero([key.startswith(f"{seed}/{dataset}/") for key in keys_of(self.shots)])
        state = self.ledger.path(f"{self.backbone.name} {name} {dataset}", seed).with_suffix(".state")
        model, data = self.backbone.bare, some_of(self.shots, rows)
        after = fit_few(estimator, chosen, fitted, data, backbone=model, seed=seed, state=state)
        return self.said(name, chosen, after, self.measured.features[self.measured.rest(seed, dataset)])

    def kept(self, answers: Mapping[str, Floats], seed: int) -> dict[str, Any]:
        """Return answers as plain JSON values, with the measures that they give."""
        once = np.ones((1, len(self.measured.keys)), np.int32)
        measures: dict[str, dict[str, float]] = {}
        for question in questions(self.measured, seed):
            if question.dataset in answers and (question.target is not None or crops_of(question.dataset) in answers):
                measures.setdefault(question.measure, {})[question.of] = float(question.values(answers, once)[0])
        return {"answers": {dataset: said.tolist() for dataset, said in answers.items()}, "measures": measures}


def bench_of(study: argparse.Namespace, name: str, ledger: Ledger) -> Bench:
    """Return a backbone with everything that is measured on it; features that are missing yet are made."""
    how = {"backbone": study.backbone, "size": study.size, "epochs": study.trunk_epochs}
    backbone = backbone_of(name, study.data, study.work, **how)
    pictures, views = study.work / "pictures", study.views + 1
    epochs = {"train": views, "measured": 1, "cropped": 1, "shots": views}
    caches = {kind: backbone.cache(pictures / f"{kind}.parquet", epochs=n) for kind, n in epochs.items()}
    cache, crops = caches["measured"], caches["cropped"]
    keys = keys_of(cache)
    at = {key: row for row, key in enumerate(keys)}
    drawn: dict[tuple[int, str], list[int]] = {}
    for key in keys_of(caches["shots"]):
        seed, known = key.split("/", 1)
        drawn.setdefault((int(seed), known.split("/")[0]), []).append(at[known])
    if cache.labels is None:
        raise SystemExit(f"{cache.folder} has no labels; expected the labels of url_data.py")
    features = cache.epoch(PLAIN).float()
    measured = Measured(
        keys,
        features,
        embedded(backbone.loaded, features),
        cache.labels,
        crops.epoch(PLAIN).float(),
        np.array([at[key] for key in keys_of(crops)]),
        votes(study.data, study.limit),
        {which: np.array(rows) for which, rows in drawn.items()},
        cache.classes,
    )
    return Bench(study, backbone, caches["train"], caches["shots"], measured, ledger)


def named(bench: Bench) -> float:
    """Return the share of held-out images of the classes to train on that 20 neighbours among those name rightly."""
    rows = bench.measured.sets[SEEN]
    queries, known = (unit(features.float()) for features in (bench.measured.features[rows], bench.train.epoch(PLAIN)))
    if bench.train.labels is None:
        raise SystemExit(f"{bench.train.folder} has no labels; expected labels of url_data.py")
    said = knn_predict(queries, known, bench.train.labels, k=min(20, len(known)))
    right = [bench.measured.classes[label] for label in bench.measured.labels[rows]]
    return float(np.mean([bench.train.classes[answer] == name for answer, name in zip(said, right, strict=True)]))


def run_all(study: argparse.Namespace, bench: Bench) -> Iterator[str]:
    """Run what is missing yet, seed by seed, and yield a line for each run."""
    plain = None
    for name in BASELINES:
        for seed in range(study.seeds) if name in RANDOM else (0,):
            key = f"{bench.backbone.name} {name}"
            if not bench.ledger.path(key, seed).exists():
                pictures = study.work / "pictures"
                plain = plain or Plain.of(pictures / "measured.parquet", pictures / "cropped.parquet")
                known = Known(bench.backbone.loaded, bench.measured, plain)
                answers = baseline_answers(name, known, seed)
                bench.ledger.of(key, seed, lambda a=answers, s=seed: bench.kept(a, s))  # type: ignore[misc]
    for seed in range(study.seeds):
        for name in study.estimators:
            key = f"{bench.backbone.name} {name}"
            result = bench.ledger.of(key, seed, lambda n=name, s=seed: bench.run(n, s))  # type: ignore[misc]
            auroc = np.mean([result["measures"]["R-AUROC"][of] for of in DOWNSTREAM])
            yield f"{key}, seed {seed}: R-AUROC downstream {auroc:.3f}, {result['seconds']:.0f} s, {result['chosen']}"


def parse_arguments(typed: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what was typed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser)
    parser.add_argument("--work", type=Path, default=Path("build/url"), help="where features and results are kept")
    parser.add_argument(
        "--trunks", nargs="+", default=[DEFAULT, UPSTREAM], help=f"shipped models, checkpoints, or {UPSTREAM}"
    )
    about = "names, or 'NAME: SETTING=VALUE ...' for one with other settings of its method"
    parser.add_argument("--estimators", nargs="+", default=list(ESTIMATORS), help=about)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5, help="of an estimator over the upstream images")
    parser.add_argument("--views", type=int, default=6, help="cached of each image to learn from")
    parser.add_argument("--per-class", type=int, default=125, help="upstream images of a class to learn from")
    parser.add_argument("--limit", type=int, default=3000, help="the most images of a set downstream")
    parser.add_argument("--shots", type=int, default=5, help="images of a class of few-shot learning")
    parser.add_argument("--backbone", default="resnet10t", help=f"timm's name, of the backbone {UPSTREAM}")
    parser.add_argument("--size", type=int, default=48, help="side in pixels, of the same")
    parser.add_argument("--trunk-epochs", type=int, default=6, help="of the same")
    parser.add_argument("--out", type=Path, help="write all results as JSON lines, one a backbone, estimator and seed")
    parser.add_argument("--print", action="store_true", help="run nothing; print what is there")
    study = parser.parse_args(typed)
    try:
        study.estimators = [add_variant(text) for text in study.estimators]
    except InputError as error:
        parser.error(str(error))
    study.data = use_data(study.data, is_read=not study.print)
    return study


def prepared(study: argparse.Namespace) -> Amounts:
    """Write the tables of images, and refuse a folder that holds tables of other amounts."""
    amounts = Amounts(study.per_class, study.limit, study.shots, study.seeds)
    note = study.work / "amounts.json"
    study.work.mkdir(parents=True, exist_ok=True)
    if note.exists() and json.loads(note.read_text()) != asdict(amounts):
        raise SystemExit(f"{study.work} holds images of other amounts, {note.read_text()}; take another --work")
    note.write_text(json.dumps(asdict(amounts)))
    write_all(study.data, study.work / "pictures", amounts)
    return amounts


def main(typed: Sequence[str] | None = None) -> None:
    """Run the benchmark and print it, one backbone after another."""
    study = parse_arguments(typed)
    amounts = prepared(study)
    settings = {**asdict(amounts), "epochs": study.epochs, "views": study.views}
    lines = []
    for name in study.trunks:
        of_upstream = (
            {"backbone": study.backbone, "size": study.size, "trunk": study.trunk_epochs} if name == UPSTREAM else {}
        )
        ledger = Ledger(study.work / "results", {**settings, **of_upstream})
        try:
            bench = bench_of(study, name, ledger)
            for text in () if study.print else run_all(study, bench):
                print(text, flush=True)
        except InputError as error:
            raise SystemExit(f"error: {error}") from None
        known = results_of(study, bench)
        print(
            f"\n## {bench.backbone.name}\n\n{SAID}; 20 neighbours name {named(bench):.1%} of the seen classes' images\n"
        )
        lines += [{"trunk": bench.backbone.name, **result} for results in known.values() for result in results]
        print("\n".join(tables(Judge(bench.measured, range(study.seeds)), known)))
    if study.out:
        text = ({name: value for name, value in row.items() if name != "answers"} for row in lines)
        study.out.write_text("".join(json.dumps(row) + "\n" for row in text))


SAID = "Means of the seeds and sets, ± half the 95 % interval"


def results_of(study: argparse.Namespace, bench: Bench) -> dict[str, list[dict[str, Any]]]:
    """Return the results that are there, by the name in the tables; one that lacks a seed is left out."""
    results = {}
    for name in (*study.estimators, *BASELINES):
        seeds = range(1) if name in BASELINES and name not in RANDOM else range(study.seeds)
        key = f"{bench.backbone.name} {name}"
        known = bench.ledger.known([key], seeds)
        if key in known:
            results[name] = known[key]
    return results


if __name__ == "__main__":
    main()
