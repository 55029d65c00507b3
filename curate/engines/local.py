"""Scoring on this machine: decoding threads, one model, shards committed one by one."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import PIL
import pyarrow as pa
import torch

from curate import __version__
from curate.columns import OK
from curate.engines.journal import JOURNAL, LOCK, RUN, Committed, WorkFolder
from curate.engines.settings import ScoreSettings, refuse_difference
from curate.engines.shard import Decoded, Span, score_columns, score_schema, spans, start_shard
from curate.manifest import Manifest, SourceOptions, open_manifest
from curate.table import TableWriter, open_table
from scoring.checkpoint import DEFAULT, load_model
from scoring.errors import InputError
from scoring.images import DecodedImage
from scoring.runner import BATCH_SIZE, Runner, select_device, select_precision


@dataclass(frozen=True)
class ScoreProgress:
    """Where a run is: rows done of all, rows that failed, and rows that an earlier run had done."""

    done: int
    total: int
    failed: int
    resumed: int


@dataclass(frozen=True)
class ScoreResult:
    """What a run wrote.

    Attributes:
        path: the table.
        rows: rows in it, one for each row of the manifest.
        statuses: status -> rows; ``ok`` and the kinds of failure.
        resumed: rows that were there already.
        seconds: how long this run took, model loading left out.
        device: where the model ran.
        precision: in which it ran.
        model: digest of the model.
        notes: what the user should know, such as a batch that had to shrink.
    """

    path: Path
    rows: int
    statuses: dict[str, int]
    resumed: int
    seconds: float
    device: str
    precision: str
    model: str
    notes: list[str] = field(default_factory=list)

    @property
    def failed(self) -> int:
        """Rows whose image could not be scored."""
        return self.rows - self.statuses.get(OK, 0)


def score(
    source: Any,
    out: str | Path,
    *,
    model: str | Path = DEFAULT,
    options: SourceOptions | None = None,
    settings: ScoreSettings | None = None,
    workers: int | None = None,
    overwrite: bool = False,
    report: Callable[[ScoreProgress], None] = lambda progress: None,
    announce: Callable[[str], None] = lambda text: None,
    **keywords: Any,
) -> ScoreResult:
    """Score every image of a source and write one row for each.

    A run that was killed goes on where it stopped when it is started again, and writes the same bytes that it would
    have written undisturbed.

    Args:
        source: folder, list, CSV, JSONL, Parquet, tar or URL; see ``open_manifest``.
        out: ``NAME.parquet`` for one file, any other name for a folder with a file a shard.
        model: a shipped model's name, or a checkpoint.
        options: how to read the source.
        settings: how to score.
        workers: decoding threads; by default one a core.
        overwrite: start anew where another run's output is.
        report: told of the progress after every image batch or so.
        announce: told in words what is about to happen.
        keywords: any field of ``SourceOptions`` or ``ScoreSettings``, such as ``limit=100`` or ``device="cpu"``.

    Raises:
        TypeError: for a keyword that is neither's.
        InputError: for whatever of the above cannot be used; nothing that was written before is lost.
    """
    options, settings = _with_keywords(options or SourceOptions(), settings or ScoreSettings(), keywords)
    out = Path(out)
    if workers is not None and workers < 1:
        raise InputError(f"--workers must be at least 1, got {workers}")
    device = select_device(settings.device)
    precision = select_precision(settings.precision, device)
    network, card = load_model(model)
    manifest = open_manifest(source, replace(options, reserved=score_columns(network)))
    announce(manifest.description)
    for name, kept in manifest.renamed.items():
        announce(f"your column {name!r} is kept as {kept!r}: curate writes a column of that name")
    run = _Run(
        manifest=manifest,
        runner=Runner(network, device, precision),
        settings=settings,
        batch_size=settings.batch_size or BATCH_SIZE[device.type],
        workers=workers or os.cpu_count() or 1,
        report=report,
    )
    fingerprint, metadata = _fingerprint(run, card)
    _check_out(out, source, overwrite=overwrite)
    work = WorkFolder(out.with_name(f".{out.name}.work"))
    if out.exists() and not overwrite:
        return _finished(out, fingerprint, work, announce)
    if device.type == "cpu":
        announce(f"running on the CPU ({torch.get_num_threads()} threads, {precision}): no GPU is used")
    started = time.monotonic()
    with work:
        if out.exists() and not overwrite:  # another process finished it while we waited for the lock
            return _finished(out, fingerprint, work, announce, locked=True)
        work.sweep(out)
        committed, metadata = work.begin(fingerprint, metadata, overwrite=overwrite)
        committed = run.all_shards(work, committed, metadata)
        if sum(line.rows for line in committed.values()) != manifest.n_rows:
            raise ValueError(f"{manifest.n_rows} rows went in, {committed} came out")
        if out.suffix == ".parquet":
            _merge(work, len(committed), out, overwrite=overwrite)
            work.remove()
        else:
            work.become(out, overwrite=overwrite)
    statuses = Counter[str]()
    for line in committed.values():
        statuses.update(line.statuses)
    notes = []
    step = min((line.step for line in committed.values()), default=run.batch_size)
    if step < run.batch_size:
        notes.append(f"memory ran out, and batches went through the device {step} images at a time")
    seconds = time.monotonic() - started
    return ScoreResult(
        out, manifest.n_rows, dict(statuses), run.resumed, seconds, str(device), precision, card["digest"], notes
    )


def _with_keywords(
    options: SourceOptions, settings: ScoreSettings, keywords: dict[str, Any]
) -> tuple[SourceOptions, ScoreSettings]:
    of_source = {f.name for f in fields(SourceOptions)}
    of_scoring = {f.name for f in fields(ScoreSettings)}
    unknown = sorted(keywords.keys() - of_source - of_scoring)
    if unknown:
        raise TypeError(f"score() has no keyword {unknown[0]!r} (known: {', '.join(sorted(of_source | of_scoring))})")
    options = replace(options, **{name: value for name, value in keywords.items() if name in of_source})
    return options, replace(settings, **{name: value for name, value in keywords.items() if name in of_scoring})


@dataclass
class _Run:
    manifest: Manifest
    runner: Runner
    settings: ScoreSettings
    batch_size: int
    workers: int
    report: Callable[[ScoreProgress], None]
    resumed: int = 0

    def all_shards(
        self, work: WorkFolder, committed: dict[int, Committed], metadata: dict[str, Any]
    ) -> dict[int, Committed]:
        """Score and commit the shards that are not ``committed``, and return every shard's journal line."""
        every = spans(self.manifest.n_rows, self.settings.shard_rows)
        todo = [span for span in every if span.index not in committed]
        self.resumed = sum(line.rows for line in committed.values())
        failed = sum(n for line in committed.values() for status, n in line.statuses.items() if status != OK)
        progress = ScoreProgress(self.resumed, self.manifest.n_rows, failed, self.resumed)
        self.report(progress)
        # memory that ran out before would run out again, in other places: other batches, other last digits
        self.runner.step = min([self.runner.step, *(line.step for line in committed.values())])
        schema = score_schema(self.manifest.schema, self.runner, self.settings)
        preprocessing = self.runner.model.spec.preprocessing
        decoded = Decoded(
            self.manifest, todo, preprocessing, self.settings, workers=self.workers, batch_size=self.batch_size
        )
        with decoded, ThreadPoolExecutor(1, thread_name_prefix="commit") as writer:
            last: Future[None] | None = None
            for span in todo:
                failures: list[int] = [progress.failed]
                rows = self.manifest.rows(span.start, span.stop)
                images = self._counted(decoded.take(span.stop - span.start), progress, failures)
                finish = start_shard(rows, images, self.runner, self.settings, self.batch_size)
                step = min(self.runner.step, self.batch_size)
                if last is not None:
                    last.result()  # one shard at most waits to be written, and its error ends the run
                last = writer.submit(self._commit, work, span, finish, schema, metadata, step, committed)
                done = progress.done + span.stop - span.start
                progress = ScoreProgress(done, self.manifest.n_rows, failures[0], self.resumed)
                self.report(progress)
            if last is not None:
                last.result()
        return committed

    def _counted(
        self, images: Iterator[DecodedImage], before: ScoreProgress, failures: list[int]
    ) -> Iterator[DecodedImage]:
        """Yield images, and report the progress now and then."""
        for at, image in enumerate(images, 1):
            failures[0] += image.status != OK
            yield image
            if at % 32 == 0:
                self.report(ScoreProgress(before.done + at, before.total, failures[0], before.resumed))

    @staticmethod
    def _commit(
        work: WorkFolder,
        span: Span,
        finish: Callable[[], pa.Table],
        schema: pa.Schema,
        metadata: dict[str, Any],
        step: int,
        committed: dict[int, Committed],
    ) -> None:
        """Make a shard's table, write it, and note it in the journal; runs beside the next shard."""
        table = pa.Table.from_arrays(finish().columns, schema=schema)
        with TableWriter(work.part(span.index), schema, metadata, overwrite=True) as writer:
            writer.write(table)
        statuses = dict(Counter(table.column("status").to_pylist()))
        size, digest = writer.file.n_bytes, writer.file.sha256
        line = Committed(span.index, table.num_rows, size, digest, statuses, step)
        work.commit(line)
        committed[span.index] = line


