"""Messages on a deduplication: on rows that were not compared, and on planted copies."""

from typing import TYPE_CHECKING

from curate.counted import counted

if TYPE_CHECKING:
    from curate.policies.dedup.finders.facts import (
        EqualElsewhere,
        FewFinders,
        KappaRadius,
        LooseGroups,
        NotCompared,
        PixelsRead,
    )
    from curate.policies.dedup.quality.recall import RecallReport
    from curate.policies.dedup.result import DedupResult

N_UNREAD = 5  # images that could not be used, named in the report


def dedup_notes(result: "DedupResult") -> list[str]:
    """Return what is to be said next to the counts, one sentence each."""
    return [text for note in result.notes for text in note_words(note)]


def lower_words(n: int) -> str:
    """Return how many groups keep a copy of lower quality than one that is dropped."""
    if not n:
        return "no group keeps a copy of lower quality than one it drops"
    groups = "1 group keeps a copy of lower quality than one it drops"
    if n > 1:
        groups = f"{n:,} groups keep a copy of lower quality than one they drop"
    return f"{groups}: lower_quality in the groups table (by --prefer, --protect, labels or --keep)"


def note_words(note: object) -> list[str]:
    """Return a fact in words; a text as it is."""
    from curate.policies.dedup.finders.facts import (
        EqualElsewhere,
        FewFinders,
        KappaRadius,
        LooseGroups,
        ManyLinks,
        NotCompared,
        PixelsRead,
    )

    match note:
        case FewFinders():
            return [_few_finders(note)]
        case NotCompared():
            return [_not_compared(note)]
        case PixelsRead():
            return _pixels_read(note)
        case EqualElsewhere():
            return [_elsewhere(note)]
        case LooseGroups():
            return [_loose(note)]
        case ManyLinks():
            many = f"{note.rows:,} rows may have more links than {note.graph} lists neighbours"
            return [f"{many}: pairs of two such rows are searched for"]
        case KappaRadius():
            return _radius(note)
    return [str(note)]


def _few_finders(note: "FewFinders") -> str:
    if note.finders == ("embedding",):
        return f"{note.table} has embeddings but no sha256, phash or signature: only embeddings are compared"
    return (
        f"{note.table} has no signature column, so only {' and '.join(note.finders)} are compared, which miss most "
        "edited copies; score the images again for better"
    )


def _not_compared(note: "NotCompared") -> str:
    has = note.why.startswith("an ")
    rows = counted(note.rows, "row has", "rows have") if has else counted(note.rows, "row")
    return f"{rows} {note.why}: not compared by {note.finder}"


def _elsewhere(note: "EqualElsewhere") -> str:
    files = counted(note.rows, "dropped file equals one", "dropped files equal one")
    return (
        f"{files} that is kept in another folder, such as {note.dropped} for {note.kept}: --prefer 'FOLDER/*' keeps "
        "the copies in a folder of your choice"
    )


def _loose(note: "LooseGroups") -> str:
    groups = counted(note.groups, "large group lies", "large groups lie")
    largest = f"{note.rows:,} rows, {note.largest:,} in the largest; median {note.finder} {note.similarity:.3g}"
    like = "as do images of one template with other content, such as displays, plates or forms"
    if note.to_review < note.rows:
        dropped = f"{note.rows - note.to_review:,} are dropped: look at them with --sheet, or raise the --threshold"
        return f"{groups} just above the threshold ({largest}), {like}; {dropped}"
    return (
        f"{groups} just above the threshold ({largest}), {like}: all are kept until reviewed, by curate review TABLE "
        "SUBSET and then --verdicts; --finder with a --threshold that you choose drops them"
    )


def _pixels_read(note: "PixelsRead") -> list[str]:
    read = counted(note.images, "image was", "images were")
    notes = [f"pixels: {read} read again, with pixels that another may have too"]
    if note.unreadable:
        notes.append(f"pixels: {note.unreadable:,} of them could not be read, such as {note.example}")
    return notes


def _radius(radius: "KappaRadius") -> list[str]:
    from curate.policies.dedup.finders.facts import HIGHEST_KAPPA

    median = f"cosine {radius.threshold:g} at the median kappa {radius.median:.4g}"
    notes = [f"elk: {median}; loosest pair {radius.loosest:.4f}"]
    sides = ((radius.n_low, "below", f"{radius.floor:.4g}"), (radius.n_high, "above", f"{HIGHEST_KAPPA:g}"))
    return notes + [
        f"elk: {counted(n, 'row')} with a kappa {side} {bound}: compared as if it were that"
        for n, side, bound in sides
        if n
    ]


def recall_header(report: "RecallReport") -> tuple[str, ...]:
    """Return the titles of ``recall_table``."""
    return ("edit", "what was done", "found", "recall", "95 %", *report.overall.by_finder)


def recall_table(report: "RecallReport") -> list[tuple[str, ...]]:
    """Return a row of text for each kind of edit, and one for all."""
    rows = []
    for kind in [*report.kinds, report.overall]:
        finders = [f"{n / kind.n:.2f}" for n in kind.by_finder.values()]
        share, interval = f"{kind.found / kind.n:.3f}", f"{kind.low:.3f} to {kind.high:.3f}"
        rows.append((kind.name, kind.strength, f"{kind.found:,} of {kind.n:,}", share, interval, *finders))
    return rows


def recall_lines(report: "RecallReport") -> list[str]:
    """Return what a reader must know in addition to the table, one sentence a line."""
    overall, images = report.overall, counted(report.images, "image")
    lines = [
        f"recall of planted copies {overall.found / overall.n:.3f} (95 %: {overall.low:.3f} to {overall.high:.3f}): "
        f"{overall.found:,} of {overall.n:,} found, {len(report.kinds)} edits of each of {images}, "
        f"seed {report.seed}; the mix of edits decides this number, so read it by kind"
    ]
    if report.elsewhere:
        copies = counted(report.elsewhere, "copy was", "copies were")
        lines.append(f"{copies} linked, but not with the original or its group: not found")
    if report.failed:
        lines.append(f"{counted(report.failed, 'copy', 'copies')} could not be scored: counted as missed")
    if report.shrunk:
        lines.append(f"made smaller before the edits: {report.shrunk:,} of {images}")
    if report.unread:
        named = [f"{key} ({why})" for key, why in list(report.unread.items())[:N_UNREAD]]
        more = f", and {len(report.unread) - N_UNREAD:,} more" if len(report.unread) > N_UNREAD else ""
        lines.append(
            f"{len(report.unread):,} images that were drawn cannot be used, others took their place: "
            f"{', '.join(named)}{more}"
        )
    return lines
