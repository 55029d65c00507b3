"""Images as PNG files."""

import io
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from scoring.atomic import AtomicFile, refuse_existing
from scoring.errors import InputError


def check_picture(path: Path, *, overwrite: bool = False) -> None:
    """Raise InputError for a name without the suffix .png, or that exists, before the work."""
    refuse_name(path, (".png",), overwrite=overwrite)


def refuse_name(path: Path, endings: Sequence[str], *, overwrite: bool) -> None:
    """Raise InputError for a name without one of the suffixes, or that exists."""
    if path.suffix.lower() not in endings:
        *others, last = endings
        known = f"{', '.join(others)} or {last}" if others else last
        raise InputError(f"expected an image name that ends in {known}, got {path}")
    refuse_existing(path, overwrite=overwrite)


def save_picture(picture: Image.Image, path: Path, *, overwrite: bool = False) -> None:
    """Write an image as PNG, atomically; InputError as ``check_picture``, or if it cannot be written."""
    check_picture(path, overwrite=overwrite)
    data = io.BytesIO()
    picture.save(data, "PNG")
    with AtomicFile(path, overwrite=overwrite) as file:
        file.write(data.getvalue())
