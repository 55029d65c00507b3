"""Fit the verifier of near-duplicates: edits of photographs against other photographs that look most like them.

    python examples/train_verifier.py [--data DATA] [--model MODEL] [--tables FOLDER]

Five datasets, of the images that shipped models may be trained on: photographs at their own size, tiny-imagenet at 64
pixels, CIFAR-10 at 32, and squares out of the first two at 32 pixels, as small photographs of the web are made. To each
come copies of some of its images: another crop, shift, size, tilt, mirrored, other colours, grey, compressed harder;
half of those at their own size are one edit of ``scoring.edits`` instead of all these. What is no copy and lies
nearest is the other class. Prints the weights for ``curate/policies/dedup/finders/verified.py``, and what they are
worth on a dataset that they were not fitted on.
"""

import argparse
import io
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image, ImageEnhance

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

from named_data import add_data, open_data

import curate
from curate.policies.dedup.finders.verified import LEAST_TO_FIT, Verified, Weights, closeness, probability_of
from curate.tables.needs import Needs
from curate.tables.rows import Rows, read_rows
from curate.tables.table import open_table
from scoring.edits import EDITS, edited
from scoring.images import decode_rgb
from scoring.images.signature import views

FILES = ("photos_unlabelled", "tinyimagenet_train_a", "cifar10_train")

SMALL = 32  # pixels, of squares
HARD = 2  # nearest pairs that are no copies, to each copy
OTHERS = 1000  # of the other candidates of a dataset; each represents as many more
RIDGE = 1e-3
COLUMNS = ("content", "signature", "denser", "sparser", "part")
SIGNS = np.array([1, 1, -1, -1, 1])  # which way each may count
PROBABILITIES = (0.5, 0.9, 0.95, 0.98)  # probabilities at which precision and recall are reported


@dataclass(frozen=True)
class Planted:
    """A dataset with copies in it: encoded images; ``source[i]`` is the image that image i is a copy of, or i."""

    name: str
    images: list[bytes]
    source: np.ndarray


@dataclass(frozen=True)
class Judged:
    """P pairs of a dataset: evidence, fitted parts (P,), whether they are copies (P,), and their weights.

    Attributes:
        missed: copies that were no candidates.
    """

    evidence: np.ndarray  # as for ``Weights``
    part: np.ndarray
    same: np.ndarray
    weight: np.ndarray
    missed: int


def saved(picture: Image.Image, quality: int = 90) -> bytes:
    """Return an image as JPEG."""
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def another_version(picture: Image.Image, generator: np.random.Generator, side: int | None = None) -> bytes:
    """Return another crop of an image, perhaps tilted, squeezed to a square, mirrored, recoloured, or grey."""
    width, height = picture.size
    share = generator.uniform(0.72, 1) * np.exp(generator.normal(0, 0.05, 2))
    wide, tall = (max(8, round(float(np.clip(s, 0.68, 1)) * of)) for s, of in zip(share, picture.size, strict=True))
    left, top = generator.integers(0, width - wide + 1), generator.integers(0, height - tall + 1)
    picture = picture.crop((int(left), int(top), int(left) + wide, int(top) + tall))
    if generator.random() < 0.3:
        picture = picture.rotate(generator.uniform(-6, 6), Image.Resampling.BICUBIC)
    if side:
        kind = Image.Resampling.BICUBIC if generator.random() < 0.7 else Image.Resampling.LANCZOS
        picture = picture.resize((side, side), kind)
    if generator.random() < 0.3:
        picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    for kind_of in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
        if generator.random() < 0.4:
            picture = kind_of(picture).enhance(float(np.exp(generator.normal(0, 0.25))))
    if generator.random() < 0.15:
        picture = picture.convert("L").convert("RGB")
    return saved(picture, int(generator.integers(50, 95)))


def small_square(picture: Image.Image, generator: np.random.Generator) -> bytes:
    """Return a square out of an image, 85 to 100 % of its shorter side, at 32 pixels."""
    side = int(min(picture.size) * generator.uniform(0.85, 1))
    left, top = (int(generator.integers(0, of - side + 1)) for of in picture.size)
    square = picture.crop((left, top, left + side, top + side)).resize((SMALL, SMALL), Image.Resampling.BICUBIC)
    return saved(square, int(generator.integers(70, 95)))


