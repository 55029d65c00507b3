"""The outcome of every image of a cleaned folder, and its changes since the previous run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

import polars as pl
import pyarrow as pa

from curate.cleaning.steps import SCORES, SHA256, STEPS_FOLDER, SUBSET, VERDICTS
from curate.columns import GONE, KEY, STATUS
from curate.counted import Grid
from curate.policies.decided import OUTCOMES
from curate.policies.verdicts import RENAME, SHORT, Line, VerdictFile
from curate.tables.table import open_table
from curate.tables.writer import write_table
from scoring.errors import InputError

KEPT, DROPPED, _, FAILED = OUTCOMES
NOW, BEFORE = (f"{STEPS_FOLDER}/outcomes{name}.parquet" for name in ("", ".before"))
MEANINGS = {
    "decision": "the decision of the last step that read the image: keep, drop, or failed (unreadable, or gone)",
    "rule": "what decided: a kind of issue, a finder of copies, verdicts, or the status of an image that failed",
    "reason": "the decision in words",
}
SCHEMA = pa.schema([pa.field(name, pa.string()) for name in (KEY, *MEANINGS, SHA256)])
PRESENT = pl.col("rule").ne_missing(GONE) | (pl.col("decision") != FAILED)
N_NAMED = 5


@dataclass(frozen=True)
class Changes:
    """Differences between two cleanings of one folder, as numbers of images.

    Attributes:
        new: added since the previous run.
        new_kept: added and kept.
        gone: removed since the previous run.
        renamed: same bytes under another key.
        dropped: previously kept and now dropped, by rule, largest first.
        kept: previously dropped and now kept.
        named: key and reason of the first images that are no longer kept.
    """

    new: int
    new_kept: int
    gone: int
    renamed: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    kept: int = 0
    named: list[tuple[str, str]] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether anything differs."""
        return bool(self.new or self.gone or self.renamed or self.dropped or self.kept)

    def lines(self) -> list[str | Grid]:
        """Return the printed lines."""
        rules = ", ".join(f"{rule} {n:,}" for rule, n in self.dropped.items())
        rows = [
            ("new", self.new, f"{self.new_kept:,} of them kept" if self.new else ""),
            ("gone", self.gone, ""),
            *([("renamed", self.renamed, "the same bytes under another name")] if self.renamed else []),
            ("now dropped", sum(self.dropped.values()), rules),
            ("now kept", self.kept, "dropped or unreadable before" if self.kept else ""),
        ]
        named = [f"now dropped: {key}: {reason}" for key, reason in self.named]
        more = sum(self.dropped.values()) - len(named)
        return ["since the last run:", Grid(rows, right=1), *named, *([f"and {more:,} more"] if more else [])]


def note_outcomes(out: Path) -> Changes | None:
    """Write the outcome of every image to a cleaned folder, keep the previous file, and return the differences.

    None on the first run, or without differences.
    """
    now, before = _outcomes(out), None
    if (out / NOW).is_file():
        before = _previous_outcomes(out)
        if before.equals(now):
            return None
        _write(out / BEFORE, before)
    _write(out / NOW, now)
    changes = None if before is None else compare(before, now)
    return changes if changes else None


def compare(before: pl.DataFrame, now: pl.DataFrame) -> Changes:
    """Return the differences of two tables of outcomes: key, decision, rule, reason and sha256.

    Images are matched by key and bytes, then by bytes alone (renamed), then by key alone.
    """
    before, now = before.filter(PRESENT), now.filter(PRESENT)
    same, renamed, before, new = _match_images(before, now)
    changed = new.join(before, on=KEY, suffix="_before")
    both = pl.concat([same, renamed, changed], how="diagonal")
    both = now.select(KEY).join(both, on=KEY, maintain_order="left")
    was_kept, is_kept = pl.col("decision_before") == KEPT, pl.col("decision") == KEPT
    dropped = both.filter(was_kept & ~is_kept)
    rules = dropped["rule"].fill_null("").value_counts(sort=True)
    new = new.join(changed, on=KEY, how="anti")
    return Changes(
        new=len(new),
        new_kept=len(new.filter(is_kept)),
        gone=len(before) - len(changed),
        renamed=len(renamed),
        dropped=dict(rules.sort("count", "rule", descending=[True, False]).iter_rows()),
        kept=len(both.filter(is_kept & ~was_kept)),
        named=list(dropped.select(KEY, "reason").head(N_NAMED).iter_rows()),
    )


