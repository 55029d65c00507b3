"""Does it help to learn an embedding with distributions for proxies? Kirchhof et al. 2022, on classes held out.

    python examples/metric_learning.py --data DATA
    python examples/metric_learning.py --data DATA --datasets grocery --seeds 3 --only "EL-nivMF" "ProxyNCA++"
    python examples/metric_learning.py --data DATA --print

DATA holds the files that `metric_data.py` names. Each image is the features of `world`, the model that ships, whose
backbone stays as it is: a linear map of them to 512 dimensions learns from half of the classes, and is measured on the
other half. Every seed draws the classes again, alike for all variants, and the map and the order of batches; so two
variants are compared seed by seed. Variants are trained by the package's own loop, for as many epochs and at the same
rate; what differs is in `VARIANTS`. The frozen embedding, and the features that the map reads, are the baselines.

A run that was cut off goes on where it was; results are kept in --work, one file each.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from metric_data import DATASETS, Dataset, add_data, files_of, load_dataset, use_data
from metric_measures import certainty, retrieval
from metric_tables import tables
from study_results import Ledger, percent

from curate.training.recipe import recipe
from scoring.checkpoint import load_model
from scoring.errors import InputError
from scoring.model import ScoringModel
from scoring.settings import parse_settings
from trainers.build import build
from trainers.config import TrainConfig
from trainers.loop import train

FROZEN, FEATURES = "frozen embedding", "frozen features"
VARIANTS = {  # name -> what is trained: METHOD NAME=VALUE ..., or nothing
    FROZEN: "",
    FEATURES: "",
    "ProxyNCA++": "proxynca",
    "EL-nivMF": "nivmf",
    "ProxyAnchor": "proxyanchor",
    "PANC + EL-nivMF": "nivmf guidance=1",
    "PANC + EL-nivMF, 0.1": "nivmf guidance=0.1",
    "PANC + EL-nivMF, 10": "nivmf guidance=10",
    "L2": "nivmf distance=l2 kappa_init=10 proxy_kappa=10 temperature=10",
    "nivMF": "nivmf distance=nivmf",
    "B-vMF": "nivmf distance=b-vmf temperature=2",
    "EL-vMF": "nivmf distance=el-vmf",
    "KL-vMF": "nivmf distance=kl-vmf",
    "EL-nivMF, as published": "nivmf density=published",
}


def schedule(study: argparse.Namespace, dataset_name: str) -> dict[str, Any]:
    """Return epochs and rate: as typed, or as the data set has them."""
    source = DATASETS[dataset_name]
    return {"epochs": study.epochs or source.epochs, "lr": study.lr or source.lr}


def config_of(
    variant: str, dataset_name: str, model: ScoringModel, study: argparse.Namespace, seed: int
) -> TrainConfig:
    """Return the recipe of a variant.

    Raises:
        InputError: for a method, a setting or a value that does not exist.
    """
    method, *changes = variant.split()
    shared = {"backbone": model.spec.backbone, "size": model.spec.preprocessing.size, "freeze": "trunk"}
    shared |= {"batch_size": study.batch_size, "seed": seed} | schedule(study, dataset_name)
    settings = parse_settings(changes, flag=f"a variant of {method}", example="samples=5")
    return recipe(method, shared, {"latent_dim": study.latent_dim} | settings)


def run_variant(
    name: str,
    dataset_name: str,
    dataset: Dataset,
    model: ScoringModel,
    study: argparse.Namespace,
    seed: int,
    state: Path,
) -> dict[str, Any]:
    """Train a variant with one seed, and measure it on the classes that it never saw."""
    begun = time.process_time()
    learn, held = dataset.split(seed)
    losses: dict[str, float] = {}
    if name == FROZEN:
        project = model.embed
    elif name == FEATURES:
        project = torch.nn.Identity()
    else:
        config = config_of(study.variants[name], dataset_name, model, study, seed)
        start = build(config, len(learn.classes), init=model, n=learn.n)
        origin = {"rows": learn.rows.tolist(), "cache": dataset.cache.digest}
        trained, losses = train(config, learn, state=state, device=torch.device("cpu"), start=start, origin=origin)
        project = trained.heads[config.method].project
    with torch.inference_mode():
        vectors = project(dataset.plain[held])
        worse = {kind: project(features).norm(dim=1) for kind, features in dataset.worse.features.items()}
        worse[""] = project(dataset.plain[dataset.worse.rows]).norm(dim=1)
    labels = dataset.labels[held]
    measures = retrieval(vectors, labels, seed=seed)
    if name != FROZEN:  # which has unit length
        measures |= certainty(vectors, labels, worse, dataset.worse, torch.isin(dataset.worse.rows, held))
    state.unlink(missing_ok=True)
    return {"measures": measures, "losses": losses, "cpu_seconds": time.process_time() - begun}


def parse_arguments(typed: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what was typed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser)
    parser.add_argument("--datasets", nargs="+", help=f"of {', '.join(DATASETS)}, or yours; by default yours, or all")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these variants alone, next to the baselines")
    parser.add_argument("--add", nargs="+", default=[], metavar="VARIANT", help="more: 'METHOD NAME=VALUE ...'")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0, help="settings were chosen on seeds from 100 on")
    parser.add_argument("--epochs", type=int, help="by default the data set's")
    parser.add_argument("--latent-dim", type=int, default=512)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--lr", type=float, help="likewise")
    parser.add_argument("--worse", type=int, default=600, help="images to make corrupted copies of")
    parser.add_argument(
        "--work", type=Path, default=Path("metric_learning"), help="where features and results are kept"
    )
    parser.add_argument("--print", action="store_true", help="run nothing; print what is there")
    study = parser.parse_args(typed)
    unknown = [name for name in study.only or [] if name not in VARIANTS]
    if unknown:
        parser.error(f"--only takes {', '.join(VARIANTS)}; got {unknown[0]!r}")
    data = use_data(study.data)
    study.datasets = study.datasets or list(data.added) or list(DATASETS)
    if unknown := [name for name in study.datasets if name not in DATASETS]:
        parser.error(f"--datasets takes {', '.join(DATASETS)}; got {unknown[0]!r}")
    files = [file for name in study.datasets for file in files_of(name)]
    study.data = data.folder if study.print else data.need(*files)
    kept = [FROZEN, FEATURES, *(study.only if study.only is not None else VARIANTS)]
    study.variants = {name: VARIANTS[name] for name in dict.fromkeys(kept)} | {
        variant: variant for variant in study.add
    }
    return study


def main(typed: Sequence[str] | None = None) -> None:
    """Run the study and print it."""
    study = parse_arguments(typed)
    seeds = range(study.first_seed, study.first_seed + study.seeds)
    fixed = {name: getattr(study, name) for name in ("latent_dim", "batch_size", "worse")}
    study.work.mkdir(parents=True, exist_ok=True)
    model, _ = load_model("world")
    try:
        for variant in filter(None, study.variants.values()):  # a slip of the finger is reported before anything is run
            config_of(variant, study.datasets[0], model, study, 0)
    except InputError as error:
        raise SystemExit(f"error: {error}") from None
    for dataset_name in study.datasets:
        # what a variant is belongs to its result: one whose settings change is run again
        ledger = Ledger(study.work / "results", {**fixed, **schedule(study, dataset_name), "dataset": dataset_name})
        names = {name: f"{name} | {variant}" for name, variant in study.variants.items()}
        if not study.print:
            run_all(study, dataset_name, model, ledger, seeds, names)
        known = ledger.known(list(names.values()), seeds)
        measures = {
            name: [result["measures"] for result in known[variant]]
            for name, variant in names.items()
            if variant in known
        }
        print(f"\n## {dataset_name}: {study.seeds} seeds, ± half of the 95 % interval\n")
        print("\n\n".join("\n".join(lines) for lines in tables(measures) if lines))
        spent = sum(result["cpu_seconds"] for results in known.values() for result in results)
        print(f"\n{spent:.0f} CPU seconds of training and measuring")


def run_all(
    study: argparse.Namespace,
    dataset_name: str,
    model: ScoringModel,
    ledger: Ledger,
    seeds: range,
    names: dict[str, str],
) -> None:
    """Run what is missing yet, seed by seed."""
    dataset = load_dataset(study.data, dataset_name, study.work, model, worse=study.worse)
    for seed in seeds:
        for name, variant in names.items():
            state = ledger.path(variant, seed).with_suffix(".state")
            result = ledger.of(
                variant, seed, lambda n=name, s=seed, f=state: run_variant(n, dataset_name, dataset, model, study, s, f)
            )
            print(
                f"{dataset_name} {seed} {name}: R@1 {percent(result['measures']['R@1'])}, "
                f"{result['cpu_seconds']:.1f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
