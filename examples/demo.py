"""Score and filter a small heap of photographs: the twelve in photos/, and a worse version of each kind.

Run by `make demo`; takes seconds on a CPU. Writes everything to the folder `demo`.
"""

import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter

PHOTOS = Path(__file__).parent / "photos"
DEMO = Path("demo")


def blurred(image: Image.Image) -> Image.Image:
    """Return the image out of focus."""
    return image.filter(ImageFilter.GaussianBlur(image.width / 40))


def cropped(image: Image.Image) -> Image.Image:
    """Return a tenth of the area, off centre, where the subject seldom is."""
    w, h = int(image.width * 0.32), int(image.height * 0.32)
    return image.crop((0, 0, w, h))


def noisy(image: Image.Image) -> Image.Image:
    """Return the image with strong sensor noise."""
    pixels = np.asarray(image.convert("RGB"), np.float32)
    noise = np.random.default_rng(0).normal(0, 60, pixels.shape)
    return Image.fromarray((pixels + noise).clip(0, 255).astype(np.uint8))


VERSIONS: dict[str, Callable[[Image.Image], Image.Image]] = {"blurred": blurred, "cropped": cropped, "noisy": noisy}


def make_heap(heap: Path) -> int:
    """Write the photographs, three worse versions of each, copies of some, and two files that are no images."""
    for photo in sorted(PHOTOS.glob("*.jpg")):
        shutil.copy(photo, heap / photo.name)
        with Image.open(photo) as image:
            for name, change in VERSIONS.items():
                change(image).convert("RGB").save(heap / f"{photo.stem}_{name}.jpg", quality=90)
    photos = sorted(PHOTOS.glob("*.jpg"))
    for photo in random.Random(0).sample(photos, 4):
        shutil.copy(photo, heap / f"{photo.stem}_duplicate.jpg")
    (heap / "cut_short.jpg").write_bytes(photos[0].read_bytes()[:6000])
    (heap / "not_an_image.jpg").write_text("a text file with the wrong name\n")
    return len(list(heap.iterdir()))


def curate(*arguments: str) -> None:
    """Show a command as a person would type it, and run it."""
    print(f"\n$ curate {' '.join(arguments)}", flush=True)
    subprocess.run([sys.executable, "-m", "curate", *arguments], check=True)


def main() -> None:
    """Make the heap, score it, filter it, and draw the result."""
    shutil.rmtree(DEMO, ignore_errors=True)
    heap = DEMO / "heap"
    heap.mkdir(parents=True)
    print(f"{make_heap(heap)} files in {heap}: photographs, worse versions of them, copies, and two broken files")
    curate("score", str(heap), "-o", str(DEMO / "scores.parquet"))
    curate("filter", str(DEMO / "scores.parquet"), "--keep-top", "50%", "-o", str(DEMO / "subset.parquet"))
    sheet = DEMO / "sheet.png"
    curate("sheet", str(DEMO / "scores.parquet"), "--top", "20", "--bottom", "20", "-o", str(sheet))
    print(f"\nThe subset is {DEMO / 'subset.parquet'}, why each row went is in {DEMO / 'subset.decisions.parquet'},")
    print(f"and {sheet} shows the most and the least certain.")


if __name__ == "__main__":
    main()
