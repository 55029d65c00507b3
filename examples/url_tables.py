"""The tables of the URL benchmark: means over seeds and sets, each with its 95 % interval, next to the paper's numbers.

An interval is of 300 resamples: in each the images of every set are drawn again, and so are the seeds. The sets stay,
so that it says nothing of a ninth. All estimators are measured on the same resamples.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from url_baselines import FITTED, OF_PICTURES
from url_data import DOWNSTREAM, SEEN, UNSEEN, VOTED
from url_estimators import ESTIMATORS
from url_measures import (
    CROP,
    DISAGREE,
    FEW,
    FEW_BEFORE,
    MIXED,
    OOD,
    PEOPLE,
    R_AUROC,
    Floats,
    Measured,
    Question,
    questions,
    resampled,
)

from scoring.metrics.ranking import spearman
from scoring.metrics.resampling import percentiles

BOTH = ("ResNet-50", "ViT-M")  # of the paper


def number(value: float, *, signed: bool = False) -> str:
    """Return a number to three places as tables have it.

    >>> number(0.5), number(-0.0312), number(1.0), number(0.02, signed=True)
    ('.500', '-.031', '1.000', '+.020')
    """
    text = f"{value:{'+' if signed else ''}.3f}"
    return text.replace("0.", ".", 1) if abs(value) < 0.9995 else text


def cell(samples: Floats | None) -> str:
    """Return the value, the first of the samples, with half the interval of the others; empty if absent."""
    if samples is None:
        return ""
    low, high = (float(bound[0]) for bound in percentiles(samples[1:, None]))
    return f"{number(samples[0])} ±{number((high - low) / 2)}"


def bounds(samples: Floats, *, signed: bool = False) -> str:
    """Return the value with the ends of its interval."""
    low, high = (float(bound[0]) for bound in percentiles(samples[1:, None]))
    return f"{number(samples[0], signed=signed)} [{', '.join(number(end, signed=signed) for end in (low, high))}]"


@dataclass(frozen=True)
class Samples:
    """What one estimator reached: (measure, set) -> samples of each seed, shape (S, 1 + R)."""

    values: dict[tuple[str, str], Floats]
    drawn: NDArray[np.int64]  # which seeds each resample takes, shape (R, S); the value's is each once

    def of(self, measure: str, sets: Iterable[str]) -> Floats | None:
        """Return samples of the mean over sets and seeds, shape (1 + R,); None where a set was not measured."""
        each = [self.values.get((measure, name)) for name in sets]
        if not each or any(sample is None for sample in each):
            return None
        mean = np.mean([sample for sample in each if sample is not None], axis=0)  # (S, 1 + R)
        seeds = self.drawn % len(mean)
        return np.concatenate([[mean[:, 0].mean()], mean[seeds, 1 + np.arange(len(seeds))[:, None]].mean(1)])

    def by_seed(self, measure: str, sets: Sequence[str]) -> Floats:
        """Return the mean over sets of each seed, shape (S,)."""
        return np.mean([self.values[measure, name][:, 0] for name in sets], axis=0)


class Judge:
    """Measures results of one backbone, all on the same resamples."""

    def __init__(self, measured: Measured, seeds: Sequence[int]) -> None:
        self.measured, self.counts = measured, resampled(measured)
        self.asked: dict[int, list[Question]] = {seed: questions(measured, seed) for seed in seeds}
        self.drawn = np.random.default_rng(4).integers(0, len(seeds), (len(self.counts) - 1, len(seeds)))

    def samples_of(self, results: Sequence[Mapping[str, Any]]) -> Samples:
        """Return what the results of all seeds of an estimator reached."""
        values: dict[tuple[str, str], list[Floats]] = {}
        for result in results:
            answers = {dataset: np.asarray(said, np.float64) for dataset, said in result["answers"].items()}
            for question in self.asked[result["seed"]]:
                needed = [question.dataset, *([f"{question.dataset}, crops"] if question.target is None else [])]
                if all(dataset in answers for dataset in needed):
                    name = (question.measure, question.of)
                    values.setdefault(name, []).append(question.values(answers, self.counts))
        return Samples({name: np.stack(each) for name, each in values.items()}, self.drawn)

    def recalls(self) -> dict[str, Floats]:
        """Return samples of Recall@1 by set, shape (1 + R,), and of its mean downstream."""
        recalls_of = {}
        for question in self.asked[min(self.asked)]:
            if question.measure == R_AUROC and question.target is not None:
                counted = self.counts[:, question.rows]
                recalls_of[question.of] = (counted @ ~question.target.astype(bool)) / counted.sum(1)
        return recalls_of | {"downstream": np.mean([recalls_of[name] for name in DOWNSTREAM], axis=0)}


def few_sets() -> list[str]:
    """Return the sets of which a few images are learned from."""
    return [name for name, where in DOWNSTREAM.items() if where.is_few]


def line(cells: Iterable[str]) -> str:
    """Return a line of a table."""
    return f"| {' | '.join(cells)} |"


def head(names: Sequence[str]) -> list[str]:
    """Return the first two lines of a table."""
    return [line(names), line(["---"] * len(names))]


def main_table(samples: Mapping[str, Samples]) -> list[str]:
    """Return one line an estimator, and then one a baseline: all measures, and the paper's R-AUROC and crops."""
    columns = {
        "R-AUROC downstream": (R_AUROC, tuple(DOWNSTREAM)),
        "unseen classes": (R_AUROC, (UNSEEN,)),
        "seen classes": (R_AUROC, (SEEN,)),
        "crop": (CROP, tuple(DOWNSTREAM)),
        "votes": (PEOPLE, (VOTED,)),
        "OOD AUROC": (OOD, tuple(DOWNSTREAM)),
        "mixed R-AUROC": (MIXED, tuple(DOWNSTREAM)),
        "zero-shot": (FEW_BEFORE, tuple(few_sets())),
        "few-shot": (FEW, tuple(few_sets())),
        "annotators disagree": (DISAGREE, (VOTED,)),
    }
    lines = head(["estimator", *columns, "paper: R-AUROC", "paper: crop"])
    for name, sampled in samples.items():
        published = ESTIMATORS[name].published if name in ESTIMATORS else None
        published_cells = ["", ""] if published is None else [pair(published.r_auroc), pair(published.crop)]
        cells = [cell(sampled.of(measure, sets)) for measure, sets in columns.values()]
        lines.append(line([name, *cells, *published_cells]))
    return lines


