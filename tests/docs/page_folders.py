"""The folder that the command lines of a page begin with: real images, tables of them, and what people add.

All is made of the photographs of examples/, once. A page finds every file but those that it makes itself.
"""

import argparse
import importlib.util
import io
import os
import random
import re
import shlex
import shutil
import tarfile
from pathlib import Path

import numpy as np
import polars as pl
from PIL import Image

ROOT = Path(__file__).parents[2]
CLASSES = ("cat", "dog", "bird")  # of four photographs each; what the names say does not matter
CROPS = 60  # of each photograph: 720 images
# page -> crops of each photograph in its photos/; others have 6
IN_PHOTOS = {"train": 2, "papers": 1, "stream": 1, "models": 1, "plots": 3, "fit": CROPS - 6, "selftest": 3}
TYPED = re.compile(r"(?:    | *\$ |)((?:curate|pip|pipx|uv|make|python|ssh-keygen|until) .*)")  # a line of a block
TOML = re.compile(r"^```toml\n(.*?)^```", re.DOTALL | re.MULTILINE)
MADE = re.compile(r"(?:-o|--out|--apply|round init) (\S+)")  # what a line writes


STOCK = """
curate score list.parquet --path-column file --root many -o scores.parquet
curate score more.csv --root many -o extra.parquet
curate score images -o scores --no-fit
curate filter scores.parquet --keep-top 80% -o kept.parquet
curate filter scores.parquet --keep-top 50% -o subset.parquet
curate filter scores.parquet --keep-top 70% -o other.parquet
curate filter scores.parquet --where 'camera == "a"' -o train.parquet
curate filter scores.parquet --where 'camera == "b"' -o test.parquet
curate filter scores.parquet --where 'part == "few"' -o few.parquet
curate dedup scores.parquet --mirrored --audit 200 -o unique.parquet
curate labels extra.parquet --label label --relabel checked -o checked.parquet
curate labels scores.parquet --label label -o more.parquet
curate select scores.parquet --budget 100 -o batch.parquet
curate round init rounds scores.parquet --classes cat,dog,bird --batch 100
curate round next rounds
curate round import rounds labels.csv
"""
CALLED = {"train": ("old", "spring"), "test": ("new", "autumn", "production")}  # table -> other names of it
FEWER_ROWS = ("evaluate", "plots", "selftest")  # pages that corrupt every image, often


def make_images(folder: Path) -> None:
    """Write crops of every photograph, no two of them copies, in a folder a class; every twelfth in a wrong one."""
    chance = random.Random(0)
    for number, path in enumerate(sorted((ROOT / "examples" / "photos").glob("*.jpg"))):
        with Image.open(path) as file:
            photo = file.convert("RGB")
        for crop in range(CROPS):
            target = folder / CLASSES[(number + (crop % 12 == 11)) % 3] / f"{crop:02}{number:02}.jpg"
            target.parent.mkdir(parents=True, exist_ok=True)
            share = chance.uniform(0.35, 0.6)
            w, h = int(photo.width * share), int(photo.height * share)
            x, y = chance.randrange(photo.width - w), chance.randrange(photo.height - h)
            small = photo.crop((x, y, x + w, y + h))
            small.thumbnail((128, 128))
            small.save(target, quality=90)


def link(source: Path, target: Path, crops: range) -> None:
    """Link these crops of every photograph."""
    for path in source.rglob("*.jpg"):
        if int(path.name[:2]) in crops:
            (target / path.parent.name).mkdir(parents=True, exist_ok=True)
            os.link(path, target / path.parent.name / path.name)


def make_stock(folder: Path, run) -> None:
    """Make all files that pages begin with; `run` runs a line in the folder."""
    many = folder / "many"
    make_images(many)
    for name, crops in {"images": range(6), "new": range(6, 7), "more": range(6, 12), "imagenet": range(1)}.items():
        link(many, folder / name, crops)
    link(many, folder / "new" / "photos", range(6))
    (folder / "dogs").mkdir()
    shutil.copy(many / "dog" / "0004.jpg", folder / "dogs" / "017.jpg")
    shutil.copy(many / "cat" / "0003.jpg", folder / "photo.jpg")
    write_lists(folder, sorted(path.relative_to(many).as_posix() for path in many.rglob("*.jpg")))
    for line in STOCK.strip().splitlines():
        run(line)
    for table, names in CALLED.items():
        for name in names:
            shutil.copy(folder / f"{table}.parquet", folder / f"{name}.parquet")
    (folder / "moved").mkdir()
    shutil.copy(folder / "scores.parquet", folder / "moved")
    write_weights(folder)
    (folder / "curate.toml").write_text(TOML.search((ROOT / "docs" / "pipeline.md").read_text())[1])
    if shutil.which("ssh-keygen"):
        (folder / ".ssh").mkdir()
        run("ssh-keygen -q -t ed25519 -N '' -f .ssh/id_ed25519")
        (folder / "allowed_signers").write_text(f"anna@example.org {(folder / '.ssh' / 'id_ed25519.pub').read_text()}")
    (folder / "demo" / "images").mkdir(parents=True)
    spec = importlib.util.spec_from_file_location("demo", ROOT / "examples" / "demo.py")
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    demo.make_dataset(folder / "demo" / "images")