def _match_images(before: pl.DataFrame, now: pl.DataFrame) -> tuple[pl.DataFrame, ...]:
    """Return the matched images, the renamed ones, and the unmatched rows of both tables."""
    before = before.with_row_index("old")
    same = now.join(before, on=[KEY, SHA256], nulls_equal=True, suffix="_before")
    before, new = before.join(same, on="old", how="anti"), now.join(same, on=KEY, how="anti")
    before, new = (rows.with_columns(copy=pl.int_range(pl.len()).over(SHA256)) for rows in (before, new))
    renamed = new.join(before, on=[SHA256, "copy"], suffix="_before")
    return same, renamed, before.join(renamed, on="old", how="anti"), new.join(renamed, on=KEY, how="anti")


def note_renamed(out: Path) -> None:
    """Update the keys of renamed images in the verdicts of a cleaned folder's review, after scoring."""
    file = out / VERDICTS
    if not all((out / name).is_file() for name in (VERDICTS, NOW, SCORES)):
        return
    lines, noted_at = VerdictFile(file, "curate clean", {}), str((out / NOW).stat().st_mtime_ns)
    before = _previous_outcomes(out).filter(PRESENT)
    renames = [line for line in lines.verdicts.all if line.verdict == RENAME]
    for line in reversed([*takewhile(lambda line: line.group == noted_at, reversed(renames))]):  # of an interrupted run
        before = _renamed_outcomes(before, line)
    scored = pl.DataFrame(open_table(out / SCORES).read([KEY, STATUS, SHA256]))
    _, renamed, _, _ = _match_images(before, scored.filter(pl.col(STATUS) != GONE))
    named = {key for line in lines.verdicts.live() for key in (*line.keys, *line.beside)}
    renamed = renamed.filter(pl.col(f"{KEY}_before").is_in(list(named)))
    if len(renamed):
        keys, now = tuple(renamed[f"{KEY}_before"]), tuple(renamed[KEY])
        images = tuple(renamed[SHA256].str.slice(0, SHORT))
        lines.append(RENAME, group=noted_at, keys=keys, images=images, beside=now)


def _renamed_outcomes(before: pl.DataFrame, by: Line) -> pl.DataFrame:
    """Return the outcomes with the new keys of renamed images, which replace rows with these keys."""
    before = before.with_columns(image=pl.col(SHA256).str.slice(0, SHORT))
    pairs = pl.DataFrame(
        {KEY: by.keys, "image": by.images, "now": by.beside}, dict.fromkeys((KEY, "image", "now"), pl.String)
    )
    moved = before.join(pairs, on=[KEY, "image"]).with_columns(pl.col("now").alias(KEY)).drop("now")
    rest = before.join(pairs, on=[KEY, "image"], how="anti").join(moved, on=KEY, how="anti")
    return pl.concat([moved, rest]).drop("image")


def _previous_outcomes(out: Path) -> pl.DataFrame:
    """Return the outcomes of the previous run; other versions stored no digests."""
    try:
        table = open_table(out / NOW, require=[KEY, *MEANINGS])
        rows = pl.DataFrame(table.read([name for name in SCHEMA.names if name in table.schema.names]))
    except InputError as error:
        raise InputError(f"{error}; it shows only what changed since the last run: delete it, and repeat") from None
    return pl.concat([pl.DataFrame(SCHEMA.empty_table()), rows], how="diagonal")


def _outcomes(out: Path) -> pl.DataFrame:
    """Return the decision of the last step that read each image, in the order of the scores."""
    decisions = [(out / step).with_suffix(".decisions.parquet") for step in (SUBSET, f"{STEPS_FOLDER}/usable.parquet")]
    names = [KEY, *MEANINGS]
    steps = [pl.DataFrame(open_table(path, require=names).read(names)) for path in decisions]
    scored = pl.DataFrame(open_table(out / SCORES).read([KEY, STATUS, SHA256]))
    last = pl.concat(steps, how="vertical_relaxed").unique(KEY, keep="first", maintain_order=True)
    rows = scored.join(last, on=KEY, how="left", maintain_order="left")
    rule = pl.when(pl.col("decision") == FAILED).then(STATUS).otherwise("rule")
    return rows.with_columns(rule=rule).select(SCHEMA.names)


def _write(path: Path, outcomes: pl.DataFrame) -> None:
    meta = {"kind": "outcomes", "columns": {name: {"meaning": words} for name, words in MEANINGS.items()}}
    write_table(path, outcomes.to_arrow().cast(SCHEMA), meta, overwrite=True)
