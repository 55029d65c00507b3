"""How good scores are on images that nothing was trained on, next to baselines and chance level, in one run.

    python benchmarks/transfer.py [--data DATA] [--model NAME|FILE] [--work FOLDER] [--only SECTION ...] [--json OUT]

Reads the development sets as Parquet (columns `image`, `label`; PACS also `domain`): grocery_160, monkeys10_160,
rsscn7_160 and the four domains of pacs_160; cifar10_test with cifar10h_test_0-1999, tinyimagenet_val, and
caltech_subset with caltech_subset_pairs.csv. Tables are scored by the package, and kept in --work for reruns.

- truth: Recall@1, and R-AUROC: does an uncertainty report which rows' nearest other row is of another class?
- in-domain: the same on classes that the shipped heads were trained on.
- `people`: votes of annotators on CIFAR-10 test images, and how images of 32 pixels fare.
- worse: is a corrupted copy, made at the original size, less certain?
- pairs: average precision on near-duplicates that annotators have judged, over all pairs of 2,663 photographs.
- junk: datasets with 10 and 30 % of junk in crowds: AUROC of each kind, and what keeping the most certain removes.
- keep: how good a classifier that learns from the most certain rows is, next to one that learns from as many at
  random.

Every number has a 95 % interval: a bootstrap over images, for means over sets and images. `p` is the share of 999
shuffles of the target that do as well; it is printed above .01, where chance level would do.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transfer_junk
import transfer_keep
import transfer_pairs
import transfer_people
import transfer_truth
import transfer_worse
from named_data import StudyData, add_data, open_data
from transfer_datasets import DEVELOPMENT, Dataset, Scored, development
from transfer_fit import FITTED, LOCAL, fitted, fitted_to, fitted_with
from transfer_numbers import aurocs
from transfer_scores import centred, dataset_scores
from transfer_tables import Column, Table

from scoring.model_names import DEFAULT


@dataclass(frozen=True)
class Run:
    """Where data and scored tables are; ``limit`` bounds the rows of the large sets."""

    data: Path
    scored: Scored
    random: Scored
    limit: int | None

    def datasets(self) -> Iterator[Dataset]:
        """Yield the development sets, scored."""
        for name in DEVELOPMENT:
            yield self.scored.dataset(name, *development(self.data, name))


def truth(run: Run) -> Iterator[Table]:
    """Recall@1, and R-AUROC against the nearest row before and after centring."""
    recalls, raw, middle = {}, {}, {}
    for dataset in run.datasets():
        random = run.random.dataset(dataset.name, *development(run.data, dataset.name))
        recalls[dataset.name] = transfer_truth.recalls(dataset, random)
        scores, with_few = transfer_truth.without_labels(dataset, random), transfer_truth.with_labels(dataset)
        for results, rows in ((raw, dataset.embedding), (middle, centred(dataset.embedding))):
            target = transfer_truth.mistaken(rows, dataset.label)
            results[dataset.name] = transfer_truth.r_aurocs(dataset, target, scores, with_few)
    yield Table("Recall@1", recalls)
    yield Table("R-AUROC", raw)
    yield Table(f"R-AUROC of {FITTED}", {name: transfer_truth.ahead(measures) for name, measures in raw.items()})
    yield Table("R-AUROC, neighbours after centring", middle)


def in_domain(run: Run) -> Iterator[Table]:
    """Recall@1 and R-AUROC where the classes were seen in training."""
    recalls, measures = {}, {}
    for name in transfer_people.IN_DOMAIN:
        dataset = transfer_people.in_domain(run.data, name, run.scored, run.limit)
        recalls[name] = transfer_truth.recalls(dataset, None)
        target = transfer_truth.mistaken(dataset.embedding, dataset.label)
        measures[name] = aurocs(transfer_truth.without_labels(dataset, None), target)
    yield Table("Recall@1, classes seen in training", recalls, of_sets=False)
    yield Table("R-AUROC, classes seen in training", measures, of_sets=False)


def people(run: Run) -> Iterator[Table]:
    """Votes of annotators, and neighbours, on images of 32 pixels."""
    dataset = transfer_people.in_domain(run.data, "CIFAR-10 test", run.scored, run.limit)
    yield Table("CIFAR-10, 20 neighbours", {"accuracy": transfer_people.neighbour_accuracy(dataset)}, of_sets=False)
    with_labels = {transfer_truth.ALL_LABELS: transfer_truth.cross_entropy(dataset.embedding, dataset.label)}
    scores = transfer_truth.without_labels(dataset, None) | with_labels
    correlations, disagreement = transfer_people.votes(run.data, scores)
    yield Table("CIFAR-10H, vote entropy", {"Spearman": correlations}, of_sets=False)
    columns = {"AUROC": disagreement}
    if (head := "unc_losspred") in disagreement:
        columns[f"{head} less"] = {name: disagreement[head].minus(each) for name, each in disagreement.items()}
    yield Table("CIFAR-10H, annotators disagree at all", columns, of_sets=False)


def worse(run: Run) -> Iterator[Table]:
    """Share of corrupted copies that are less certain."""
    measures: dict[str, dict[str, Column]] = {}
    for dataset in [*run.datasets(), transfer_pairs.scored_photos(run.data, run.scored)]:
        copies = transfer_worse.scored_copies(run.data, dataset.name, run.scored)
        scores = fitted_to(dataset, copies, run.scored) | transfer_worse.near_originals(dataset, copies)
        for kind, numbers in transfer_worse.seen(copies, scores).items():
            measures.setdefault(kind, {})[dataset.name] = numbers
    for kind, sets in measures.items():
        yield Table(f"less certain: {kind}", sets)


def pairs(run: Run) -> Iterator[Table]:
    """Average precision on near-duplicates."""
    dataset, truths = transfer_pairs.scored_photos(run.data, run.scored), transfer_pairs.judged(run.data)
    precisions: dict[str, Column] = {name: {} for name in truths}
    for likeness, alike in transfer_pairs.likenesses(dataset):
        for name, truth_ in truths.items():
            precisions[name][likeness] = transfer_pairs.average_precision(alike, truth_)
    yield Table("average precision, near-duplicates", precisions, of_sets=False)


def junk(run: Run) -> Iterator[Table]:
    """Junk against clean rows, by kind, and what keeping the most certain removes."""
    for part in transfer_junk.PLANTED:
        measures: dict[str, dict[str, Column]] = {}
        removed = {}
        for name in DEVELOPMENT:
            dataset = transfer_junk.junk_dataset(run.data, name, part, run.scored)
            scores = transfer_truth.without_labels(dataset, None)
            labelled = transfer_junk.some_clean(dataset)
            scores[f"{FITTED}, {transfer_junk.LABELLED:.0%} labels"] = fitted_with(dataset, labelled)[FITTED]
            for kind, numbers in transfer_junk.junk_aurocs(dataset, scores).items():
                measures.setdefault(kind, {})[name] = numbers
            removed[name] = transfer_junk.removed(dataset, scores)
        means = {kind: Table(kind, sets).with_mean()["mean"] for kind, sets in measures.items()}
        yield Table(f"AUROC, {part:.0%} junk, mean of sets", means, of_sets=False)
        yield Table(f"AUROC, {part:.0%} junk", measures["all"])
        yield Table(f"junk removed, {part:.0%}", removed)


def keep(run: Run) -> Iterator[Table]:
    """Accuracy of a probe on what is kept, less that on as many rows at random."""
    datasets: dict[str, Callable[[str], Dataset]] = {
        "clean": lambda name: run.scored.dataset(name, *development(run.data, name)),
        "30 % junk": lambda name: transfer_junk.junk_dataset(run.data, name, 0.30, run.scored),
    }
    for kind, dataset_of in datasets.items():
        gains: dict[str, dict[str, Column]] = {}
        for name in DEVELOPMENT:
            dataset = dataset_of(name)
            near = "nearest, centred"
            fits = fitted(dataset)
            by = {FITTED: fits[FITTED], near: dataset_scores(dataset.embedding)[near]}
            alone = dataset.scores | {LOCAL: fits[LOCAL]}  # which is by neighbourhood already
            for way, numbers in transfer_keep.differences(dataset, alone, by).items():
                gains.setdefault(way, {})[name] = numbers
        for way, sets in gains.items():
            yield Table(f"{kind}, kept {way}", sets)


SECTIONS: dict[str, Callable[[Run], Iterator[Table]]] = {
    "truth": truth,
    "in-domain": in_domain,
    "people": people,
    "worse": worse,
    "pairs": pairs,
    "junk": junk,
    "keep": keep,
}


OF_ANY = ("truth", "junk", "keep")  # sections that any labelled sets will do for
OTHER_FILES = {
    "in-domain": tuple(transfer_people.IN_DOMAIN.values()),
    "people": ("cifar10_test", transfer_people.VOTES),
    "worse": (transfer_pairs.FILE,),
    "pairs": (transfer_pairs.FILE, f"{transfer_pairs.FILE}_pairs"),
}
FILES = dict.fromkeys(
    [*(file for file, _ in DEVELOPMENT.values()), *(name for each in OTHER_FILES.values() for name in each)]
)


def files_of(section: str) -> list[str]:
    """Return the files that a section reads."""
    sets = [file for file, _ in DEVELOPMENT.values()] if section in (*OF_ANY, "worse") else []
    return [*sets, *OTHER_FILES.get(section, ())]


def use_added(data: StudyData) -> None:
    """Run on sets of yours instead of the development sets; junk of another domain comes from the next of them."""
    if len(data.added) < 2:
        raise SystemExit(
            "error: expected two sets of yours or more, of which one is the other domain of the next; got one"
        )
    DEVELOPMENT.clear()
    DEVELOPMENT.update({name: (name, None) for name in data.added})
    transfer_junk.DOMAIN.update(zip(data.added, (*data.added[1:], data.added[0]), strict=True))


def main() -> None:
    """Print every table, and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser)
    parser.add_argument("--model", default=DEFAULT, help="a shipped model's name, or a checkpoint")
    parser.add_argument("--work", type=Path, default=Path("build/transfer"), help="where scored tables are kept")
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), help="of your sets: truth, junk and keep")
    parser.add_argument("--limit", type=int, help="rows of CIFAR-10 and tiny-imagenet, the first ones")
    parser.add_argument("--json", type=Path, help="write the numbers here, too")
    arguments = parser.parse_args()
    scored = Scored.of(arguments.model, arguments.work)
    data = open_data(arguments.data, FILES, sets=True)
    if data.added:
        use_added(data)
    only = arguments.only or (OF_ANY if data.added else list(SECTIONS))
    run = Run(
        data.need(*dict.fromkeys(file for name in only for file in files_of(name))),
        scored,
        scored.random_weights(),
        arguments.limit,
    )
    record: dict[str, Any] = {"model": scored.folder.name}
    for name in only:
        started = time.monotonic()
        for table in SECTIONS[name](run):
            record[table.title] = table.to_json()
            print(f"\n{table.markdown()}", flush=True)
        print(f"{name}: {time.monotonic() - started:,.0f} s", flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
