"""`curate score`: checks and lists the source before slow imports."""

from dataclasses import fields
from pathlib import Path

from curate.engines.contract import Cluster
from curate.engines.log import RunLog
from curate.engines.options import ScoreOptions
from curate.engines.out_path import check_out
from curate.engines.result import ScoreRequest, ScoreResult
from curate.engines.settings import ScoreSettings, retried
from curate.engines.table import ENGINES, engine_of
from curate.manifest.contract import SourceOptions
from curate.manifest.sources import open_manifest
from curate.manifest.store_path import StorePath, path_or_store
from curate.options.function import callable_of
from curate.options.values import part_of, several
from curate.version import __version__
from scoring.errors import InputError
from scoring.lookup import lookup
from scoring.model_names import DEFAULT, with_weights
from scoring.settings import require_between

OF_ADD = ("check", "refit")  # options that need --add
SETTING_OF = {"embedding": "dtype", "scorer": "scorers"}  # option -> its field of `ScoreSettings`, if named differently


def run_score(options: ScoreOptions) -> ScoreResult:
    """Score every image of a source and write one row for each.

    A killed run resumes when it is started again, and writes the same bytes as an uninterrupted one. With ``add``, a
    table grows with its source: see docs/grow.md.

    Returns:
        Counts, notes and the path of the table.

    Raises:
        TypeError: for an unknown keyword.
        InputError: for an option, source or output that cannot be used; earlier output is kept.
    """
    reading = part_of(SourceOptions, options)
    settings = part_of(
        ScoreSettings,
        options,
        dtype=options.dtype if options.embedding else None,
        scorers=tuple(dict.fromkeys(several(options.scorer))),
    )
    engine, address = engine_of(options.engine)
    cluster = part_of(Cluster, options, address=address)
    out, model = path_or_store(options.out), options.model
    if options.weights is not None:
        model = with_weights(str(model or DEFAULT), options.weights)
    for flag in OF_ADD:
        if getattr(options, flag) and not options.add:
            raise InputError(f"--{flag} is for --add, which scores what is new in the source of a table; add --add")
    require_between("--workers", options.workers, 1)
    again = retried(several(options.retry))
    ready = lookup(ENGINES, engine, kind="engine")
    check_out(out, options.source, overwrite=options.overwrite)
    if options.log is not None and isinstance(out, Path) and Path(options.log).resolve() == out.resolve():
        raise InputError(f"--log and --out are the same, {out}; choose another file for the log")
    if options.add and out.exists() and not options.overwrite:
        request, settings = _addition(options, out, model, reading, settings, again)
    else:
        request = ScoreRequest(options, out, DEFAULT if model is None else model, reading, again)
    if options.add and request.table is None:
        is_new = not options.overwrite
        options.announce(
            f"{out} does not exist yet: all images are new" if is_new else "--overwrite: all images are scored again"
        )
    with (
        RunLog(options.log, command="score", out=str(out), engine=engine, curate=__version__) as events,
        ready(cluster, settings) as at_work,
    ):
        if request.table is not None:
            from curate.engines.adding.run import add_rows

            result = add_rows(request, request.table, at_work, events)
        else:
            manifest = open_manifest(options.source, reading)
            options.announce(manifest.description)
            from curate.engines.full_run import score_listed  # imports torch, which takes longer than listing a source

            result = score_listed(manifest, request, at_work, events)
        events.ends_with(rows=result.rows, statuses=result.statuses, resumed=result.resumed)
    return result


score = callable_of(ScoreOptions, run_score)


def _addition(
    options: ScoreOptions,
    out: Path | StorePath,
    model: str | Path | None,
    reading: SourceOptions,
    settings: ScoreSettings,
    retry: frozenset[str],
) -> tuple[ScoreRequest, ScoreSettings]:
    """Return the request of an addition to a table, and its settings."""
    # these import torch; the table to extend exists already
    from curate.engines.adding.settings import model_as_scored, options_as_scored, settings_as_scored, typed_fields
    from curate.engines.finished import table_of_scores

    explicit = {SETTING_OF.get(name, name) for name in options.explicit}
    explicit |= typed_fields(reading) | typed_fields(settings)
    table = table_of_scores(out)
    model, reading = model_as_scored(table, model), options_as_scored(table, reading, explicit)
    settings = settings_as_scored(table, settings, explicit & {each.name for each in fields(settings)})
    return ScoreRequest(options, out, model, reading, retry, table), settings
