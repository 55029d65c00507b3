"""An image as a PNG file."""

import io
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from scoring.atomic import AtomicFile, refuse_existing
from scoring.errors import InputError


def check_picture(path: Path, *, overwrite: bool = False) -> None:
    """Refuse a name without the suffix .png, or that exists, before the work.

    Raises:
        InputError: naming it.
    """
    refuse_name(path, (".png",), overwrite=overwrite)


def refuse_name(path: Path, endings: Sequence[str], *, overwrite: bool) -> None:
    """Refuse a name without one of the suffixes, or that exists.

    Raises:
        InputError: naming it.
    """
    if path.suffix.lower() not in endings:
        *others, last = endings
        known = f"{', '.join(others)} or {last}" if others else last
        raise InputError(f"expected an image name that ends in {known}, got {path}")
    refuse_existing(path, overwrite=overwrite)


def save_picture(picture: Image.Image, path: Path, *, overwrite: bool = False) -> None:
    """Write an image as PNG, atomically.

    Raises:
        InputError: as ``check_picture``, or if the place refuses.
    """
    check_picture(path, overwrite=overwrite)
    data = io.BytesIO()
    picture.save(data, "PNG")
    with AtomicFile(path, overwrite=overwrite) as file:
        file.write(data.getvalue())
