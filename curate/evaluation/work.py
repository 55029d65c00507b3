"""The steps of one evaluation of score columns: rows, predictions, measures, agreement with votes and another set."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from curate.evaluation import correctness
from curate.evaluation.degraded import LAPLACIAN, LARGER, Degraded, degrade, degraded_measures
from curate.evaluation.joined import LabelledFile, class_names, named_column, open_labelled, vote_counts
from curate.evaluation.measures import Caveats, Measure, Shape, measured
from curate.evaluation.options import EvaluateOptions
from curate.evaluation.protocol import Protocol
from curate.evaluation.results import Evaluation
from curate.evaluation.rows import (
    FEWEST_ROWS,
    MeasuredRows,
    certainties,
    embeddings,
    sampled,
    score_columns,
    select_rows,
    squares,
)
from curate.evaluation.trained import TrainingRows, judge_by, training_rows
from curate.options.values import several
from curate.statistics.weighted import RankOrder, weighted_spearman
from curate.tables.provenance import digest_of_model, require_same_model
from curate.tables.table import Table
from scoring.arrays import Array, Floats
from scoring.cards import read_header, shipped_models
from scoring.checkpoint import load_model
from scoring.errors import InputError
from scoring.metrics.ranking import entropy, ranks
from scoring.metrics.resampling import permutation_test_linear
from scoring.runner import Runner, select_device, select_precision
from scoring.settings import require_between, require_seed

MOST_REPEATS = 100_000
MOST_FAST = 100_000  # rows that are compared with one another in one to two minutes
DRAWN = 20_000  # rows that are compared with all others of a larger table; intervals of shares are at most 0.014 wide
FOLDS = 5  # folds of the linear classifier's cross-validation
SETTINGS = ("repeats", "seed", "sample", "degrade", "device")  # that determine the numbers, for the result
VOTES = Shape(
    "Spearman, votes", "higher", "rank correlation of uncertainty with the entropy of human votes; 0 means no relation"
)
APART = Shape(
    "AUROC, against",
    "",
    "probability that a row of this table is more certain than one of the other; 0.5 cannot be separated",
)


def judge_table(table: Table, options: EvaluateOptions) -> tuple[MeasuredRows, correctness.Correctness]:
    """Return the rows and the correctness of predictions on the same folds as ``evaluate``.

    ``certainty_of`` gives the certainty by every column. Raises InputError as ``evaluate`` does; also if there are no
    embeddings to predict from.
    """
    names, same_ranks = score_columns(table, several(options.column))
    work = EvaluationWork(table, options, Caveats(same_ranks))
    work.begin(names, options.label, open_labelled(options.labelled))
    work.judge()
    if work.correctness is None:
        raise InputError(f"--label: nothing can be predicted: {work.result_.caveats.without_embeddings}")
    return work.rows, work.correctness


def certainty_of(rows: MeasuredRows, known: correctness.Correctness | None) -> dict[str, Floats]:
    """Return every column to measure, shape (N,), higher is more certain, and the class entropy if there are labels."""
    if known is None or known.class_entropy is None:
        return dict(rows.certainty)
    return {**rows.certainty, correctness.CLASS_ENTROPY: -known.class_entropy}


class EvaluationWork:
    """One evaluation of score columns, step by step; InputError for options out of range."""

    def __init__(self, table: Table, options: EvaluateOptions, caveats: Caveats) -> None:
        require_between("--repeats", options.repeats, 1, MOST_REPEATS, "1000 is usual")
        require_between("--sample", options.sample, FEWEST_ROWS, hint="choose more rows")
        require_between("--degrade", options.degrade or None, FEWEST_ROWS, hint="choose more images")
        require_seed(options.seed)
        self.table, self.options, self.announce = table, options, options.announce
        self.result_ = Evaluation(str(table.path), table.n_rows, 0, {}, [], caveats=caveats)
        self.common: dict[str, Any] = {"repeats": options.repeats, "seed": options.seed}
        self.correctness: correctness.Correctness | None = None

    def begin(
        self,
        names: Sequence[str],
        label: str | None,
        labelled: LabelledFile | None,
        train: Table | None = None,
        protocol: Protocol | None = None,
    ) -> None:
        """Select the measured rows, and the rows of ``train`` on which the ``protocol``'s probes are trained."""
        votes = self.options.votes
        rows = select_rows(self.table, names)
        self.codes: NDArray[np.int64] | None = None
        self.votes: NDArray[np.float64] | None = None
        if label is not None:
            codes, self.classes = class_names(named_column(self.table, label, "--label", labelled), label)
            rows = _leave_out(rows, codes[rows.index] >= 0, "without a label")
            self.codes = codes
            if not len(rows.index):
                raise InputError(f"--label: expected classes in {label!r}, got none on a row that has a score")
        if votes is not None:
            self.votes = vote_counts(named_column(self.table, votes, "--votes", labelled), votes)
        if self.options.sample is not None:
            keep = sampled(rows, self.options.sample, seed=self.options.seed)
            rows = _leave_out(rows, keep, "not in the sample")
        counted = ", ".join(f"{n:,} {why}" for why, n in rows.left_out.items()) or "none left out"
        got = f"{self.table.path}, got {len(rows.index):,} of {self.table.n_rows:,} ({counted})"
        if len(rows.index) < FEWEST_ROWS:
            raise InputError(f"expected at least {FEWEST_ROWS} rows to measure in {got}; score more images")
        if self.codes is not None and len(np.unique(self.codes[rows.index])) < 2:
            raise InputError(
                f"--label: expected at least two classes in {label!r}, got one; every prediction would be right"
            )
        self.rows = rows
        self.training: TrainingRows | None = None
        if train is not None and label is not None:
            self.training = training_rows(train, rows, label, labelled)
            self.protocol = protocol or Protocol()
            self.protocol.check(len(self.training.labels))
            learned = {"train": str(train.path), "rows learned from": len(self.training.labels)}
            self.result_.settings |= {**learned, **self.protocol.facts()}

    def judge(self) -> None:
        """Compute which predictions from embeddings are right; without embeddings, record why not."""
        embedded = embeddings(self.rows)
        if isinstance(embedded, str):
            shapes = [*correctness.ACCURACY.values(), *correctness.AUROC.values(), correctness.LOGISTIC]
            self.result_.measures += [shape.without(embedded) for shape in shapes]
            self.result_.caveats.without_embeddings = embedded
            return
        matrix, has_embedding = embedded
        if not has_embedding.all():
            self.rows = _leave_out(self.rows, has_embedding, "without an embedding")
            matrix = matrix[torch.from_numpy(has_embedding)]
            if len(self.rows.index) < FEWEST_ROWS:
                raise InputError(f"expected at least {FEWEST_ROWS} rows with an embedding, got {len(self.rows.index)}")
        if self.codes is None:
            raise ValueError("labels must be read before they are measured")
        labels = correctness.label_tensor(self.codes[self.rows.index])
        drawn = self._drawn() if self.training is None else None
        names = [self.classes[code] for code in self.codes[self.rows.index].tolist()]
        if self.training is not None:
            self.result_.caveats.shared = self.training.n_shared
            self.result_.caveats.unseen = self.training.count_unseen(names)
        what = "neighbours and linear classifiers" if self.training is None else ", ".join(self.protocol.probes)
        n_classes, n = int(labels.max()) + 1, len(self.rows.index)
        slow = "; the time grows with the square of the rows" if self.training is None and n > MOST_FAST else ""
        slow = slow if drawn is None else f", drawn from more than {MOST_FAST:,} (--sample chooses another number)"
        self.announce(f"{what} of {n:,} rows in {n_classes:,} classes{slow}")
        if self.training is None:
            self.correctness = correctness.judge(matrix, labels, folds=FOLDS, seed=self.options.seed, rows=drawn)
        else:
            self.correctness = judge_by(self.training, matrix, names, self.protocol, seed=self.options.seed)

    def _drawn(self) -> torch.Tensor | None:
        """Leave out all but a sample of a large table; return its places among the rows, (M,), or None for all."""
        if self.options.sample is not None or len(self.rows.index) <= MOST_FAST:
            return None
        keep = sampled(self.rows, DRAWN, seed=self.options.seed)
        self.rows = _leave_out(self.rows, keep, "not in the sample that is compared with all")
        return torch.from_numpy(np.flatnonzero(keep))

    def measure_labels(self) -> None:
        """Measure against labels; without embeddings, record why not."""
        self.judge()
        known, out = self.correctness, self.result_
        if known is None:
            return
        out.caveats.n_twins, out.caveats.few = known.n_twins, known.few
        certainty = self.certainty() if known.right else {}
        self.announce(f"intervals of {len(certainty)} columns from {self.options.repeats:,} resamples")
        out.measures += correctness.accuracies(known, **self.common)
        if not known.right or not certainty:  # without a score, probes are measured alone
            return
        measures, out.curves = correctness.certainty_measures(certainty, known, **self.common)
        out.measures += measures
        right = known.right.get(correctness.LINEAR)
        if right is None and correctness.LINEAR in known.missing:
            why = known.missing[correctness.LINEAR]
            missing = (correctness.AUROC[correctness.LINEAR], correctness.LOGISTIC, *correctness.MEANS)
            out.measures += [shape.without(why) for shape in missing]
        elif right is not None:
            slope, out.caveats.without_slope = correctness.slopes(certainty, right, **self.common)
            out.measures.append(slope)
            if self.rows.raw:
                out.measures += correctness.means(self.rows.raw, right, **self.common)
        out.caveats.norm_unknown = True

    def certainty(self) -> dict[str, Floats]:
        """Return every column to measure."""
        return certainty_of(self.rows, self.correctness)

    def measure_votes(self) -> None:
        """Measure against the entropy of votes, on the rows that have votes."""
        if self.votes is None:
            raise ValueError("votes are measured once they are read")
        votes = self.votes[self.rows.index]
        voted = np.nan_to_num(votes).sum(1) > 0
        self.result_.caveats.without_votes = int((~voted).sum())
        if voted.sum() < FEWEST_ROWS:
            why = f"only {int(voted.sum())} rows have votes, and at least {FEWEST_ROWS} are needed"
            if not voted.any():
                raise InputError("--votes: expected votes on some row, got none: every list is null or all zero")
            self.result_.measures.append(VOTES.without(why))
            return
        certainty = {name: values[voted] for name, values in self.certainty().items()}
        self.result_.measures.append(against_votes(certainty, votes[voted], **self.common))

    def measure_against(self, other: Table, names: Sequence[str]) -> None:
        """Measure how well each column separates the other table's rows."""
        require_same_model(self.table, other, "--against", what="scores")
        rows = select_rows(other, names)
        if self.options.sample is not None:
            rows = rows.part(sampled(rows, self.options.sample, seed=self.options.seed))
        if len(rows.index) < FEWEST_ROWS:
            self.result_.measures.append(APART.without(f"{other.path} has {len(rows.index)} rows with scores"))
            return
        raw = {name: np.concatenate([values, rows.raw[name]]) for name, values in self.rows.raw.items()}
        first = np.arange(len(self.rows.index) + len(rows.index)) < len(self.rows.index)
        self.result_.measures.append(separation(certainties(raw), first, **self.common))

    def measure_degraded(self, runner: Runner, chosen: Sequence[str]) -> None:
        """Read images again, corrupt them, and measure how the model's scores (or chosen columns) respond.

        Raises:
            InputError: if too few images can be read.
        """
        places = sampled(self.rows, self.options.degrade, seed=self.options.seed + 1)
        index = self.rows.index[places].tolist()
        self.announce(f"reading {len(index):,} images again, and scoring eight corrupted versions of each")
        most = LARGER * runner.model.spec.preprocessing.size
        pictures = squares(self.table, index, most=most, source=self.options.source)
        with torch.random.fork_rng(devices=[]):
            degraded = degrade(pictures, runner, seed=self.options.seed).limited_to(chosen)
        if len(degraded.rows) < FEWEST_ROWS:
            raise InputError(
                f"--degrade: expected at least {FEWEST_ROWS} images that can be read, got {len(degraded.rows)} of "
                f"{len(index):,}; check --source"
            )
        self.result_.caveats.unread = len(index) - len(degraded.rows)
        self.result_.measures += degraded_measures(degraded, **self.common)
        self._sharpness(degraded)

    def _sharpness(self, degraded: Degraded) -> None:
        """Measure the Laplacian baseline against correctness, on the same rows as the columns."""
        if self.correctness is None:
            return
        places = np.searchsorted(self.rows.index, degraded.rows)
        columns = {name: values[places] for name, values in self.certainty().items()}
        columns[LAPLACIAN] = degraded.sharpness
        part = correctness.Correctness(
            {name: right[places] for name, right in self.correctness.right.items()}, None, {}
        )
        measures, _ = correctness.certainty_measures(columns, part, **self.common)
        for measure in measures[: len(part.right)]:
            measure.name += f", {len(places):,} images"
            self.result_.measures.append(measure)

    def result(self) -> Evaluation:
        """Return the result."""
        out = self.result_
        out.used, out.left_out = len(self.rows.index), self.rows.left_out
        seen = dict.fromkeys(column for measure in out.measures for column in measure.values)
        order = [*self.rows.certainty, correctness.CLASS_ENTROPY, LAPLACIAN]
        out.columns = [name for name in order if name in seen] + [name for name in seen if name not in order]
        out.settings |= {name: getattr(self.options, name) for name in SETTINGS}
        return out


