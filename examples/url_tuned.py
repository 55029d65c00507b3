"""Figures 2 and 3 of the URL benchmark: does a good uncertainty cost a good embedding?

    python examples/url_tuned.py --data DATA --csv tuned.csv -o tuned.svg
    python examples/url_tuned.py --data DATA --data birds=birds.parquet:species --device cuda --backbone resnet50

`url.py` keeps its backbone frozen, so that all estimators have one embedding. Here each estimator tunes the whole
network. All start from one classifier of the upstream classes, as the paper's start from ImageNet. Every candidate of
``url_estimators.py`` learns with every seed; the embedding is what `curate score` would
write. Recall@1 and R-AUROC are means over the sets downstream. The setting that is best by either is chosen on upstream
classes that nothing learned from, by the mean of the seeds.

A run that was cut off goes on: results are kept in --work, one file a run, and processes with other --estimators may
share it. Source: Kirchhof et al. 2023, section 4.3,
4.4 and appendix C.2.
"""

import argparse
import csv
import tempfile
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from study_results import Ledger, half_width
from torch import Tensor
from url_data import CHOOSING, DOWNSTREAM, Pictures, add_data, measured, upstream, use_data
from url_estimators import ESTIMATORS, Fitted, config_of, uncertainty
from url_tables import number
from url_trunks import Backbone, backbone_of

from curate.sheets.style import colour, drawing, name_axes, new_axes, new_figure, save_chart
from scoring.errors import InputError
from scoring.images import Preprocessing
from scoring.metrics.neighbours import recall_at_1
from scoring.metrics.ranking import auroc, spearman
from scoring.model import ScoringModel
from trainers.build import build
from trainers.data import TrainingSet, load_training_set
from trainers.loop import train

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLOCK = 500  # images read at a time
PUBLISHED = [name for name, estimator in ESTIMATORS.items() if estimator.published]
MEASURES = ("recall", "r_auroc")
WIDTH, HEIGHT = 183.0, 68.0


@dataclass(frozen=True)
class Setting:
    """One setting of an estimator, and what it reached.

    Attributes:
        estimator: its name.
        text: what differs from the estimator's other settings.
        downstream: Recall@1 and R-AUROC, means over the sets, of each seed, shape (S, 2).
        choosing: the same on the upstream classes that settings are chosen on.
    """

    estimator: str
    text: str
    downstream: NDArray[np.float64]
    choosing: NDArray[np.float64]


def settings_of(name: str) -> dict[str, dict[str, Any]]:
    """Return the settings that an estimator is tried with, its candidates, by their text."""
    every = map(dict, ESTIMATORS[name].candidates)
    return {", ".join(f"{key}={value}" for key, value in each.items()) or "default": each for each in every}


def decoded(pictures: Pictures, size: int) -> TrainingSet:
    """Return images in memory."""
    readers = [lambda image=image: image for image in pictures.images]
    reading = Preprocessing(size=size, resize=size)
    return load_training_set(readers, pictures.labels, n=len(readers), preprocessing=reading)


def tuned(
    name: str, chosen: Mapping[str, Any], start: ScoringModel, data: TrainingSet, a: argparse.Namespace, seed: int
) -> Fitted:
    """Return an estimator whose whole network learned from upstream images."""
    shared = {"epochs": a.epochs, "batch_size": min(a.batch, data.n), "seed": seed, "backbone": start.spec.backbone}
    config = config_of(ESTIMATORS[name], chosen, **shared, size=start.spec.preprocessing.size)
    model, method = build(config, len(data.classes), init=deepcopy(start), n=data.n)
    with tempfile.TemporaryDirectory() as folder:
        state, device = Path(folder) / "state", torch.device(a.device)
        model, _ = train(config, data, state=state, device=device, start=(model, method))
    return Fitted(model.cpu().eval(), method.cpu().eval())


@torch.inference_mode()
def features_of(model: ScoringModel, pixels: Tensor, device: str) -> Tensor:
    """Return features on the CPU, shape (N, D)."""
    network = model.to(device)
    features = torch.cat([network.features(block.to(device)).float().cpu() for block in pixels.split(BLOCK)])
    model.cpu()
    return features


def reached(name: str, chosen: Mapping[str, Any], fitted: Fitted, features: Tensor, labels: Tensor) -> list[float]:
    """Return Recall@1 and R-AUROC of the images of one set."""
    with torch.inference_mode():
        right = recall_at_1(fitted.model.embed(features), labels)
    said = np.asarray(uncertainty(ESTIMATORS[name], chosen, fitted, features).numpy())
    if not np.isfinite(said).all():
        raise InputError(f"{name} with {dict(chosen)} gave uncertainties that are not finite; leave this one out")
    return [float(right.mean()), float(auroc(said, ~right))]


