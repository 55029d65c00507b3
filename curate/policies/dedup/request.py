"""A request for a deduplication, checked against the table: finders, thresholds, views, which image is kept."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from curate.columns import SIGNATURE
from curate.policies.dedup.changes import COMPARED
from curate.policies.dedup.finders.table import FINDERS, threshold_of
from curate.policies.dedup.grouping.keep import DEFAULT as KEEP_DEFAULT
from curate.policies.dedup.grouping.keep import Criterion
from curate.policies.dedup.grouping.loss import FORMAT, facts_in
from curate.policies.request import Request
from curate.policies.reviewed import LINES
from curate.policies.reviewed import RULE as VERDICTS
from curate.tables.needs import Needs, is_plain
from curate.tables.table import Table
from scoring.errors import InputError
from scoring.images.views import SignatureView, views
from scoring.lookup import lookup, name_list

DEFAULT_FINDERS = ("bytes", "signature")
WITHOUT_SIGNATURE = ("bytes", "hash")
CROP = "crop"
EMBEDDING = "embedding"
NEAR_DUPLICATE = "near-duplicate"
WITH_VIEWS = ("signature", CROP, NEAR_DUPLICATE)  # which look at mirrored and turned copies
WITH_EMBEDDINGS = (EMBEDDING, CROP, NEAR_DUPLICATE)
LABEL = "label"
TIES = "shorter key"  # which of equal copies is kept


@dataclass(frozen=True)
class DedupRequest(Request):
    """A deduplication, ready to run on a table; also what the receipt records.

    Fields are as in ``DedupOptions``, but for these.

    Attributes:
        thresholds: finder -> threshold, in the order of ``FINDERS``.
        without_flat: images of one flat colour are not compared by embedding.
        facts: columns of the table that say what a copy has lost, and what was done to it.
        held_back: finders whose threshold is their own or a stricter one: what they link in large groups just above
            it is kept until it is reviewed.
        ties: which of equal copies is kept; receipts of earlier versions, which used a hash, have none.
    """

    rule: ClassVar[str] = "dedup"
    beside: ClassVar[tuple[str, ...]] = ("against", VERDICTS, LINES)
    thresholds: dict[str, float]
    mirrored: bool = False
    rotated: bool = False
    cropped: bool = False
    keep: str = KEEP_DEFAULT
    prefer: tuple[str, ...] = ()
    protect: str | None = None
    label: str | None = None
    report_only: bool = False
    only_against: bool = False
    source: str | None = None
    against_source: str | None = None
    without_flat: bool = False
    facts: tuple[str, ...] = ()
    held_back: tuple[str, ...] = ()
    ties: str = TIES

    def __post_init__(self) -> None:
        for name in ("prefer", "facts", "held_back"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not all(glob.strip() for glob in self.prefer):
            raise InputError("--prefer needs a pattern of keys, got an empty text; write it like: --prefer 'sorted/*'")
        if self.protect is not None and not self.protect.strip():
            raise InputError("--protect needs a condition, got none; write it like: --protect 'split == \"test\"'")

    @classmethod
    def from_json(cls, rule: Mapping[str, Any]) -> Self:
        """Return the request from ``to_json``'s record; InputError for any other, and for other ties."""
        if isinstance(rule, Mapping) and rule.get("ties") != TIES:
            raise InputError(
                "the rule of the receipt chooses among equal copies by "
                f"{rule.get('ties', 'a hash of the key')}, this version by the {TIES}; run the command of the "
                "receipt again"
            )
        request = super().from_json(rule)
        if not request.thresholds:
            raise InputError("expected thresholds in the rule of the receipt, got none; restore it from a backup")
        for name, value in request.thresholds.items():
            if lookup(FINDERS, name, kind="finder").threshold is not None:
                threshold_of(name, value)
        return request

    def views(self) -> tuple[SignatureView, ...]:
        """Return the views of an image that are compared."""
        return views(mirrored=self.mirrored, rotated=self.rotated)

    def needs(self, criteria: Sequence[Criterion]) -> Needs:
        """Return the columns and facts to read of the table."""
        needs = self.needs_of_other([*self.facts, *(name for each in criteria for name in each.facts)])
        numbers = [name for each in criteria for name in each.numbers]
        return replace(
            needs,
            numbers=tuple(dict.fromkeys([*numbers, *needs.numbers])),
            present=tuple(dict.fromkeys(name for each in criteria for name in each.present)),
            texts=(self.label,) if self.label else (),
            conditions=(("--protect", self.protect),) if self.protect else (),
        )

    def needs_of_other(self, facts: Collection[str] = ()) -> Needs:
        """Return the columns and facts to read of the table of rows to compare with."""
        needed = {column for name in self.thresholds for column in FINDERS[name].needs}
        return Needs(
            representations=frozenset(needed),
            flat=self.without_flat,
            exact=tuple(dict.fromkeys(name for name in facts if name != FORMAT)),
            names=(FORMAT,) if FORMAT in facts else (),
        )


