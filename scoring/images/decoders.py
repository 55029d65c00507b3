"""Decoding in several processes, since threads of one process wait for the interpreter lock on many cores.

A process decodes one image after another with exactly the results of ``decode``. ``child.py`` has the protocol;
signature, thumbnail and pixels follow the answer through the socket. Before decoding a large image, the process
requests its pixels from the parent's budget, which all processes share.
"""

import math
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np

from scoring.arrays import Array
from scoring.images.budget import BUDGET
from scoring.images.child import answer_all, receive_bytes, receive_frame, receive_into, send_frame
from scoring.images.decoding import decode, model_square, opened
from scoring.images.geometry import Pixels, Raster, orient, resize
from scoring.images.outcome import DecodedImage, DecodeError
from scoring.images.preprocessing import Preprocessing
from scoring.images.quality import Quality
from scoring.images.raster import DecodeOptions
from scoring.images.supervised import Child, Children, raise_failure
from scoring.system import free_memory

ATTEMPTS = 10  # number of random boxes before the centre is used
RATIO = 4 / 3  # width / height of a box lies between 3/4 and this
FEWEST_THREADS = 4  # with fewer threads, one process is as fast
FEWEST_IMAGES = 2_000  # images decoded during the start of the processes
MOST = 24  # more processes than one parent can keep busy
MEMORY = 400 << 20  # bytes per process; together at most half of the free memory
T = TypeVar("T")
APART = ("pixels", "signature", "thumbnail", "quality")  # fields that are sent separately


@dataclass(frozen=True)
class Crops:
    """The crops of one image.

    Attributes:
        sides: side of each crop in pixels.
        scales: bounds of each crop's share of the area.
        seed: integers >= 0 that seed all boxes, together with the size of the image.
        plain: whether the first crop is the square that a model scores.
    """

    sides: tuple[int, ...]
    scales: tuple[tuple[float, float], ...]
    seed: tuple[int, ...]
    plain: bool = False

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Crops":
        """Return the crops from ``dataclasses.asdict`` passed through JSON."""
        scales = tuple((low, high) for low, high in record["scales"])
        return cls(tuple(record["sides"]), scales, tuple(record["seed"]), record["plain"])

    def boxes(self, width: int, height: int) -> "list[Box]":
        """Return the boxes of crops in an image."""
        drawn = np.random.default_rng(self.seed).random((len(self.sides), 2 * ATTEMPTS + 3))
        return [_box(numbers, *scale, width, height) for numbers, scale in zip(drawn, self.scales, strict=True)]


@dataclass(frozen=True)
class Box:
    """A region of an image in pixels, and whether it is flipped."""

    left: int
    top: int
    width: int
    height: int
    mirrored: bool


@dataclass(frozen=True)
class DecodedCrops:
    """The outcome of one image: crops, each uint8 of shape (side, side, 3), or the reason why there are none."""

    status: str
    pixels: list[Pixels]


def decode_crops(
    data: bytes,
    preprocessing: Preprocessing,
    crops: Crops,
    options: DecodeOptions = DecodeOptions(),  # noqa: B008 (it is frozen)
    *,
    supervised: bool = False,
) -> DecodedCrops:
    """Return the crops of one image; any bytes give an outcome, as in ``decode``.

    A box is drawn in whole pixels as in the papers' reference code, and resized with an antialiased bilinear filter. A
    large JPEG is reduced while decoding if every crop keeps four pixels for each of its output.

    Args:
        data: the encoded image.
        preprocessing: of the model, for the plain square.
        crops: the requested crops.
        options: as in ``decode``.
        supervised: as in ``decode``.

    Source: torchvision, RandomResizedCrop.get_params.
    """
    try:
        with opened(data, options, supervised=supervised) as image, BUDGET.hold(image.header.n_pixels):
            width, height = image.header.width, image.header.height
            boxes = crops.boxes(width, height)
            # the short side of the whole image where a box of it is as large as its crop
            least = [
                math.ceil(min(width, height) * side / min(box.width, box.height))
                for box, side in zip(boxes, crops.sides, strict=True)
            ]
            target = max([*least, *([preprocessing.resize] if crops.plain else [])], default=1)
            raster, _ = image.raster(target)
            plain = [model_square(raster, preprocessing)] if crops.plain else []
            cut = [_crop(raster, box, side) for box, side in zip(boxes, crops.sides, strict=True)]
    except DecodeError as failure:
        return DecodedCrops(failure.status, [])
    return DecodedCrops("ok", plain + cut)


