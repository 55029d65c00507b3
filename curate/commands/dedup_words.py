"""Messages about a deduplication: quality of kept copies, and planted copies."""

from typing import TYPE_CHECKING

from curate.counted import counted

if TYPE_CHECKING:
    from curate.policies.dedup.quality.recall import RecallReport

N_UNREAD = 5  # images that could not be used, named in the report


def lower_words(n: int) -> str:
    """Return how many groups keep a copy of lower quality than a dropped one."""
    if not n:
        return "no group keeps a copy of lower quality than one it drops"
    groups = "1 group keeps a copy of lower quality than one it drops"
    if n > 1:
        groups = f"{n:,} groups keep a copy of lower quality than one they drop"
    return f"{groups}: lower_quality in the groups table (by --prefer, --protect, labels or --keep)"


def recall_header(report: "RecallReport") -> tuple[str, ...]:
    """Return the header of ``recall_table``."""
    return ("edit", "what was done", "found", "recall", "95 %", *report.overall.by_finder)


def recall_table(report: "RecallReport") -> list[tuple[str, ...]]:
    """Return a row of text for each kind of edit, and one for the total."""
    rows = []
    for kind in [*report.kinds, report.overall]:
        finders = [f"{n / kind.n:.2f}" for n in kind.by_finder.values()]
        share, interval = f"{kind.detected / kind.n:.3f}", f"{kind.low:.3f} to {kind.high:.3f}"
        rows.append((kind.name, kind.strength, f"{kind.detected:,} of {kind.n:,}", share, interval, *finders))
    return rows


def recall_lines(report: "RecallReport") -> list[str]:
    """Return notes on the table, one sentence per line."""
    overall, images = report.overall, counted(report.images, "image")
    lines = [
        f"recall of planted copies {overall.detected / overall.n:.3f} (95 %: {overall.low:.3f} to {overall.high:.3f}): "
        f"{overall.detected:,} of {overall.n:,} found, {len(report.kinds)} edits of each of {images}, "
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
