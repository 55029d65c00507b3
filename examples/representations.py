"""What do methods of representation learning give at an equal budget? Each from the same random weights.

    python examples/representations.py --data DATA --methods simsiam visimsiam
    python examples/representations.py --data DATA --methods "visimsiam lr=0.2 schedule=cosine" infonce --set gray=0
    python examples/representations.py --data DATA --methods simsiam visimsiam --transfer pacs tiny --labels 0.01 0.1
    python examples/representations.py --data DATA --methods simsiam visimsiam --print

DATA holds the files that `representation_data.py` names. A variant is a method and what differs from its own recipe:
its settings (as --set of `curate train`), or what all methods share: lr, schedule, batch_size, optimizer, warmup,
weight_decay, scale, jitter, gray, blur, blur_sigma. --set is for all of them, where a method has such a setting.

Every seed draws its images and its weights. A variant trains on them by the package's own loop, without labels
unless it is a supervised method; probes then learn from the labels of the same images, and answer for test images.
`random` are the weights that all variants of a seed began with; `random METHOD ...` are a method's own model's, for
one whose representation is the mu of a head.

--transfer probes the backbone on other sets as well, --labels probes it, and trains it on, with a share of the labels
by itself: appendices G and H of VI-SimSiam's paper (`representation_transfer.py`).

What a CPU needs: a batch of at most 128, the rate of SGD lowered in proportion; no low-resolution views; a space of
at most 256 dimensions, hidden layers of at most 512, a queue of at most 2,048; of methods that decode 4 views, and 32
channels. Whatever you name yourself stands as you
named it.

Methods with a predictor are measured with it as well: the cosine of a prediction and its target, over random views of
the test images (appendix K of the same paper, figure 11). --chart draws it, and the vote of neighbours (figure 6 of
UMM's paper), over the epochs of --at; the means of uncertainties are printed (its figure 10). --pairs draws the cosines
of each test image and its nearest, of its class and of others (figure 9).

A run that was cut off goes on where it was; results are kept in --work, one file each, so that several processes may
share the work.
"""

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from representation_data import DATASETS, Pictures, add_data, files_of, load_pictures, use_data
from representation_measures import measure, view_cosines
from representation_tables import (
    RANDOM,
    correlations,
    course_chart,
    curves,
    early,
    elsewhere,
    pairs_chart,
    pairs_table,
    table,
)
from representation_transfer import few_labels, transfer
from study_results import Ledger, percent

from curate.sheets.style import save_chart
from curate.training.recipe import AUGMENTATION, SHARED, recipe
from scoring.errors import InputError
from scoring.lookup import lookup
from scoring.settings import parse_settings
from trainers.build import build, set_mode
from trainers.config import TrainConfig
from trainers.loop import train
from trainers.methods.method import Method
from trainers.methods.settings import Augmentation
from trainers.methods.siamese import SimSiam
from trainers.methods.table import METHODS

POOL = 20_000  # images that the seeds draw from
AT_MOST = {
    "batch_size": 128,
    "n_small": 0,
    "latent_dim": 256,
    "hidden_dim": 512,
    "queue": 2048,
    "views": 4,
    "channels": 32,
}
FIXED = ("epochs", "seed")  # of the study, not of a variant


def config_of(variant: str, common: Sequence[str], study: argparse.Namespace, seed: int) -> TrainConfig:
    """Return the recipe of a variant.

    Args:
        variant: METHOD, or METHOD and NAME=VALUE, with spaces between.
        common: NAME=VALUE for all variants; one that a method does not have is passed over.
        study: what was typed.
        seed: of the run.

    Raises:
        InputError: for a method, a setting or a value that does not exist.
    """
    method, *changes = variant.split()
    kind: type[Method[Any]] = lookup(METHODS, method, kind="method")
    of_method = kind.Settings.about()
    shared = [name for name in (*SHARED, *AUGMENTATION) if name not in FIXED]
    typed = {
        name: value
        for name, value in parse_settings(common, example="latent_dim=64").items()
        if name in of_method or name in shared
    }
    typed |= parse_settings(changes, flag=f"a variant of {method}", example="lr=0.1")
    settings: dict[str, object] = {name: value for name, value in typed.items() if name not in shared}
    for name in of_method:
        if name in AT_MOST and name not in settings:
            settings[name] = min(getattr(kind.Settings(), name), AT_MOST[name])
    options: dict[str, Any] = {name: _option(name, value) for name, value in typed.items() if name in shared}
    usual = TrainConfig(method, **kind.defaults)
    if "batch_size" not in options:
        options["batch_size"] = min(usual.batch_size, AT_MOST["batch_size"], study.images)
    if "lr" not in options and usual.optimizer == options.get("optimizer", "sgd") == "sgd":
        options["lr"] = usual.lr * options["batch_size"] / usual.batch_size
    fixed = {"backbone": study.backbone, "size": study.size, "epochs": study.epochs, "seed": seed}
    return recipe(method, options | fixed, settings)


