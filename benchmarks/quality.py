"""Image quality: problems planted in clean photographs, found by `curate issues` and by CleanVision in one run.

    python benchmarks/quality.py [--data DATA] [--cleanvision FOLDER] [--clean 300] [--each 25] [--json FILE]

From each set some photographs are taken as they are, and others each get one problem; all are in one folder, as a
dataset does. `curate score` and `curate issues` with their defaults see it, and so does CleanVision with its own. A
problem is found where a row has a kind that represents it. A false find is a photograph as it is with a kind that drops
rows (the kinds that are no harm on their own are counted next to), for CleanVision with dark, light, low information or
blurry.

CleanVision is no dependency: `pip install --target FOLDER cleanvision`, and name the folder; without it that half is
left out. Seconds are of the whole commands on one core: CleanVision's read and find, ours also embed and hash.
"""

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from named_data import add_data, open_data
from PIL import Image, ImageDraw, ImageFilter, ImageOps

import curate
from curate.policies.issues.kinds import KINDS
from scoring.metrics.proportions import wilson

SETS = {  # name -> file, and which rows
    "caltech": ("caltech_subset", None),
    "grocery": ("grocery_160", None),
    "monkeys": ("monkeys10_160", None),
    "photos": ("photos_unlabelled", None),
    "rsscn7": ("rsscn7_160", None),
    "pacs photo": ("pacs_160", ("domain", "photo")),
    "tiny": ("tinyimagenet_train_c", None),
}
LOOKED_AT = ("caltech", "grocery", "monkeys", "photos", "rsscn7")  # while the bounds of the kinds were chosen
Picture = Image.Image
Plant = Callable[[Picture, np.random.Generator], Picture]
CV_KINDS = ("dark", "light", "low_information", "odd_aspect_ratio", "odd_size", "grayscale", "blurry")
CV_HARMFUL = ("dark", "light", "low_information", "blurry")


def linear(factor: float, offset: float) -> Plant:
    return lambda picture, rng: _picture(np.asarray(picture, np.float64) * factor + offset)


def blur(share: float) -> Plant:
    return lambda picture, rng: picture.filter(ImageFilter.GaussianBlur(share * min(picture.size)))


def noise(sigma: float) -> Plant:
    return lambda picture, rng: _picture(np.asarray(picture) + rng.normal(0, sigma, (picture.height, picture.width, 3)))


def jpeg(quality: int) -> Plant:
    def plant(picture: Picture, rng: np.random.Generator) -> Picture:
        stream = io.BytesIO()
        picture.save(stream, "JPEG", quality=quality)
        return Image.open(stream).convert("RGB")

    return plant


def blank(picture: Picture, rng: np.random.Generator) -> Picture:
    return noise(1.0)(Image.new("RGB", picture.size, tuple(rng.integers(20, 236, 3).tolist())), rng)


def two_colours(picture: Picture, rng: np.random.Generator) -> Picture:
    plain = Image.new("RGB", picture.size, tuple(rng.integers(0, 256, 3).tolist()))
    box = (picture.width * 0.25, picture.height * 0.25, picture.width * 0.7, picture.height * 0.7)
    ImageDraw.Draw(plain).ellipse(box, fill=tuple(rng.integers(0, 256, 3).tolist()))
    return plain


