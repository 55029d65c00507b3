"""The kinds of issues and their thresholds: a table, and pure functions on columns."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from scoring.relative.columns import COPIES, JUNK, UNLIKE

Values = NDArray[np.float32]  # (N,), NaN if absent
Flags = NDArray[np.bool_]

FAR = 3.5  # robust standard deviations: Iglewicz and Hoaglin 1993, "How to detect and handle outliers"
_SIGMA = 1.4826  # standard deviations in a median absolute deviation of normal values
STYLE = 0.1  # share of a dataset above which a kind describes its style, not defects
CONSTANT = 1e-6  # contrast
FEW = 5  # images up to which a kind is never the style of the dataset
JUNK_CUT, SUSPECT_CUT = 0.5, 0.1  # p_junk of unusable images, and of images for which it confirms another measure
NOISE_CUT = 0.95  # p_junk of noise is 0.97 or more; equally sharp knitwear and spectrograms have less
UNUSABLE, ALL = "unusable", "all"  # names for several kinds
GROUPS = "unlike-the-rest"
SHAPE = ("quality_contrast", "quality_entropy", "quality_sharpness")
NOISE_SHADES = 4.13  # 2 to the entropy of normal noise whose standard deviation is one grey level: sqrt(2 pi e)
SPECKS = 1.7  # sharpness: single pixels reach 2, lines of one pixel 1.4
FAINT = 0.05  # contrast: aerial images of fields and faint drawings are as sharp as noise, but fainter
CONTRAST, JPEG = 0.1, 30.5
COLOURS, DRAWN = "quality_colours", 4  # colours that cover 90 % of a drawing; a JPEG that was decoded has more
ENTROPY, RESOLUTION = "quality_entropy", "quality_resolution"
NOISY = 1.2  # sharpness of noise, also at full size: there 1.48 or more, text and dots at most 1.0
PALETTE = 256  # colours: noise of colour in a file without JPEG has more
SAMPLED, EVERY, REPEATED = 160, 4, 0.8  # of ``quality_colours``: side, step, and share of its pixels; noise has 0.9
SHADES, MANY = 4.5, 64  # bits of grey, number of colours: flags with few clean steps look enlarged but are not
NOISY_SHADES = 5.5  # bits of grey: noise has 6 and more; grids, dashes and small type are as sharp and have fewer
LEAST_ENLARGED = 64  # pixels, short side: smaller images may be originals
_SIZES = ("width", "height")


def _identity(value: Values) -> Values:
    return value


def _aspect(width: Values, height: Values) -> Values:
    """Return the long side over the short side, at least 1."""
    return (np.maximum(width, height) / np.minimum(width, height)).astype(np.float32)


def _size(width: Values, height: Values) -> Values:
    """Return the ratio of a square's side (of this area) to the dataset's median, at least 1."""
    side = np.sqrt(width * height)
    with np.errstate(invalid="ignore"):
        known = side[~np.isnan(side)]
        ratio = side / (np.median(known) if len(known) else 1)
        return np.asarray(np.maximum(ratio, 1 / ratio).astype(np.float32))


@dataclass(frozen=True)
class Witness:
    """A second measure that must confirm a kind, since the first also flags drawings, scans and products on white.

    Attributes:
        columns: its columns; those in the table are used.
        confirms: values by name, shape (N,) each -> mask of confirmed rows, shape (N,).
        needed: whether a table without the columns has no issue of the kind; otherwise the measure alone decides.
        words: its description.
    """

    columns: tuple[str, ...]
    confirms: Callable[[Mapping[str, Values]], Flags]
    needed: bool
    words: str


def _is_junk(values: Mapping[str, Values]) -> Flags:
    return values[JUNK] > JUNK_CUT


def _suspect(values: Mapping[str, Values], name: str, cut: float) -> Flags:
    """Return images that may be junk, or whose measure is below a cut."""
    signs = [values[JUNK] > SUSPECT_CUT] if JUNK in values else []
    signs += [values[name] < cut] if name in values else []
    return np.asarray(np.logical_or.reduce(signs))


_low_contrast = partial(_suspect, name="quality_contrast", cut=CONTRAST)
_compressed = partial(_suspect, name="quality_jpeg", cut=JPEG)


def _gridded(values: Mapping[str, Values]) -> Flags:
    """Return images that pass ``_compressed`` or have the colours of a photograph, without drawings on the grid.

    Without p_junk and JPEGs, all but drawings.
    """
    known = {name: value for name, value in values.items() if name != COLOURS and np.isfinite(value).any()}
    suspects = _compressed(known) if known else np.ones(len(next(iter(values.values()))), bool)
    if COLOURS not in values:
        return suspects
    is_suspect = known[JUNK] > SUSPECT_CUT if JUNK in known else np.False_
    is_no_jpeg = ~np.isfinite(values.get("quality_jpeg", np.float32(np.nan)))
    return is_suspect | (is_no_jpeg & (values[COLOURS] > MANY)) | (suspects & ~(values[COLOURS] <= DRAWN))


def _repeating(values: Mapping[str, Values]) -> Flags:
    """Return images whose few colours repeat: dithering is as coarse as colour noise."""
    colours = values.get(COLOURS, np.float32(np.nan))
    sides = [np.ceil(np.minimum(values[name], SAMPLED) / EVERY) for name in _SIZES if name in values]
    pixels = np.prod(sides, axis=0) if len(sides) == len(_SIZES) else np.inf
    return np.asarray((colours <= PALETTE) & (colours < REPEATED * pixels))


def _colourful(values: Mapping[str, Values]) -> Flags:
    few = _repeating(values)
    return np.logical_or(values[JUNK] > SUSPECT_CUT, ~few) if JUNK in values else ~few


def _noise(values: Mapping[str, Values]) -> Flags:
    """Return images with contrast, shades and full-size detail of noise, except textures in a palette's colours."""
    is_strong = (values["quality_contrast"] >= FAINT) & (values[ENTROPY] > NOISY_SHADES)
    is_strong &= values.get(RESOLUTION, np.float32(np.nan)) > NOISY  # text that is reduced looks like noise
    has_palette = _repeating(values) & (values["quality_noise"] > 0)  # grey noise has few colours too
    return (values[JUNK] > NOISE_CUT) & is_strong & ~has_palette