def run(
    name: str,
    chosen: Mapping[str, Any],
    start: ScoringModel,
    data: TrainingSet,
    sets: Mapping[str, TrainingSet],
    a: argparse.Namespace,
    seed: int,
) -> dict[str, Any]:
    """Return what one setting and seed reached, by set."""
    fitted, measures = tuned(name, chosen, start, data, a, seed), {}
    for of, images in sets.items():
        if images.labels is None:
            raise SystemExit(f"{of} has no labels; expected the labels of url_data.py")
        features = features_of(fitted.model, images.pixels, a.device)
        measures[of] = reached(name, chosen, fitted, features, images.labels)
    return {"measures": measures}


def best(settings: Sequence[Setting], measure: str) -> Setting:
    """Return the setting with the highest mean of a measure on the classes for choosing."""
    return max(settings, key=lambda each: float(each.choosing[:, MEASURES.index(measure)].mean()))


def traded(settings: Sequence[Setting]) -> float:
    """Return the rank correlation of Recall@1 and R-AUROC downstream over settings and seeds, as in appendix C.2."""
    return spearman(*np.concatenate([each.downstream for each in settings]).T)


def over_estimators(by_estimator: Mapping[str, Sequence[Setting]]) -> str:
    """Return how Recall@1 and R-AUROC of the best settings by R-AUROC go together over estimators, seed by seed."""
    every = np.array([best(settings, "r_auroc").downstream for settings in by_estimator.values()])  # (E, S, 2)
    values = np.array([spearman(*of_seed) for of_seed in every.transpose(1, 2, 0)])
    return f"rank correlation of the two over estimators: {' '.join(_cells(values[:, None], signed=True))}"


def rows_of(by_estimator: Mapping[str, Sequence[Setting]]) -> list[list[str]]:
    """Return a header and a row a setting: means over seeds, ± half the 95 % interval, and what it is the best by.

    The second setting of an estimator has its differences to the first, seed by seed, too.
    """
    head = ["estimator", "setting", "Recall@1", "R-AUROC", "Recall@1, less the first", "R-AUROC, less the first"]
    rows = [[*head, "best by", "rank correlation", "paper: Recall@1", "paper: R-AUROC"]]
    for name, settings in by_estimator.items():
        published = ESTIMATORS[name].published
        for each in settings:
            by = [title for title, measure in zip(head[2:4], MEASURES, strict=True) if best(settings, measure) is each]
            less = ["", ""] if each is settings[0] else _cells(each.downstream - settings[0].downstream, signed=True)
            paper = ["", ""]
            if published is not None:
                paper = [" / ".join(map(number, pair)) for pair in (published.recall, published.r_auroc)]
            cells = [*_cells(each.downstream), *less]
            rows.append([name, each.text, *cells, " and ".join(by), number(traded(settings)), *paper])
    return rows


def _cells(values: NDArray[np.float64], *, signed: bool = False) -> list[str]:
    """Return the mean of each column over seeds, with half its interval if there are several."""
    halves = ["" if np.isnan(half) else f"±{number(half)}" for half in half_width(values)]
    return [number(mean, signed=signed) + half for mean, half in zip(values.mean(0), halves, strict=True)]


@drawing()
def figure(by_estimator: Mapping[str, Sequence[Setting]]) -> "Figure":
    """Draw figure 2 as it is here (seeds are faint) and in the paper (squares: ViT-M), and figure 3.

    In figure 3 a square is the setting that is best by Recall@1, and the disc at the other end the best by R-AUROC.
    """
    drawn = new_figure(HEIGHT, WIDTH)
    ours, paper, trade = new_axes(drawn, 3, 3)
    for at, (name, settings) in enumerate(by_estimator.items()):
        chosen, tint = best(settings, "r_auroc"), colour(at)
        x, y = chosen.downstream.mean(0)
        ours.plot(*chosen.downstream.T, "o", color=tint, markersize=1.5, alpha=0.4)
        ours.plot(x, y, "o", color=tint, markersize=3)
        _named(ours, x, y, name, tint)
        published = ESTIMATORS[name].published
        for place, marker in enumerate("os" if published else ""):
            x, y = published.recall[place], published.r_auroc[place]  # type: ignore[union-attr]
            paper.plot(x, y, marker, color=tint, markersize=3)
            _named(paper, x, y, name, tint)
        ends = np.array([best(settings, measure).downstream.mean(0) for measure in MEASURES])
        trade.plot(*ends.T, "-", color=tint, linewidth=0.8)
        trade.plot(*ends[0], "s", color=tint, markersize=3)
        trade.plot(*ends[1], "o", color=tint, markersize=3)
        _named(trade, *ends[1], name, tint)
    name_axes(ours, "Recall@1, here", "R-AUROC")
    name_axes(paper, "Recall@1, the paper", "R-AUROC")
    name_axes(trade, "Recall@1, best by either", "R-AUROC")
    return drawn


