"""Clean a source: write its steps as a pipeline, run it, and report the outcome of every image."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from curate.cleaning.changes import note_outcomes, note_renamed
from curate.cleaning.options import CleanOptions
from curate.cleaning.result import TO_DO, CleanResult, lost_in, total
from curate.cleaning.steps import (
    FILE,
    READING,
    REPORT,
    REVIEW,
    SCORES,
    SUBSET,
    VERDICTS,
    Cleaning,
    check_out,
    check_source,
    from_folder,
    is_edited,
    is_scored,
    make_folder,
)
from curate.columns import GONE, LABEL, OK, STATUS, URI
from curate.counted import counted
from curate.engines.settings import OF_ANOTHER_VERSION, settings_of_version
from curate.exporting.table import ALIASES, FORMATS
from curate.manifest.contract import Manifest, SourceOptions
from curate.manifest.sources import open_manifest
from curate.options.values import part_of, several
from curate.pipeline.file import parse_pipeline
from curate.pipeline.plan import Commands, plan
from curate.pipeline.run import PipelineResult, Ran, run_pipeline
from curate.policies.reviewed import RULE
from curate.policies.verdicts import ImageDecision, read_verdicts
from curate.reporting.findings import NEAR
from curate.reporting.review import DECIDED, LIKE, on_images, read_findings
from curate.tables.keys import rows_with_keys
from curate.tables.table import Table, open_table
from scoring.atomic import AtomicFile
from scoring.cards import FIT, find_checkpoint, read_header
from scoring.errors import InputError
from scoring.lookup import closest, lookup
from scoring.model_names import is_published
from scoring.relative.columns import FEW_ROWS, JUNK

LOOKED_AT = 1000  # rows that are checked for file paths
SCORING = ("score", "against")


class Stopped(InputError):
    """A step failed with an exit code; its command has already printed the reason, ``advice`` is the next step."""

    def __init__(self, step: str, code: int, advice: str) -> None:
        super().__init__(f"stopped at step {step}; {advice}")
        self.code = code


def run_cleaning(options: CleanOptions, commands: Commands) -> CleanResult:
    """Write the steps to ``curate.toml`` in the folder, run those that are not up to date, and count every image.

    ``commands`` runs a command by its name.

    Raises:
        InputError: for a source, folder or option that cannot be used; nothing is written then.
        Stopped: if a step failed; results of earlier steps are kept.
        RuntimeError: if the counts do not add up.
    """
    source, out = [str(place) for place in several(options.source)], Path(options.out)
    dry_run, overwrite, announce = options.dry_run, options.overwrite, options.announce
    for place in source:
        check_source(place, out)
    check_out(out)
    if not dry_run:
        note_renamed(out)  # left by an interrupted run
    manifest = open_manifest(source, part_of(SourceOptions, options))
    cleaning = _cleaning(options, manifest)
    text, file = cleaning.text(), out / FILE
    if not overwrite:
        _refuse_edited(file, text)
    pipeline = parse_pipeline(file, text)
    unchecked = replace(cleaning, checks_labels=False)
    is_unchecked = file.is_file() and file.read_bytes() == unchecked.text().encode()
    if dry_run and not out.is_dir():
        steps = [Ran(planned.step.name, planned.step.command, TO_DO) for planned in plan(pipeline, commands)]
        return _result(out, manifest.n_rows, PipelineResult(steps=steps), cleaning, options)
    if (scores := out / SCORES).is_file() and (name := _version_difference(scores)) and not overwrite:
        announce(f"{scores} has another {name}: {OF_ANOTHER_VERSION}; --overwrite scores all images again")
    if not dry_run:
        plan(pipeline, commands)
        make_folder(out)
        if not is_unchecked:
            _write(file, text)
    again = list(cleaning.steps()) if overwrite else []
    if dry_run:
        pipeline = parse_pipeline(file, unchecked.text()) if is_unchecked else pipeline
        ran = run_pipeline(pipeline, commands, dry_run=True, announce=announce)
    else:
        ran = _run(cleaning, file, commands, again, announce)
    if ran.code:
        step = ran.steps[-1].name
        raise Stopped(step, ran.code, _advice(out, step))
    return _result(out, manifest.n_rows, ran, cleaning, options)


def _run(
    cleaning: Cleaning, file: Path, commands: Commands, again: list[str], announce: Callable[[str], None]
) -> PipelineResult:
    """Run the steps; check labels only if the kept images have classes; write the file as it was run."""
    pipeline = parse_pipeline(file, cleaning.text())
    until = None if cleaning.label is None else "unique"
    begun = run_pipeline(pipeline, commands, until=until, again=again, announce=announce)
    if begun.code or cleaning.label is None:
        return begun
    if not _has_classes(open_table(file.with_name(SUBSET)).batches([cleaning.label])):
        announce("labels are not checked: that takes two classes with two kept images or more each")
        cleaning = replace(cleaning, checks_labels=False)
    _write(file, cleaning.text())
    again = [name for name in list(cleaning.steps())[len(begun.steps) :] if name in again]
    ran = run_pipeline(parse_pipeline(file, cleaning.text()), commands, again=again, look=False, announce=announce)
    return replace(ran, steps=[*begun.steps, *ran.steps[len(begun.steps) :]])


def _version_difference(scores: Path) -> str:
    """Return the setting in which another version scored the table differently; empty if none."""
    try:
        noted = open_table(scores).noted("settings")
    except InputError as error:
        raise InputError(f"{error}; delete it and repeat the command, which then scores all images again") from None
    return next((name for name, kind in settings_of_version().items() if noted.get(name) != kind), "")


def _cleaning(options: CleanOptions, manifest: Manifest) -> Cleaning:
    """Return the request, with paths relative to the folder."""
    label = _label(options, manifest)
    source = [str(place) for place in several(options.source)]
    out, model, export = Path(options.out), str(options.model), options.export
    refits = is_published(model) or FIT not in read_header(find_checkpoint(model))
    if Path(model).is_file():
        model = from_folder(model, out)
    if export is not None:
        export = ALIASES.get(export, export)
        lookup(FORMATS, export, kind="format")
    against = None if options.against is None else str(options.against)
    against_scored = against is not None and is_scored(against)
    if against is not None and not against_scored:
        check_source(against, out)
        open_manifest(against, SourceOptions())
    urls = manifest.rows(0, min(LOOKED_AT, manifest.n_rows)).column(URI)
    if urls.null_count and len(source) > 1:
        raise InputError(
            f"expected one folder or pattern of files that hold images, got {len(source)} files; pass them as a "
            f"pattern in quotes, such as '{{{','.join(source[:2])}}}'"
        )
    places = [from_folder(place, out) for place in source]
    return Cleaning(
        source=places[0] if len(places) == 1 else places,
        model=model,
        refits=refits,
        label=label,
        reading=_source_options(options, out),
        against=None if against is None else from_folder(against, out),
        against_scored=against_scored,
        export=export,
        reads_source=urls.null_count > 0,
        reviewed=bool(_review_decisions(out)),
    )


def _source_options(options: CleanOptions, out: Path) -> dict[str, str | bool]:
    """Return the source options as options of ``curate score``."""
    reading: dict[str, str | bool] = {"label-from-folder": True} if options.label_from_folder else {}
    for name in READING:
        if (value := getattr(options, name.replace("-", "_"))) is not None:
            reading[name] = from_folder(value, out) if name == "root" else value
    return reading


def _review_decisions(out: Path) -> Mapping[str, ImageDecision]:
    """Return a review's decisions by key; InputError if reviewers disagree or the folder differs."""
    file, scores = out / VERDICTS, out / SCORES
    decisions = read_verdicts(file).decisions() if file.is_file() else {}
    if decisions and scores.is_file() and not rows_with_keys(open_table(scores), list(decisions)):
        raise InputError(
            f"{file} belongs to another table: none of its {counted(len(decisions), 'image')} is in {scores}, such as "
            f"{next(iter(decisions))[:80]!r}; move it to the folder it was made for"
        )
    return decisions