def strip(picture: Picture, rng: np.random.Generator) -> Picture:
    height = max(1, picture.width // 6)
    top = (picture.height - height) // 2
    return picture.crop((0, top, picture.width, top + height))


def frame(picture: Picture, rng: np.random.Generator) -> Picture:
    return ImageOps.expand(picture, round(0.08 * min(picture.size)), ("white", "black")[int(rng.integers(2))])


def bars(picture: Picture, rng: np.random.Generator) -> Picture:
    return ImageOps.expand(picture, (0, round(0.12 * picture.height)), "black")


def tiny(picture: Picture, rng: np.random.Generator) -> Picture:
    return picture.resize((max(1, picture.width // 12), max(1, picture.height // 12)), Image.Resampling.LANCZOS)


def _picture(values: np.ndarray) -> Picture:
    return Image.fromarray(values.clip(0, 255).round().astype(np.uint8))


# problem -> what makes it, how it is saved, and the kinds of ours and of CleanVision that represent it
SAVED_JPEG = {"heavy JPEG 5": 5, "heavy JPEG 10": 10, "noise 30, saved as JPEG": 90}
PROBLEMS: dict[str, tuple[Plant, set[str], set[str]]] = {
    "dark, a fifth": (linear(0.2, 0), {"dark"}, {"dark"}),
    "dark, a tenth": (linear(0.1, 0), {"dark"}, {"dark"}),
    "faded towards white": (linear(0.3, 185), {"bright", "overexposed"}, {"light"}),
    "overexposed, x 2.5 + 60": (linear(2.5, 60), {"bright", "overexposed"}, {"light"}),
    "blank": (blank, {"blank", "low-contrast", "low-information"}, {"low_information"}),
    "contrast of a tenth": (linear(0.1, 110), {"low-contrast"}, {"low_information"}),
    "two colours": (two_colours, {"low-information"}, {"low_information"}),
    "blur 1 %": (blur(0.01), {"blurry"}, {"blurry"}),
    "blur 1.5 %": (blur(0.015), {"blurry"}, {"blurry"}),
    "blur 2.5 %": (blur(0.025), {"blurry"}, {"blurry"}),
    "blur 4 %": (blur(0.04), {"blurry"}, {"blurry"}),
    "noise 20": (noise(20), {"noisy"}, set()),
    "noise 40": (noise(40), {"noisy"}, set()),
    "noise 30, saved as JPEG": (noise(30), {"noisy"}, set()),
    "heavy JPEG 5": (lambda picture, rng: picture, {"compressed", "blocky"}, set()),
    "heavy JPEG 10": (lambda picture, rng: picture, {"compressed", "blocky"}, set()),
    "JPEG 5, saved as PNG": (jpeg(5), {"blocky"}, set()),
    "JPEG 10, saved as PNG": (jpeg(10), {"blocky"}, set()),
    "frame of 8 %": (frame, {"bordered"}, set()),
    "bars of 12 %": (bars, {"bordered"}, set()),
    "grey": (lambda picture, rng: picture.convert("L"), {"grey"}, {"grayscale"}),
    "a strip, 6 : 1": (strip, {"odd-aspect"}, {"odd_aspect_ratio"}),
    "a twelfth of the side": (tiny, {"odd-size"}, {"odd_size"}),
}

CLEANVISION = """
import json, sys, time
from cleanvision import Imagelab
folder, kinds = sys.argv[1], json.loads(sys.argv[2])
started = time.monotonic()
lab = Imagelab(data_path=folder, verbose=False)
lab.find_issues({kind: {} for kind in kinds}, n_jobs=1, verbose=False)
seconds = time.monotonic() - started
found = {kind: [path.rsplit("/", 1)[-1] for path in lab.issues.index[lab.issues[f"is_{kind}_issue"]]] for kind in kinds}
print("FOUND " + json.dumps({"seconds": seconds, "found": found}))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_data(parser)
    parser.add_argument("--cleanvision", type=Path, help="folder of pip install --target FOLDER cleanvision")
    parser.add_argument("--clean", type=int, default=300, help="photographs as they are, of each set")
    parser.add_argument("--each", type=int, default=25, help="images with each problem, of each set")
    parser.add_argument("--sets", nargs="+", help=f"of {', '.join(SETS)}, or yours")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results: dict[str, dict[str, object]] = {}
    data = open_data(options.data, dict.fromkeys(file for file, _ in SETS.values()), sets=True)
    SETS.update({name: (name, None) for name in data.added})
    sets = options.sets or data.added or list(SETS)
    if unknown := [name for name in sets if name not in SETS]:
        parser.error(f"--sets takes {', '.join(SETS)}; got {unknown[0]!r}")
    data.need(*(SETS[name][0] for name in sets))
    for number, name in enumerate(sets):
        file, rows = SETS[name]
        path = data.folder / f"{file}.parquet"
        with tempfile.TemporaryDirectory() as folder:
            dataset = Path(folder) / "heap"
            dataset.mkdir()
            planted = make(path, rows, dataset, options.clean, options.each, seed=number)
            ours = of_curate(dataset, Path(folder) / "scores.parquet")
            cleanvision = of_cleanvision(dataset, options.cleanvision) if options.cleanvision else None
            results[name] = {"planted": planted, "curate": ours, "cleanvision": cleanvision}
        print(
            f"{name}: curate {ours['seconds']:.1f} s",
            cleanvision and f"CleanVision {cleanvision['seconds']:.1f} s",
            flush=True,
        )
    if options.cleanvision is None:
        print("CleanVision: left out, for --cleanvision names no folder with it")
    if options.json:
        options.json.write_text(json.dumps(results))
    report(results)
    return 0


def make(path: Path, rows: tuple[str, str] | None, dataset: Path, n: int, each: int, *, seed: int) -> dict[str, str]:
    """Write a dataset, and return each file's problem; the empty text for none."""
    table = pq.read_table(path)
    if rows is not None:
        table = table.filter(pc.equal(table[rows[0]], rows[1]))
    rng = np.random.default_rng(seed)
    images = table["image"].take(rng.permutation(table.num_rows)[: n + each * len(PROBLEMS)]).to_pylist()
    n = min(n, len(images) // 2)
    planted: dict[str, str] = {}
    for i, data in enumerate(images[:n]):
        (dataset / f"clean-{i:04}.jpg").write_bytes(data)
        planted[f"clean-{i:04}.jpg"] = ""
    names = [name for name in PROBLEMS for _ in range(each)]
    for i, name in enumerate(names):
        picture = ImageOps.exif_transpose(Image.open(io.BytesIO(images[n + i % (len(images) - n)]))).convert("RGB")
        problem = PROBLEMS[name][0](picture, rng)
        quality = SAVED_JPEG.get(name)
        file = f"bad-{i:04}.{'jpg' if quality else 'png'}"
        problem.save(dataset / file, **({"quality": quality} if quality else {"compress_level": 1}))
        planted[file] = name
    return planted


def of_curate(dataset: Path, out: Path) -> dict[str, object]:
    started = time.monotonic()
    curate.score(str(dataset), out, workers=1)
    result = curate.issues(out, out.with_name("clean.parquet"))
    seconds = time.monotonic() - started
    rows = pq.read_table(result.decisions, columns=["key", "kinds"]).to_pylist()
    files: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for row in rows:
        for kind in (row["kinds"] or "").split(", ") if row["kinds"] else []:
            files[kind].append(row["key"])
    return {"seconds": seconds, "found": files, "begins": {k: v["begins"] for k, v in result.kinds.items()}}


def of_cleanvision(dataset: Path, site: Path) -> dict[str, object]:
    environment = {**os.environ, "PYTHONPATH": str(site.resolve()), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", CLEANVISION, str(dataset), json.dumps(CV_KINDS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith("FOUND "))
    return dict(json.loads(line.removeprefix("FOUND ")))


def report(results: dict[str, dict[str, object]]) -> None:
    """Print a table of problems over all sets, and one of false finds by set."""
    print("\n| planted | curate | CleanVision |\n| --- | --- | --- |")
    for name, (_, ours, other_kinds) in PROBLEMS.items():
        cells = [shares(results, who, name, kinds) for who, kinds in (("curate", ours), ("cleanvision", other_kinds))]
        print(f"| {name} | {' | '.join(cells)} |")
    print("\n| set | photographs | curate, kinds that drop | of kinds that stay | CleanVision |\n" + "| --- " * 5 + "|")
    harmful = {name for name, kind in KINDS.items() if kind.unusable}
    for name, result in results.items():
        clean = {file for file, problem in result["planted"].items() if not problem}
        marks = [flagged(result, "curate", harmful), flagged(result, "curate", set(KINDS) - harmful)]
        marks.append(flagged(result, "cleanvision", set(CV_HARMFUL)))
        cells = [text(len(mark & clean), len(clean)) if mark is not None else "" for mark in marks]
        star = "" if name in LOOKED_AT else " (not looked at before)"
        print(f"| {name}{star} | {len(clean)} | {' | '.join(cells)} |")
    for name, result in results.items():
        clean = {file for file, problem in result["planted"].items() if not problem}
        by_kind = {kind: len(set(files) & clean) for kind, files in result["curate"]["found"].items()}
        print(name, {kind: n for kind, n in by_kind.items() if n}, file=sys.stderr)
        seconds = [result[who]["seconds"] for who in ("curate", "cleanvision") if result[who]]
        print(name, [round(each, 1) for each in seconds], "seconds", file=sys.stderr)


def flagged(result: dict[str, object], who: str, kinds: set[str]) -> set[str] | None:
    return {file for kind in kinds for file in result[who]["found"][kind]} if result[who] else None


def shares(results: dict[str, dict[str, object]], who: str, problem: str, kinds: set[str]) -> str:
    if not kinds:
        return "no such kind"
    n = hits = 0
    for result in results.values():
        marks = flagged(result, who, kinds)
        if marks is None:
            return ""
        files = {file for file, each in result["planted"].items() if each == problem}
        n, hits = n + len(files), hits + len(files & marks)
    return text(hits, n)


def text(hits: int, n: int) -> str:
    share, low, high = (100 * each for each in wilson(hits, n))
    return f"{share:.1f} % ({low:.1f} to {high:.1f})"


if __name__ == "__main__":
    raise SystemExit(main())