def _box(drawn: np.ndarray, low: float, high: float, width: int, height: int) -> Box:
    """Return the first box that fits into the image, else the centre."""
    x, y, mirrored = (float(number) for number in drawn[-3:])
    for share, ratio in drawn[:-3].reshape(ATTEMPTS, 2).tolist():
        area, aspect = (low + (high - low) * share) * width * height, RATIO ** (2 * ratio - 1)
        wide, tall = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < wide <= width and 0 < tall <= height:
            return Box(int(x * (width - wide + 1)), int(y * (height - tall + 1)), wide, tall, mirrored < 0.5)
    wide, tall = min(width, max(1, round(height * RATIO))), min(height, max(1, round(width * RATIO)))
    return Box((width - wide) // 2, (height - tall) // 2, wide, tall, mirrored < 0.5)


def _crop(raster: Raster, box: Box, side: int) -> Pixels:
    """Return a box of an image at ``side`` x ``side`` pixels, before orientation.

    The distribution of boxes is the same in a turned image, so only the small square needs to be oriented.
    """
    height, width = raster.pixels.shape[:2]
    left, right = (round(at * width / raster.width) for at in (box.left, box.left + box.width))
    top, bottom = (round(at * height / raster.height) for at in (box.top, box.top + box.height))
    part = raster.pixels[top : max(bottom, top + 1), left : max(right, left + 1)]
    square = orient(resize(part, side, side, "bilinear"), raster.orientation)
    return square[:, ::-1] if box.mirrored else square


def decoder_for(threads: int, n_images: int) -> tuple[Callable[..., DecodedImage], int]:
    """Return the fastest decoder for a number of images, and the number of threads."""
    processes = min(threads + threads // 4, MOST)  # more processes than cores, since some wait for reading
    if (free := free_memory()) is not None:
        processes = min(processes, free // 2 // MEMORY)
    if min(threads, processes) < FEWEST_THREADS or n_images < FEWEST_IMAGES:
        return decode, threads
    return decode_elsewhere, processes


def crop_decoder_for(threads: int, n_images: int) -> tuple[Callable[..., DecodedCrops], int]:
    """``decoder_for`` with the signature of ``decode_crops``."""
    chosen, threads = decoder_for(threads, n_images)
    return decode_crops if chosen is decode else crops_elsewhere, threads


def decode_elsewhere(
    data: bytes,
    preprocessing: Preprocessing,
    options: DecodeOptions = DecodeOptions(),  # noqa: B008 (it is frozen)
    **more: Any,
) -> DecodedImage:
    """Run ``decode`` in a worker process, with the same options and outcome.

    An image that kills the worker is decoded again with ``supervised``. Raises RuntimeError for a bug, with the
    worker's traceback, and InputError if no process can be started.
    """
    return _in_worker(decode, _image, data, preprocessing, options, **more)


def crops_elsewhere(
    data: bytes,
    preprocessing: Preprocessing,
    crops: Crops,
    options: DecodeOptions = DecodeOptions(),  # noqa: B008 (it is frozen)
    **more: Any,
) -> DecodedCrops:
    """Run ``decode_crops`` in a worker process; as ``decode_elsewhere``."""
    return _in_worker(decode_crops, _crops, data, preprocessing, crops, options, **more)


def _in_worker(
    in_process: Callable[..., T], take: Callable[[socket.socket, Any], T], data: bytes, *settings: Any, **more: Any
) -> T:
    """Return ``take(socket, answer)`` for a worker's answer; ``settings`` are dataclasses, ``more`` plain values."""
    if more.get("supervised"):
        return in_process(data, *settings, **more)
    decoder = DECODERS.take(fresh=False)
    try:
        result = decoder.answered(data, {"settings": [asdict(each) for each in settings], "more": more}, take)
    except (OSError, EOFError):
        decoder.end()
        return in_process(data, *settings, **{**more, "supervised": True})
    except BaseException:
        decoder.end()
        raise
    DECODERS.give_back(decoder)
    return result


class Decoder(Child):
    """A worker process that decodes exactly as this process would."""

    module = "scoring.images.decoders"

    def answered(self, data: bytes, request: dict[str, Any], take: Callable[[socket.socket, dict[str, Any]], T]) -> T:
        """Send a request, and receive the answer while its pixels are reserved in the budget.

        Raises:
            OSError, EOFError: the worker ended.
            MemoryError: the worker had too little memory.
            RuntimeError: a bug in the worker.
        """
        self._socket.settimeout(None)  # no time limit, as for decoding in a thread
        send_frame(self._socket, {"n_bytes": len(data), **request})
        self._socket.sendall(data)
        with ExitStack() as held:
            while (reply := receive_frame(self._socket)) and "hold" in reply:
                held.enter_context(BUDGET.hold(reply["hold"]))
                send_frame(self._socket, {"held": True})
            if reply is None:
                raise EOFError
            raise_failure(reply)
            return take(self._socket, reply)


def _crops(peer: socket.socket, reply: dict[str, Any]) -> DecodedCrops:
    return DecodedCrops(reply["status"], [_square(peer, side) for side in reply["sides"]])


def _square(peer: socket.socket, side: int) -> Pixels:
    """Receive the pixels of the next square image."""
    pixels = np.empty((side, side, 3), np.uint8)
    receive_into(peer, pixels.data.cast("B"))
    return pixels


def _image(peer: socket.socket, reply: dict[str, Any]) -> DecodedImage:
    parts: dict[str, Array] = {}
    for name, kind in (("signature", np.int8), ("thumbnail", np.uint8)):
        if reply[name]:
            parts[name] = np.frombuffer(receive_bytes(peer, reply[name]), kind)
    pixels = _square(peer, reply["side"]) if reply["side"] else None
    quality = None if reply["quality"] is None else Quality(**reply["quality"])
    return DecodedImage(pixels=pixels, quality=quality, **{"signature": None, **parts, **reply["image"]})


DECODERS = Children(Decoder)  # idle processes hold 0.3 GB each and end with the run


@contextmanager
def closing_decoders() -> Iterator[None]:
    """End idle processes at the end of the block."""
    try:
        yield
    finally:
        DECODERS.end()


def serve(fd: int | None) -> None:
    """Decode images until the other end closes; ``fd`` as in ``answer_all``."""
    import torch  # imported before the first image

    torch.set_num_threads(1)
    answer_all(fd, _answer)


def _answer(parent: socket.socket, request: dict[str, Any]) -> None:
    def ask(n_pixels: int) -> None:
        send_frame(parent, {"hold": n_pixels})
        if receive_frame(parent) is None:
            raise SystemExit(0)

    BUDGET.ask = ask
    data = receive_bytes(parent, request["n_bytes"])
    preprocessing, *crops, options = request["settings"]
    settings = Preprocessing(**preprocessing), DecodeOptions(**options)
    if crops:
        cut = decode_crops(data, settings[0], Crops.from_json(crops[0]), settings[1], **request["more"])
        reply = {"status": cut.status, "sides": [len(square) for square in cut.pixels]}
        parts: list[Any] = list(cut.pixels)
    else:
        image = decode(data, *settings, **request["more"])
        reply, parts = _record(image), [image.signature, image.thumbnail, image.pixels]
    ready = [np.ascontiguousarray(part).data.cast("B") for part in parts if part is not None]
    send_frame(parent, reply)
    for part in ready:
        parent.sendall(part)


def _record(image: DecodedImage) -> dict[str, Any]:
    """Return the record of an image, which is sent before its signature, thumbnail and pixels."""
    return {
        "image": {name: value for name, value in vars(image).items() if name not in APART},
        "quality": None if image.quality is None else asdict(image.quality),
        "signature": 0 if image.signature is None else image.signature.nbytes,
        "thumbnail": 0 if image.thumbnail is None else image.thumbnail.nbytes,
        "side": 0 if image.pixels is None else len(image.pixels),
    }