def _label(options: CleanOptions, manifest: Manifest) -> str | None:
    """Return the class column: the named one, else ``label`` if it has at least two classes.

    Raises:
        InputError: for a named column that is missing, or has too few classes to find label errors.
    """
    if options.label is not None:
        if options.label not in manifest.schema.names:
            known = closest(options.label, manifest.schema.names)
            raise InputError(
                f"--label: the source ({manifest.description}) has no column {options.label!r}{known}; choose another "
                "column, or take the names of folders with --label-from-folder"
            )
        if not _has_classes(manifest.columns([options.label])):
            raise InputError(
                f"--label: expected two classes or more of two rows or more in column {options.label!r} of "
                f"the source ({manifest.description}), got fewer; leave --label out, or name another column"
            )
        return options.label
    if LABEL in manifest.schema.names and _has_classes(manifest.columns([LABEL])):
        return LABEL
    if options.label_from_folder:
        options.announce("labels are not checked: that takes two folders or more with two images or more each")
    return None


def _has_classes(pieces: Iterable[pa.Table | pa.RecordBatch]) -> bool:
    """Return whether at least two labels have at least two rows each; ``pieces`` hold the label column."""
    columns = [each.column(0) for each in pieces]
    chunks = [each.combine_chunks() if isinstance(each, pa.ChunkedArray) else each for each in columns]
    values = pa.chunked_array(chunks or [pa.nulls(0)])
    with suppress(pa.ArrowNotImplementedError):  # a list is not a class
        counts = pc.value_counts(values.drop_null())
        return bool(sum(each["counts"].as_py() >= 2 for each in counts) >= 2)
    return False


