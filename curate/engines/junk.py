"""``p_junk``: a classifier is trained to separate a dataset from scored, corrupted copies of some of its images."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from curate.columns import EMBEDDING
from curate.engines.settings import ScoreSettings
from curate.tables.arrays import numbers_of, quality_values
from curate.tables.dataset import Dataset, log_odds_of, sample_of
from curate.tables.images import in_order
from curate.tables.table import Table, embedding_matrix
from scoring.errors import InputError
from scoring.images import DecodeError, Quality, decode_small
from scoring.images.geometry import Pixels
from scoring.relative.junk.classifier import LEAST_IMAGES, JunkClassifier, TrainedClassifier, probability_of, train
from scoring.relative.junk.copies import KINDS, Copy, corrupted_copies, side_needed
from scoring.relative.junk.features import JunkInputs, columns_read
from scoring.relative.junk.stored import from_json, rounded, to_json
from scoring.runner import BATCH_SIZE, Pending, Runner

IMAGES = 300  # maximum images that are corrupted
COPIES = 900  # maximum corrupted copies in total
FEWEST_READ = 30  # minimum of readable images
AHEAD = 32  # images decoded ahead of the model
MOST_WORKERS = 4  # more threads would wait for Python's lock

Read = Callable[[Sequence[int]], Iterable[tuple[int, bytes, str]]]


@dataclass(frozen=True)
class Corrupter:
    """Creates and scores corrupted copies of a table's images.

    Attributes:
        read: rows of the table -> (row, encoded image, its digest) of readable images.
        runner: the model that scored the table.
        settings: of that run.
        workers: decoding threads.
    """

    read: Read
    runner: Runner
    settings: ScoreSettings
    workers: int = 4


@dataclass(frozen=True)
class Junk:
    """The junk scores from the corrupted copies of a table.

    Attributes:
        classifier: None if the score does not apply.
        probability: ``p_junk`` of every row in table order, float32, NaN for none.
        about: record for the table's metadata, as JSON values.
        notes: for the user.
    """

    classifier: JunkClassifier | None
    probability: NDArray[np.float32]
    about: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def log_odds(self, dataset: Dataset) -> NDArray[np.float64] | None:
        """Return the log odds of junk of the distinct images of the table; None if the score does not apply."""
        if self.classifier is None:
            return None
        return log_odds_of(self.probability[dataset.places(np.arange(len(dataset)))])


def find_junk(dataset: Dataset, table: Table, corrupter: Corrupter) -> Junk:
    """Train the junk classifier of a table, and apply it to every row."""
    nothing = np.full(table.n_rows, np.nan, np.float32)
    if len(dataset) < LEAST_IMAGES:
        return Junk(None, nothing)
    try:
        trained = _trained(dataset, table, corrupter)
    except InputError as error:
        return Junk(None, nothing, {"applies": False, "problem": str(error)}, [f"p_junk does not apply: {error}"])
    about = trained.held_out.to_json()
    if not trained.held_out.applies:
        return Junk(None, nothing, about, [f"p_junk does not apply to this dataset: {trained.held_out.problem}"])
    classifier = rounded(trained.classifier)
    probability = judge(classifier, table)
    sample = dataset.places(np.arange(len(trained.log_odds)))
    probability[sample] = probability_of(trained.log_odds)  # only these were compared with their neighbours
    place = dataset.rows.place[dataset.at]
    of_images = probability[place[dataset.copies.unique]]
    probability[place] = of_images[dataset.copies.place]  # duplicates get the value of the first
    about |= {"classifier": to_json(classifier)}
    return Junk(classifier, probability, about, [_junk_note(trained, probability)])


def judge(classifier: JunkClassifier, table: Table) -> NDArray[np.float32]:
    """Return ``p_junk`` of every row in table order; NaN for a row without embedding."""
    probability = np.full(table.n_rows, np.nan, np.float32)
    for start, batch in table.numbered([EMBEDDING, *classifier.names]):
        embedded = np.flatnonzero(batch.column(EMBEDDING).is_valid().to_numpy(zero_copy_only=False))
        if len(embedded):
            some = batch.take(pa.array(embedded))
            columns = {name: numbers_of(some.column(name)) for name in classifier.names}
            probability[start + embedded] = classifier.probability(
                JunkInputs(columns, embedding_matrix(some.column(EMBEDDING)))
            )
    return probability


def classifier_of(table: Table) -> JunkClassifier | None:
    """Return the junk classifier in the metadata of a table; None if the score does not apply to it."""
    about = table.noted("fit", "junk")
    if "classifier" not in about:
        return None
    try:
        return from_json(about["classifier"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"the junk classifier in the table cannot be used ({error}); score the images again with curate score"
        ) from None


def _trained(dataset: Dataset, table: Table, corrupter: Corrupter) -> TrainedClassifier:
    n_images = min(IMAGES, len(dataset))
    per_image = min(len(KINDS), math.ceil(COPIES / n_images))
    copies = _scored_copies(corrupter, dataset.places(np.arange(n_images)).tolist(), per_image)
    n_read = len(np.unique(copies.image))
    if n_read < min(FEWEST_READ, n_images):
        raise InputError(
            f"{n_read:,} of {n_images:,} images could be read again to be corrupted; score them where they can be read"
        )
    original = sample_of(dataset, table)
    names = [name for name in columns_read(original.columns) if name in copies.seen.columns]
    corrupted = JunkInputs({name: copies.seen.columns[name] for name in names}, copies.seen.embedding)
    original = JunkInputs({name: original.columns[name] for name in names}, original.embedding)
    return train(original, corrupted, copies.image, copies.kinds)


@dataclass(frozen=True)
class _Copies:
    """P corrupted copies with their scores, in image order, each with its source image and kind of corruption."""

    image: NDArray[np.int64]
    kinds: list[str]
    seen: JunkInputs


def _scored_copies(corrupter: Corrupter, rows: Sequence[int], per_image: int) -> _Copies:
    """Corrupt and score the images of some rows."""
    runner = corrupter.runner
    # as in the run: a part may bound the batch size
    size = corrupter.settings.batch_size or BATCH_SIZE[runner.device.type]
    images, kinds, qualities = list[int](), list[str](), list[Quality | None]()
    pending, batch = list[Pending](), list[Pixels]()

    def flush() -> None:
        if batch:
            pending.append(runner.submit(np.stack(batch)))
            batch.clear()

    for image, copies in _made_copies(corrupter, rows, per_image):
        for copy in copies:
            images.append(image)
            kinds.append(copy.kind)
            qualities.append(copy.quality)
            batch.append(copy.pixels)
            if len(batch) == size:
                flush()
    flush()
    scores = [batch.result() for batch in pending]
    columns = {name: np.concatenate([each.columns[name] for each in scores]) for name in runner.columns if scores}
    if corrupter.settings.quality:
        columns |= quality_values(qualities)
    nothing = np.zeros((0, runner.model.embedding_width), np.float32)
    seen = JunkInputs(columns, np.concatenate([nothing, *(each.embedding for each in scores)]).astype(np.float16))
    order = np.argsort(images, kind="stable")  # images arrive in reading order
    return _Copies(np.array(images, np.int64)[order], [kinds[index] for index in order], seen.take(order))


def _made_copies(corrupter: Corrupter, rows: Sequence[int], per_image: int) -> Iterator[tuple[int, list[Copy]]]:
    """Yield the copies of each readable image, with its position among the rows, in reading order."""
    settings, preprocessing = corrupter.settings, corrupter.runner.model.spec.preprocessing
    place = {row: image for image, row in enumerate(rows)}

    def work(read: tuple[int, bytes, str]) -> tuple[int, list[Copy]]:
        row, data, digest = read
        image = place[row]
        try:
            pixels = decode_small(data, side_needed(preprocessing), settings.decode_options())
        except DecodeError:
            return image, []
        kinds = [KINDS[(image * per_image + step) % len(KINDS)] for step in range(per_image)]
        return image, corrupted_copies(pixels, digest, kinds, preprocessing, with_quality=settings.quality)

    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(
        min(corrupter.workers, MOST_WORKERS), "corrupt", initializer=torch.set_num_threads, initargs=(1,)
    )  # otherwise each would start as many torch threads as there are cores
    try:
        with pool:
            yield from in_order(pool, work, corrupter.read(rows), AHEAD, lambda read: len(read[1]))
    finally:
        torch.set_num_threads(threads)


def _junk_note(trained: TrainedClassifier, probability: NDArray[np.float32]) -> str:
    known = probability[~np.isnan(probability)]
    flagged, held = int((known > 0.5).sum()), trained.held_out
    return (
        f"p_junk above 0.5: {flagged:,} of {len(known):,} images ({flagged / max(len(known), 1):.1%}); on corrupted "
        f"copies of your images held-out AUROC {held.auroc.value:.3f}, {held.detected.value:.0%} found"
    )