def resolved(
    request: DedupRequest, table: Table, finder: str | Sequence[str] | Mapping[str, float | None] | None
) -> tuple[DedupRequest, str | None]:
    """Return the request with its thresholds and columns resolved in a table, and notes on missing ones.

    Args:
        request: without thresholds; ``label`` may be None for the table's own.
        table: to deduplicate.
        finder: one or several, or name -> threshold, None for its own; None for the default ones.

    Raises:
        InputError: for columns that this table lacks; the text names those it has.
    """
    few = None
    if finder is None:
        finder, few = _default_finders(table)
    finders = (
        dict(finder) if isinstance(finder, Mapping) else dict.fromkeys([finder] if isinstance(finder, str) else finder)
    )
    if request.cropped:
        finders.setdefault(CROP, None)
    if not finders:
        raise InputError(f"expected a finder, got none; leave finder out, or choose among {', '.join(FINDERS)}")
    for name in finders:
        lookup(FINDERS, name, kind="finder")
        _has(table, name)
    label = request.label
    if label is None and LABEL in table.schema.names and is_plain(table.schema.field(LABEL).type):
        label = LABEL
    if label is not None:
        table.require([label])
    thresholds = {name: threshold_of(name, finders[name]) for name in FINDERS if name in finders}
    if (request.mirrored or request.rotated) and not set(WITH_VIEWS) & set(thresholds):
        raise InputError(
            "--mirrored and --rotated need the finder signature, crop or near-duplicate, which compute these views; "
            f"got {', '.join(thresholds)}: add --finder signature"
        )
    flat = EMBEDDING in thresholds and SIGNATURE in table.schema.names
    facts = facts_in(table, COMPARED)
    held_back = tuple(name for name in thresholds if _is_held_back(name, finders[name]))
    request = replace(request, thresholds=thresholds, label=label, held_back=held_back, without_flat=flat, facts=facts)
    return request, few


def _is_held_back(name: str, chosen: float | None) -> bool:
    """Whether a finder has its default threshold, or a stricter one, which must not drop more."""
    usual = FINDERS[name].threshold
    return usual is not None and (chosen is None or (chosen > usual if FINDERS[name].higher else chosen < usual))


def _default_finders(table: Table) -> tuple[tuple[str, ...], str | None]:
    able = _able(table)
    if "signature" in able:
        return tuple(name for name in DEFAULT_FINDERS if name in able), None
    others = tuple(name for name in WITHOUT_SIGNATURE if name in able) or tuple({"embedding"} & set(able))
    if others == ("embedding",):
        return others, f"{table.path} has embeddings but no sha256, phash or signature: only embeddings are compared"
    if others:
        return others, (
            f"{table.path} has no signature column, so only {' and '.join(others)} are compared, which miss "
            "most edited copies; score the images again to find more"
        )
    raise InputError(
        f"{table.path} has nothing to compare: expected a column sha256, phash, signature or embedding, got "
        f"{name_list(table.schema.names)}; score the images with curate score"
    )


def _able(table: Table) -> list[str]:
    """The finders that the table has the columns for."""
    return [name for name, finder in FINDERS.items() if set(finder.needs) <= set(table.schema.names)]


def _has(table: Table, name: str) -> None:
    able = _able(table)
    if name not in able:
        missing = [column for column in FINDERS[name].needs if column not in table.schema.names]
        advice = ", choose your own column with --embedding" if EMBEDDING in missing else ""
        other = " or ".join(able)
        raise InputError(
            f"the finder {name} needs the column {' and '.join(missing)}, which {table.path} does not have; score the "
            f"images again{advice}{f', or use --finder {other}' if other else ''}"
        )


def finders_in_order(typed: Sequence[tuple[str, str]]) -> dict[str, float | None] | None:
    """Return finder -> threshold, or None if no finder was typed.

    A threshold belongs to the finder before it.

    Args:
        typed: (parameter, value) in the order of the command line.

    Raises:
        InputError: for an unknown or repeated finder, a threshold without one, or one that is not a number.
    """
    thresholds: dict[str, float | None] = {}
    last: str | None = None
    for name, value in typed:
        if name == "finder":
            lookup(FINDERS, value, kind="finder")
            if value in thresholds:
                raise InputError(
                    f"--finder {value} was given twice; pass each finder once, with its --threshold after it"
                )
            thresholds[value] = None
            last = value
        elif name == "threshold":
            if last is None:
                raise InputError(
                    f"--threshold {value} belongs to the --finder before it, and there is none; write it like: "
                    "--finder hash --threshold 4"
                )
            if thresholds[last] is not None:
                raise InputError(f"--finder {last} has two thresholds; keep one")
            try:
                thresholds[last] = float(value)
            except ValueError:
                raise InputError(f"--threshold takes a number, got {value!r}") from None
    return thresholds or None