def _refuse_edited(file: Path, text: str) -> None:
    """Refuse to replace steps that the user edited."""
    before = file.read_text("utf-8", "replace") if file.is_file() else text
    if before != text and is_edited(before):
        raise InputError(
            f"{file} was edited, or another command wrote it; run it with curate run {file}, or replace it with "
            "--overwrite"
        )


def _write(file: Path, text: str) -> None:
    if not file.is_file() or file.read_bytes() != text.encode():
        with AtomicFile(file, overwrite=True) as written:
            written.write(text.encode())


def _advice(out: Path, step: str) -> str:
    if step in SCORING:
        return (
            "if images or options changed, --overwrite scores all images again; otherwise fix the cause and repeat "
            "the command"
        )
    return f"fix the cause and repeat the command, or change the step in {out / FILE} and run it with curate run"


def _why_no_junk(scores: Table) -> str:
    """Return why no image of a scored table has ``p_junk``; empty if some image has."""
    if JUNK in scores.schema.names and any(len(batch.column(0).drop_null()) for batch in scores.batches([JUNK])):
        return ""
    return str(scores.noted("fit", "junk").get("problem") or f"there are fewer than {FEW_ROWS} different images")


def _emptied_classes(out: Path, label: str) -> list[str]:
    """Return the classes of readable images that the subset lacks, in class order."""
    kept = {str(name) for batch in open_table(out / SUBSET).batches([label]) for name in batch.column(0).to_pylist()}
    classes: dict[str, None] = {}
    for batch in open_table(out / SCORES).batches([label, STATUS]):
        readable = batch.filter(pc.and_(pc.equal(batch.column(1), OK), pc.is_valid(batch.column(0))))
        classes |= dict.fromkeys(map(str, readable.column(0).to_pylist()))
    return sorted(classes.keys() - kept)


def _result(out: Path, images: int, ran: PipelineResult, cleaning: Cleaning, options: CleanOptions) -> CleanResult:
    """Count the outcomes of all images."""
    dry_run = options.dry_run
    stages = {step.name: step.stage for step in ran.steps}
    usable, unique = stages.get("usable"), stages.get("unique")
    unreadable = None if usable is None else lost_in(usable, failed=True)
    gone = None if unreadable is None else unreadable.pop(GONE, 0)
    images = images if usable is None else usable.rows_in - (gone or 0)
    unusable = None if usable is None else lost_in(usable, failed=False)
    copies = None if unique is None else dict(unique.lost)
    reviewed = None if copies is None else copies.pop(RULE, 0)
    parts = [total(each) or 0 for each in (unreadable, unusable, copies)]
    if unique is not None and images != sum(parts) + (reviewed or 0) + unique.rows_out:
        raise RuntimeError(
            f"images do not add up: {images} came in, and {[*parts, reviewed, unique.rows_out]} came out"
        )
    review = out / REVIEW
    decisions = _review_decisions(out)
    findings = [] if dry_run else _open_findings(read_findings(review))
    review_by: dict[str, int] = {}
    for line in findings:
        review_by[line["kind"]] = review_by.get(line["kind"], 0) + 1
    return CleanResult(
        images=images,
        unreadable=total(unreadable),
        unusable=total(unusable),
        copies=total(copies),
        gone=gone,
        changes=None if dry_run else note_outcomes(out),
        dropped_in_review=reviewed if decisions else None,
        kept=None if unique is None else unique.rows_out,
        to_review=None if dry_run else len({line["key"] for line in findings}),
        unreadable_by=unreadable or {},
        unusable_by=unusable or {},
        copies_by=copies or {},
        review_by=review_by,
        changed_since=0 if dry_run else len(decisions) - len(on_images(open_table(out / SCORES), decisions)),
        emptied=[] if dry_run or cleaning.label is None else _emptied_classes(out, cleaning.label),
        folder=out,
        subset=out / SUBSET,
        report=out / REPORT,
        review=review,
        pipeline=out / FILE,
        export=None if cleaning.export is None else out / cleaning.steps()["export"]["out"],
        source=str(several(options.source)[0]) if cleaning.reads_source else None,
        no_junk="" if dry_run else _why_no_junk(open_table(out / SCORES)),
        receipt=ran.receipt and out / ran.receipt.resolve().relative_to(out.resolve()),
        steps=ran.steps,
        dry_run=dry_run,
    )


def _open_findings(findings: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return the findings without a decision; a near copy comes with the image it resembles."""
    left = [line for line in findings if not line[DECIDED]]
    originals = {line[LIKE] for line in left}
    return [line for line in left if line["kind"] != NEAR or line[LIKE] or line["key"] in originals]