def planted(name: str, images: list[bytes], n: int, seed: int, *, small: bool = False) -> Planted:
    """Return images with copies of n of them; ``small`` makes squares of 32 pixels of both."""
    generator = np.random.default_rng(seed)
    source = generator.choice(len(images), n, replace=False)
    copies = []
    for row in source:
        picture = Image.fromarray(decode_rgb(images[row]))
        if not small and generator.random() < 0.5:
            edit = list(EDITS)[generator.integers(len(EDITS))]
            copies.append(edited(edit, picture, int(generator.integers(1 << 30))))
        else:
            copies.append(another_version(picture, generator, SMALL if small else None))
    base = [small_square(Image.fromarray(decode_rgb(each)), generator) for each in images] if small else images
    return Planted(name, [*base, *copies], np.concatenate([np.arange(len(images)), source]))


def datasets(data: Path) -> Iterator[Planted]:
    """Yield the datasets."""

    def drawn(file: str, n: int, seed: int) -> list[bytes]:
        column = pq.read_table(data / file, columns=["image"])["image"]
        return column.take(np.sort(np.random.default_rng(seed).choice(len(column), n, replace=False))).to_pylist()

    photographs = pq.read_table(data / "photos_unlabelled.parquet", columns=["image"])["image"].to_pylist()
    tiny = drawn("tinyimagenet_train_a.parquet", 8000, 0)
    yield planted("photographs", photographs, 500, 2)
    yield planted("tiny-imagenet", tiny, 400, 3)
    yield planted("CIFAR-10", drawn("cifar10_train.parquet", 5000, 1), 2400, 1)
    yield planted("photographs, 32 pixels", photographs[::3], 600, 5, small=True)
    yield planted("tiny-imagenet, 32 pixels", tiny[:1500], 600, 6, small=True)


def scored(dataset: Planted, folder: Path, model: str | None) -> Rows:
    """Return a dataset's embeddings and signatures."""
    source, out = (folder / f"{dataset.name}{end}.parquet" for end in (".source", ""))
    if not out.exists():
        pq.write_table(
            pa.table({"name": [f"{i:06}" for i in range(len(dataset.images))], "image": dataset.images}), source
        )
        curate.score(source, out, key="name", device="cpu", **({} if model is None else {"model": model}))
    return read_rows(open_table(out), Needs(representations=frozenset({"embedding", "signature"})))


def judged(rows: Rows, source: np.ndarray, seed: int = 0) -> Judged:
    """Return the copies among the candidates of a dataset, the hardest other pairs, and some of the rest."""
    finder = Verified(rows, 0.0, views(mirrored=True))
    a, b = finder.candidates()
    side = finder.surroundings.side
    evidence, _ = finder.surroundings.evidence(side, a, side, b)
    same = source[a] == source[b]
    other = np.flatnonzero(~same)
    other = other[np.argsort(-(3 * evidence.content + evidence.signature)[other], kind="stable")]
    hard = HARD * int(same.sum())
    rest = np.random.default_rng(seed).choice(other[hard:], OTHERS, replace=False)
    taken = np.concatenate([np.flatnonzero(same), other[:hard], rest])
    weight = np.ones(len(taken))
    weight[-OTHERS:] = (len(other) - hard) / OTHERS
    part = finder.parts.measure(a[taken], b[taken]).similarity.astype(float)
    missed = int((np.arange(len(source)) != source).sum() - (same & ((a == source[b]) | (b == source[a]))).sum())
    return Judged(evidence.take(taken), part, same[taken], weight, missed)


