"""From bytes to pixels: decoded, oriented, resized, or a failure with a code. Decoders are loaded on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scoring.images.decoding import DEFAULT_MAX_PIXELS, MAX_SIDE, decode, decode_rgb, decode_small
    from scoring.images.outcome import STATUSES, DecodedImage, DecodeError
    from scoring.images.preprocessing import Preprocessing
    from scoring.images.quality import Quality
    from scoring.images.signature import hamming, perceptual_hash

# Not ``signature``, which is the name of its module.
_MODULES = {
    "DEFAULT_MAX_PIXELS": "decoding",
    "MAX_SIDE": "decoding",
    "STATUSES": "outcome",
    "DecodeError": "outcome",
    "DecodedImage": "outcome",
    "Preprocessing": "preprocessing",
    "Quality": "quality",
    "decode": "decoding",
    "decode_rgb": "decoding",
    "decode_small": "decoding",
    "hamming": "signature",
    "perceptual_hash": "signature",
}
__all__ = [
    "DEFAULT_MAX_PIXELS",
    "MAX_SIDE",
    "STATUSES",
    "DecodeError",
    "DecodedImage",
    "Preprocessing",
    "Quality",
    "decode",
    "decode_rgb",
    "decode_small",
    "hamming",
    "perceptual_hash",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'scoring.images' has no attribute {name!r}")
    return getattr(import_module(f"scoring.images.{_MODULES[name]}"), name)