def pair(values: tuple[float, float]) -> str:
    """Return the two numbers of the paper."""
    return " / ".join(number(value) for value in values)


def sets_table(samples: Mapping[str, Samples], recalls: Mapping[str, Floats]) -> list[str]:
    """Return R-AUROC by set, with Recall@1 first, and the least and most of the seeds' means."""
    names = [SEEN, UNSEEN, *DOWNSTREAM]
    lines = head(["R-AUROC", *names, "seeds, downstream"])
    lines.append(line(["Recall@1", *(cell(recalls[name]) for name in names), ""]))
    for name, sampled in samples.items():
        seeds = sampled.by_seed(R_AUROC, list(DOWNSTREAM))
        spread = f"{number(seeds.min())} to {number(seeds.max())}" if len(seeds) > 1 else ""
        lines.append(line([name, *(cell(sampled.of(R_AUROC, [of])) for of in names), spread]))
    return lines


def best_of_pictures(samples: Mapping[str, Samples]) -> tuple[str, Floats]:
    """Return the best baseline that reads the image alone, downstream, the other way round where that is better."""
    ways: dict[str, Floats] = {}
    for name in OF_PICTURES:
        ahead = samples[name].of(R_AUROC, list(DOWNSTREAM)) if name in samples else None
        if ahead is not None:
            ways |= {name: ahead, f"{name}, turned round": 1 - ahead}
    best = max(ways, key=lambda name: float(ways[name][0]))
    return best, ways[best]


def ahead_table(samples: Mapping[str, Samples]) -> list[str]:
    """Return how far each estimator is above chance level, of the best of the image alone, and of the fitted score."""
    sets = list(DOWNSTREAM)
    best, picture = best_of_pictures(samples)
    lines = head(["R-AUROC downstream, less", "chance level (.5)", f"{best} ({number(picture[0])})", FITTED])
    dataset = samples[FITTED].of(R_AUROC, sets)
    for name in (name for name in samples if name in ESTIMATORS):
        estimator = samples[name].of(R_AUROC, sets)
        if estimator is not None and dataset is not None:
            lines.append(line([name, *(bounds(estimator - other, signed=True) for other in (0.5, picture, dataset))]))
    return lines


def variants_table(samples: Mapping[str, Samples]) -> list[str]:
    """Return how far variants of an estimator, "NAME: SETTING=VALUE", are from the first of them, or from itself."""
    measures = {"R-AUROC downstream": (R_AUROC, tuple(DOWNSTREAM)), "annotators disagree": (DISAGREE, (VOTED,))}
    lines = head(["less the first of its estimator", *measures])
    first: dict[str, str] = {}
    for name in (name for name in samples if name in ESTIMATORS):
        base = first.setdefault(name.partition(": ")[0], name)
        if base != name:
            pairs = [(samples[name].of(*each), samples[base].of(*each)) for each in measures.values()]
            gaps = [None if a is None or b is None else a - b for a, b in pairs]
            lines.append(line([name, *("" if gap is None else bounds(gap, signed=True) for gap in gaps)]))
    return lines if len(lines) > 2 else []


def order_table(of_each: Mapping[str, Samples]) -> list[str]:
    """Return the place of each estimator, downstream, and in the paper; and how the orders agree."""
    ours = {name: of_each[name].of(R_AUROC, list(DOWNSTREAM)) for name in of_each if name in ESTIMATORS}
    published = {name: ESTIMATORS[name].published for name in ours}
    names = [name for name in ours if published[name] is not None and ours[name] is not None]
    if len(names) < 3:
        return []
    samples = np.stack([ours[name] for name in names])  # (E, 1 + R)
    papers = [np.array([published[name].r_auroc[at] for name in names]) for at in range(2)]
    papers.append(np.mean(papers, axis=0))
    heads = [*BOTH, "mean of both"]
    lines = head(["estimator", "place here", *(f"place in the paper, {which}" for which in heads)])
    columns = [samples[:, 0], *papers]
    for at in np.argsort(-samples[:, 0]):
        places = [str(1 + int((values > values[at]).sum())) for values in columns]
        lines.append(line([names[at], *places]))
    agree = [bounds(np.array([spearman(sample, paper) for sample in samples.T])) for paper in papers]
    return [*lines, line(["rank correlation with here", "", *agree])]


def tables(judge: Judge, results: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Return all tables of a backbone."""
    samples = {name: judge.samples_of(each) for name, each in results.items()}
    parts = [main_table(samples), sets_table(samples, judge.recalls()), ahead_table(samples)]
    parts += [variants_table(samples), order_table(samples)]
    return [row for part in parts if part for row in [*part, ""]]
