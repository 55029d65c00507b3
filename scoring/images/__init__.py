"""Bytes in, pixels out: decoded, oriented, resized, or a failure with a name."""

from scoring.images.decoding import DEFAULT_MAX_PIXELS, MAX_SIDE, decode, decode_rgb, decode_small
from scoring.images.outcome import STATUSES, DecodedImage, DecodeError
from scoring.images.phash import hamming, perceptual_hash
from scoring.images.pixels import pixel_digest
from scoring.images.preprocessing import Preprocessing
from scoring.images.quality import Quality
from scoring.images.signature import ORIENTATIONS, reorient, signature

__all__ = [
    "DEFAULT_MAX_PIXELS",
    "MAX_SIDE",
    "ORIENTATIONS",
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
    "pixel_digest",
    "reorient",
    "signature",
]
