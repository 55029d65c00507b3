"""Split a table into sides, such as train, validation and test, that no group of rows and no copy crosses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.columns import EMBEDDING, KEY, SIGNATURE
from curate.counted import counted
from curate.options.function import callable_of
from curate.options.values import part_of, several
from curate.policies.apply import apply
from curate.policies.arranged import Expected, Ranked, compare_arranged
from curate.policies.decided import Decided
from curate.policies.dedup.request import WITH_EMBEDDINGS
from curate.policies.outcomes import FAILED, KEEP
from curate.policies.outputs import Files
from curate.policies.split.explain import MEANINGS, SCHEMA, SPLIT, SplitResult, SplitWords, result_of
from curate.policies.split.groups import PURPOSE, Together, by_hash, commonest, copies, in_strata, together
from curate.policies.split.options import SplitOptions
from curate.policies.split.request import SplitRequest, shares_of, sides_of, thresholds_in
from curate.tables.digests import redrawn, tie_breaks
from curate.tables.rows import Codes, Rows, read_rows
from curate.tables.table import Table, open_table
from scoring.errors import InputError

COPIES = "copies"
NO_VALUE = "(no value)"
MEANING = "side of the split"


@dataclass(frozen=True)
class Split:
    """A split of a table; a ``Policy``.

    Attributes:
        request: what is requested.
        notes: what is known before the table is read.
    """

    request: SplitRequest
    notes: tuple[str, ...] = ()
    files: ClassVar[Files] = Files()

    @classmethod
    def from_receipt(cls, rules: Sequence[Mapping[str, Any]]) -> Self:
        """Return the split that a receipt holds; InputError if it holds something else."""
        return cls(SplitRequest.from_json(rules[0]))

    def decide(self, table: Table) -> Decided[SplitResult]:
        """Decide every row of a table; InputError for a column or key that cannot be used."""
        request = self.request
        needs = request.needs()
        needs.refuse_unread_embeddings(table, f"--finder {', '.join(WITH_EMBEDDINGS)}")
        rows = read_rows(table, needs)
        kept = np.flatnonzero(rows.ok)
        shares = shares_of(request.sides)
        owner = copies(rows, request, rows.ok)
        column = rows.names[request.group] if request.group else None
        strata = strata_of(rows, request.per, kept)
        held = together(kept, rows.hashes, column, owner, request.seed)
        if len(held.sizes) < len(shares):
            raise InputError(_too_few(table, held, len(kept), shares))
        of_group, place = assigned(request, held, strata)
        side, group = np.full(len(rows), -1), np.full(len(rows), -1)
        group[kept] = held.of_row
        side[kept] = of_group[held.of_row]
        apart = together(kept, rows.hashes, column, np.arange(len(rows)), request.seed)
        alone = assigned(request, apart, strata)[0][apart.of_row]
        result = result_of(request, table, rows, held, strata, side[kept], owner[kept], alone)
        result.notes[:0] = self.notes
        outcome = np.where(rows.ok, KEEP, FAILED).astype(np.uint8)
        basis = " or ".join([*([request.group] if request.group else []), *([COPIES] if request.thresholds else [])])
        words = SplitWords(outcome, side, group, held.sizes, place, tuple(shares), basis)
        names = pa.array(list(shares), pa.string())
        columns = pa.table({SPLIT: names.take(pa.array(side[kept]))})
        expected = Expected(columns, rows.hashes[kept], kept, ordered=False)
        first = {name: np.flatnonzero(side == number)[:1] for number, name in enumerate(shares)}
        return Decided(
            table=table,
            policy=[request.to_json()],
            outcome=outcome,
            hashes=rows.hashes,
            digest=rows.digest,
            words=words.rows,
            schema=SCHEMA,
            meanings=MEANINGS,
            result=result,
            examples={name: at for name, at in first.items() if len(at)},
            arranged=Ranked(table.stored.schema, kept, columns, {SPLIT: MEANING}),
            compare=partial(compare_arranged, table, expected),
        )


def assigned(request: SplitRequest, held: Together, strata: Codes) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the side of each group, shape (G,), and its position in [0, 1)."""
    numbers = [float(share) for share in shares_of(request.sides).values()]
    if not request.in_strata:
        return by_hash(held.hashes, numbers)
    stratum = commonest(held.of_row, strata.codes.astype(np.int64))
    starts = np.full(1, 0.5)
    if request.per:
        named = tie_breaks([name.encode("utf-8", "backslashreplace") for name in strata.names])
        starts = redrawn(named, request.seed, PURPOSE) / 2.0**64
    return in_strata(held.hashes, held.sizes, stratum, starts, numbers)


def strata_of(rows: Rows, per: Sequence[str], kept: NDArray[np.int64]) -> Codes:
    """Return the combination of values that each of some rows has, and its name; all in one without columns."""
    codes, names = np.zeros(len(kept), np.int64), [""]
    for column in per:
        values = rows.names[column]
        width = len(values.names) + 1
        codes = codes * width + np.where(values.codes[kept] < 0, width - 1, values.codes[kept])
        used, codes = np.unique(codes, return_inverse=True)
        texts = [*values.names, NO_VALUE]
        parts = [(names[number // width], texts[number % width]) for number in used.tolist()]
        names = [", ".join(part for part in pair if part) for pair in parts]
    return Codes(codes.astype(np.int32), names)


def _too_few(table: Table, held: Together, n: int, shares: Mapping[str, Any]) -> str:
    if not n:
        return f"expected rows to split in {table.path}, got none that was scored"
    most = f": the largest has {int(held.sizes.max()):,} of {n:,} rows" if held.sizes.max() > 1 else ""
    return (
        f"{counted(len(held.sizes), 'group')} of rows cannot fill {len(shares)} sides ({', '.join(shares)}){most}; "
        "split by another column, or into fewer sides"
    )


def run_split(options: SplitOptions) -> SplitResult:
    """Give every row of a table a side, in a column ``split``; write table, decisions and receipt.

    On its own the hash of a key decides: a row keeps its side whatever comes or goes, and shares hold as probability
    has it. With ``per`` or ``exact`` shares hold to within a row where groups allow, and rows near a cut may move as
    the table grows. Copies, and rows of one ``group``, are never on two sides.

    Returns:
        counts, notes and paths.

    Raises:
        InputError: for a table, option or output that cannot be used; nothing is written then.
    """
    sides = sides_of({"train": options.train, "val": options.val, "test": options.test}, several(options.side))
    shares_of(sides)
    opened = open_table(options.table, require=[KEY], embedding=options.embedding)
    columns = several(options.per)
    opened.require([*columns, *([options.group] if options.group else [])])
    thresholds, notes = thresholds_in(opened, options.finder, duplicates=options.duplicates, mirrored=options.mirrored)
    flat = EMBEDDING in thresholds and SIGNATURE in opened.schema.names
    request = part_of(SplitRequest, options, sides=sides, per=columns, thresholds=thresholds, without_flat=flat)
    return apply(
        Split(request, tuple(notes)), opened, options.out, dry_run=options.dry_run, overwrite=options.overwrite
    )


split = callable_of(SplitOptions, run_split)
