"""Score, clean and deduplicate a small folder of photographs: the twelve in photos/, corrupted versions, and copies.

    python examples/demo.py [--model CHECKPOINT]

Run by `make demo`; takes seconds on a CPU. Writes everything to the folder `demo` next to `examples`.
"""

import argparse
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter, ImageOps

ROOT = Path(__file__).resolve().parents[1]
PHOTOS = ROOT / "examples" / "photos"
DEMO = Path("demo")  # below ROOT


def blurred(image: Image.Image) -> Image.Image:
    """Return the image out of focus."""
    return image.filter(ImageFilter.GaussianBlur(image.width / 40))


def cropped(image: Image.Image) -> Image.Image:
    """Return a tenth of the area, off centre, where the subject seldom is."""
    return image.crop((0, 0, int(image.width * 0.32), int(image.height * 0.32)))


def noisy(image: Image.Image) -> Image.Image:
    """Return the image with strong sensor noise."""
    pixels = np.asarray(image, np.float32)
    noise = np.random.default_rng(0).normal(0, 60, pixels.shape)
    return Image.fromarray((pixels + noise).clip(0, 255).astype(np.uint8))


def covered(image: Image.Image) -> Image.Image:
    """Return the image with a grey box over the middle half of each side, where the subject is."""
    w, h = image.size
    out = image.copy()
    out.paste((127, 127, 127), (w // 4, h // 4, w // 4 + w // 2, h // 4 + h // 2))
    return out


VERSIONS: dict[str, Callable[[Image.Image], Image.Image]] = {
    "blurred": blurred,
    "cropped": cropped,
    "noisy": noisy,
    "covered": covered,
}


def make_dataset(dataset: Path) -> int:
    """Write the photographs, four corrupted versions of each, copies of eight, and two files that are no images."""
    photos = sorted(PHOTOS.glob("*.jpg"))
    for photo in photos:
        shutil.copy(photo, dataset / photo.name)
        with Image.open(photo) as file:
            image = file.convert("RGB")
        for name, change in VERSIONS.items():
            change(image).save(dataset / f"{photo.stem}_{name}.jpg", quality=90)
    copied = random.Random(0).sample(photos, 8)
    for photo in copied[:4]:
        shutil.copy(photo, dataset / f"{photo.stem}_duplicate.jpg")
    for photo in copied[4:]:
        with Image.open(photo) as file:
            small = ImageOps.mirror(file.convert("RGB")).resize((file.width // 2, file.height // 2))
        small.save(dataset / f"{photo.stem}_mirrored.jpg", quality=80)
    (dataset / "cut_short.jpg").write_bytes(photos[0].read_bytes()[:6000])
    (dataset / "not_an_image.jpg").write_text("a text file with the wrong name\n")
    return len(list(dataset.iterdir()))


def curate(*arguments: str) -> None:
    """Show a command as a reviewer would type it, and run it; if it fails, its output is the message."""
    print(f"\n$ curate {' '.join(arguments)}", flush=True)
    done = subprocess.run([sys.executable, "-m", "curate", *arguments], cwd=ROOT, check=False)
    if done.returncode:
        sys.exit(done.returncode)


def certainties(scores: Path) -> dict[str, dict[str, float]]:
    """Return score column -> file name without suffix -> certainty, higher for the more certain."""
    from curate.columns import KEY, is_less_certain
    from curate.tables.table import open_table

    table = open_table(scores)
    kappas = [name for name in table.schema.names if name.startswith("kappa_")]
    alone = [name for name in table.schema.names if name.startswith("unc_") and f"kappa_{name[4:]}" not in kappas]
    rows = table.read([KEY, *alone, *kappas]).to_pylist()
    return {
        column: {
            Path(row[KEY]).stem: -row[column] if is_less_certain(column) else row[column]
            for row in rows
            if row[column] is not None
        }
        for column in (*alone, *kappas)
    }


def summary(said: dict[str, dict[str, float]]) -> list[str]:
    """Return one line for each kind of version: how many are less certain than the photograph they were made from."""
    photos = [path.stem for path in sorted(PHOTOS.glob("*.jpg"))]
    wide = max(map(len, said)) + 2
    lines = ["less certain than its photograph", " " * 12 + "".join(f"{column:>{wide}}" for column in said)]
    for kind in (*VERSIONS, "duplicate"):
        cells = []
        for certainty in said.values():
            pairs = [(certainty[name], certainty[f"{name}_{kind}"]) for name in photos if f"{name}_{kind}" in certainty]
            cells.append(f"{sum(worse < good for good, worse in pairs)} of {len(pairs)}")
        lines.append(f"{kind:<12}" + "".join(f"{cell:>{wide}}" for cell in cells))
    return lines


def main() -> None:
    """Make the folder, score it, take out junk and copies, and draw the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a checkpoint other than the one that ships")
    chosen = parser.parse_args().model
    model = () if chosen is None else ("--model", str(Path(chosen).resolve()))
    shutil.rmtree(ROOT / DEMO, ignore_errors=True)
    dataset = DEMO / "images"
    (ROOT / dataset).mkdir(parents=True)
    n = make_dataset(ROOT / dataset)
    print(f"{n} files in {dataset}: photographs, corrupted versions of them, copies, and two broken files")
    scores, clean, subset, batch = (str(DEMO / f"{name}.parquet") for name in ("scores", "clean", "subset", "batch"))
    findings, sheet, groups, report = (str(DEMO / f) for f in ("issues.png", "sheet.png", "groups.png", "report.html"))
    curate("score", str(dataset), "-o", scores, *model)
    curate("issues", scores, "--sheet", findings)
    curate("issues", scores, "--drop", "junk,unusable", "-o", clean, "--quiet")
    curate("dedup", clean, "--mirrored", "-o", subset, "--sheet", groups)
    curate("verify", str(DEMO / "subset.receipt.json"))
    curate("select", subset, "--budget", "6", "-o", batch)
    curate("sheet", scores, "--top", "30", "--bottom", "30", "-o", sheet)
    curate("report", scores, subset, "-o", report)
    print("\n" + "\n".join(summary(certainties(ROOT / scores))))
    print(f"\nThe subset is {subset}; the reason for each row is in {DEMO / 'subset.decisions.parquet'};")
    print(f"{findings} shows the findings, {sheet} the most and the least certain, {groups} the groups of copies.")
    print(f"{batch} holds six images to label first. Open {report} in a browser to see all of it.")


if __name__ == "__main__":
    main()