def _option(name: str, text: str) -> Any:
    """Return an option that all methods share, as the recipe has it."""
    if name in AUGMENTATION:
        bound = {"scale": 0, "blur_sigma": 1}.get(name)
        default = getattr(Augmentation(), name)
        kind = type(default if bound is None else default[bound])
    else:
        kind = type(getattr(TrainConfig(), name))
    try:
        return kind(text)
    except ValueError:
        raise InputError(f"expected {kind.__name__} for {name}, got {text!r}; give one") from None


def run_variant(
    variant: str,
    pictures: Pictures,
    others: Mapping[str, Pictures],
    study: argparse.Namespace,
    seed: int,
    ledger: Ledger,
) -> dict[str, Any]:
    """Train a variant with one seed and measure it, at the end and, kept on their own, after the epochs of ``--at``."""
    is_random = variant.split()[0] == RANDOM
    config = config_of(trained(variant), study.set, study, seed)
    drawn, start = pictures.drawn(study.images, seed), time.perf_counter()
    model, method = build(config, len(drawn.train.classes), n=drawn.train.n)
    device, measuring = torch.device(study.device), 0.0

    def measured() -> dict[str, Any]:
        result = measure(model, drawn.train, drawn.test, device=device, seed=seed, styles=drawn.styles)
        if isinstance(method, SimSiam):
            result["measures"] |= view_cosines(model, method, drawn.test, config.augmentation, device=device, seed=seed)
        return result

    def finished() -> dict[str, Any]:
        result = measured()
        result["measures"] |= transfer(model, others, device)
        result["measures"] |= few_labels(model, drawn, study.labels, seed=seed, device=device)
        return result

    if is_random:
        return {**finished(), "columns": {}, "seconds": 0.0}
    ends = {epoch * (drawn.train.n // config.batch_size): epoch for epoch in study.at}
    usual = method.after_step

    def after_step(step: int) -> None:
        nonlocal measuring
        usual(step)
        if step + 1 in ends:
            begun = time.perf_counter()
            ledger.of(early(variant, ends[step + 1]), seed, measured)
            set_mode(config, model, method)
            measuring += time.perf_counter() - begun

    method.after_step = after_step  # type: ignore[method-assign]
    state = ledger.path(variant, seed).with_suffix(".state")
    _, losses = train(config, drawn.train, state=state, device=device, start=(model, method))
    seconds = time.perf_counter() - start - measuring
    result = finished()
    state.unlink(missing_ok=True)
    return {**result, "recipe": config.to_json(), "losses": losses, "seconds": seconds}


def trained(variant: str) -> str:
    """Return the variant whose model and data a variant has: itself, but for weights that nothing trains.

    >>> trained("simsiam lr=0.1"), trained("random vae channels=8"), trained("random")
    ('simsiam lr=0.1', 'vae channels=8', 'simsiam')
    """
    method, *rest = variant.split(maxsplit=1)
    return variant if method != RANDOM else rest[0] if rest else "simsiam"


def parse_arguments(typed: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what was typed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser)
    parser.add_argument("--methods", nargs="+", required=True, help="variants: METHOD, or 'METHOD NAME=VALUE ...'")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="for all variants that have it")
    parser.add_argument("--dataset", help=f"of {', '.join(DATASETS)}, or yours; by default yours, or cifar10")
    parser.add_argument("--images", type=int, default=4000, help="to train on, drawn again for each seed")
    parser.add_argument("--test", type=int, default=2000, help="held out")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--at", type=int, nargs="+", default=[], help="epochs after which to measure as well")
    parser.add_argument("--transfer", nargs="+", default=[], help="other sets to probe on")
    parser.add_argument("--labels", type=float, nargs="+", default=[], help="shares of the labels to learn from")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--backbone", default="resnet10t", help="timm's name; random weights")
    parser.add_argument("--size", type=int, help="side in pixels; the images' by default")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--work", type=Path, default=Path("representations"), help="where results and states are kept")
    parser.add_argument("--out", type=Path, help="all results of these variants, as one JSON file")
    parser.add_argument("--chart", type=Path, help="draw accuracy and cosines over epochs: PNG, SVG or PDF")
    parser.add_argument("--pairs", type=Path, help="draw cosines of the nearest images of a class and of others")
    parser.add_argument("--print", action="store_true", help="run nothing; print what is there")
    study = parser.parse_args(typed)
    if not all(0 < share <= 1 for share in study.labels):
        parser.error("--labels takes shares above 0 and at most 1, such as 0.01 for 1 %")
    data = use_data(study.data)
    study.dataset = study.dataset or next(iter(data.added), "cifar10")
    names = [study.dataset, *study.transfer]
    if unknown := [name for name in names if name not in DATASETS]:
        parser.error(f"expected a set of {', '.join(DATASETS)}; got {unknown[0]!r}")
    study.data = data.folder if study.print else data.need(*(file for name in names for file in files_of(name)))
    study.size = study.size or DATASETS[study.dataset].size
    study.methods = list(dict.fromkeys([RANDOM, *study.methods]))
    return study


def main(typed: Sequence[str] | None = None) -> None:
    """Run a study and print it."""
    study = parse_arguments(typed)
    seeds = range(study.seeds)
    names = ("dataset", "images", "test", "epochs", "backbone", "size", "set")
    extra = [name for name in ("transfer", "labels") if getattr(study, name)]
    ledger = Ledger(study.work, {name: getattr(study, name) for name in (*names, *extra)})
    try:
        for variant in study.methods[1:]:  # a slip of the finger is reported before an hour of training
            build(config_of(trained(variant), study.set, study, 0), 2)
        if not study.print:
            run_all(study, ledger, seeds)
    except InputError as error:
        raise SystemExit(f"error: {error}") from None
    stages = [early(variant, epoch) for variant in study.methods for epoch in study.at]
    known = ledger.known([*study.methods, *stages], seeds)
    if study.out:
        study.out.write_text(json.dumps(known, indent=1))
    measured = {name: results for name, results in known.items() if name in study.methods}
    print(
        f"\n{study.images} images of {study.dataset}, {study.size} pixels, {study.epochs} epochs, {study.backbone}; "
        f"{study.test} test images; {study.seeds} seeds, ± half of the 95 % interval, in percent\n"
    )
    optional = (study.at, curves(known, study)), (extra, elsewhere(measured, study))
    for lines in (table(measured), *(lines for requested, lines in optional if requested), correlations(measured)):
        if lines:
            print("\n".join(lines) + "\n")
    try:
        if study.chart:
            save_chart(course_chart(known, study), study.chart, overwrite=True)
        if study.pairs:
            print("\n".join(pairs_table(measured)))
            save_chart(pairs_chart(measured), study.pairs, overwrite=True)
    except InputError as error:
        raise SystemExit(f"error: {error}") from None


def run_all(study: argparse.Namespace, ledger: Ledger, seeds: Sequence[int]) -> None:
    """Run what is missing yet, seed by seed."""
    pictures = load_pictures(study.data, study.dataset, pool=POOL, test=study.test, size=study.size)
    others = {
        name: load_pictures(study.data, name, pool=study.images, test=study.test, size=study.size)
        for name in study.transfer
    }
    for seed in seeds:
        for variant in study.methods:
            result = ledger.of(
                variant, seed, lambda v=variant, s=seed: run_variant(v, pictures, others, study, s, ledger)
            )
            print(
                f"seed {seed} {variant}: linear {percent(result['measures']['linear'])}, {result['seconds']:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
