"""A scoring run that any process can resume, and the function that scores a part of it."""

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import pyarrow as pa
import torch
from numpy.typing import NDArray

from curate.columns import QUALITY_COLUMNS, STATUS
from curate.engines.decoded import Decoded
from curate.engines.gone import Watch, folder_of
from curate.engines.journal import Part, part_path
from curate.engines.junk import Corrupter
from curate.engines.settings import ScoreSettings, difference, settings_of_version
from curate.engines.shard import Span, score_schema, start_shard
from curate.engines.source import ManifestRows
from curate.engines.white import DeepImages
from curate.manifest.ahead import ahead
from curate.manifest.contract import Manifest, ReadError, SourceOptions
from curate.manifest.sources import open_manifest
from curate.tables.images import readers_in_order
from curate.tables.writer import TableWriter
from curate.version import __version__
from scoring.backends import BACKENDS, TORCH, backend_versions
from scoring.checkpoint import load_model
from scoring.errors import InputError
from scoring.images import DecodedImage
from scoring.images.device_jpegs import DeviceJpegs, decoder_versions
from scoring.images.quality import KIND as QUALITY_KIND
from scoring.lookup import lookup
from scoring.model import require_needs
from scoring.relative.columns import COLUMNS as DATASET_COLUMNS
from scoring.relative.model import DatasetFit
from scoring.relative.stored import read_fit
from scoring.runner import BATCH_SIZE, Runner, model_columns, select_device, select_precision
from scoring.scorers import TABLE, Scorer, columns_of, scorers_named

Source = str | Path | Sequence[str | Path]
THREADS = "threads"  # metadata key: CPU threads of the model, since the order of sums changes last digits


@dataclass(frozen=True)
class Opened:
    """The open resources of scoring.

    Attributes:
        manifest: the rows.
        runner: the model, on its device.
        device: of the model; another process's if it runs elsewhere.
        card: of the model.
        batch_size: images per batch.
        of_table: scorers that need all rows.
        watch: checks that the source is available.
        fit: of the model to a dataset, or None.
        fits: whether a score is fitted to the dataset at the end.
    """

    manifest: Manifest
    runner: Runner
    device: torch.device
    card: dict[str, Any]
    batch_size: int
    of_table: dict[str, Scorer]
    watch: Watch
    fit: DatasetFit | None = None
    fits: bool = False

    def decoded(self, spans: Sequence[Span], settings: ScoreSettings, workers: int | None, folder: Path) -> Decoded:
        """Return the decoded images of some shards; ``folder`` is the folder of parts."""
        threads, size = workers or os.cpu_count() or 1, self.batch_size
        preprocessing = self.runner.model.spec.preprocessing
        on_gpu = DeviceJpegs(self.device, preprocessing) if settings.decode == "gpu" else None
        return Decoded(
            self.manifest,
            spans,
            preprocessing,
            settings,
            workers=threads,
            batch_size=size,
            folder=folder,
            decoder=on_gpu,
        )

    def of_rows(self, numbers: NDArray[np.int64]) -> "Opened":
        """Return the open resources for scoring some rows of the source."""
        rows = ManifestRows(self.manifest, numbers)
        return replace(self, manifest=rows, watch=Watch(rows, self.watch.root))

    def fingerprint(self, settings: ScoreSettings) -> dict[str, Any]:
        """Return everything that determines the output, by the names used in messages."""
        named_scorers = {"scorers": list(settings.scorers)} if settings.scorers else {}
        return {
            "input": self.manifest.digest,
            "model": self.card["digest"],
            "device": self.device.type,
            "precision": self.runner.precision,
            "backend": settings.backend,
            **backend_versions(settings.backend),
            "batch-size": self.batch_size,
            "shard-size": settings.shard_size,
            "embedding dtype": settings.dtype,
            "max-pixels": settings.max_pixels,
            "decode-timeout": settings.decode_timeout,
            "allow-truncated": settings.allow_truncated,
            "white": settings.white,
            **settings_of_version(),
            **named_scorers,
            **({"fit": True} if self.fits else {}),
            **(decoder_versions(self.device) if settings.decode == "gpu" else {}),
            **({"quality": QUALITY_KIND} if settings.quality else {}),
            "curate": __version__,
            "torch": torch.__version__,
            "pillow": PIL.__version__,
        }


