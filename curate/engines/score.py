"""`curate score`: what is given is checked and listed, before anything that takes long is imported."""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from curate.engines.contract import Cluster
from curate.engines.log import RunLog
from curate.engines.out_path import check_out
from curate.engines.result import ScoreResult
from curate.engines.settings import ScoreSettings, retried
from curate.engines.table import ENGINES, engine_of
from curate.manifest import SourceOptions, open_manifest
from curate.manifest.store_path import StorePath, path_or_store
from curate.version import __version__
from scoring.errors import InputError
from scoring.lookup import lookup
from scoring.model_names import DEFAULT

if TYPE_CHECKING:
    from curate.engines.adding.run import Request
    from curate.engines.run import ScoreProgress


class ScoreKeywords(TypedDict, total=False):
    """The fields of ``SourceOptions``, ``ScoreSettings`` and ``Cluster``, as keywords of ``score``."""

    key: str | None
    path_column: str | None
    image_column: str | None
    label_from_folder: bool
    follow_symlinks: bool
    hidden: bool
    root: str | None
    limit: int | None
    reserved: tuple[str, ...]
    max_bytes: int
    connections: int
    allow_private_hosts: bool
    device: str
    precision: str
    backend: str
    batch_size: int | None
    shard_rows: int
    dtype: str | None
    decode: str
    max_pixels: int
    decode_timeout: float
    allow_truncated: bool
    scorers: tuple[str, ...]
    fit: bool
    quality: bool
    white: int | None
    address: str | None
    actors: int | None
    num_gpus: float | None


def score(
    source: Any,
    out: str | Path | StorePath,
    *,
    model: str | Path | None = None,
    options: SourceOptions | None = None,
    settings: ScoreSettings | None = None,
    workers: int | None = None,
    engine: str = "local",
    cluster: Cluster | None = None,
    overwrite: bool = False,
    add: bool = False,
    check: bool = False,
    refit: bool = False,
    retry: Iterable[str] = (),
    log: str | Path | None = None,
    report: "Callable[[ScoreProgress], None]" = lambda progress: None,
    announce: Callable[[str], None] = lambda text: None,
    **keywords: Unpack[ScoreKeywords],
) -> ScoreResult:
    """Score every image of a source and write one row for each.

    A run that was killed goes on where it stopped when it is started again, and writes the same bytes that it would
    have written undisturbed. With ``add`` a table grows with its source: see docs/grow.md.

    Args:
        source: folder, list, CSV, JSONL, Parquet, tar or URL; see ``open_manifest``.
        out: ``NAME.parquet`` for one file, any other name for a folder with a file a shard; also in a store, by a URL
            such as ``s3://bucket/scores.parquet``.
        model: a shipped model's name, or a checkpoint; by default `world`, with ``add`` the table's.
        options: how to read the source.
        settings: how to score.
        workers: decoding threads of each process that scores; by default one a core.
        engine: what the shards are scored by, a key of ``ENGINES``, or NAME:ADDRESS of a cluster.
        cluster: what to take of a cluster, for an engine that has one.
        overwrite: start again where another run's output is.
        add: score only what is new or changed since the table was scored, by its own model, settings and options; where
            there is no table, all is new.
        check: with ``add``, compare every known image by its sha256.
        refit: with ``add``, fit the scores of the dataset again, to all rows; else known rows keep theirs.
        retry: more statuses whose rows are read again where the table is complete; rows of the temporary statuses
            `missing`, `io_error` and `timeout` always are.
        log: a file that events are appended to as JSON lines: the start, every shard, and the end; see ``RunLog``.
        report: called with the progress after every image batch or so.
        announce: called with a line on what is about to happen.
        keywords: any field of ``SourceOptions``, ``ScoreSettings`` or ``Cluster``, such as ``limit=100`` or
            ``device="cpu"``.

    Raises:
        TypeError: for a keyword that is neither's.
        InputError: for whatever of the above cannot be used; nothing that was written before is lost.
    """
    options, settings, cluster = _with_keywords(
        (options or SourceOptions(), settings or ScoreSettings(), cluster or Cluster()), dict(keywords)
    )
    out = path_or_store(out)
    _refuse_without_add(add, {"--check": check, "--refit": refit})
    if workers is not None and workers < 1:
        raise InputError(f"--workers must be at least 1, got {workers}")
    again = retried(retry)
    engine, address = engine_of(engine)
    cluster = cluster if address is None else replace(cluster, address=address)
    ready = lookup(ENGINES, engine, kind="engine")
    check_out(out, source, overwrite=overwrite)
    if log is not None and isinstance(out, Path) and Path(log).resolve() == out.resolve():
        raise InputError(f"--log and --out are the same, {out}; name another file for the log")
    request = None
    if add and out.exists() and not overwrite:
        arguments = (source, out, model, options, settings, keywords.keys(), workers, again)
        request, settings = _addition(*arguments, check=check, refit=refit)
    elif add:
        announce(f"no table at {out} to add to: all is new" if not overwrite else "--overwrite: all is scored again")
    with (
        RunLog(log, command="score", out=str(out), engine=engine, curate=__version__) as events,
        ready(cluster, settings) as at_work,
    ):
        if request is not None:
            from curate.engines.adding.run import add_rows

            result = add_rows(request, at_work, events, report, announce)
        else:
            manifest = open_manifest(source, options)
            announce(manifest.description)
            from curate.engines.full_run import score_listed  # brings torch, whose import takes longer than listings

            how = (options, at_work, workers, overwrite, again, events, report, announce)
            result = score_listed(manifest, source, out, DEFAULT if model is None else model, *how)
        events.ends_with(rows=result.rows, statuses=result.statuses, resumed=result.resumed)
    return result


def _refuse_without_add(add: bool, options: Mapping[str, bool]) -> None:
    for flag, is_used in options.items():
        if is_used and not add:
            raise InputError(f"{flag} is for --add, which scores what is new in the source of a table; add that too")


def _addition(
    source: Any,
    out: Path | StorePath,
    model: str | Path | None,
    options: SourceOptions,
    settings: ScoreSettings,
    keywords: Set[str],
    workers: int | None,
    retry: frozenset[str],
    *,
    check: bool,
    refit: bool,
) -> "tuple[Request, ScoreSettings]":
    """Return what is requested of an addition to a table, and its settings."""
    from curate.engines.adding.run import Request  # this brings torch, and a table that grows is there already
    from curate.engines.adding.settings import model_as_scored, options_as_scored, settings_as_scored, typed_fields
    from curate.engines.finished import table_of_scores

    typed = {*typed_fields(options), *typed_fields(settings), *keywords}
    table = table_of_scores(out)
    model, options = model_as_scored(table, model), options_as_scored(table, options, typed)
    settings = settings_as_scored(table, settings, typed & {each.name for each in fields(settings)})
    return Request(source, out, table, model, options, workers, retry, check, refit), settings


def _with_keywords(
    groups: tuple[SourceOptions, ScoreSettings, Cluster], keywords: dict[str, Any]
) -> tuple[SourceOptions, ScoreSettings, Cluster]:
    """Return each with the fields that the keywords name."""
    known = {f.name for group in groups for f in fields(group)}
    unknown = sorted(keywords.keys() - known)
    if unknown:
        raise TypeError(f"score() has no keyword {unknown[0]!r} (known: {', '.join(sorted(known))})")
    options, settings, cluster = groups
    of = [{f.name: keywords[f.name] for f in fields(group) if f.name in keywords} for group in groups]
    return replace(options, **of[0]), replace(settings, **of[1]), replace(cluster, **of[2])