def _fingerprint(run: _Run, card: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return everything that decides what is written, by the names a person would use, and the table's metadata."""
    settings, runner = run.settings, run.runner
    values = {
        "input": run.manifest.digest,
        "model": card["digest"],
        "device": runner.device.type,
        "precision": runner.precision,
        "batch-size": run.batch_size,
        "shard-size": settings.shard_rows,
        "embedding dtype": settings.dtype,
        "max-pixels": settings.max_pixels,
        "allow-truncated": settings.allow_truncated,
        "curate": __version__,
        "torch": torch.__version__,
        "pillow": PIL.__version__,
    }
    about = {name: card[name] for name in ("method", "backbone", "preprocessing", "digest", "data_licence")}
    return values, {"kind": "scores", "model": about, "settings": values, "source": run.manifest.description}


def _check_out(out: Path, source: Any, *, overwrite: bool) -> None:
    """Refuse an output that cannot be made, or that would take the place of something of the user's."""
    if not out.name or out.name in (".", ".."):
        raise InputError(f"expected a name for --out, such as scores.parquet, got {str(out)!r}")
    if not out.parent.is_dir():
        raise InputError(f"the folder {out.parent} for --out does not exist; create it first")
    if not out.exists():
        return
    for one in source if isinstance(source, (list, tuple)) else [source]:
        if (
            isinstance(one, (str, Path))
            and Path(one).exists()
            and out.resolve()
            in (
                Path(one).resolve(),
                *Path(one).resolve().parents,
            )
        ):
            raise InputError(f"--out {out} is what is to be scored, or holds it; choose another name")
    if overwrite:
        ours = {RUN, JOURNAL, LOCK}
        if out.is_dir() and any(p.name not in ours and not p.match("part-*.parquet") for p in out.iterdir()):
            raise InputError(f"{out} holds more than scores, and is left alone; choose another --out")
        if not (out.is_dir() and not any(out.iterdir())) and open_table(out).metadata.get("kind") != "scores":
            raise InputError(f"{out} is not a table of scores, and is left alone; choose another --out")


def _finished(
    out: Path,
    fingerprint: dict[str, Any],
    work: WorkFolder,
    announce: Callable[[str], None],
    *,
    locked: bool = False,
) -> ScoreResult:
    """Return the result of a run that is complete already, or refuse to touch another's output."""
    if out.is_dir() and not any(out.iterdir()):
        raise InputError(
            f"{out} is an empty folder; remove it, or choose another --out: curate makes the folder itself"
        )
    table = open_table(out)
    before = table.metadata.get("settings")
    if table.metadata.get("kind") != "scores" or not isinstance(before, dict):
        raise InputError(f"{out} exists and is not a table of scores; choose another --out")
    refuse_difference(str(out), before, fingerprint)
    run = work.run()
    if locked or (run is not None and run["fingerprint"] == fingerprint):  # cut off between its last two steps
        if locked:
            work.remove()
        else:
            with work:
                work.remove()
    elif work.folder.exists():
        announce(f"another run towards {out} is unfinished in {work.folder}; repeat its command to go on with it")
    announce(f"{out} is complete already: same input, same model, same settings; nothing to do")
    statuses = Counter[str]()
    for batch in table.batches(["status"]):
        statuses.update(batch.column(0).to_pylist())
    return ScoreResult(
        out,
        table.n_rows,
        dict(statuses),
        table.n_rows,
        0.0,
        fingerprint["device"],
        fingerprint["precision"],
        fingerprint["model"],
    )


def _merge(work: WorkFolder, n_shards: int, out: Path, *, overwrite: bool) -> None:
    """Write the shards into one file, in order."""
    first = open_table(work.part(0))
    schema, metadata = first.schema, first.metadata
    with TableWriter(out, schema, metadata, overwrite=overwrite) as writer:
        for shard in range(n_shards):
            for batch in open_table(work.part(shard)).batches():
                writer.write(batch)
