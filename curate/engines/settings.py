"""The settings of a scoring run, and those that must not change when it is resumed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from curate.columns import OK
from curate.options.fields import ScoringOptions
from scoring.errors import InputError
from scoring.images.deep import LEAST_WHITE, WHITE
from scoring.images.outcome import STATUSES
from scoring.lookup import lookup, require_known
from scoring.settings import require_between

if TYPE_CHECKING:
    from scoring.images.raster import DecodeOptions

DTYPES = ("float16", "float32")
SHARD_ROWS = 4096
DECODERS = ("cpu", "gpu")
MAX_PIXELS = 100_000_000
PASSING = frozenset({"missing", "io_error"})  # statuses of an unavailable source
TEMPORARY = PASSING | {"timeout"}  # statuses whose rows are read again when a complete run is repeated


@dataclass(frozen=True, kw_only=True)
class ScoreSettings(ScoringOptions):
    """How to score; every value determines the output, so another value is another run.

    Attributes:
        dtype: of the stored embedding; None stores none.
        scorers: names of scores that need no training, in addition to the scores of the model's heads.
    """

    dtype: str | None = "float16"
    scorers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("batch_size", "shard_size", "max_pixels"):
            require_between(f"--{name.replace('_', '-')}", getattr(self, name), 1)
        require_known(self.decode, DECODERS, "unknown --decode")
        if self.decode == "gpu" and self.quality:
            raise InputError(
                "--decode gpu measures no image quality, as the full image never leaves the GPU; add --no-quality, or "
                "leave out --decode"
            )
        require_between("--decode-timeout", self.decode_timeout, 0.1, 86_400, unit="seconds")
        if self.white is not None and not LEAST_WHITE <= self.white <= WHITE:
            raise InputError(f"--white must be auto or {LEAST_WHITE} to {WHITE}, got {self.white}; 12 bits are 4095")
        if self.dtype is not None:
            require_known(self.dtype, DTYPES, "unknown --dtype")

    def decode_options(self) -> "DecodeOptions":
        """Return the decoding options; the full 16-bit range is used if no white level was found."""
        from scoring.images.raster import DecodeOptions  # imports every decoder

        return DecodeOptions(self.max_pixels, self.decode_timeout, self.allow_truncated, self.white or WHITE)


def refuse_difference(
    place: str, before: dict[str, Any], now: dict[str, Any], *, input_differs: str = "", may_grow: bool = False
) -> None:
    """Raise ``InputError`` with the first difference of two runs in everything that determines the output.

    Args:
        place: of the earlier run's output.
        before: fingerprint of the earlier run.
        now: fingerprint of this run.
        input_differs: how two inputs differ, if known; else their digests are shown.
        may_grow: whether the output is a table, to which another input can be added.
    """
    differs = difference(before, now)
    if differs:
        name, earlier, current = differs
        what = input_differs if name == "input" and input_differs else f"{earlier} there, {current} here"
        rest = "choose another --out, or start again with --overwrite"
        first = "repeat the earlier command to resume it"
        if name in MADE:
            first = OF_ANOTHER_VERSION
        if may_grow and before.get("input") != now.get("input"):
            first = "score what is new or changed with --add, as the table was scored"
        raise InputError(f"{place} belongs to a run with another {name}: {what}; {first}, {rest}")


MADE = ("decoding", "signature", "thumbnail")  # settings that are not options: fixed per version of curate


def settings_of_version() -> dict[str, str]:
    """Return the settings in ``MADE`` of this version."""
    from scoring.images.decoding import KIND as DECODING
    from scoring.images.signature import KIND as SIGNATURE
    from scoring.images.thumbnail import KIND as THUMBNAIL

    return dict(zip(MADE, (DECODING, SIGNATURE, THUMBNAIL), strict=True))


OF_ANOTHER_VERSION = "another version of curate wrote it, and their outputs cannot be compared"


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Return the first difference of two runs: its name and both values, shortened; None if there is none.

    >>> difference({"model": "a", "torch": "2.10"}, {"model": "a"})
    ('torch', '2.10', 'none')
    """
    for name in {**before, **now}:
        if before.get(name) != now.get(name):
            return name, _short(before.get(name)), _short(now.get(name))
    return None


def _short(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 40 else text[:16] + "..."


def retried(more: Iterable[str]) -> frozenset[str]:
    """Return the statuses that a repeated run reads again: temporary ones and ``more``; InputError if not a failure."""
    for status in more:
        lookup({name: text for name, text in STATUSES.items() if name != OK}, status, kind="status of a failure")
    return TEMPORARY | set(more)
