"""Device memory in training, and which option to lower when it runs out."""

import torch
from torch import Tensor

from scoring.errors import InputError
from scoring.runner import is_out_of_memory
from trainers.cache import CachedFeatures
from trainers.config import TrainConfig
from trainers.data import TrainingSet
from trainers.stream import ImageStream

MOST_HELD = 0.5  # share of device memory; if images take more, a smaller batch hardly helps
FEWER = "read them during the run with --stream, or hold fewer with --limit, smaller ones with --size"


def device_memory(device: torch.device) -> int | None:
    """Return the memory of a GPU in bytes; None for other devices."""
    return int(torch.cuda.get_device_properties(device).total_memory) if device.type == "cuda" else None


def hold(images: TrainingSet, device: torch.device) -> Tensor:
    """Return the pixels of all images on a device, where they stay for the whole run.

    Raises:
        InputError: if they do not fit.
    """
    try:
        return images.pixels.to(device)
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise InputError(f"memory ran out on {device}: {_image_memory(images, device)}; {FEWER}") from None


def ran_out(config: TrainConfig, data: TrainingSet | ImageStream | CachedFeatures, device: torch.device) -> InputError:
    """Return the out-of-memory error, which names the images held on the device or the step as the cause."""
    room = device_memory(device)
    if isinstance(data, TrainingSet) and room is not None and data.pixels.nbytes > MOST_HELD * room:
        return InputError(f"memory ran out on {device}: {_image_memory(data, device)}, next to the network; {FEWER}")
    return InputError(
        f"memory ran out on {device} with {config.batch_size} images a step; lower --batch-size, --size "
        "or the number of views, and remove the state of this run, if any"
    )


def _image_memory(images: TrainingSet, device: torch.device) -> str:
    room = device_memory(device)
    n, _, height, width = images.pixels.shape
    of = "" if room is None else f" of {room / 1e9:.1f} GB"
    return f"{n:,} images of {height} x {width} take {images.pixels.nbytes / 1e9:.1f} GB{of}"
