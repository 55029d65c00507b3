"""`curate.review_verdicts`: what the answers of annotators show, of images, of pairs or of labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.policies.audit.reading import read_verdicts
from curate.policies.audit.request import parse_share
from curate.policies.audit.results import AuditReading
from curate.policies.audit.verdicts import is_audit
from curate.policies.dedup.quality.answers import read_answers
from curate.policies.dedup.quality.precision import Precision, Suggestion, precision, suggest_threshold
from curate.policies.labels.verdicts import Verdicts, is_review
from curate.policies.labels.verdicts import read_verdicts as read_labels
from scoring.errors import InputError


@dataclass(frozen=True)
class PairReading:
    """What the answers on pairs of `curate dedup --audit` show.

    Attributes:
        precision: share of pairs that are the same, with its intervals.
        suggestions: the loosest threshold of each finder that keeps a precision; none unless one is requested.
    """

    precision: Precision
    suggestions: tuple[Suggestion, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {**self.precision.to_json(), "suggestions": [each.to_json() for each in self.suggestions]}


def review_verdicts(
    answers: str | Path | Sequence[str | Path],
    *,
    target_precision: float | None = None,
    confidence: str | float = "95%",
    judges: str = "any",
) -> AuditReading | PairReading | Verdicts:
    """Return what the answers of annotators show, of images, of pairs or of labels.

    Args:
        answers: ``NAME.audit.csv`` of `curate.review_plan`, one or several, or of `curate.dedup` with ``audit``, or
            ``NAME.review.csv`` of `curate.labels` with ``review``.
        target_precision: of pairs: also suggest the loosest threshold that keeps it.
        confidence: of the guarantee, such as ``"95%"`` or 0.95.
        judges: how several answers on one image are joined: ``any``, ``majority`` or ``share``.

    Raises:
        InputError: for a file that is no audit, or options that it cannot have.
    """
    files = [answers] if isinstance(answers, str | Path) else list(answers)
    if not files:
        raise InputError("expected the answers of an audit, got no file; name NAME.audit.csv")
    if any(is_audit(Path(path)) for path in files):
        if target_precision is not None:
            raise InputError("--target-precision is for pairs of curate dedup --audit; leave it out")
        return read_verdicts(files, confidence=confidence, judges=judges)
    if len(files) == 1 and is_review(Path(files[0])):
        if target_precision is not None:
            raise InputError("--target-precision is for pairs of curate dedup --audit; leave it out")
        return read_labels(files[0])
    if len(files) > 1:
        raise InputError(f"{files[0]} is no audit of curate review plan; of pairs, give one file at a time")
    share = parse_share(confidence, "--confidence")
    read = read_answers(Path(files[0]))
    estimate = precision(read)
    return PairReading(
        estimate, () if target_precision is None else tuple(suggest_threshold(read, target_precision, share))
    )