def _named(axes: Any, x: float, y: float, name: str, tint: str) -> None:
    axes.annotate(name.partition(",")[0], (x, y), xytext=(2, 1), textcoords="offset points", fontsize=4.5, color=tint)


def prepared(a: argparse.Namespace) -> tuple[Backbone, TrainingSet, dict[str, TrainingSet]]:
    """Return the network to start from, upstream images to tune it on, and the sets to measure."""
    start = backbone_of("upstream", a.data, a.work, backbone=a.backbone, size=a.size, epochs=a.start_epochs)
    pictures = measured(a.data, a.limit)
    names = np.array([key.split("/")[0] for key in pictures.keys])
    sets = {of: decoded(pictures.take(np.flatnonzero(names == of)), a.size) for of in (CHOOSING, *DOWNSTREAM)}
    return start, decoded(upstream(a.data, per_class=a.per_class), a.size), sets


def parse_arguments(typed: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what was typed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser)
    parser.add_argument("--work", type=Path, default=Path("build/url-tuned"), help="where results are kept")
    parser.add_argument("--estimators", nargs="+", default=PUBLISHED, choices=list(ESTIMATORS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=2, help="of tuning")
    parser.add_argument("--batch", type=int, default=64, help="images a step")
    parser.add_argument("--per-class", type=int, default=15, help="upstream images of a class to tune on")
    parser.add_argument("--limit", type=int, default=150, help="the most images of a set downstream")
    parser.add_argument("--backbone", default="test_resnet", help="timm's name")
    parser.add_argument("--size", type=int, default=32, help="side in pixels")
    parser.add_argument("--start-epochs", type=int, default=3, help="of the classifier to start from")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--csv", type=Path, help="write the table")
    parser.add_argument("-o", "--out", type=Path, help="draw the figures: PNG, SVG or PDF")
    a = parser.parse_args(typed)
    if min(a.seeds, a.epochs, a.batch, a.per_class, a.limit, a.start_epochs) < 1:
        parser.error("--seeds, --epochs, --batch, --per-class, --limit and --start-epochs take at least 1")
    a.data = use_data(a.data, is_read=True)
    return a


def main(typed: Sequence[str] | None = None) -> None:
    """Run what is missing yet, print the table and draw the figures."""
    a = parse_arguments(typed)
    names = ("epochs", "batch", "per_class", "limit", "backbone", "size", "start_epochs")
    ledger = Ledger(a.work / "results", {name: getattr(a, name) for name in names} | {"sets": list(DOWNSTREAM)})
    runs = [(seed, name, text) for seed in range(a.seeds) for name in a.estimators for text in settings_of(name)]
    try:
        if not all(ledger.path(f"{name} {text}", seed).exists() for seed, name, text in runs):
            start, data, sets = prepared(a)
            for seed, name, text in runs:
                chosen = settings_of(name)[text]
                result = ledger.of(
                    f"{name} {text}", seed, lambda n=name, c=chosen, s=seed: run(n, c, start.bare, data, sets, a, s)
                )
                mean = np.mean([result["measures"][of] for of in DOWNSTREAM], axis=0)
                print(f"seed {seed} {name} {text}: Recall@1 {mean[0]:.3f}, R-AUROC {mean[1]:.3f}", flush=True)
    except InputError as error:
        raise SystemExit(f"error: {error}") from None
    by_estimator = {name: [_read(ledger, name, text, a.seeds) for text in settings_of(name)] for name in a.estimators}
    rows = rows_of(by_estimator)
    print("\n".join("| " + " | ".join(row) + " |" for row in rows))
    print(over_estimators(by_estimator))
    if a.csv:
        with a.csv.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)
    if a.out:
        save_chart(figure(by_estimator), a.out, overwrite=True)


def _read(ledger: Ledger, name: str, text: str, seeds: int) -> Setting:
    key = f"{name} {text}"
    results = [result["measures"] for result in ledger.known([key], range(seeds))[key]]
    downstream = np.array([[each[of] for of in DOWNSTREAM] for each in results])  # (S, sets, 2)
    return Setting(name, text, downstream.mean(1), np.array([each[CHOOSING] for each in results]))


if __name__ == "__main__":
    main()