def _enlarged(values: Mapping[str, Values]) -> Flags:
    """Return images that are large and have more shades (and colours, if known) than flags, charts and boards."""
    is_large = np.minimum(values["width"], values["height"]) >= LEAST_ENLARGED
    return _is_junk(values) & is_large & (values[ENTROPY] > SHADES) & ~(values[COLOURS] <= MANY)


def _shapeless(values: Mapping[str, Values]) -> Flags:
    """Return all images except faint shapes on a plain ground: few shades for their contrast, and coarse detail.

    If ``p_junk`` is known, one colour or a ``p_junk`` above 0.5 counts: blue cells on black have little contrast too.
    """
    contrast, entropy, sharpness = (values.get(name, np.float32(np.nan)) for name in SHAPE)
    with np.errstate(invalid="ignore"):
        shape = (2**entropy < NOISE_SHADES * 255 * contrast / 2) & (sharpness < SPECKS)
    is_blank = np.broadcast_to(~shape, np.broadcast(contrast, entropy, sharpness).shape)
    return is_blank & ~((values[JUNK] <= JUNK_CUT) & (contrast >= CONSTANT)) if JUNK in values else is_blank


BY_JUNK = Witness((JUNK,), _is_junk, True, "p_junk above 0.5")
BY_COLOURS = Witness(
    (JUNK, COLOURS, *_SIZES),
    _colourful,
    False,
    "p_junk above 0.1, or, where known, more than 256 colours or hardly one twice",
)
BY_NOISE = Witness(
    (JUNK, "quality_contrast", ENTROPY, RESOLUTION, "quality_noise", COLOURS, *_SIZES),
    _noise,
    True,
    "p_junk above 0.95, contrast of 0.05 or more, as sharp at full size, more shades than drawings, and no palette of "
    "at most 256 colours",
)
BY_SHADES = Witness(
    (JUNK, ENTROPY, COLOURS, *_SIZES),
    _enlarged,
    True,
    "p_junk above 0.5, a short side of 64 pixels or more, and more shades and colours than drawings have",
)
BY_SHAPE = Witness(
    (JUNK, *SHAPE),
    _shapeless,
    False,
    "no shape on a plain ground: no detail, or half the shades of noise of its contrast; and, where known, p_junk "
    "above 0.5 or one colour",
)
BY_CONTRAST = Witness((JUNK, "quality_contrast"), _low_contrast, False, "p_junk above 0.1, or contrast below 0.1")
BY_GRID = Witness(
    (JUNK, "quality_jpeg", COLOURS),
    _gridded,
    False,
    "p_junk above 0.1, a JPEG of quality 30 or less, or no JPEG and more than 64 colours; and no drawing of 4 colours "
    "or fewer",
)


@dataclass(frozen=True)
class Kind:
    """One kind of issue: a tail of one measure.

    Attributes:
        meaning: a description.
        columns: columns of the measure.
        low: whether the low tail is the issue, or the high one.
        strict: values beyond it are issues in any dataset.
        loose: values short of it are never issues.
        log: whether the spread is measured on a log scale, for ratios.
        measure: columns as float32 -> the measure, shape (N,).
        what: description of the measure.
        witness: the confirming measure; None if not needed.
        unusable: whether such an image is unusable in every domain.
        style: whether a large share of such rows means the style of the dataset, so that none is flagged.
        always: values beyond it are flagged for any share; None for no such bound.
    """

    meaning: str
    columns: tuple[str, ...]
    low: bool
    strict: float
    loose: float
    log: bool = False
    measure: Callable[..., Values] = _identity
    what: str = ""
    witness: Witness | None = None
    unusable: bool = False
    style: bool = True
    always: float | None = None

    @property
    def name(self) -> str:
        """The description of the measure."""
        return self.what or self.columns[0]

    @property
    def side(self) -> str:
        """The side of a threshold on which the issue lies, in words."""
        return "below" if self.low else "above"

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns needed to compute it, including the witness's."""
        return (*self.columns, *(self.witness.columns if self.witness else ()))

    def beyond(self, values: Values, cut: float) -> Flags:
        """Return a mask of the values beyond a threshold; False without a value."""
        limit = np.float32(cut)
        return values < limit if self.low else values > limit

    def confirmed(self, columns: Mapping[str, Values], n: int) -> Flags:
        """Return a mask of the N rows that the witness confirms; all without a witness."""
        if self.witness is None:
            return np.ones(n, bool)
        present = {name: columns[name] for name in self.witness.columns if name in columns}
        if not any(np.isfinite(values).any() for values in present.values()):
            return np.full(n, not self.witness.needed)
        return self.witness.confirms(present)