def fitted(pairs: list[Judged], *, parts: bool, first: Weights | None = None) -> Weights:
    """Return the maximum-likelihood weights; datasets count alike, and weights of the wrong sign are 0."""
    columns = np.concatenate([np.c_[closeness(each.evidence), closeness(each.part)] for each in pairs])
    same = np.concatenate([each.same for each in pairs])
    weight = np.concatenate([each.weight / each.same.sum() for each in pairs])
    use = np.array([True] * 4 + [parts])
    if first is not None:  # parts are fitted of these only
        odds = np.concatenate([first.log_odds(each.evidence) for each in pairs])
        some = probability_of(odds) >= LEAST_TO_FIT
        columns, same, weight = columns[some], same[some], weight[some]
    while True:
        weights = _logistic(columns[:, use], same, weight)
        wrong = weights[:-1] * SIGNS[use] < 0
        if not wrong.any():
            break
        use[np.flatnonzero(use)[wrong]] = False
    every = np.zeros(5)
    every[use] = weights[:-1]
    return Weights(**dict(zip(COLUMNS, every.round(3).tolist(), strict=True)), intercept=round(float(weights[-1]), 3))


def _logistic(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return coefficients and intercept by Newton's method, with a little ridge."""
    x = np.c_[x, np.ones(len(x))]
    beta = np.zeros(x.shape[1])
    weight = weight / weight.mean()
    for _ in range(100):
        p = probability_of(x @ beta)
        slope = x.T @ (weight * (y - p)) - RIDGE * beta
        step = np.linalg.solve((x * (weight * p * (1 - p))[:, None]).T @ x + RIDGE * np.eye(len(beta)), slope)
        beta += step / max(1.0, np.abs(step).max() / 2)
    return beta


def chances(first: Weights, last: Weights, pairs: Judged) -> np.ndarray:
    """Return the probability of pairs as the finder gives it."""
    odds = first.log_odds(pairs.evidence)
    enough = probability_of(odds) >= LEAST_TO_FIT
    return probability_of(np.where(enough, np.maximum(odds, last.log_odds(pairs.evidence, pairs.part)), odds))


def average_precision(score: np.ndarray, pairs: Judged) -> float:
    """Return it over the pairs; copies that were no candidates count as missed."""
    order = np.argsort(-score, kind="stable")
    same, weight = pairs.same[order], pairs.weight[order]
    precision = np.cumsum(same * weight) / np.cumsum(weight)
    return float(precision[same].sum() / (same.sum() + pairs.missed))


def tell(name: str, pairs: Judged, first: Weights, last: Weights) -> None:
    """Print how good weights are on a dataset."""
    score, evidence = chances(first, last, pairs), pairs.evidence
    for what, value in (
        ("signature", evidence.signature),
        ("embedding, centred", evidence.content),
        ("3/4 embedding + 1/4 signature", 3 * evidence.content + evidence.signature),
        ("part", pairs.part),
        ("verifier, before parts", first.log_odds(evidence)),
        ("verifier", score),
    ):
        print(f"{name:<26}{what:<32}{average_precision(value, pairs):.3f}")
    for least in PROBABILITIES:
        held = score >= least
        right, every = (pairs.weight[held] * pairs.same[held]).sum(), pairs.weight[held].sum()
        recall = right / (pairs.same.sum() + pairs.missed)
        print(
            f"{name:<26}probability >= {least:g}: precision {right / max(every, 1):.3f}, recall {recall:.3f}",
            flush=True,
        )


def study(pairs: dict[str, Judged]) -> None:
    """Print what is lost on a dataset that was left out, and the weights from all."""
    for name, left in pairs.items():
        others = [each for other, each in pairs.items() if other != name]
        first = fitted(others, parts=False)
        tell(name, left, first, fitted(others, parts=True, first=first))
    first = fitted(list(pairs.values()), parts=False)
    print("FIRST =", first)
    print("FITTED =", fitted(list(pairs.values()), parts=True, first=first))


def main() -> None:
    """Score, fit, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser)
    parser.add_argument("--model", help="that scores the datasets; the default one if left out")
    parser.add_argument("--tables", type=Path, help="folder that keeps the scored tables for the next run")
    a = parser.parse_args()
    data = open_data(a.data, FILES).need(*FILES)
    with tempfile.TemporaryDirectory() as scratch:
        folder = a.tables or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        study({dataset.name: judged(scored(dataset, folder, a.model), dataset.source) for dataset in datasets(data)})


if __name__ == "__main__":
    main()