def write_lists(folder: Path, keys: list[str]) -> None:
    """Write tables of images, labels and votes, as people have them."""
    n, generator = len(keys), np.random.default_rng(0)
    label = [key.split("/")[0] for key in keys]
    true = [CLASSES[int(Path(key).stem[2:]) % 3] for key in keys]
    people = {name: np.where(generator.random(n) < 0.1, np.roll(true, 5), true) for name in ("ann", "bob", "eve")}
    vectors = generator.standard_normal((3, 16))[[CLASSES.index(name) for name in true]]
    table = pl.DataFrame(
        {
            "file": keys,
            "label": label,
            "true_label": true,
            "species": true,
            "camera": np.where(generator.random(n) < 0.5, "a", "b"),
            "part": ["few" if int(Path(key).name[:2]) < 3 else "rest" for key in keys],
            "is_right": [one == other for one, other in zip(label, true, strict=True)],
            "clip": (vectors + generator.standard_normal((n, 16))).astype(np.float32).tolist(),
            **people,
        }
    )
    is_extra = pl.col("file").str.extract(r"/(..)").cast(int) >= CROPS - 6
    table.filter(~is_extra).write_parquet(folder / "list.parquet")
    table.filter(is_extra).drop("clip").write_csv(folder / "more.csv")
    table = table.filter(~is_extra)
    table.select(key="file", label="ann").write_csv(folder / "labels.csv")
    table.select(key="file").head(20).write_csv(folder / "keys.csv")
    table.filter(pl.col("file").is_in(images(folder / "images"))).select("file").write_csv(folder / "train.csv")
    counts = [[9 if name == one else 1 for one in CLASSES] for name in true]
    votes = pl.DataFrame({"key": keys, "class": true, "counts": counts})
    votes.write_parquet(folder / "votes.parquet")
    files = [(folder / "many" / key).read_bytes() for key in keys]
    encoded = pl.DataFrame({"key": keys, "label": true, "image": files})
    for name in ("images", "photos"):
        encoded.write_parquet(folder / f"{name}.parquet")
    for name in ("labelled", "cifar10_train", "cifar10_test"):
        encoded.filter(pl.int_range(n) % 30 == 0).drop("key").write_parquet(folder / f"{name}.parquet")


def images(folder: Path) -> list[str]:
    """Return the keys of the images of a folder."""
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*.jpg")]


def write_weights(folder: Path) -> None:
    """Write checkpoints: one that ships, and random weights of networks of timm as their authors save them."""
    import timm
    import torch
    from safetensors.torch import save_file
    from torch import nn

    shutil.copy(ROOT / "scoring" / "checkpoints" / "trio.safetensors", folder / "one.safetensors")
    save_file(timm.create_model("resnet50").state_dict(), folder / "net.safetensors")
    torch.save(timm.create_model("vit_small_patch16_224").state_dict(), folder / "weights.pth")
    vit = "vit_tiny_patch16_224.augreg_in21k"
    theirs, inner = nn.Module(), nn.Module()
    theirs.model, theirs.unc_module = timm.create_model(vit, num_classes=7), inner
    inner.unc_module = nn.Sequential(nn.Linear(192, 64), nn.LeakyReLU(), nn.Linear(64, 1), nn.Softplus())
    whole = {"epoch": 1, "arch": vit, "state_dict": theirs.state_dict(), "args": argparse.Namespace(lr=0.1)}
    torch.save(whole, folder / "vit_base_uncertainty.pth.tar")


def fill_bucket(stock: Path, put) -> None:
    """Put images, a table of them, a hundred tars and a scored table into the bucket that pages name."""
    for path in (stock / "images").rglob("*.jpg"):
        put(f"photos/{path.relative_to(stock / 'images')}", path.read_bytes())
    encoded = pl.read_parquet(stock / "images.parquet").head(12).drop("key").with_row_index("id")
    encoded.write_parquet(file := io.BytesIO())
    put("train.parquet", file.getvalue())
    put("run/old.parquet", (stock / "old.parquet").read_bytes())
    for number, path in enumerate(sorted((stock / "many").rglob("*.jpg"))[:100]):
        with tarfile.open(fileobj=(file := io.BytesIO()), mode="w") as tar:
            tar.add(path, f"{number:03}.jpg")
        put(f"shards-{number:03}.tar", file.getvalue())


def begin(stock: Path, folder: Path, page: str, lines: list[str]) -> None:
    """Make the folder that a page begins with: the stock without what its lines make, and a folder photos/."""
    made = made_first(lines)
    beside = {f"{Path(name).stem}." for name in made}  # of decisions and receipts
    for path in stock.iterdir():
        makes = path.name in made or (path.name.count(".") > 1 and path.name.partition(".")[0] + "." in beside)
        if path.is_dir() and not makes and path.name != "many":
            shutil.copytree(path, folder / path.name)
        elif path.is_file() and not makes:
            shutil.copy2(path, folder)
    if page in FEWER_ROWS:
        shutil.copy2(stock / "few.parquet", folder / "scores.parquet")
    link(stock / "many", folder / "photos", range(IN_PHOTOS.get(page, 6)))


def made_first(lines: list[str]) -> set[str]:
    """Return the names of what lines make before any of them reads it."""
    made: set[str] = set()
    read: set[str] = set()
    for line in lines:
        outputs = {name.rstrip("/") for name in MADE.findall(line)}
        read |= {word.rstrip("/") for word in shlex.split(line)} - outputs
        made |= outputs - read
    return made


def typed_lines(text: str) -> list[tuple[int, str]]:
    """Return every command line that stands in a block of a page, with its number: what a reader pastes in order."""
    found, fence = [], None
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            fence = line[3:] if fence is None else None
        elif (fence is None and line[:4] != "    ") or fence not in (None, "console", "bash"):
            continue
        elif typed := TYPED.fullmatch(line):
            found.append((number, re.sub(r"\s+#.*", "", typed[1])))
    return found
