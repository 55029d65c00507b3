"""How the model `trio` was made, from the images to the checkpoint, in the commands that made it.

    python examples/train_trio.py FOLDER OUT [--epochs-backbone 12] [--epochs 6] [--start CHECKPOINT]

FOLDER holds tiny-imagenet and CIFAR-10 as Parquet with the columns `image` (encoded bytes) and `label`:
tinyimagenet_train_a.parquet, tinyimagenet_train_b.parquet, cifar10_train.parquet.

One backbone, frozen after its training, and three heads, each added to the checkpoint of the one before: VI-SimSiam
from images, then MCInfoNCE and loss prediction from one cache of features. ``--start`` goes on from a checkpoint that
holds the backbone and the first head already, such as the one that ships.

Cost: about an hour and a half on two CPU cores (55 minutes for the backbone, 10 to 15 for VI-SimSiam, 20 for the cache
and the two heads). `benchmarks/transfer.py --model` measures what comes out.

Why in steps: a few hundred steps of VI-SimSiam from random weights teach a network nothing, and that is what a CPU
has time for. So the backbone learns from labels first. Why tiny-imagenet alone for VI-SimSiam: CIFAR-10's 32 pixels,
enlarged to 64, look like blurred photographs. With both in the data, "blurred" becomes a kind of image with ten easy
classes, its views predict one another well, and kappa rises under blur (seen: it fell in 5 % of the images; without
CIFAR-10, in 78 to 87 %). The other two heads compare an image with others by their labels, which separate the two.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

CIFAR_ROWS = 25_000  # for the backbone; the heads see all 50,000


def join(folder: Path, out: Path, cifar_rows: int | None) -> None:
    """Write one table of both sources, whose labels are 210 different classes."""
    schema = pa.schema([("key", pa.string()), ("label", pa.string()), ("image", pa.binary())])
    sources = {"tin-a": "tinyimagenet_train_a", "tin-b": "tinyimagenet_train_b", "cifar": "cifar10_train"}
    with pq.ParquetWriter(out, schema) as writer:
        for name, file in sources.items():
            table = pq.read_table(folder / f"{file}.parquet", columns=["label", "image"])
            table = table.slice(0, cifar_rows) if name == "cifar" else table
            kind = name.split("-")[0]
            keys = [f"{name}/{row}" for row in range(table.num_rows)]
            labels = [f"{kind}/{label}" for label in table.column("label").to_pylist()]
            columns = [pa.array(keys), pa.array(labels), table.column("image").combine_chunks()]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=2000)


def curate(*arguments: str) -> None:
    """Run a command; one that was cut off goes on."""
    print(f"$ curate {' '.join(arguments)}", flush=True)
    subprocess.run([sys.executable, "-m", "curate", *arguments], check=True)


def main() -> None:
    """Train the backbone, then the three heads on top of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--epochs-backbone", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--start", help="a checkpoint that holds the backbone and the VI-SimSiam head")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    first = arguments.start or first_head(arguments.folder, arguments.out, arguments.epochs_backbone, arguments.epochs)
    other_heads(arguments.folder, arguments.out, first)


def typed(**settings: object) -> list[str]:
    """Return the settings of a method as they are typed."""
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


def first_head(folder: Path, out: Path, epochs_backbone: int, epochs: int) -> str:
    """Return the checkpoint of the backbone with the VI-SimSiam head."""
    joined, backbone, model = out / "joined.parquet", out / "trunk.safetensors", out / "one.safetensors"
    rates = ["--set", "schedule=cosine", "--set", "warmup=0.05"]
    common = ["--size", "64", "--batch-size", "256", "--precision", "bf16", *rates]
    if not joined.exists():
        join(folder, joined, CIFAR_ROWS)
    if not backbone.exists():
        curate(
            *("train", "supervised", str(joined), "-o", str(backbone), "--backbone", "resnet10t"),
            *(
                *common,
                "--epochs",
                str(epochs_backbone),
                "--lr",
                "0.2",
                "--set",
                "corrupt=0.1",
                "--half",
            ),  # so that what is on it can be, too
        )
    if not model.exists():
        data = [str(folder / f"tinyimagenet_train_{part}.parquet") for part in "ab"]
        curate(
            *("train", "visimsiam", *data, "-o", str(model), "--backbone", str(backbone), "--freeze", *common),
            *("--epochs", str(epochs), "--lr", "0.1", "--half"),
            *("--set", "blur_sigma=8", "--set", "corrupt=0.3"),
            *typed(small_size=32, n_small=4, latent_dim=512, predictor_every=1),
        )
    return str(model)


def other_heads(folder: Path, out: Path, first: str) -> None:
    """Add MCInfoNCE and loss prediction, from one cache of features."""
    joined, cache = out / "heads.parquet", out / "features"
    two, three = out / "two.safetensors", out / "trio.safetensors"
    if not joined.exists():
        join(folder, joined, None)
    if not three.exists():
        curate(
            *("cache", str(joined), "--model", first, "--epochs", "6", "-o", str(cache), "--precision", "bf16"),
            *("--set", "scale=0.1", "--set", "jitter=0.5", "--set", "gray=0.1", "--set", "blur=0.4"),
            *("--set", "blur_sigma=8", "--set", "corrupt=0.3"),
        )
    common = ["--cached", str(cache), "--freeze", "--half", "--lr", "1e-3"]
    if not two.exists():
        curate(
            *("train", "mcinfonce", "-o", str(two), "--backbone", first, *common),
            *typed(positives="labels", latent_dim=16, kappa_pos=16, samples=8),
            *("--epochs", "4", "--batch-size", "256"),
        )
    if not three.exists():
        curate(
            *("train", "losspred", "-o", str(three), "--backbone", str(two), *common, *typed(within=0.4)),
            *("--epochs", "25", "--batch-size", "512"),
        )


if __name__ == "__main__":
    main()