KINDS: Mapping[str, Kind] = {  # to add a kind, add a line
    "junk": Kind("unlike this dataset and like corrupted copies of it", (JUNK,), False, 0.5, 0.5, style=False),
    "blank": Kind(
        "one colour, or nearly",
        ("quality_contrast",),
        True,
        0.01,
        0.01,
        witness=BY_SHAPE,
        unusable=True,
        always=CONSTANT,
    ),
    "pure-noise": Kind(
        "noise and no image", ("quality_sharpness",), False, NOISY, NOISY, witness=BY_NOISE, unusable=True, style=False
    ),
    "enlarged": Kind(
        "enlarged from a few pixels",
        ("quality_sharpness",),
        True,
        0.35,
        0.35,
        witness=BY_SHADES,
        unusable=True,
        style=False,
    ),
    "placeholder": Kind(
        "one unusable image, at least 10 times", (COPIES,), False, 9.5, 9.5, witness=BY_JUNK, unusable=True, style=False
    ),
    GROUPS: Kind("in a group of images unlike the rest", (UNLIKE,), False, 0.5, 0.5, style=False),
    "dark": Kind("nothing in it is bright", ("quality_highlight",), True, 0.21, 0.27, witness=BY_CONTRAST),
    "bright": Kind("nothing in it is dark", ("quality_shadow",), False, 0.7, 0.65, witness=BY_CONTRAST),
    "overexposed": Kind(
        "white for the most part: overexposed, or a thing on white", ("quality_brightness",), False, 0.93, 0.75
    ),
    "low-contrast": Kind("blank, or nearly", ("quality_contrast",), True, 0.02, 0.05, log=True),
    "low-information": Kind("few shades of grey", ("quality_entropy",), True, 1.5, 2.2, witness=BY_CONTRAST),
    "blurry": Kind("the finest detail is gone", ("quality_sharpness",), True, 0.2, 0.27, log=True),
    "noisy": Kind("noise of colour", ("quality_noise",), False, 4.0, 2.0, witness=BY_COLOURS),
    "blocky": Kind("JPEG's grid shows", ("quality_blocking",), False, 1.8, 1.4, log=True, witness=BY_GRID),
    "compressed": Kind("a JPEG of very low quality", ("quality_jpeg",), True, 10.5, 20.5),
    "bordered": Kind("bars or a frame around the image", ("quality_border",), False, 0.25, 0.04),
    "grey": Kind("no colour, among images in colour", ("quality_colourfulness",), True, 2.0, 4.0),
    "tiny": Kind("short side below 32 pixels", _SIZES, True, 32, 32, measure=np.minimum, what="short side"),
    "odd-aspect": Kind("much longer than wide, or wider than long", _SIZES, False, 5.0, 2.5, True, _aspect, "aspect"),
    "odd-size": Kind("much smaller or larger than most", _SIZES, False, 10.0, 4.0, True, _size, "size ratio"),
}
UNUSABLE_KINDS = tuple(name for name, kind in KINDS.items() if kind.unusable)


def cut_of(kind: Kind, values: Values) -> float:
    """Return the threshold of a kind in this dataset.

    It is 3.5 robust standard deviations (1.4826 median absolute deviations) from the median, clipped to the range from
    ``loose`` to ``strict``: so a clean dataset has few issues however wide it spreads, and in a mostly dark dataset the
    dark images are still found.

    Args:
        kind: the kind.
        values: of the scored rows, shape (N,); NaN if missing.

    >>> cut_of(KINDS["dark"], np.full(9, 0.9, np.float32))
    0.27
    """
    known = values[~np.isnan(values)].astype(np.float64)
    if not len(known):
        return kind.loose
    if kind.log:
        known = np.log(np.maximum(known, 1e-6))
    centre = float(np.median(known))
    spread = FAR * _SIGMA * float(np.median(np.abs(known - centre)))
    limit = centre - spread if kind.low else centre + spread
    limit = float(np.exp(min(limit, 700.0))) if kind.log else limit
    low, high = sorted((kind.strict, kind.loose))
    return min(max(limit, low), high)
