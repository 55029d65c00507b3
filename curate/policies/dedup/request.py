"""The validated request of a deduplication: finders, thresholds, views, criteria for the kept image."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from curate.columns import FRAMES, SIGNATURE
from curate.policies.contract import Request
from curate.policies.dedup.finders.table import FINDERS, threshold_of
from curate.policies.dedup.grouping.keep import Criterion
from curate.policies.dedup.grouping.loss import (
    BLOCKING,
    COLOURFULNESS,
    COLOURS,
    ENTROPY,
    FORMAT,
    HEIGHT,
    JPEG,
    LEAST_COLOUR,
    N_BYTES,
    PALETTE,
    WIDTH,
    bits,
    facts_in,
)
from curate.policies.dedup.options import DedupParameters
from curate.policies.reviewed import LINES
from curate.policies.reviewed import RULE as VERDICTS
from curate.tables.needs import Needs, is_plain
from curate.tables.rows import Rows
from curate.tables.table import Table
from scoring.errors import InputError
from scoring.images.signature import SignatureView, views
from scoring.lookup import lookup, name_list

BRIGHTNESS, CONTRAST, SHARPNESS = "quality_brightness", "quality_contrast", "quality_sharpness"
NOISE, BORDER = "quality_noise", "quality_border"
READ = (WIDTH, HEIGHT, N_BYTES, FORMAT, COLOURS, COLOURFULNESS, ENTROPY, JPEG, BLOCKING)  # columns for ``--keep``
COMPARED = (*READ, FRAMES, BRIGHTNESS, CONTRAST, SHARPNESS, NOISE, BORDER)  # columns to compare, if present
TURNED = frozenset({"rotated 90", "rotated 270", "transposed", "transversed"})  # views that exchange width and height

SHAPE = 0.03  # tolerance of the aspect ratio
LIGHT = 0.06  # reported change of the mean, as a share of white
SETTING = 3  # reported change of JPEG's quality
FALLS, RISES = 0.8, 1.25  # of contrast
PALER, RICHER = 0.6, 1.6  # of colourfulness
BLURRED, SHARPENED = 0.75, 1.35  # of sharpness
GRAIN = 3.0  # grey levels of noise
FRAME = 0.03  # share of the area in a border
DEFAULT_FINDERS = ("bytes", "signature")
WITHOUT_SIGNATURE = ("bytes", "hash")
CROP = "crop"
EMBEDDING = "embedding"
NEAR_DUPLICATE = "near-duplicate"
WITH_VIEWS = ("signature", CROP, NEAR_DUPLICATE)  # finders that use mirrored and rotated views
WITH_EMBEDDINGS = (EMBEDDING, CROP, NEAR_DUPLICATE)
LABEL = "label"
TIES = "shorter key"  # tie-break among equal copies
LATER = ("confirmed", "listed_crop")  # fields that earlier receipts lack


@dataclass(frozen=True)
class Appearance:
    """The appearance of N rows, from columns of their table.

    Attributes:
        rows: with the available columns of ``COMPARED``.
        bits: per pixel, shape (N,) int8.
    """

    rows: Rows
    bits: NDArray[np.int8]

    @classmethod
    def of(cls, rows: Rows) -> "Appearance":
        """Return the appearance of rows."""
        return cls(rows, bits(rows).astype(np.int8))

    def value(self, name: str, row: int) -> float:
        """Return the value of a row in a numeric column; NaN if absent."""
        column = self.rows.exact.get(name)
        return float(column.values[row]) if column is not None and column.valid[row] else np.nan

    def format(self, row: int) -> str | None:
        """Return the format of a row, or None."""
        codes = self.rows.names.get(FORMAT)
        return codes.names[codes.codes[row]] if codes is not None and codes.codes[row] >= 0 else None


def change_words(of: Appearance, row: int, kept_of: Appearance, kept: int, *, turned: bool, part: bool) -> list[str]:
    """Return the differences of a row from the kept one, such as ``half the size``, ``grey``.

    Args:
        of: appearance of the dropped row's table.
        row: the dropped row.
        kept_of: appearance of the kept row's table.
        kept: the kept row.
        turned: whether one is turned by 90 degrees.
        part: whether one is a part of the other, so that sizes are not compared.
    """

    def pair(name: str) -> tuple[float, float]:
        return of.value(name, row), kept_of.value(name, kept)

    words = [] if part else _size(pair(WIDTH), pair(HEIGHT), turned=turned)
    words += _colours(pair(COLOURFULNESS), pair(COLOURS), int(of.bits[row]), int(kept_of.bits[kept]))
    words += _coding(of.format(row), kept_of.format(kept), pair(JPEG))
    for name, step, falls, rises in (
        (BRIGHTNESS, LIGHT, "darker", "brighter"),
        (BORDER, FRAME, "without its border", "with a border"),
        (NOISE, GRAIN, "less noise", "more noise"),
    ):
        apart = float(np.subtract(*pair(name)))
        words += [falls] if apart <= -step else [rises] if apart >= step else []
    for name, low, high, falls, rises in (
        (CONTRAST, FALLS, RISES, "less contrast", "more contrast"),
        (SHARPNESS, BLURRED, SHARPENED, "blurred", "sharper"),
    ):
        ratio = _ratio(*pair(name))
        words += [falls] if ratio <= low else [rises] if ratio >= high else []
    return words


def _size(widths: tuple[float, float], heights: tuple[float, float], *, turned: bool) -> list[str]:
    (width, kept_width), (height, kept_height) = widths, heights
    if turned:
        width, height = height, width
    if not np.isfinite([width, height, kept_width, kept_height]).all() or (width, height) == (kept_width, kept_height):
        return []
    if abs(_ratio(width * kept_height, height * kept_width) - 1) > SHAPE:
        return [f"{width:.0f} x {height:.0f} pixels instead of {kept_width:.0f} x {kept_height:.0f}"]
    scale = (_ratio(width, kept_width) * _ratio(height, kept_height)) ** 0.5
    return [f"{'reduced' if scale < 1 else 'enlarged'} to {scale:.0%}"]


def _colours(colourful: tuple[float, float], colours: tuple[float, float], bits: int, kept_bits: int) -> list[str]:
    words = {1: "two colours", 4: "few colours"}
    if bits < kept_bits and bits in words:
        return [words[bits]]
    is_grey, kept_grey = (value < LEAST_COLOUR for value in colourful)
    if is_grey != kept_grey and np.isfinite(colourful).all():
        return ["grey" if is_grey else "in colour"]
    ratio = _ratio(*colourful)
    words_of_ratio = ["less colourful"] if ratio <= PALER else ["more colourful"] if ratio >= RICHER else []
    in_palette, kept_in_palette = (value <= PALETTE for value in colours)
    is_reduced = in_palette and not kept_in_palette and not is_grey
    return [*(["a palette of colours"] if is_reduced else []), *([] if is_grey else words_of_ratio)]


def _coding(name: str | None, kept: str | None, settings: tuple[float, float]) -> list[str]:
    quality, kept_quality = settings
    words = []
    if name == "jpeg" and np.isfinite(quality):
        before = f", not {kept_quality:.0f}" if np.isfinite(kept_quality) else ""
        if not before or abs(quality - kept_quality) >= SETTING:
            words.append(f"JPEG quality {quality:.0f}{before}")
    if name != kept and name is not None and kept is not None and name != "jpeg":
        words.append(f"saved as {name}")
    return words


def _ratio(value: float, other: float) -> float:
    """Return value / other, or 1 (unchanged) if undefined."""
    return value / other if np.isfinite([value, other]).all() and other > 0 else 1.0


@dataclass(frozen=True)
class DedupRequest(DedupParameters, Request):
    """The validated request, as recorded in the receipt.

    Attributes:
        thresholds: finder -> threshold, in the order of ``FINDERS``.
        without_flat: images of one flat colour are not compared by embedding.
        facts: columns on the loss and the changes of a copy.
        held_back: finders with at least their default threshold, whose links in large groups just above it are kept
            until reviewed.
        ties: how ties between equal copies are broken; absent in receipts of earlier versions, which used a hash.
        confirmed: whether links by signature need confirmation by thumbnails; absent in earlier receipts.
        listed_crop: threshold of crops among the kept rows, which are kept until reviewed; None to list none, and in
            earlier receipts.
    """

    rule: ClassVar[str] = "dedup"
    beside: ClassVar[tuple[str, ...]] = ("against", VERDICTS, LINES)
    thresholds: dict[str, float] = field(default_factory=dict)
    _: KW_ONLY
    prefer: tuple[str, ...] = ()
    without_flat: bool = False
    facts: tuple[str, ...] = ()
    held_back: tuple[str, ...] = ()
    ties: str = TIES
    confirmed: bool = False
    listed_crop: float | None = None

    def __post_init__(self) -> None:
        for name in ("prefer", "facts", "held_back"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not all(glob.strip() for glob in self.prefer):
            raise InputError("--prefer needs a pattern of keys, got an empty text; write it like: --prefer 'sorted/*'")
        if self.protect is not None and not self.protect.strip():
            raise InputError("--protect needs a condition, got none; write it like: --protect 'split == \"test\"'")

    def to_json(self) -> dict[str, Any]:
        """Return the request as one rule of a policy, without unset fields that earlier receipts lack."""
        return {name: value for name, value in super().to_json().items() if name not in LATER or value}

    @property
    def bounds(self) -> dict[str, float]:
        """Finder -> threshold, of finders that drop or only list."""
        return self.thresholds if self.listed_crop is None else {**self.thresholds, CROP: self.listed_crop}

    @classmethod
    def from_json(cls, rule: Mapping[str, Any]) -> Self:
        """Return the request from the record of ``to_json``; InputError for any other, or for other ties."""
        if isinstance(rule, Mapping) and rule.get("ties") != TIES:
            raise InputError(
                "the rule of the receipt chooses among equal copies by "
                f"{rule.get('ties', 'a hash of the key')}, this version by the {TIES}; run the command of the "
                "receipt again"
            )
        request = super().from_json(rule)
        if not request.thresholds:
            raise InputError("expected thresholds in the rule of the receipt, got none; restore it from a backup")
        for name, value in request.bounds.items():
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
            representations=frozenset(column for name in self.bounds for column in FINDERS[name].needs),
            numbers=tuple(dict.fromkeys([*numbers, *needs.numbers])),
            present=tuple(dict.fromkeys(name for each in criteria for name in each.present)),
            texts=(self.label,) if self.label else (),
            conditions=(("--protect", self.protect),) if self.protect else (),
        )

    def needs_of_other(self, facts: Collection[str] = ()) -> Needs:
        """Return the columns and facts to read of the other table."""
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
        request: without thresholds; ``label`` may be None for the table's label column.
        table: to deduplicate.
        finder: one or several, or name -> threshold (None for its default); None for the default finders.

    Raises:
        InputError: for missing columns; the text lists the existing ones.
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
    request = replace(request, confirmed=SIGNATURE in held_back)
    return request, few


def _is_held_back(name: str, chosen: float | None) -> bool:
    """Return whether a finder has at least its default threshold, which must not drop more than the default."""
    usual = FINDERS[name].threshold
    return usual is not None and (chosen is None or (chosen > usual if FINDERS[name].higher else chosen < usual))


def _default_finders(table: Table) -> tuple[tuple[str, ...], str | None]:
    able = _available_finders(table)
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


def _available_finders(table: Table) -> list[str]:
    """Return the finders whose columns the table has."""
    return [name for name, finder in FINDERS.items() if set(finder.needs) <= set(table.schema.names)]


def _has(table: Table, name: str) -> None:
    able = _available_finders(table)
    if name not in able:
        missing = [column for column in FINDERS[name].needs if column not in table.schema.names]
        advice = ", choose your own column with --embedding" if EMBEDDING in missing else ""
        other = " or ".join(able)
        raise InputError(
            f"the finder {name} needs the column {' and '.join(missing)}, which {table.path} does not have; score the "
            f"images again{advice}{f', or use --finder {other}' if other else ''}"
        )


def finders_in_order(typed: Sequence[tuple[str, str]]) -> dict[str, float | None] | None:
    """Return finder -> threshold, or None if no finder was typed; a threshold applies to the finder before it.

    From (parameter, value) in the order of the command line. Raises InputError for an unknown or repeated finder, a
    threshold without a finder, or an invalid number.
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
