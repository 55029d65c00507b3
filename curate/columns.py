"""Every column that curate writes: its name, unit, direction and meaning."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from scoring.column import Column
from scoring.relative.columns import CLASS, OF_CLASSES
from scoring.relative.columns import COLUMNS as FITTED_COLUMNS
from scoring.scorers import METHOD, score_columns

KEY = "key"
URI = "uri"
N_BYTES = "n_bytes"
MTIME = "mtime"
STATUS = "status"
ERROR = "error"
LABEL = "label"  # default class column
FOLDER = "folder"  # computed from the key on request if the table lacks the column
FRAMES = "n_frames"
SIGNATURE = "signature"
THUMBNAIL = "thumbnail"
EMBEDDING = "embedding"
QUALITY = "quality_"  # prefix of image quality columns
OK = "ok"  # the status of a row whose image was scored
GONE = "gone"  # the status of a row whose image the source no longer has

# Measures of ``scoring.images.quality.Quality``, which imports more than names need.
QUALITY_COLUMNS: dict[str, Column] = {
    "quality_brightness": Column("mean grey: 0 black, 1 white", "1", "brighter"),
    "quality_shadow": Column("5 % of the pixels are no brighter: 0 black, 1 white", "1", "brighter"),
    "quality_highlight": Column("95 % of the pixels are no brighter: 0 black, 1 white", "1", "brighter"),
    "quality_contrast": Column("standard deviation of the grey, 0 to 0.5", "1", "more contrast"),
    "quality_entropy": Column("of the histogram of greys, 0 to 8", "bits", "more information"),
    "quality_sharpness": Column("finest detail against coarser, at a short side of 128 pixels", "1", "sharper"),
    "quality_noise": Column("standard deviation of the noise of colour", "grey levels", "noisier"),
    "quality_colourfulness": Column("0 grey, 15 slightly, 45 quite, 80 highly colourful", "1", "more colourful"),
    "quality_border": Column("share of the area in plain bars or a frame", "1", "more border"),
    "quality_blocking": Column("steps across JPEG's grid against those between; 1 without", "1", "more blocking"),
    "quality_resolution": Column("finest detail at full size; about 0.7, enlarged twice 0.3", "1", "more detail"),
    "quality_colours": Column("colours that cover 90 % of the middle; none of a JPEG", "1", "more colours"),
    "quality_jpeg": Column("quality setting by the file's quantisation, 1 to 100", "1", "less compressed"),
}

CHANCE = "probability that the image is bad, or what else was calibrated, by the {} map of curate calibrate"
ERROR_COLUMNS: dict[str, Column] = {  # of ``curate.statistics.calibrators``, which imports more than names need
    f"p_error_{name}": Column(CHANCE.format(name), "1", "less certain") for name in ("isotonic", "logistic")
}

COLUMNS: dict[str, Column] = {
    KEY: Column("the user's own key, else the path relative to the scanned root; unique"),
    URI: Column("where the bytes are; null where the source table holds them"),
    "width": Column("width as displayed (EXIF orientation applied)", "pixels"),
    "height": Column("height as displayed (EXIF orientation applied)", "pixels"),
    N_BYTES: Column("size of the encoded image", "bytes"),
    MTIME: Column("time of the file's last change, in Unix time; null where no time is known", "ns"),
    "format": Column("image format, as found in the bytes"),
    FRAMES: Column("images in the file, of which one is scored; null where they were not counted"),
    "sha256": Column("hex digest of the encoded bytes"),
    "phash": Column("64-bit perceptual hash of the whole image"),
    SIGNATURE: Column("255 numbers whose cosine is the similarity of two whole images, and 32 for their colours"),
    THUMBNAIL: Column("64 x 64 greys of the whole image, by which near copies are confirmed"),
    STATUS: Column("'ok', the kind of failure, or 'gone'"),
    ERROR: Column("the failure in one sentence, or a warning on an ok row"),
    **QUALITY_COLUMNS,
    EMBEDDING: Column("representation of unit length"),
    **FITTED_COLUMNS,
    CLASS: OF_CLASSES,
    **ERROR_COLUMNS,
}


CUSTOM = Column("the user's own")


def describe(name: str) -> Column:
    """Return the meaning of a column; an unknown name is a user column.

    >>> describe("kappa_visimsiam").higher
    'more certain'
    """
    if name in COLUMNS:
        return COLUMNS[name]
    scores = score_columns()
    if name in scores:
        return scores[name]
    for pattern in sorted(scores, key=len, reverse=True):  # unc_<method>_error before unc_<method>
        start, of_method, end = pattern.partition(METHOD)
        if of_method and name.startswith(start) and name.endswith(end):
            return scores[pattern]
    return CUSTOM


def describe_all(names: Iterable[str], meanings: Mapping[str, str] | None = None) -> dict[str, dict[str, str]]:
    """Return the meaning of each column as JSON for a file's metadata, in the given order.

    ``meanings`` are added for columns that only one kind of file has.
    """
    custom = meanings or {}
    return {name: asdict(Column(custom[name]) if name in custom else describe(name)) for name in names}


def is_less_certain(name: str) -> bool:
    """Return whether a larger value of the column means a less certain image.

    >>> is_less_certain("unc_visimsiam"), is_less_certain("kappa_visimsiam"), is_less_certain("aesthetic")
    (True, False, False)
    """
    return describe(name).higher == "less certain"
