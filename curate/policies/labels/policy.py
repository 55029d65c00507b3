"""Finds wrong labels of a table, and drops or corrects them, or samples them for review."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from curate.columns import KEY, LABEL
from curate.options.function import callable_of
from curate.options.values import part_of, several
from curate.policies.arranged import Expected, Ranked, compare_arranged
from curate.policies.contract import apply
from curate.policies.decided import DROP, KEEP, UNDECIDED, Decided
from curate.policies.labels.examine import MEANINGS as COLUMN_MEANINGS
from curate.policies.labels.examine import REASONS, Examined, LabelsRequest, examine
from curate.policies.labels.explain import (
    MEANINGS,
    REVIEW,
    LabelsResult,
    LabelWords,
    label_facts,
    outcomes,
    schema_of,
    worst_rows,
)
from curate.policies.labels.options import LabelsOptions
from curate.policies.labels.review import COLUMNS, draw_rows
from curate.policies.outputs import Files, Outputs
from curate.policies.reviewed import OPTION, VerdictLines
from curate.policies.reviewed import RELABELLED as BY_REVIEWER
from curate.policies.reviewed import RULE as VERDICTS
from curate.policies.sampled import drawn_text, refuse_judged
from curate.tables.table import Table, open_table
from scoring.errors import InputError

N_EXAMPLES = 5
RELABELLED = "the label, or the suggested one instead of a suspected one"


@dataclass(frozen=True)
class Labels:
    """An examination of labels; a ``Policy``.

    Attributes:
        request: with its parameters.
        review: sample for reviewers; or None.
        verdicts: the reviewers' decisions; or None.
    """

    request: LabelsRequest
    review: int | None = None
    verdicts: VerdictLines | None = None

    @property
    def files(self) -> Files:
        """Files that contain labels or verdicts, and the sample for reviewers."""
        read = {} if self.request.labelled is None else {"--labelled": self.request.labelled}
        texts = {} if self.review is None else {REVIEW: "review.csv"}
        quoted = () if self.verdicts is None else ((OPTION, self.verdicts.file),)
        return Files(read=read, quoted=quoted, texts=texts)

    @classmethod
    def from_receipt(cls, rules: Sequence[Mapping[str, Any]]) -> Self:
        """Return the examination in a receipt; InputError for another policy."""
        return cls(LabelsRequest.from_json(rules[0]), verdicts=VerdictLines.in_rule(rules[0]))

    def decide(self, table: Table) -> Decided[LabelsResult]:
        """Decide every row of a table; InputError for an unusable column or labels."""
        examined = examine(table, self.request, self.verdicts)
        outcome = outcomes(examined)
        kept = np.flatnonzero(outcome == KEEP)
        added = examined.columns(kept)
        expected = Expected(added, examined.hashes[kept], kept, ordered=False)
        special = {**COLUMN_MEANINGS, **({} if self.request.relabel is None else {self.request.relabel: RELABELLED})}
        meanings = {name: special.get(name, BY_REVIEWER) for name in added.column_names}
        words, worst = LabelWords(examined, outcome), worst_rows(examined, N_EXAMPLES)
        drawn = None if self.review is None else partial(self._texts, examined)
        return Decided(
            table=table,
            policy=[self._rule(examined)],
            outcome=outcome,
            hashes=examined.hashes,
            digest=examined.rows.digest,
            words=words.rows,
            schema=schema_of(examined),
            meanings=MEANINGS,
            result=self._result(examined, outcome),
            examples={"worst": worst} if len(worst) else {},
            texts=drawn,
            arranged=Ranked(table.stored.schema, kept, added, meanings),
            compare=partial(compare_arranged, table, expected),
            same_classes=examined.same_classes,
            grouped_by=self.request.columns[0] if len(self.request.columns) == 1 else None,
        )

    def _rule(self, examined: Examined) -> dict[str, Any]:
        rule = self.request.to_json()
        if self.request.labelled is not None:
            rule["labelled"] = {"path": str(Path(self.request.labelled).resolve()), "digest": examined.votes_digest}
        return rule if self.verdicts is None else rule | self.verdicts.for_rule()

    def _result(self, examined: Examined, outcome: NDArray[np.uint8]) -> LabelsResult:
        undecided = examined.reason[outcome == UNDECIDED]
        counts = np.bincount(undecided, minlength=len(REASONS)).tolist()
        reviewed = examined.reviewed
        gone = outcome == DROP
        by_reviewer = int((gone & reviewed.drop).sum()) if reviewed is not None else 0
        counts_by = {"suspected label": int(gone.sum()) - by_reviewer} if self.request.drop else {}
        return LabelsResult(
            dropped_by=counts_by if self.verdicts is None else {**counts_by, VERDICTS: by_reviewer},
            notes=self.verdicts.notes(reviewed) if self.verdicts is not None and reviewed is not None else [],
            undecided_by={reason: n for reason, n in zip(REASONS, counts, strict=True) if n},
            **label_facts(examined),
        )

    def _texts(self, examined: Examined, paths: Mapping[str, Path]) -> dict[str, bytes]:
        """Return the sample for reviewers as a file."""
        rows = [asdict(row) | {"quality": f"{row.quality:.4f}"} for row in draw_rows(examined, self.review or 0)]
        return {REVIEW: drawn_text(COLUMNS, [[str(cell) for cell in row.values()] for row in rows])}


def run_labels(options: LabelsOptions) -> LabelsResult:
    """Find wrong labels of a scored table; with ``out``, write table, decisions and receipt.

    The written table has all scored rows, with the columns ``label_quality``, ``suggested_label`` and ``label_why``.
    The input is not changed.

    Returns:
        the share of wrong labels with its interval, classes, pairs, the worst rows, counts and paths.

    Raises:
        InputError: for an unusable table, column or output; nothing is written.
    """
    opened = open_table(options.table, require=[KEY], embedding=options.embedding)
    columns = several(options.label)
    if not columns and options.labelled is None and LABEL in opened.schema.names:
        columns = (LABEL,)
    request = part_of(
        LabelsRequest,
        options,
        label=columns,
        drop=options.drop_suspected,
        labelled=None if options.labelled is None else str(options.labelled),
    )
    lines = None if options.verdicts is None else VerdictLines.of(options.verdicts, opened)
    policy = Labels(request, options.review, lines)
    if options.review is not None:
        if options.out is None:
            raise InputError("--review writes rows to judge next to a table; name the table with --out")
        request.check(opened)
        refuse_judged([Outputs(options.out, policy.files).paths[REVIEW]], "--review")
    return apply(policy, opened, options.out, dry_run=options.out is None, overwrite=options.overwrite)


labels = callable_of(LabelsOptions, run_labels)