def open_all(
    source: Source,
    options: SourceOptions,
    model: str | Path,
    settings: ScoreSettings,
    *,
    elsewhere: bool = False,
    listed: Manifest | None = None,
) -> Opened:
    """Open a source, and load a model on its device.

    Args:
        source: as ``open_manifest`` takes it.
        options: how to read it.
        model: a shipped model's name, or a checkpoint.
        settings: how to score.
        elsewhere: whether other processes run the model, on a device that this machine may lack.
        listed: the source if it is already open, without the names of the model's columns.

    Raises:
        InputError: if the device, the model or the source cannot be used.
    """
    device = torch.device(settings.device) if elsewhere else select_device(settings.device)
    if settings.decode == "gpu" and device.type != "cuda":
        raise InputError(
            f"--decode gpu decodes on the GPU that the model runs on, which is {device} here: torch "
            f"{torch.__version__} sees {torch.cuda.device_count()} GPUs; leave out --decode, or give --device cuda"
        )
    network, card = load_model(model)
    precision = select_precision(settings.precision, device, network.spec.cpu_precision)
    named_scorers = scorers_named(settings.scorers)
    of_table = {name: scorer for name, scorer in named_scorers.items() if scorer.needs == TABLE}
    if of_table and settings.dtype is None:
        raise InputError(f"{next(iter(of_table))} needs embeddings; leave out --no-embedding")
    require_needs(network, named_scorers)
    of_model = {name: scorer for name, scorer in named_scorers.items() if name not in of_table}
    where = torch.device("cpu") if elsewhere else device
    lookup(BACKENDS, settings.backend, kind="backend")
    backend = settings.backend if where.type == device.type else TORCH  # the model runs in other processes
    columns = model_columns(network, of_model)
    fit = read_fit(model, card)
    if fit is not None and fit.junk is not None:
        _refuse_lacking(model, fit.junk.names, (*columns, *(QUALITY_COLUMNS if settings.quality else ())))
    fits = fit is None and settings.fit and settings.dtype is not None
    of_dataset = DATASET_COLUMNS if fit is not None or fits else {}
    reserved = (*columns, *columns_of(of_table), *of_dataset)
    if listed is not None and not set(reserved) & set(listed.schema.names):
        manifest = listed
    else:  # a user column is renamed if the model has a column of that name
        manifest = open_manifest(source, replace(options, reserved=reserved))
    # last, since a backend may compile for half a minute
    runner = Runner(network, where, precision, scorers=of_model, backend=backend)
    batch_size = settings.batch_size or BATCH_SIZE[device.type]
    return Opened(manifest, runner, device, card, batch_size, of_table, Watch(manifest, folder_of(source)), fit, fits)


def _refuse_lacking(model: str | Path, names: Sequence[str], written: Sequence[str]) -> None:
    """Refuse a fitted model whose junk classifier reads columns that this run does not write."""
    lacking = [name for name in names if name not in written]
    if not lacking:
        return
    if any(name in QUALITY_COLUMNS for name in lacking):
        raise InputError(
            f"{model} was fitted to a table with {', '.join(lacking)}, which p_junk needs; leave out --no-quality and "
            "--decode gpu, or fit a model to a table without them"
        )
    raise InputError(
        f"{model} was fitted to a table with {', '.join(lacking)}, which the model itself does not compute: "
        "it cannot score images; apply it with curate fit --fitted to tables that have the column"
    )


def corrupter_of(
    opened: Opened, settings: ScoreSettings, workers: int | None, places: NDArray[np.int64] | None = None
) -> Corrupter:
    """Return a scorer of corrupted copies of the images of a run.

    ``places`` is the row of the source of each row of the table; None if they are equal.
    """
    manifest = opened.manifest

    def read(rows: Sequence[int]) -> Iterator[tuple[int, bytes, str]]:
        place = np.array(rows, np.int64) if places is None else places[np.array(rows, np.int64)]
        ordered = np.array(rows, np.int64)[np.argsort(place)].tolist()
        readers = readers_in_order(manifest, np.sort(place))
        for row, reader in zip(ordered, ahead(readers, manifest.connections), strict=True):
            try:
                data = reader()
            except ReadError:
                continue  # unreadable images are counted, and reported if there are too many
            yield row, data, hashlib.sha256(data).hexdigest()

    return Corrupter(read, opened.runner, settings, workers or os.cpu_count() or 1)


