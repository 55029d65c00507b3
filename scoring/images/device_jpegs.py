"""JPEGs decoded and reduced on a GPU after checks on the CPU, with the same model input.

nvJPEG, which decodes on a GPU, is not documented to detect truncated or invalid data. So libjpeg-turbo first reads all
codes, and only images without an error or warning are decoded on the GPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
import simplejpeg
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from scoring.errors import InputError
from scoring.images.geometry import MAX_ASPECT, Pixels, dct_scale, resized_size
from scoring.images.jpeg import check_strictly, read_jpeg_header
from scoring.images.outcome import DecodeError
from scoring.images.preprocessing import Preprocessing
from scoring.images.quiet import quiet
from scoring.images.raster import DecodeOptions, Header, LocalImage
from scoring.images.signature import SIDE
from scoring.images.sniff import sniff
from scoring.images.thumbnail import SIDE as THUMBNAIL_SIDE

MOST_PIXELS = 32_000_000  # of an image on a device, which needs 12 additional bytes per pixel
CLOSE = 3.0  # largest mean absolute difference between decoders on the test images, in grey levels
_COLOURS = ("YCbCr", "Gray")
_SUBSAMPLINGS = ("444", "422", "420", "440", "411", "Gray")


@dataclass(frozen=True)
class SoundJpeg:
    """A JPEG of common structure in which libjpeg-turbo finds no error, not yet decoded.

    Attributes:
        data: the encoded bytes.
        header: everything before the pixels.
    """

    data: bytes
    header: Header


@dataclass(frozen=True)
class Reduced:
    """An image reduced on the device, oriented.

    Attributes:
        pixels: for the model, uint8 RGB, shape (size, size, 3).
        small: the whole image, for the hash and the signature, uint8 RGB, shape (32, 32, 3).
        larger: the whole image, for the thumbnail, shape (64, 64, 3).
    """

    pixels: Pixels
    small: Pixels
    larger: Pixels


def sound_jpeg(data: bytes, resize: int, *, max_pixels: int, is_checked: bool = False) -> SoundJpeg | None:
    """Return a JPEG that a device may decode; None if it must be decoded by ``decode``.

    None for other formats; for a JPEG that is incomplete, of uncommon structure or colours other than YCbCr and grey,
    over 32 megapixels, or more than 8 times as long as wide; and for one that ``decode`` would reduce while reading,
    which is about as fast as the check.

    Args:
        data: the encoded image.
        resize: short side in pixels before the crop.
        max_pixels: larger images are left to ``decode``, which refuses them.
        is_checked: ``decode`` returned ``ok`` without a warning, so that the codes need not be read again.
    """
    jpeg = read_jpeg_header(data) if sniff(data) == "jpeg" else None
    if jpeg is None or not jpeg.is_plain:
        return None
    size = jpeg.width, jpeg.height
    if not 0 < size[0] * size[1] <= min(max_pixels, MOST_PIXELS) or max(size) > MAX_ASPECT * min(size):
        return None
    if dct_scale(*size, resize) > 1:
        return None
    try:
        header = LocalImage(data, "jpeg", DecodeOptions(max_pixels), jpeg).header
        height, width, *kind = simplejpeg.decode_jpeg_header(data)
        if (width, height) != size or kind[0] not in _COLOURS or kind[1] not in _SUBSAMPLINGS:
            return None
        if not is_checked:
            check_strictly(data)
    except (DecodeError, ValueError, MemoryError):
        return None
    return SoundJpeg(data, header)


class DeviceJpegs:
    """Decodes and reduces JPEGs on a device, one by one, so that pixels do not depend on the batch.

    Args:
        device: a GPU; the CPU works too, but is slower than ``decode``.
        preprocessing: size, resize and interpolation.

    Raises:
        InputError: the device has no decoder, or its pixels differ from libjpeg-turbo's.
    """

    def __init__(self, device: torch.device, preprocessing: Preprocessing) -> None:
        self.device, self._preprocessing = device, preprocessing
        self._check_decoder()

    @torch.inference_mode()
    def decode(self, jpegs: Sequence[SoundJpeg]) -> list[Reduced]:
        """Return the model's input and the small images of JPEGs; RuntimeError if decoding any of them fails."""
        made = [
            self._reduced(picture, jpeg.header.orientation)
            for picture, jpeg in zip(self._decoded([jpeg.data for jpeg in jpegs]), jpegs, strict=True)
        ]
        sides = (torch.stack(side).cpu().numpy() for side in zip(*made, strict=True))  # (N, S, S, 3) each
        return [Reduced(*images) for images in zip(*sides, strict=True)]

    def _decoded(self, coded: Sequence[bytes]) -> list[Tensor]:
        """Decode to uint8 RGB of shape (3, H, W), on the device, unoriented."""
        from torchvision.io import ImageReadMode, decode_jpeg

        inputs = [torch.frombuffer(bytearray(encoded), dtype=torch.uint8) for encoded in coded]
        with quiet():  # suppresses a deprecation warning
            pictures: list[Tensor] = decode_jpeg(inputs, mode=ImageReadMode.RGB, device=self.device)
        return pictures

    def _reduced(self, picture: Tensor, orientation: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the model's square, (S, S, 3), and the small images, (32, 32, 3) and (64, 64, 3)."""
        preprocessing = self._preprocessing
        height, width = picture.shape[1:]
        across, down = resized_size(width, height, preprocessing.resize)
        levels = picture[None].float()  # (1, 3, H, W)
        resized = _oriented(_resized(levels, across, down, preprocessing.interpolation), orientation)
        top, left = (round((side - preprocessing.size) / 2) for side in resized.shape[:2])  # as ``centre_crop``
        square = resized[top : top + preprocessing.size, left : left + preprocessing.size]
        small, larger = (
            _oriented(_resized(levels, side, side, "bilinear"), orientation) for side in (SIDE, THUMBNAIL_SIDE)
        )
        return square, small, larger

    def _check_decoder(self) -> None:
        """Raise InputError unless a colour and a grey image are decoded as by libjpeg-turbo."""
        for colours, subsampling in (("RGB", "420"), ("GRAY", "Gray")):
            data = _test_jpeg(colours, subsampling)
            try:
                (picture,) = self._decoded([data])
                got = picture.permute(1, 2, 0).cpu().numpy().astype(np.float32)
            except RuntimeError as error:
                raise InputError(
                    f"torchvision decodes no JPEG on {self.device}: {str(error).splitlines()[0]}; leave out --decode"
                ) from None
            expected = simplejpeg.decode_jpeg(data, "RGB").astype(np.float32)
            if got.shape != expected.shape or (apart := float(np.abs(got - expected).mean())) > CLOSE:
                how = f"shape {got.shape}" if got.shape != expected.shape else f"{apart:.1f} levels apart"
                raise InputError(
                    f"the JPEG decoder on {self.device} gives another image than libjpeg-turbo, {how}; "
                    "leave out --decode"
                )


def decoder_versions(device: torch.device) -> dict[str, str]:
    """Return the versions of the packages that determine the pixels decoded by a GPU, by name."""
    versions = {"decoder": "gpu", "torchvision": version("torchvision"), "cuda": str(torch.version.cuda)}
    return {**versions, "gpu": torch.cuda.get_device_name(device)}


def _resized(levels: Tensor, width: int, height: int, interpolation: str) -> Tensor:
    """Resize an image antialiased: (1, 3, H, W) to uint8, (height, width, 3)."""
    resized = interpolate(levels, size=(height, width), mode=interpolation, antialias=True)
    return resized[0].round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0)


def _oriented(picture: Tensor, orientation: int) -> Tensor:
    """Orient an image of shape (H, W, 3) as ``orient`` does."""
    if orientation in (5, 6, 7, 8):
        picture = picture.transpose(0, 1)
    flipped = [axis for axis, those in ((1, (2, 3, 6, 7)), (0, (3, 4, 7, 8))) if orientation in those]
    return picture.flip(flipped) if flipped else picture


def _test_jpeg(colours: str, subsampling: str) -> bytes:
    """Return a JPEG of 64 x 48 pixels, red rising to the right, green downwards, blue falling to the right."""
    y, x = np.mgrid[:48, :64].astype(np.float64)
    ramps: NDArray[np.uint8] = np.stack([x * 2, y * 2, 255 - x * 2], axis=2).astype(np.uint8)
    picture = ramps if colours == "RGB" else np.ascontiguousarray(ramps[..., :1])
    coded: bytes = simplejpeg.encode_jpeg(picture, quality=90, colorspace=colours, colorsubsampling=subsampling)
    return coded