def _leave_out(rows: MeasuredRows, keep: NDArray[np.bool_], why: str) -> MeasuredRows:
    if keep.all():
        return rows
    part = rows.part(keep)
    part.left_out[why] = int((~keep).sum())
    return part


def runner_of(table: Table, options: EvaluateOptions, caveats: Caveats) -> Runner:
    """Return the table's or the requested model, ready to run; adds a caveat if it is another model."""
    digest = digest_of_model(table)
    model = options.model
    if model is None:
        digests = {read_header(path)["digest"]: name for name, path in shipped_models().items()}
        if digest not in digests:
            raise InputError(
                f"--degrade: {table.path} was scored by {'a model' if digest else 'no model'} that does not ship"
                f"{f' ({digest[:12]})' if digest else ''}; pass it as --model"
            )
        model = digests[digest]
    network, card = load_model(model)
    if digest and card["digest"] != digest:
        caveats.other_model = (str(model), digest)
    device = select_device(options.device)
    return Runner(network, device, select_precision("auto", device, network.spec.cpu_precision))


def against_votes(certainty: Mapping[str, Floats], votes: Array, *, repeats: int, seed: int) -> Measure:
    """Return the rank correlation of uncertainty and annotator disagreement.

    Args:
        certainty: by column, higher is more certain, shape (N,).
        votes: per class, shape (N, C), each row with at least one vote.
        repeats: resamples and permutations.
        seed: of resamples and permutations.
    """
    disagreement = entropy(votes)
    if len(np.unique(disagreement)) < 2:
        return VOTES.without("the votes of every row have the same entropy")
    people = RankOrder(disagreement)
    orders = [RankOrder(-values) for values in certainty.values()]

    def statistic(counts: NDArray[np.int64]) -> Floats:
        return np.array([[weighted_spearman(order, people, counts)] for order in orders])

    (measure,) = measured([VOTES], list(certainty), statistic, len(disagreement), repeats=repeats, seed=seed)
    x = np.stack([ranks(-values) for values in certainty.values()])
    chance = permutation_test_linear(x, ranks(disagreement), repeats=repeats, seed=seed)
    measure.p = dict(zip(certainty, chance.tolist(), strict=True))
    return measure


def separation(certainty: Mapping[str, Floats], is_first: NDArray[np.bool_], *, repeats: int, seed: int) -> Measure:
    """Return the AUROC with which certainty separates two sets of images.

    Args:
        certainty: by column, higher is more certain, shape (N,), rows of both sets.
        is_first: whether a row is of the first set, shape (N,).
        repeats: resamples, which also vary the sizes of the two sets.
        seed: of the resampling.
    """
    orders = [RankOrder(values) for values in certainty.values()]
    targets = [order.sort(is_first[:, None]) for order in orders]

    def statistic(counts: NDArray[np.int64]) -> Floats:
        return np.stack([order.auroc(counts, target) for order, target in zip(orders, targets, strict=True)])

    (measure,) = measured([APART], list(certainty), statistic, len(is_first), repeats=repeats, seed=seed)
    return measure
