"""What intervals over views hold, and how good they are: coverage, decisions that flip, and being wrong.

    python benchmarks/intervals.py IMAGES.parquet [--images 1500] [--label label] [--model world]

Images come from the column ``image``. Views 0 to 15 make the intervals, views 16 to 31 are the fresh ones that nobody
has looked at. Ends of intervals on what is printed: bootstrap over images.
"""

import argparse
import time
from dataclasses import dataclass

import numpy as np
import pyarrow.parquet as pq
import torch
from scipy.stats import t

from scoring.checkpoint import load_model
from scoring.images import decode
from scoring.intervals import coverage
from scoring.metrics.ranking import auroc
from scoring.runner import BATCH_SIZE, Runner, select_device, select_precision
from scoring.views import draws, views_of

VIEWS, FRESH = 16, 16
SHARES = (0.9, 0.8, 0.5)  # of the images that a filter keeps
DRAWS = 400


@dataclass(frozen=True)
class Scored:
    """Scores of N images: by column, of the image, of 16 views and of 16 fresh views, shape (N, 33); and embeddings."""

    columns: dict[str, np.ndarray]
    embedding: np.ndarray


def main() -> None:
    """Score the images and their views, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("--images", type=int, default=1500)
    parser.add_argument("--label")
    parser.add_argument("--model", default="world")
    asked = parser.parse_args()
    table = pq.read_table(asked.source)
    rows = np.sort(np.random.default_rng(0).permutation(table.num_rows)[: asked.images])
    table = table.take(rows)
    started = time.monotonic()
    scored = score(table["image"].to_pylist(), asked.model)
    print(f"{len(rows):,} images of {asked.source}, scored 33 times in {time.monotonic() - started:.0f} s")
    for name in scored.columns:
        if f"kappa_{name.removeprefix('unc_')}" in scored.columns:
            continue  # 1/kappa, of the same ranks
        covered(name, scored.columns[name])
        flips(name, scored.columns[name])
        if asked.label:
            labels = np.array(table[asked.label].to_pylist())
            worth(name, scored.columns[name], is_wrong(scored.embedding, labels))


def score(images: list[bytes], name: str) -> Scored:
    """Score images and 32 views of each."""
    model, _ = load_model(name)
    device = select_device("auto")
    runner = Runner(model, device, select_precision("auto", device, model.spec.cpu_precision))
    columns: dict[str, list[np.ndarray]] = {column: [] for column in runner.columns}
    embeddings, step = [], BATCH_SIZE[device.type]
    for start in range(0, len(images), step):
        decoded = [decode(data, model.spec.preprocessing) for data in images[start : start + step]]
        good = [one for one in decoded if one.pixels is not None]
        pixels = np.stack([one.pixels for one in good if one.pixels is not None])
        first = runner.submit(pixels).result()
        every = [first.columns]
        for view in range(VIEWS + FRESH):
            drawn = draws([one.sha256 for one in good], view)
            seen = views_of(torch.from_numpy(pixels).permute(0, 3, 1, 2), drawn).permute(0, 2, 3, 1)
            every.append(runner.submit(seen.contiguous().numpy()).result().columns)
        embeddings.append(first.embedding)
        for column, values in columns.items():
            values.append(np.stack([one[column] for one in every], 1).astype(np.float64))
    return Scored({column: np.concatenate(values) for column, values in columns.items()}, np.concatenate(embeddings))


def covered(name: str, scores: np.ndarray) -> None:
    """Print how often an interval holds the score of a fresh view."""
    fresh = scores[:, 1 + VIEWS :]
    for n in (4, 8, 16):
        views, with_score = scores[:, 1 : 1 + n], scores[:, : 1 + n]
        alone, both = (
            ((fresh >= one.min(1)[:, None]) & (fresh <= one.max(1)[:, None])).mean(1) for one in (views, with_score)
        )
        width = np.median(with_score.max(1) / with_score.min(1))
        below, above = (scores[:, 0] < views.min(1)).mean(), (scores[:, 0] > views.max(1)).mean()
        print(
            f"{name:16s} {n:2d} views: promised {coverage(n):.3f}, of views alone {alone.mean():.3f}, "
            f"held {both.mean():.3f} {band(both)}, upper / lower {width:.2f}; "
            f"by Student's t {student(views, fresh):.3f}; score below all views {below:.3f}, above {above:.3f}"
        )


def student(views: np.ndarray, fresh: np.ndarray) -> float:
    """Return the share of fresh views in prediction intervals by Student's t, of logarithms, at the same level."""
    n = views.shape[1]
    log = np.log(views)
    half = t.ppf((1 + coverage(n)) / 2, n - 1) * log.std(1, ddof=1) * np.sqrt(1 + 1 / n)
    return float((np.abs(np.log(fresh) - log.mean(1)[:, None]) <= half[:, None]).mean())


def flips(name: str, scores: np.ndarray, n: int = 8) -> None:
    """Print how often a fresh view would be decided otherwise, among decided and undecided images."""
    score, fresh, seen = scores[:, 0], scores[:, 1 + VIEWS :], scores[:, : 1 + n]
    high = name.startswith("kappa_")
    for share in SHARES:
        cut = np.quantile(score, 1 - share if high else share)
        stays = (lambda values, cut=cut: values >= cut) if high else (lambda values, cut=cut: values <= cut)
        undecided = stays(seen.min(1)) != stays(seen.max(1))
        flip = (stays(fresh) != stays(score)[:, None]).mean(1)
        nearest = np.zeros(len(score), bool)
        nearest[np.argsort(np.abs(np.log(score / cut)))[: undecided.sum()]] = True
        print(
            f"{name:16s} keeps {share:.0%}: undecided {undecided.mean():.3f}; flips: all {flip.mean():.3f}, decided "
            f"{flip[~undecided].mean():.4f} {band(flip[~undecided])}, undecided {flip[undecided].mean():.3f}; as many "
            f"nearest to the cut by score set aside {flip[~nearest].mean():.4f}"
        )


def worth(name: str, scores: np.ndarray, wrong: np.ndarray, n: int = 8) -> None:
    """Print how well an image whose nearest is of another class is determined by score, strict end and width."""
    sign = -1 if name.startswith("kappa_") else 1
    seen = scores[:, : 1 + n]
    strict = seen.min(1) if sign < 0 else seen.max(1)
    told = {"score": sign * scores[:, 0], "strict end": sign * strict, "width": np.log(seen.max(1) / seen.min(1))}
    said = [f"{what} {auroc(values, wrong):.3f}" for what, values in told.items()]
    print(f"{name:16s} AUROC of a nearest image of another class ({wrong.mean():.3f}): {', '.join(said)}")


def is_wrong(embedding: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return whose nearest other image, by the cosine of centred embeddings, is of another class."""
    rows = embedding - embedding.mean(0)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    cosine = rows @ rows.T
    np.fill_diagonal(cosine, -2)
    return labels[cosine.argmax(1)] != labels


def band(values: np.ndarray) -> str:
    """Return the 95 % interval of a mean, by bootstrap over images."""
    generator = np.random.default_rng(0)
    means = [values[generator.integers(0, len(values), len(values))].mean() for _ in range(DRAWS)]
    low, high = np.quantile(means, [0.025, 0.975])
    return f"({low:.3f} to {high:.3f})"


if __name__ == "__main__":
    main()
