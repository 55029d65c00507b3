"""A picture as a PNG file."""

import io
from pathlib import Path

from PIL import Image

from scoring.atomic import AtomicFile, refuse_existing
from scoring.errors import InputError


def check_picture(path: Path, *, overwrite: bool = False) -> None:
    """Refuse a name that is no PNG's, or that is taken, before the work.

    Raises:
        InputError: naming it.
    """
    if path.suffix.lower() != ".png":
        raise InputError(f"expected a picture name that ends in .png, got {path}")
    refuse_existing(path, overwrite=overwrite)


def save_picture(picture: Image.Image, path: Path, *, overwrite: bool = False) -> None:
    """Write a picture as PNG, whole or not at all.

    Raises:
        InputError: as ``check_picture``, or if the place refuses.
    """
    check_picture(path, overwrite=overwrite)
    data = io.BytesIO()
    picture.save(data, "PNG")
    with AtomicFile(path, overwrite=overwrite) as file:
        file.write(data.getvalue())