@dataclass(frozen=True)
class Job:
    """The input, model and output of scoring, as paths and plain settings, which can be pickled.

    Attributes:
        source: as ``open_manifest`` takes it; each process opens the paths on its machine.
        options: how to read the source.
        model: a shipped model's name, or a checkpoint.
        settings: how to score.
        workers: decoding threads of each process; None for one per core.
        folder: of the parts; shared by all scoring processes.
        fingerprint: all that determines the output; a process in which it differs is refused.
        metadata: of every part's file.
        step: maximum batch size on the device. It never grows again after memory ran out, since other batches give
            other last digits.
        opened: open resources of this process; not pickled.
        rows: scored rows of the source, in scoring order; None for all.
    """

    source: Source
    options: SourceOptions
    model: str | Path
    settings: ScoreSettings
    workers: int | None
    folder: Path
    fingerprint: Mapping[str, Any]
    metadata: Mapping[str, Any]
    step: int
    opened: Opened | None = None
    rows: NDArray[np.int64] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "opened": None}

    def open(self) -> "Job":
        """Return the job with all its resources open.

        Raises:
            InputError: if the input, the model or a version differs here; the difference is named.
        """
        if self.opened is not None:
            return self
        opened = open_all(self.source, self.options, self.model, self.settings)
        differs = difference(self.fingerprint, opened.fingerprint(self.settings))
        if differs:
            name, recorded, now = differs
            raise InputError(f"another {name} here, {now}, than when the run began, {recorded}; all must be equal")
        opened.runner.step = min(opened.runner.step, self.step)
        return replace(self, opened=opened if self.rows is None else opened.of_rows(self.rows))


def score_span(job: Job, span: Span, model: AbstractContextManager[object] | None = None) -> Part:
    """Score one shard and write its file, without committing it; the bytes are the same in any process.

    A process that scores several spans opens its job once: ``job = job.open()``; one that scores several at a time
    passes a lock, ``model``, that is held while the model runs.
    """
    job = job.open()
    with opened_job(job).decoded([span], job.settings, job.workers, job.folder) as decoded:
        with model or nullcontext():
            write = start_span(job, span, decoded.take(span.stop - span.start))
        return write()


def start_span(job: Job, span: Span, images: Iterable[DecodedImage]) -> Callable[[], Part]:
    """Send a shard through the model, and return a function that waits for the device and writes the file.

    The two are separate so that another thread can write while the model processes the next shard.
    """
    opened = opened_job(job)
    if THREADS in job.metadata:
        torch.set_num_threads(job.metadata[THREADS])  # also for this thread: an engine may score in several
    rows = opened.manifest.rows(span.start, span.stop)
    deep = DeepImages()
    times = [time for _, time in opened.manifest.files(span.start, span.stop)]
    finish = start_shard(rows, deep.watched(images), opened.runner, job.settings, opened.batch_size, opened.fit, times)
    step = min(opened.runner.step, opened.batch_size)

    def write() -> Part:
        schema = score_schema(opened.manifest.schema, opened.runner, job.settings, opened.fit)
        table = pa.Table.from_arrays(finish().columns, schema=schema)
        opened.watch.check(span, table, job.folder, job.settings.shard_size)
        part = write_part(part_path(job.folder, span.index), span.index, table, schema, job.metadata, step)
        return replace(part, deep=deep.n, highest=deep.highest)

    return write


def write_part(
    path: Path, shard: int, rows: pa.Table, schema: pa.Schema, metadata: Mapping[str, Any], step: int
) -> Part:
    """Write the file of a shard, and return its facts; ``step`` is the batch size on the device."""
    with TableWriter(path, schema, dict(metadata), overwrite=True) as writer:
        writer.write(rows)
    statuses = dict(Counter(rows.column(STATUS).to_pylist()))
    return Part(shard, rows.num_rows, writer.file.n_bytes, writer.file.sha256, statuses, step)


def thread_counts(device: torch.device) -> dict[str, int]:
    """Return the thread settings that a run on this machine records; none on a GPU."""
    return {THREADS: torch.get_num_threads()} if device.type == "cpu" else {}


@contextmanager
def model_threads(metadata: Mapping[str, Any]) -> Iterator[None]:
    """Run models with the thread count that their run began with, on every machine that resumes it."""
    before = torch.get_num_threads()
    torch.set_num_threads(metadata.get(THREADS, before))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def opened_job(job: Job) -> Opened:
    """Return the open resources of a job."""
    if job.opened is None:
        raise ValueError("the job is not open here; use job.open()")
    return job.opened
